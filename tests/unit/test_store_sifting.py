"""store/reads/sifting.py: a read that looks at properties, its limits, and what it does with what is cold or rotten."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.properties import decode_properties, encode_properties
from remoting.record import decode_records
from runtime.clock import ManualClock
from store.messagestore import MessageStore
from store.reads.sifting import PASS_ENTRIES, SIFTED_BYTES_MAX
from store.types import GetResult, GetStatus
from tests.parts.entry_tools import damage
from tests.parts.store_tools import HOST, fill, make_config, record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    opened = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=ManualClock(), stepped=True)
    yield opened
    opened.close()


class Wants:
    """Wants messages whose property n is one of these; counts what it was shown."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = {str(number) for number in numbers}
        self.shown = 0

    def __call__(self, properties: memoryview) -> bool:
        self.shown += 1
        return decode_properties(properties).get("n") in self.numbers


def numbered(store: MessageStore, count: int, *, apart: bool = False, body: bytes = b"x") -> None:
    for number in range(count):
        assert store.put(record(body, properties=encode_properties({"n": str(number)})))
        if apart:
            store.put(record(topic="U"))
    store.write()


def offsets(result: GetResult) -> list[int]:
    return [message.queue_offset for buffer in result.buffers for message in decode_records(buffer)]


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_wanted_is_given_and_the_rest_passed_over(store: MessageStore, apart: bool) -> None:
    numbered(store, 10, apart=apart)
    result = store.sift("T", 0, 1, 32, 10_000, Wants(0, 2, 3, 5, 9))
    assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [2, 3, 5, 9], 10)
    assert (result.count, result.size) == (4, sum(map(len, result.buffers)))
    assert [len(buffer) for buffer in result.buffers] == [size for _, size in result.runs]
    assert len(result.buffers) == (4 if apart else 3), "neighbours leave as one"
    assert (result.min_offset, result.max_offset, result.cold, result.damaged) == (0, 10, False, -1)
    result = store.sift("T", 0, 6, 32, 10_000, Wants(1))
    assert (result.status, result.buffers, result.count, result.next_offset) == (
        GetStatus.NO_MATCHED_MESSAGE,
        [],
        0,
        10,
    )


def test_a_full_answer_ends_at_the_next_message(store: MessageStore) -> None:
    numbered(store, 100)
    wants = Wants(*range(10, 90))
    result = store.sift("T", 0, 0, 3, 10_000, wants)
    assert (offsets(result), result.next_offset, wants.shown) == ([10, 11, 12], 13, 13)
    size = result.size // 3
    result = store.sift("T", 0, 13, 32, 2 * size, wants)
    assert (offsets(result), result.next_offset) == ([13, 14], 15)
    assert offsets(store.sift("T", 0, 15, 32, 1, wants)) == [15], "the first always goes"
    assert offsets(store.sift("T", 0, 60, 99, 1 << 20, wants)) == list(range(60, 90))[:32], "32 from memory"


def test_statuses_are_those_of_other_reads(store: MessageStore) -> None:
    def status(offset: int, topic: str = "T") -> tuple[GetStatus, int]:
        result = store.sift(topic, 0, offset, 32, 1000, Wants())
        return result.status, result.next_offset

    assert status(0) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    numbered(store, 5)
    assert status(5) == (GetStatus.OFFSET_OVERFLOW_ONE, 5)
    assert status(6) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5)
    assert status(-1) == (GetStatus.OFFSET_TOO_SMALL, 0)
    assert status(4) == (GetStatus.NO_MATCHED_MESSAGE, 5)


def test_one_read_looks_at_so_many_messages(tmp_path: Path) -> None:
    config = make_config(tmp_path, maxFilterMessageSize=20 * 100)
    store = MessageStore.open(config, store_host=HOST, clock=ManualClock())
    numbered(store, 300)
    wants = Wants(250)
    at, reads = 0, 0
    while True:
        result = store.sift("T", 0, at, 32, 1000, wants)
        reads += 1
        if result.count:
            break
        assert result.status is GetStatus.NO_MATCHED_MESSAGE
        assert 100 <= result.next_offset - at < 100 + PASS_ENTRIES
        at = result.next_offset
    assert offsets(result) == [250]
    assert reads == 2
    store.close()


def test_one_read_looks_at_so_many_bytes(tmp_path: Path) -> None:
    config = make_config(tmp_path, mappedFileSizeCommitLog=1 << 24)
    store = MessageStore.open(config, store_host=HOST, clock=ManualClock())
    body = bytes(100_000)
    numbered(store, 40, body=body)
    result = store.sift("T", 0, 0, 32, 1000, Wants())
    assert SIFTED_BYTES_MAX <= result.next_offset * len(body) < 2 * SIFTED_BYTES_MAX
    assert offsets(store.sift("T", 0, 39, 32, 1000, Wants(39))) == [39], "one larger than the answer may be"
    store.close()


def test_what_is_not_cached_is_sifted_when_a_thread_has_read_it(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(store, 70)
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)

    def not_cached(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not cached")

    monkeypatch.setattr(os, "preadv", not_cached)
    wants = Wants(1, 3, 69)
    result = store.sift("T", 0, 1, 32, 10_000, wants)
    assert result.cold
    assert wants.shown == 0
    store.verify_cold(store.read_cold(result))
    assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [1, 3], 1 + PASS_ENTRIES)
    assert (result.count, result.size) == (2, sum(map(len, result.buffers)))
    result = store.sift("T", 0, 4, 32, 10_000, wants)
    store.verify_cold(store.read_cold(result))
    assert (result.status, result.count, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 0, 68)


def test_what_was_removed_while_a_thread_read_is_passed_over(store: MessageStore) -> None:
    numbered(store, 5)
    wants = Wants(1)
    result = store._sifter._candidates("T", 0, 0)
    result.cold = True
    result.asked = ("T", 0, 0)
    result.status = GetStatus.MESSAGE_WAS_REMOVING
    result.sift_by = (wants, 32, 1000)
    store.verify_cold(result)
    assert (result.status, wants.shown) == (GetStatus.MESSAGE_WAS_REMOVING, 0)


def test_R18_a_rotten_message_is_neither_looked_at_nor_passed_over(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    store = MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True)
    numbered(store, 6, body=b"body" * 20)
    position = store.queue_entries("T", 0, 3, 1)[0].physical_offset
    store.close()
    damage(tmp_path, position + 100)
    store = MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True)
    wants = Wants(1, 5)
    result = store.sift("T", 0, 0, 32, 10_000, wants)
    assert (result.status, offsets(result), result.next_offset, wants.shown) == (GetStatus.FOUND, [1], 3, 3)
    result = store.sift("T", 0, 2, 32, 10_000, wants)
    assert (result.status, result.next_offset, result.damaged) == (GetStatus.NO_MATCHED_MESSAGE, 3, -1)
    result = store.sift("T", 0, 3, 32, 10_000, wants)
    assert (result.status, result.count, result.damaged) == (GetStatus.MESSAGE_DAMAGED, 0, position)
    assert wants.shown == 4
    assert offsets(store.sift("T", 0, 4, 32, 10_000, wants)) == [5]
    store.close()


def test_a_filled_store_is_sifted_whatever_else_it_holds(store: MessageStore) -> None:
    fill(store, 3, properties=b"")
    assert store.sift("T", 0, 0, 32, 10_000, Wants(1)).next_offset == 3
    assert offsets(store.sift("T", 0, 0, 32, 10_000, lambda properties: not len(properties))) == [0, 1, 2]
