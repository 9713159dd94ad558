"""sync_replication.py: answered when enough slaves have it, with RocketMQ's codes when they do not."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.master_slave.sync_replication import SyncReplication
from broker.settings.pair_keys import ClassicKeys
from remoting.codes import ResponseCode
from store.types import PutResult, PutStatus
from tests.parts.replication_parts import REFUSED, SIZE, Answers, FakeStore, answered, record, turn

DISK = int(ResponseCode.FLUSH_DISK_TIMEOUT)
SLAVE = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
ALONE = int(ResponseCode.SLAVE_NOT_AVAILABLE)


class FakeSlaves:
    """Slaves that hold what the test says; None for one that is not in sync."""

    def __init__(self, *acked: int | None) -> None:
        self.on_ack: Callable[[], None] = lambda: None
        self.acked = list(acked)

    def in_sync(self) -> int:
        return len([acked for acked in self.acked if acked is not None])

    def acked_by(self, slaves: int) -> int:
        assert slaves > 0
        held = sorted([acked for acked in self.acked if acked is not None])
        return held[-slaves] if len(held) >= slaves else 0

    def now(self, *acked: int | None) -> None:
        self.acked = list(acked)
        self.on_ack()


class Parts:
    """A replication with everything around it that a test changes."""

    def __init__(
        self, *acked: int | None, sync: bool = False, disk: float = 5.0, limit: int = 10_000, **keys: Any
    ) -> None:
        self.store = FakeStore()
        self.slaves = FakeSlaves(*acked)
        self.keys = ClassicKeys(brokerRole="SYNC_MASTER", **{"inSyncReplicas": 2, **keys})
        self.replication = SyncReplication(
            self.store,
            asyncio.get_running_loop(),
            self.slaves,
            lambda: self.keys,
            sync_flush=sync,
            flush_timeout=disk,
            pending_bytes_max=limit,
            on_written=lambda: None,
        )
        self.slaves.on_ack = self.replication.advance

    async def send(self, count: int = 1, *, topic: str = "T", wait: bool = True) -> Answers:
        """Send in one turn, and return what will hold the answers."""
        answers = Answers()
        for _ in range(count):
            self.replication.append(record(topic), answers, wait=wait)
        await turn()
        return answers

    async def flush(self, position: int) -> None:
        self.replication.flushed_in_thread(position)
        await turn()


async def test_a_send_waits_for_a_slave() -> None:
    parts = Parts(0)
    answers = await parts.send(2)
    assert answers.codes == []
    assert parts.replication.pending_bytes == 2 * SIZE
    parts.slaves.now(2 * SIZE - 1)
    assert answers.codes == []
    parts.slaves.now(2 * SIZE)
    assert answers.codes == [0, 0]
    assert parts.replication.pending_bytes == 0
    assert parts.replication.acknowledged_by_slaves == 2 * SIZE


async def test_turns_in_flight_wait_together_and_are_answered_in_order() -> None:
    parts = Parts(0)
    turns = [await parts.send(2) for _ in range(4)]
    parts.slaves.now(5 * SIZE)
    assert [len(answers.codes) for answers in turns] == [2, 2, 0, 0]
    assert parts.replication.pending_bytes == 4 * SIZE
    parts.slaves.now(8 * SIZE)
    assert [answers.codes for answers in turns] == [[0, 0]] * 4


@pytest.mark.parametrize("disk_first", [False, True])
async def test_with_sync_flush_it_waits_for_the_disk_and_for_a_slave(*, disk_first: bool) -> None:
    parts = Parts(0, sync=True)
    answers = await parts.send()
    assert parts.store.wanted == [SIZE]
    if disk_first:
        await parts.flush(SIZE)
        assert answers.codes == []
        parts.slaves.now(SIZE)
    else:
        parts.slaves.now(SIZE)
        assert answers.codes == []
        assert parts.replication.pending_bytes == SIZE
        await parts.flush(SIZE)
    assert answers.codes == [0]
    assert parts.replication.pending_bytes == 0


@pytest.mark.parametrize("sync", [False, True])
async def test_without_a_slave_in_sync_it_is_stored_and_answered_11(*, sync: bool) -> None:
    parts = Parts(None, sync=sync)
    answers = await parts.send()
    assert parts.store.written == SIZE
    if sync:
        assert answers.codes == []
        await parts.flush(SIZE)
    assert answers.codes == [ALONE]
    assert parts.replication.acknowledged_by_slaves == 0
    parts.slaves.now(SIZE)
    assert (await parts.send()).codes == []


async def test_slaves_that_take_too_long_are_code_12_and_answer_nothing_twice() -> None:
    parts = Parts(0, slaveTimeout=10)
    answers = await parts.send()
    assert await answered(answers) == [SLAVE]
    assert parts.replication.pending_bytes == 0
    parts.slaves.now(SIZE)
    assert answers.codes == [SLAVE]
    assert parts.replication.acknowledged_by_slaves == 0


async def test_a_disk_that_takes_too_long_is_code_10() -> None:
    parts = Parts(0, sync=True, disk=0.01)
    answers = await parts.send()
    parts.slaves.now(SIZE)
    assert await answered(answers) == [DISK]
    assert parts.replication.pending_bytes == SIZE  # it is still not on disk
    await parts.flush(SIZE)
    assert answers.codes == [DISK]
    assert parts.replication.pending_bytes == 0


@pytest.mark.parametrize(("slave_ms", "disk"), [(10, 0.02), (20, 0.01)])
async def test_when_both_take_too_long_it_is_the_slaves_code(slave_ms: int, disk: float) -> None:
    parts = Parts(0, sync=True, disk=disk, slaveTimeout=slave_ms)
    begun = asyncio.get_running_loop().time()
    assert await answered(await parts.send()) == [SLAVE]
    assert asyncio.get_running_loop().time() - begun >= 0.019


async def test_no_slave_and_a_slow_disk_is_code_11() -> None:
    parts = Parts(sync=True, disk=0.01)
    assert await answered(await parts.send()) == [ALONE]


async def test_a_slave_that_was_too_slow_costs_its_code_only_when_the_disk_is_done() -> None:
    parts = Parts(0, sync=True, disk=5.0, slaveTimeout=1)
    answers = await parts.send()
    await asyncio.sleep(0.01)
    assert answers.codes == []
    await parts.flush(SIZE)
    assert answers.codes == [SLAVE]


async def test_a_slave_that_comes_back_in_time_is_no_failure() -> None:
    parts = Parts(0)
    answers = await parts.send()
    parts.slaves.now()
    assert answers.codes == []
    parts.slaves.now(SIZE)
    assert answers.codes == [0]


@pytest.mark.parametrize("sync", [False, True])
async def test_one_replica_in_sync_is_this_broker_alone(*, sync: bool) -> None:
    parts = Parts(sync=sync, inSyncReplicas=1)
    answers = await parts.send()
    if sync:
        assert answers.codes == []
        await parts.flush(SIZE)
    assert answers.codes == [0]
    assert parts.replication.pending_bytes == 0
    assert parts.replication.acknowledged_by_slaves == 0


async def test_three_replicas_are_two_slaves() -> None:
    parts = Parts(0, 0, inSyncReplicas=3)
    answers = await parts.send()
    parts.slaves.now(SIZE, 0)
    assert answers.codes == []
    parts.slaves.now(SIZE, SIZE)
    assert answers.codes == [0]
    parts.slaves.now(SIZE, None)
    assert (await parts.send()).codes == [ALONE]


async def test_auto_in_sync_replicas_lowers_what_is_waited_for() -> None:
    parts = Parts(0, None, inSyncReplicas=3, enableAutoInSyncReplicas=True)
    assert parts.replication.in_sync_replicas == 2
    answers = await parts.send()
    assert answers.codes == []
    parts.slaves.now(SIZE, None)
    assert answers.codes == [0]
    parts.slaves.now()
    assert parts.replication.in_sync_replicas == 1
    assert (await parts.send()).codes == [0]
    parts.keys = replace(parts.keys, minInSyncReplicas=2)
    assert parts.replication.in_sync_replicas == 2
    assert (await parts.send()).codes == [ALONE]


async def test_who_needs_fewer_slaves_is_not_held_up_by_who_needs_more() -> None:
    parts = Parts(0)
    waits = await parts.send()
    parts.slaves.now()
    alone = await parts.send()
    assert (waits.codes, alone.codes) == ([], [ALONE])
    parts.keys = replace(parts.keys, inSyncReplicas=3)
    parts.slaves.now(SIZE, None)
    assert waits.codes == [0]
    parts.slaves.now(SIZE, SIZE)
    both = await parts.send()
    parts.keys = replace(parts.keys, inSyncReplicas=2)
    one = await parts.send()
    parts.slaves.now(4 * SIZE, SIZE)
    assert (both.codes, one.codes) == ([], [0])
    assert parts.replication.pending_bytes == 2 * SIZE
    parts.slaves.now(4 * SIZE, 4 * SIZE)
    assert both.codes == [0]


async def test_who_does_not_want_to_wait_does_not() -> None:
    parts = Parts(0, sync=True)
    assert (await parts.send(wait=False)).codes == [0]
    assert (await parts.send(topic=REFUSED)).codes == [ResponseCode.MESSAGE_ILLEGAL]


async def test_batches_and_refusals_in_one_turn() -> None:
    parts = Parts(0)
    taken, refused = Answers(), Answers()
    parts.replication.append(record(), taken)
    parts.replication.append(record(REFUSED), refused)
    parts.replication.append_batch([record(), record()], taken.batch)
    parts.replication.append_batch([record(), record(REFUSED)], refused.batch)
    await turn()
    assert (taken.codes, refused.codes) == ([], [ResponseCode.MESSAGE_ILLEGAL] * 2)
    parts.slaves.now(3 * SIZE)
    assert taken.codes == [0, 0]
    assert isinstance(taken.results[1], list)


async def test_what_waits_has_a_limit() -> None:
    parts = Parts(0, limit=2 * SIZE)
    answers = await parts.send(2)
    busy = await parts.send(2)
    assert ResponseCode.SYSTEM_BUSY in busy.codes
    parts.slaves.now(parts.store.written)
    assert answers.codes == [0, 0]
    assert (await parts.send(1)).codes == []


async def test_a_failed_write_is_answered_and_nothing_waits() -> None:
    parts = Parts(0)
    parts.store.broken = True
    assert (await parts.send()).codes == [ResponseCode.SERVICE_NOT_AVAILABLE]
    parts.store.broken = False
    assert await parts.replication.drain(0.01)


async def test_an_answer_that_fails_does_not_cost_the_others_theirs(caplog: pytest.LogCaptureFixture) -> None:
    parts, answers = Parts(0), Answers()

    def broken(_result: object, _code: int) -> None:
        raise RuntimeError("connection in a strange state")

    parts.replication.append(record(), broken)
    parts.replication.append(record(), answers)
    await turn()
    parts.slaves.now(2 * SIZE)
    assert answers.codes == [0]
    assert "could not be delivered" in caplog.text


async def test_drain_waits_for_slaves() -> None:
    parts = Parts(0)
    answers = await parts.send()
    assert not await parts.replication.drain(0.01)
    draining = asyncio.create_task(parts.replication.drain(5.0))
    await turn()
    parts.slaves.now(SIZE)
    assert await draining
    assert answers.codes == [0]
    assert (await parts.send()).codes == [ResponseCode.SERVICE_NOT_AVAILABLE]


async def test_a_later_turn_expires_at_its_own_time() -> None:
    parts, now = Parts(0, slaveTimeout=30), asyncio.get_running_loop().time
    first = await parts.send()
    await asyncio.sleep(0.015)
    sent_at = now()
    second = await parts.send()
    assert await answered(first) == [SLAVE]
    assert await answered(second) == [SLAVE]
    assert now() - sent_at >= 0.03


async def confirmed(parts: Parts, end: int) -> Answers:
    """Ask about a record that ends there, as a repeated send does."""
    answers = Answers()
    parts.replication.confirm(PutResult(PutStatus.PUT_OK, end - SIZE, 0, SIZE, 0, end), answers)
    await turn()
    return answers


@pytest.mark.parametrize("sync", [False, True])
async def test_what_stands_already_is_told_as_safe_when_a_slave_has_it(sync: bool) -> None:
    parts = Parts(0, sync=sync)
    sent = await parts.send()
    again = await confirmed(parts, SIZE)
    assert sent.codes == again.codes == []
    parts.slaves.now(SIZE)
    if sync:
        assert again.codes == []
        await parts.flush(SIZE)
    assert sent.codes == again.codes == [0]
    # Nothing more will come of a slave that has everything.
    assert (await confirmed(parts, SIZE)).codes == [0]
    assert parts.store.end == SIZE


async def test_what_stands_already_is_told_as_a_new_one_would_be() -> None:
    parts = Parts(0, slaveTimeout=10)
    sent = await parts.send()
    assert await answered(sent) == [SLAVE]
    assert await answered(await confirmed(parts, SIZE)) == [SLAVE]
    parts.slaves.now(None)
    assert (await confirmed(parts, SIZE)).codes == [ALONE]
    parts.store.broken = True
    parts.store.refused = "full"
    assert (await confirmed(parts, SIZE)).codes == [ResponseCode.SERVICE_NOT_AVAILABLE]
