"""How long sends took, counted once for all of a turn: when they are safe in the sense of the mode, and not before."""

import asyncio

import pytest

from broker.master_slave import local_replication as module
from broker.master_slave.local_replication import LocalReplication
from broker.master_slave.sync_replication import SyncReplication
from broker.replication import SendTimes
from broker.settings.pair_keys import ClassicKeys
from remoting.codes import ResponseCode
from tests.parts.replication_parts import SIZE, Answers, FakeStore, record, turn
from tests.parts.send_parts import Setting


class Clock:
    """Takes the place of time.monotonic()."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "monotonic", made)
    return made


class Slaves:
    held = 0

    def acked_by(self, slaves: int) -> int:
        assert slaves == 1
        return self.held

    def in_sync(self) -> int:
        return 1


def seconds(times: SendTimes) -> tuple[int, float, int, float]:
    return times.queue.total, times.queue.seconds, times.send.total, times.send.seconds


async def test_what_is_written_is_counted_when_it_is_written(clock: Clock) -> None:
    made = LocalReplication(
        FakeStore(), asyncio.get_running_loop(), sync_flush=False, flush_timeout=5.0, pending_bytes_max=10_000
    )
    for _ in range(3):
        made.append(record(), Answers())
    made.append_batch([record(), record()], Answers().batch)
    assert seconds(made.times) == (0, 0, 0, 0)
    clock.now += 0.25
    await turn()
    # A batch is one send.
    assert seconds(made.times) == (1, 0.25, 4, 1.0)


async def test_what_waits_for_the_disk_is_counted_when_it_is_there(clock: Clock) -> None:
    made = LocalReplication(
        FakeStore(), asyncio.get_running_loop(), sync_flush=True, flush_timeout=5.0, pending_bytes_max=10_000
    )
    for count in (2, 1):
        for _ in range(count):
            made.append(record(), Answers())
        await turn()
        clock.now += 1.0
    assert made.times.send.total == 0
    made.flushed_in_thread(2 * SIZE)
    await turn()
    assert (made.times.send.total, made.times.send.seconds) == (2, 4.0)
    made.flushed_in_thread(3 * SIZE)
    await turn()
    assert (made.times.send.total, made.times.send.seconds) == (3, 5.0)


async def test_what_waits_for_a_slave_is_counted_when_it_has_it(clock: Clock) -> None:
    slaves, keys = Slaves(), ClassicKeys(brokerRole="SYNC_MASTER", inSyncReplicas=2)
    made = SyncReplication(
        FakeStore(),
        asyncio.get_running_loop(),
        slaves,
        lambda: keys,
        sync_flush=False,
        flush_timeout=5.0,
        pending_bytes_max=10_000,
        on_written=lambda: None,
    )
    answers = Answers()
    for _ in range(2):
        made.append(record(), answers)
    await turn()
    clock.now += 0.5
    assert (answers.codes, made.times.send.total) == ([], 0)
    slaves.held = 2 * SIZE
    made.advance()
    assert answers.codes == [0, 0]
    assert (made.times.send.total, made.times.send.seconds) == (2, 1.0)


def test_answers_are_counted_by_code() -> None:
    setting = Setting()
    for _ in range(3):
        setting.do()
    for answer, code in zip(setting.log.answers, (0, 0, ResponseCode.FLUSH_DISK_TIMEOUT), strict=True):
        answer(code)
    setting.do(oneway=True)
    setting.log.answers[-1](0)
    with pytest.raises(Exception, match="CODE: 13"):
        setting.do(body=b"x" * (5 << 20))
    assert {code: count for code, count in setting.send.answers.items() if count} == {0: 3, 10: 1, 13: 1}
