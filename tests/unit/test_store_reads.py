"""Reading: RocketMQ's limits and statuses, by offset, position, time and key."""

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.javahash import java_hash
from remoting.properties import encode_properties
from remoting.record import decode_record, decode_records
from runtime.clock import ManualClock
from store.integrity.verifier import TRUST_SECONDS
from store.messagestore import MessageStore
from store.types import GetStatus
from tests.parts.send_runs import pure
from tests.parts.store_tools import HOST, fill, make_config, record

# A body that alone fills an answer from memory, nearly.
BIG = 250 * 1024


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    opened = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    yield opened
    opened.close()


def test_statuses_and_next_offsets(store: MessageStore) -> None:
    def ask(offset: int, queue_id: int = 0) -> tuple[GetStatus, int]:
        result = store.get("T", queue_id, offset, 32)
        return result.status, result.next_offset

    assert ask(0) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    fill(store, 5)
    assert ask(0) == (GetStatus.FOUND, 5)
    assert ask(4) == (GetStatus.FOUND, 5)
    assert ask(5) == (GetStatus.OFFSET_OVERFLOW_ONE, 5)
    assert ask(6) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5), "never its begin: the whole queue would be read again"
    assert ask(1000) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5)
    assert ask(-1) == (GetStatus.OFFSET_TOO_SMALL, 0)
    assert ask(3, queue_id=1) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_neighbours_leave_as_one_view(store: MessageStore) -> None:
    fill(store, 3)
    fill(store, 1, queue_id=1)
    fill(store, 2)
    with pure():
        result = store.get("T", 0, 0, 32)
    assert [type(buffer) for buffer in result.buffers] == [memoryview, memoryview]
    found = [message for buffer in result.buffers for message in decode_records(buffer)]
    assert [message.queue_offset for message in found] == [0, 1, 2, 3, 4]
    assert (result.count, result.size) == (5, sum(len(buffer) for buffer in result.buffers))
    assert (result.min_offset, result.max_offset, result.behind_bytes) == (0, 5, 0)
    assert store.get("T", 0, 0, 3).behind_bytes == 3 * len(result.buffers[0]) // 3


def test_limits_of_one_answer(tmp_path: Path, clock: ManualClock) -> None:
    config = make_config(tmp_path, maxTransferBytesOnMessageInMemory=3000, maxTransferCountOnMessageInMemory=10)
    store = MessageStore.open(config, store_host=HOST, clock=clock)
    fill(store, 20)
    fill(store, 5, queue_id=1, body=bytes(900))
    fill(store, 2, queue_id=2, body=bytes(5000))
    assert store.get("T", 0, 0, 3).count == 3
    assert store.get("T", 0, 0, 100).count == 10
    assert store.get("T", 1, 0, 100).count == 3
    assert store.get("T", 1, 0, 100, 1500).count == 1
    assert (store.get("T", 2, 0, 100).count, store.get("T", 2, 0, 100).next_offset) == (1, 1), "the first always goes"
    store.close()


def test_far_behind_the_end_less_goes(tmp_path: Path, clock: ManualClock) -> None:
    config = make_config(tmp_path, accessMessageInMemoryMaxRatio=0)
    store = MessageStore.open(config, store_host=HOST, clock=clock)
    fill(store, 20)
    assert store.get("T", 0, 0, 32).count == 8
    store.close()


@pytest.mark.parametrize("as_function", [False, True])
def test_filters_pass_over(tmp_path: Path, clock: ManualClock, as_function: bool) -> None:
    store = MessageStore.open(make_config(tmp_path, maxFilterMessageSize=20 * 50), store_host=HOST, clock=clock)
    for number in range(200):
        store.put(record(tags="A" if number in {30, 31, 120} else "B"))
    store.write()
    wanted = frozenset({java_hash("A")})
    accepts = wanted.__contains__ if as_function else wanted
    result = store.get("T", 0, 0, 32, accepts=accepts)
    assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 2, 50), "a scan has its limit"
    result = store.get("T", 0, 50, 32, accepts=accepts)
    assert (result.status, result.count, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 0, 100)
    assert result.buffers == []
    result = store.get("T", 0, 30, 1, accepts=accepts)
    assert (result.count, result.next_offset) == (1, 31)
    store.close()


