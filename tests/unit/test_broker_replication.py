"""broker/replication.py: every append is answered exactly once, at the moment that its mode promises."""

import asyncio
from collections.abc import Callable

import pytest

from broker.master_slave import local_replication as module
from broker.master_slave.local_replication import LocalReplication
from remoting.codes import ResponseCode
from store.types import PutResult, PutStatus
from tests.parts.replication_parts import REFUSED, SIZE, Answers, FakeStore, answered, record, turn


def make(
    store: FakeStore,
    *,
    sync: bool = False,
    timeout: float = 5.0,
    limit: int = 10_000,
    on_written: Callable[[], None] = lambda: None,
) -> LocalReplication:
    return LocalReplication(
        store,
        asyncio.get_running_loop(),
        sync_flush=sync,
        flush_timeout=timeout,
        pending_bytes_max=limit,
        on_written=on_written,
    )


async def test_one_turn_is_one_write_and_answers_in_order() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store)
    for _ in range(3):
        replication.append(record(), answers)
    assert answers.codes == []
    await turn()
    assert store.writes == 1
    assert answers.codes == [0, 0, 0]
    assert [result.queue_offset for result in answers.results if isinstance(result, PutResult)] == [0, 1, 2]
    assert replication.pending_bytes == 0


async def test_who_sends_much_waits_while_the_disk_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONGESTED_BYTES", 2 * SIZE)
    store, answers = FakeStore(), Answers()
    replication = make(store, sync=True)
    for wanted in (False, False, True):
        replication.append(record(), answers)
        await turn()
        assert replication.congested is wanted
    replication.flushed_in_thread(3 * SIZE)
    await turn()
    assert not replication.congested
    assert answers.codes == [0, 0, 0]


async def test_who_sends_much_waits_when_a_turn_has_gathered_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers()
    replication = make(FakeStore())
    replication.append(record(), answers)
    monkeypatch.setattr(module, "GATHERED_BYTES", 2 * replication.pending_bytes)
    for wanted in (False, True):
        replication.append(record(), answers)
        assert replication.congested is wanted
    await turn()
    assert not replication.congested
    replication.append_batch([record()] * 3, answers.batch)
    assert replication.congested
    await turn()
    assert (answers.codes, replication.congested) == ([0, 0, 0, 0], False)


async def test_a_batch_is_answered_once() -> None:
    store, answers = FakeStore(), Answers()
    make(store).append_batch([record(), record()], answers.batch)
    await turn()
    assert answers.codes == [0]
    assert isinstance(answers.results[0], list)
    assert len(answers.results[0]) == 2


async def test_sync_flush_waits_for_the_disk() -> None:
    store, answers, eager = FakeStore(), Answers(), Answers()
    replication = make(store, sync=True)
    replication.append(record(), answers)
    replication.append(record(), eager, wait=False)
    await turn()
    assert store.wanted == [2 * SIZE]
    assert (answers.codes, eager.codes) == ([], [0])
    assert replication.pending_bytes == 2 * SIZE
    replication.flushed_in_thread(SIZE)
    await turn()
    assert answers.codes == [0]


async def test_a_disk_that_takes_too_long_is_code_10() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store, sync=True, timeout=0.01)
    replication.append(record(), answers)
    async with asyncio.timeout(20):
        while not answers.codes:
            await asyncio.sleep(0.005)
    assert answers.codes == [ResponseCode.FLUSH_DISK_TIMEOUT]
    replication.flushed_in_thread(SIZE)
    await turn()
    assert len(answers.codes) == 1


async def test_what_is_pending_has_a_limit() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store, limit=2 * SIZE)
    for _ in range(3):
        replication.append(record(), answers)
    assert answers.codes == [ResponseCode.SYSTEM_BUSY]
    await turn()
    assert sorted(answers.codes) == [0, 0, ResponseCode.SYSTEM_BUSY]
    replication.append(record(), answers)
    await turn()
    assert answers.codes[-1] == 0


async def test_what_was_there_before_is_not_pending() -> None:
    store, answers = FakeStore(), Answers()
    store.end = store.written = 10**12
    replication = make(store, limit=2 * SIZE)
    assert replication.pending_bytes == 0
    replication.append(record(), answers)
    replication.append(record(), answers)
    await turn()
    assert answers.codes == [0, 0]


async def test_a_store_that_refuses_writes_is_code_14() -> None:
    store, answers = FakeStore(), Answers()
    store.refused = "disk full"
    replication = make(store)
    replication.append(record(), answers)
    replication.append_batch([record()], answers.batch)
    assert answers.codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    store.refused = None
    replication.append(record(), answers)
    await turn()
    assert answers.codes[-1] == 0


