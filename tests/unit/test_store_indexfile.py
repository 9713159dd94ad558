"""The index: RocketMQ's layout and hashes, chains over batches and files, and its mending after an unclean stop."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.javahash import java_hash
from runtime.clock import ManualClock
from store.derived.indexfile import BUFFERED_MESSAGES_MAX, MessageIndex
from store.derived.indexhash import hash_all, key_hash, spread_keys
from store.errors import StoreDamaged
from store.types import Dispatched

T0 = 1_700_000_000_000
ALWAYS = (0, 1 << 62)
SLOTS = 50
ENTRY = struct.Struct(">iqii")


def opened(folder: Path, *, entries: int = 1000, slots: int = SLOTS, clean: bool = True) -> MessageIndex:
    return MessageIndex(folder / "index", slots=slots, entries=entries, clean=clean, clock=ManualClock(T0))


def message(n: int, *, keys: bytes = b"", tags: bytes = b"", sys_flag: int = 0, topic: str = "T") -> Dispatched:
    return Dispatched(topic, 0, n, n * 100, 100, 0, T0 + n * 500, b"uniq-%d" % n, keys, sys_flag, tags)


def files(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "index").iterdir())]


class Twin:
    """The index file as its description says, one entry at a time."""

    def __init__(self, slots: int, entries: int) -> None:
        self.slots = [0] * slots
        self.entries: list[tuple[int, int, int, int]] = []
        self.begin = self.end = (0, 0)
        self.used = 0
        self.size = entries

    def put(self, topic: str, key: str, physical: int, stored_ms: int) -> None:
        if not self.entries:
            self.begin = (stored_ms, physical)
        self.end = (stored_ms, physical)
        value = abs(java_hash(f"{topic}#{key}"))
        value = 0 if value == 2**31 else value
        slot = value % len(self.slots)
        self.used += self.slots[slot] == 0
        self.entries.append((value, physical, (stored_ms - self.begin[0]) // 1000, self.slots[slot]))
        self.slots[slot] = len(self.entries)

    def content(self) -> bytes:
        head = struct.pack(
            ">qqqqii", self.begin[0], self.end[0], self.begin[1], self.end[1], self.used, len(self.entries) + 1
        )
        body = b"".join(ENTRY.pack(*entry) for entry in self.entries)
        whole = head + struct.pack(f">{len(self.slots)}i", *self.slots) + bytes(20) + body
        return whole.ljust(40 + 4 * len(self.slots) + 20 * self.size, b"\0")


def test_the_file_is_rocketmqs_byte_for_byte(tmp_path: Path) -> None:
    index = opened(tmp_path)
    twin = Twin(SLOTS, 1000)
    messages = [message(n, keys=b"a  common %d" % n, tags=b"Tag%d" % (n % 2)) for n in range(60)]
    for entry in messages:
        for key in (entry.uniq_key.decode(), "a", "common", str(entry.queue_offset), f"T#Tag{entry.queue_offset % 2}"):
            twin.put("T", key, entry.physical_offset, entry.store_timestamp)
    # In batches of any size, with reads in between.
    for start in range(0, 60, 7):
        index.append_many(messages[start : start + 7])
        assert index.query("T", f"uniq-{start}", 5, *ALWAYS) == [start * 100]
    index.close()
    assert files(tmp_path) == [twin.content()]
    name = next((tmp_path / "index").iterdir()).name
    assert len(name) == 17
    assert name.isdecimal()


def test_queries_by_key_unique_key_and_time_give_newest_first(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.append_many([message(n, keys=b"common k%d" % (n % 3)) for n in range(100)])
    assert index.query("T", "common", 1000, *ALWAYS) == [n * 100 for n in reversed(range(100))]
    assert index.query("T", "common", 3, *ALWAYS) == [9900, 9800, 9700]
    assert index.query("T", "k1", 1000, *ALWAYS) == [n * 100 for n in reversed(range(100)) if n % 3 == 1]
    assert index.query("T", "uniq-42", 10, *ALWAYS) == [4200]
    assert index.query("T", "nothing", 10, *ALWAYS) == []
    assert index.query("Other", "common", 10, *ALWAYS) == []
    # Times are kept by the second: nothing that was asked for is missing, at most a second more comes along.
    found = index.query("T", "common", 1000, T0 + 10_250, T0 + 20_000)
    assert set(range(2100, 4001, 100)) <= set(found) <= set(range(1900, 4200, 100))
    index.close()


def test_full_files_are_followed_by_new_ones_and_deleted_from_the_head(tmp_path: Path) -> None:
    index = opened(tmp_path, entries=11)  # ten of them used
    messages = [message(n, keys=b"common") for n in range(40)]
    index.append_many(messages)
    assert index.query("T", "common", 100, *ALWAYS) == [n * 100 for n in reversed(range(40))]
    assert index.files == 8
    index.close()
    index = opened(tmp_path, entries=11)
    assert index.end_physical == 3900
    index.append_many(messages)
    assert index.query("T", "common", 100, *ALWAYS) == [n * 100 for n in reversed(range(40))]
    names = [path.name for path in sorted((tmp_path / "index").iterdir())]
    assert len(set(names)) == 8
    assert index.delete_below(2000) == 4
    assert index.query("T", "common", 100, *ALWAYS) == [n * 100 for n in reversed(range(20, 40))]
    assert index.delete_below(1 << 40) == 3
    assert index.files == 1
    index.close()


def test_rolled_back_messages_and_empty_keys_are_not_indexed(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.append_many([message(0, keys=b"k", sys_flag=0xC), message(1, keys=b"k", sys_flag=4), message(2, sys_flag=8)])
    assert index.query("T", "k", 9, *ALWAYS) == [100]
    assert index.query("T", "uniq-0", 9, *ALWAYS) == []
    assert index.query("T", "uniq-2", 9, *ALWAYS) == [200]
    assert index.query("T", "", 9, *ALWAYS) == []
    index.close()


def test_messages_are_applied_when_enough_have_gathered(tmp_path: Path) -> None:
    index = opened(tmp_path, entries=BUFFERED_MESSAGES_MAX + 10)
    index.append_many([message(n) for n in range(BUFFERED_MESSAGES_MAX - 1)])
    assert not (tmp_path / "index").exists()
    assert index.end_timestamp == T0 + (BUFFERED_MESSAGES_MAX - 2) * 500
    index.append_many([message(BUFFERED_MESSAGES_MAX - 1)])
    assert len(files(tmp_path)) == 1
    index.close()


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 25, 39, 40])
def test_truncation_leaves_what_a_rebuild_up_to_there_gives(tmp_path: Path, kept: int) -> None:
    messages = [message(n, keys=b"common %d" % (n % 4)) for n in range(40)]
    index = opened(tmp_path, entries=31)
    index.append_many(messages)
    index.truncate_above(kept * 100)
    assert index.end_physical == kept * 100 - 100 if kept else index.end_physical == -1
    assert index.query("T", "common", 100, *ALWAYS) == [n * 100 for n in reversed(range(kept))]
    index.append_many(messages)
    index.close()
    twin = opened(tmp_path / "twin", entries=31)
    twin.append_many(messages)
    twin.close()
    assert files(tmp_path) == files(tmp_path / "twin")


def test_after_a_kill_slots_and_header_are_made_from_the_entries(tmp_path: Path) -> None:
    messages = [message(n, keys=b"common %d" % (n % 4)) for n in range(40)]
    index = opened(tmp_path)
    index.append_many(messages[:20])
    index.persist(sync=True)
    index.append_many(messages[20:])
    index.persist()
    # Neither close() nor another sync: the slots on disk are those of the first half.
    again = opened(tmp_path, clean=False)
    assert again.end_physical == 3800
    again.append_many(messages)
    assert again.query("T", "common", 100, *ALWAYS) == [n * 100 for n in reversed(range(40))]
    again.close()
    index.close()
    twin = opened(tmp_path / "twin")
    twin.append_many(messages)
    twin.close()
    assert files(tmp_path) == files(tmp_path / "twin")


def test_a_page_of_entries_that_never_reached_the_disk_ends_the_file(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.append_many([message(n) for n in range(40)])
    index.close()
    path = next((tmp_path / "index").iterdir())
    content = bytearray(path.read_bytes())
    at = 40 + SLOTS * 4 + 20 * 30
    content[at : at + 60] = bytes(60)
    path.write_bytes(content)
    again = opened(tmp_path, clean=False)
    # Entry 30 is message 29; message 28, the last that is left, is dispatched again.
    assert again.end_physical == 2700
    again.close()


def test_files_of_another_size_are_refused_and_torn_ones_mended(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.append_many([message(0)])
    index.close()
    with pytest.raises(StoreDamaged, match="maxIndexNum"):
        opened(tmp_path, slots=SLOTS + 1)
    (tmp_path / "index" / "99991231235959999").write_bytes(b"")
    again = opened(tmp_path, clean=False)
    assert (again.files, again.end_physical) == (0, -1)
    again.close()


def test_clear_deletes_all_files(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.append_many([message(0)])
    index.persist()
    index.append_many([message(1)])
    index.clear()
    assert (index.files, index.end_physical, index.query("T", "uniq-1", 5, *ALWAYS)) == (0, -1, [])
    index.append_many([message(0)])
    assert index.query("T", "uniq-0", 5, *ALWAYS) == [0]
    index.close()


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=50))
def test_many_hashes_at_once_are_javas(pairs: list[tuple[str, str]]) -> None:
    pieces = [key.encode("utf-8", "replace") for _, key in pairs]
    prefixes = np.array([java_hash(topic.encode("utf-8", "replace")) & 0xFFFFFFFF for topic, _ in pairs], np.uint32)
    expected = [
        java_hash(topic.encode("utf-8", "replace") + piece) for (topic, _), piece in zip(pairs, pieces, strict=True)
    ]
    assert hash_all(pieces, prefixes)[0].view(np.int32).tolist() == expected


def test_long_keys_are_hashed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.derived.indexhash._UNITS_MAX", 10)
    pieces = [b"abcdefgh", "长长长".encode(), b"", b"x" * 30]
    assert hash_all(pieces, np.zeros(4, np.uint32))[0].view(np.int32).tolist() == [java_hash(piece) for piece in pieces]


def test_the_hash_without_an_absolute_value_counts_as_zero(tmp_path: Path) -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE.
    assert key_hash("polygene", "") != 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert abs(java_hash("T#")) == key_hash("T", "")
    index = opened(tmp_path)
    # The topic is empty and the key has no '#': what is hashed is exactly "#…"; found by its own hash either way.
    index.append_many([message(3, topic="")])
    assert index.query("", "uniq-3", 1, *ALWAYS) == [300]
    index.close()


def test_keys_are_spread_in_rocketmqs_order() -> None:
    pieces, counts = spread_keys([b"u", b"v"], [b"a b", b""], [b"", b"t"])
    assert pieces == [b"u", b"a", b"b", b"", b"v", b"", b"t"]
    assert counts.tolist() == [4, 3]
    pieces, counts = spread_keys([b"u", b"v"], [b"a", b""], [b"", b"t"])
    assert pieces == [b"u", b"a", b"", b"v", b"", b"t"]
    assert counts.tolist() == [3, 3]