def test_what_is_not_cached_is_read_in_a_thread(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 3)
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)

    def not_cached(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not cached")

    monkeypatch.setattr(os, "preadv", not_cached)
    # It asks the kernel by itself.
    monkeypatch.setattr("store.reads.reads.COMPILED", False)
    result = store.get("T", 0, 0, 32)
    assert (result.status, result.count, result.cold, result.buffers) == (GetStatus.FOUND, 3, True, [])
    assert store.read_cold(result) is result
    assert not result.cold
    assert [message.queue_offset for message in decode_records(result.buffers[0])] == [0, 1, 2]


def test_mappings_of_old_files_are_given_up_after_a_while(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, stepped=True)
    fill(store, 200, body=bytes(900))
    first, last = store._log.files[0], store._log.files[1]
    held = [file.view(file.start, 100) for file in (first, last)]
    store._log.opened(first.start)
    store._log.opened(last.start)
    before = [message.queue_offset for message in decode_records(b"".join(store.get("T", 0, 0, 4).buffers))]
    clock.advance(TRUST_SECONDS)
    store.idle()
    assert first._map is None
    assert bytes(held[0]) == bytes(first.view(first.start, 100)), "who looks at it still can"
    assert [message.queue_offset for message in decode_records(b"".join(store.get("T", 0, 0, 4).buffers))] == before
    store.close()


def test_records_by_position(store: MessageStore) -> None:
    inner = record(b"inner")
    put = [store.put(record(bytes(10) + b"x" * number)) for number in range(3)]
    store.write()
    for result in put:
        found = store.record_at(result.physical_offset)
        assert found is not None
        assert decode_record(found).physical_offset == result.physical_offset
    for position in (-1, 1, put[1].physical_offset + 5, put[-1].end, 1 << 60):
        assert store.record_at(position) is None
    # A body that holds a whole record is no record.
    copied = bytes(store.record_at(0) or b"")
    outer = store.put(record(copied))
    store.write()
    assert store.record_at(outer.physical_offset + 88) is None
    assert inner.body == b"inner"


def test_search_by_time(store: MessageStore, clock: ManualClock) -> None:
    start = clock.now_ms()
    for _ in range(10):
        fill(store, 2)
        clock.advance(1)
    assert store.offset_by_time("T", 0, start) == 0
    assert store.offset_by_time("T", 0, start + 2500) == 6
    assert store.offset_by_time("T", 0, start + 3000, upper=True) == 7
    assert store.offset_by_time("T", 0, start + 60_000) == 20
    assert store.offset_by_time("unknown", 0, start) == 0


def test_queries_by_key(store: MessageStore, clock: ManualClock) -> None:
    start = clock.now_ms()
    for number in range(4):
        properties = encode_properties({"KEYS": f"common k{number}", "UNIQ_KEY": f"U{number}", "TAGS": "common2"})
        store.put(record(properties=properties))
        store.put(record(topic="Other", properties=properties))
        store.write()
        clock.advance(10)

    def ask(key: str, most: int = 10, begin: int = 0, end: int = 1 << 60) -> list[int]:
        found = store.query("T", key, most, begin, end)
        return [decode_record(hit).queue_offset for hit in found.records]

    assert ask("common") == [3, 2, 1, 0]
    assert ask("common", 2) == [3, 2]
    assert ask("k2") == ask("U2") == [2]
    assert ask("common2") == [], "a tag is no key"
    assert ask("common", begin=start + 5_000, end=start + 25_000) == [2, 1]
    found = store.query("T", "k1", 1, 0, 1 << 60)
    assert found.last_timestamp == start + 30_000
    assert found.last_physical > 0


def test_an_index_can_be_done_without(tmp_path: Path, clock: ManualClock) -> None:
    store = MessageStore.open(make_config(tmp_path, messageIndexEnable=False), store_host=HOST, clock=clock)
    fill(store, 3, properties=encode_properties({"KEYS": "k"}))
    assert store.query("T", "k", 10, 0, 1 << 60) == ([], 0, 0)
    store.close()
    assert not (tmp_path / "store" / "index").exists()


@pytest.mark.parametrize("cached", [True, False])
def test_old_bytes_are_copied_once_on_their_way_out(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """From the page cache, or by a thread from the disk, into the buffer that goes to the socket: no other is made."""
    config = make_config(tmp_path, mappedFileSizeCommitLog=2 * BIG)
    store = MessageStore.open(config, store_host=HOST, clock=clock)
    fill(store, 1, body=bytes(BIG))
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)
    monkeypatch.setattr("store.integrity.verifier.HOT_BYTES", 0)
    store._verifier.tick()  # so that it is checked, too

    def preadv(fd: int, buffers: list[bytearray], offset: int, _flags: int) -> int:
        # A file system that cannot tell what is cached would make every read a cold one.
        if not cached:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        return plain(fd, buffers, offset)

    plain = os.preadv
    monkeypatch.setattr(os, "preadv", preadv)
    if not cached:
        # It asks the kernel by itself.
        monkeypatch.setattr("store.reads.reads.COMPILED", False)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = store.get("T", 0, 0, 32)
        assert result.cold is not cached
        if result.cold:
            # What was made ready for the page cache's answer is gone when the thread reads.
            tracemalloc.reset_peak()
            store.read_cold(result)
            store.verify_cold(result)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert (result.count, result.damaged) == (1, -1)
    assert BIG <= sum(map(len, result.buffers)) <= peak < 1.5 * BIG
    store.close()