@pytest.mark.parametrize("sync", [False, True])
async def test_a_refused_record_or_batch_costs_its_neighbours_nothing(*, sync: bool) -> None:
    store, refused, taken = FakeStore(), Answers(), Answers()
    replication = make(store, sync=sync)
    replication.append(record(REFUSED), refused)
    replication.append(record(), taken)
    replication.append_batch([record(), record(REFUSED)], refused.batch)
    replication.append_batch([record(), record()], taken.batch)
    replication.append(record(), taken)
    await turn()
    assert refused.codes == [ResponseCode.MESSAGE_ILLEGAL] * 2
    assert [type(result) for result in refused.results] == [PutResult, list]
    if sync:
        assert taken.codes == []
        replication.flushed_in_thread(store.written)
        await turn()
    assert taken.codes == [0, 0, 0]
    first, batch, last = taken.results
    assert isinstance(first, PutResult)
    assert isinstance(batch, list)
    assert isinstance(last, PutResult)
    assert [first.queue_offset, *(one.queue_offset for one in batch), last.queue_offset] == [0, 1, 2, 3]
    assert replication.pending_bytes == 0


async def test_with_sync_flush_a_turn_of_refusals_asks_for_no_flush() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store, sync=True)
    replication.append(record(REFUSED), answers)
    await turn()
    assert answers.codes == [ResponseCode.MESSAGE_ILLEGAL]
    assert store.wanted == []
    assert await replication.drain(5.0)


async def test_a_failed_write_fails_the_whole_turn_and_nothing_else() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store)
    store.broken = True
    replication.append(record(), answers)
    replication.append_batch([record(), record()], answers.batch)
    await turn()
    assert answers.codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    store.broken = False
    replication.append(record(), answers)
    await turn()
    assert answers.codes[-1] == 0


async def test_an_answer_that_fails_does_not_cost_the_others_theirs() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store)

    def broken(_result: PutResult, _code: int) -> None:
        raise RuntimeError("connection in a strange state")

    replication.append(record(), broken)
    replication.append(record(), answers)
    await turn()
    assert answers.codes == [0]


async def test_drain_waits_and_then_nothing_is_taken() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store, sync=True)
    replication.append(record(), answers)
    draining = asyncio.create_task(replication.drain(5.0))
    await turn()
    assert not draining.done()
    replication.flushed_in_thread(SIZE)
    assert await draining
    assert answers.codes == [0]
    replication.append(record(), answers)
    assert answers.codes[-1] == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_drain_gives_up_in_time() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store, sync=True)
    replication.append(record(), answers)
    assert not await replication.drain(0.01)
    replication.flushed_in_thread(SIZE)
    await turn()


@pytest.mark.parametrize("sync", [False, True])
async def test_who_copies_the_log_is_told_of_each_write_before_anybody_is_answered(*, sync: bool) -> None:
    store, answers, told = FakeStore(), Answers(), []
    replication = make(store, sync=sync, on_written=lambda: told.append((store.written, len(answers.codes))))
    replication.append(record(), answers, wait=False)
    replication.append(record(), answers, wait=False)
    await turn()
    store.broken = True
    replication.append(record(), answers)
    await turn()
    assert told == [(2 * SIZE, 0)]
    assert answers.codes == [0, 0, ResponseCode.SERVICE_NOT_AVAILABLE]


async def test_what_stands_already_is_told_as_safe_once_it_is_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began)
    store, answers, again, eager = FakeStore(), Answers(), Answers(), Answers()
    replication = make(store, sync=True, timeout=0.01)
    replication.append(record(), answers)
    await turn()
    stands = PutResult(PutStatus.PUT_OK, 0, 0, SIZE, 0, SIZE)
    replication.confirm(stands, again)
    replication.confirm(stands, eager, wait=False)
    replication.append(record(), answers)
    await turn()
    assert (answers.codes, again.codes, eager.codes) == ([], [], [0])
    assert store.end == 2 * SIZE
    monkeypatch.undo()  # from here on time passes
    assert await answered(again) == [ResponseCode.FLUSH_DISK_TIMEOUT]
    monkeypatch.setattr(loop, "time", lambda: began)
    replication.confirm(stands, again)
    replication.flushed_in_thread(SIZE)
    await turn()
    await turn()
    monkeypatch.undo()
    assert await answered(again, 2) == [ResponseCode.FLUSH_DISK_TIMEOUT, 0]
    # On the disk, or where nobody waits for that: at once.
    replication.confirm(stands, again)
    make(FakeStore()).confirm(stands, again)
    assert again.codes[2:] == [0, 0]
    store.refused = "full"
    replication.confirm(stands._replace(end=2 * SIZE), again)
    assert again.codes[4:] == [ResponseCode.SERVICE_NOT_AVAILABLE]


async def test_a_failed_write_is_told_of_what_stands_already_too() -> None:
    store, answers = FakeStore(), Answers()
    replication = make(store, sync=True)
    replication.confirm(PutResult(PutStatus.PUT_OK, 0, 0, SIZE, 0, SIZE), answers)
    store.broken = True
    await turn()
    assert (answers.codes, answers.results) == ([14], [PutResult(PutStatus.SERVICE_NOT_AVAILABLE)])
