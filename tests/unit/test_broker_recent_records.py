"""What is read of a log's tail for the table of recent keys, against a list of everything that was stored."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.messages import recent_records
from broker.messages.recent_records import IDEMPOTENT_FLAG, begin_of, keys_in_piece
from remoting.message import MessageExt
from runtime.clock import ManualClock
from store.messagestore import MessageStore
from tests.parts.store_tools import FILE_BYTES, HOST, HOST_V6, make_config, record


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_records, "PIECE_BYTES", 4096)


class FoundKey(NamedTuple):
    """The record of an idempotent send."""

    key: bytes
    position: int
    store_timestamp: int


def stored(store: MessageStore, clock: ManualClock, seed: int, count: int) -> list[FoundKey]:
    """Store messages of all sizes, some of them marked, as time goes by; return the marked ones."""
    chance = random.Random(seed)
    marked = []
    for number in range(count):
        clock.advance(chance.choice([0, 0, 0.2, 3]))
        flag = chance.choice([0, IDEMPOTENT_FLAG])
        key = b"K%d" % number
        size = chance.choice([0, 10, 300, 6000])
        made = record(b"b" * size, sys_flag=flag, properties=b"UNIQ_KEY\x01" + key + b"\x02")
        made.born_host = chance.choice([HOST, HOST_V6])
        put = store.put(made)
        store.write()
        if flag:
            marked.append(FoundKey(key, put.physical_offset, put.store_timestamp))
    return marked


class Broken:
    """A log of which a part cannot be read."""

    def __init__(self, store: MessageStore, gone: range) -> None:
        self.file_bytes, self.min_physical, self.dispatched = store.file_bytes, store.min_physical, store.dispatched
        self._store, self.gone = store, gone
        self.failed = 0

    def read_piece_cold(self, position: int, size_max: int) -> memoryview | bytes:
        if position in self.gone:
            self.failed += 1
            raise FileNotFoundError(position)
        return self._store.read_piece_cold(position, size_max)


def read(store: MessageStore | Broken, position: int) -> list[FoundKey]:
    found: list[FoundKey] = []
    while position < store.dispatched:
        more, after = keys_in_piece(store, position, store.dispatched)
        assert after > position, "it comes forward"
        found += map(FoundKey, *more)
        position = after
    return found


@pytest.mark.parametrize("seed", range(8))
def test_the_tail_is_read_from_where_the_window_begins(seed: int, tmp_path: Path) -> None:
    clock = ManualClock()
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, stepped=True, clock=clock)
    marked = stored(store, clock, seed, 150)
    assert store.dispatched > 2 * FILE_BYTES
    assert read(store, store.min_physical) == marked
    for ago in (0, 1, 5, 30, 100, 10_000):
        since = clock.now_ms() - 1000 * ago
        begin = begin_of(store, store.dispatched, since)
        found = read(store, begin)
        assert found == marked[len(marked) - len(found) :]
        wanted = [key for key in marked if key.store_timestamp >= since]
        assert found[len(found) - len(wanted) :] == wanted
        # Not much more than the window: one piece, and the record that reaches over its end.
        early = [key for key in found if key.store_timestamp < since]
        assert not early or early[-1].position - early[0].position <= 4096 + 7000
    store.close()


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    clock = ManualClock()
    config = make_config(tmp_path)
    store = MessageStore.open(config, store_host=HOST, stepped=True, clock=clock)
    marked = stored(store, clock, 1, 100)
    store.step_flush()
    bad = marked[3]
    path = config.log_folder / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(bad.position)
        file.write(b"\xff" * 40)
    assert read(store, 0) == [key for key in marked if key is not bad]
    store.close()


def test_a_file_that_is_missing_is_passed_over(tmp_path: Path) -> None:
    clock = ManualClock()
    config = make_config(tmp_path)
    store = MessageStore.open(config, store_host=HOST, stepped=True, clock=clock)
    marked = stored(store, clock, 1, 200)
    store.step_flush()
    assert store.dispatched > 3 * FILE_BYTES
    broken = Broken(store, range(FILE_BYTES, 2 * FILE_BYTES))
    left = [key for key in marked if key.position not in broken.gone]
    assert read(broken, 0) == left
    for ago in (0, 30, 100, 10_000):
        since = clock.now_ms() - 1000 * ago
        found = read(broken, begin_of(broken, store.dispatched, since))
        assert {key for key in left if key.store_timestamp >= since} <= set(found)
    assert broken.failed < 50
    store.close()


def test_an_empty_log_has_no_keys(tmp_path: Path) -> None:
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, stepped=True)
    assert begin_of(store, store.dispatched, 0) == 0
    assert read(store, 0) == []
    store.close()


def test_only_the_record_itself_tells_whose_it_is(tmp_path: Path) -> None:
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, stepped=True)

    def put(topic: str, properties: bytes) -> int:
        position = store.put(record(topic=topic, properties=properties)).physical_offset
        store.write()
        return position

    other_key = put("T", b"UNIQ_KEY\x01OTHER\x02")
    other_topic = put("U", b"UNIQ_KEY\x01K\x02")
    claimed = put("V", b"UNIQ_KEY\x01K\x02REAL_TOPIC\x01T\x02REAL_QID\x011\x02")
    waiting = put("SCHEDULE_TOPIC_XXXX", b"UNIQ_KEY\x01K\x02DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02")
    later = put("T", b"UNIQ_KEY\x01K\x02")
    everywhere = (other_key, other_topic, claimed, other_key + 1, waiting, later, 10**9)

    def first(topic: str, key: str, but: int = -1) -> MessageExt | None:
        return recent_records.first_record(store, everywhere, topic, key, lambda found: found.physical_offset != but)

    found = first("T", "K")
    assert found is not None
    assert (found.physical_offset, found.topic, found.queue_id, found.queue_offset) == (waiting, "T", 3, 0)
    found = first("T", "K", but=waiting)
    assert found is not None
    assert found.physical_offset == later
    assert first("T", "NONE") is None
    assert first("SCHEDULE_TOPIC_XXXX", "K") is None
    store.close()
