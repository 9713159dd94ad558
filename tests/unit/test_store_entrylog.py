import errno
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from raft.protocol.types import EntryRefused, EntryType, Mark
from remoting.record import BLANK_BYTES, decode_records
from remoting.topics import RAFT_TOPIC
from store.controlrecord import control_bytes, decode_control
from store.errors import StoreWriteError
from store.events import StoreEvents
from store.files.disk import Disk
from store.files.floorfile import read_floor
from store.messagestore import MessageStore
from store.raftlog.entrycache import EntryCache
from store.types import GetStatus, PutStatus
from tests.parts.entry_tools import Node, lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, HOST, make_config, record


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = open_node(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Node]:
    made = open_node(tmp_path / "follower")
    yield made
    made.store.close()


class FullDisk(Disk):
    def __init__(self) -> None:
        self.error: int | None = None

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.error is not None and any(data):
            super().pwrite(fd, data[:200], offset)
            raise OSError(self.error, "no")
        super().pwrite(fd, data, offset)


def test_an_empty_log(node: Node) -> None:
    log = node.log
    assert log.base == log.last == Mark(0, 0, 0, 0)
    assert (log.durable, log.floor, log.commit, log.last_config()) == (0, 0, 0, 0)
    assert log.whole
    assert log.digest() == 0
    assert log.term(0) == 0
    assert log.term(1) is None
    assert log.read(1, 1000) == log.read(0, 1000) == []
    with pytest.raises(LookupError):
        log.kind(1)


def test_entries_are_records_behind_control_records(node: Node) -> None:
    log = node.log
    assert log.append(EntryType.CONFIG, 1, b"config", 0) == 1
    assert log.append(EntryType.NOOP, 2, b"", 0) == 2
    index, results = log.append_records([record(b"a"), [record(b"b"), record(b"c")], record(b"d", "U")], 2, 1)
    assert index == 3
    assert results[0].queue_offset == 0
    assert [result.queue_offset for result in results[1]] == [1, 2]
    assert results[2].end == log.last.end == node.store.written
    assert log.append(EntryType.META, 3, b"meta", 2) == 4
    assert [log.kind(at) for at in range(1, 5)] == [3, 0, 1, 2]
    assert [log.payload(at) for at in range(1, 5)] == [b"config", b"", b"", b"meta"]
    assert [log.term(at) for at in range(5)] == [0, 1, 2, 2, 3]
    assert log.last_config() == 1
    entries = log.read(1, 1 << 20)
    assert b"".join(entry.data for entry in entries) == node.content
    control = decode_control(entries[2].data)
    assert (control.commit, control.config, control.previous_term, control.covered_count) == (1, 1, 2, 4)
    bodies = [message.body for message in decode_records(bytes(entries[2].data), check_crc=True)[1:]]
    assert bodies == [b"a", b"b", b"c", b"d"]


def test_read_gives_at_least_one_and_what_fits(node: Node) -> None:
    lead(node, 5)
    sizes = [len(entry.data) for entry in node.log.read(1, 1 << 20)]
    assert [entry.index for entry in node.log.read(2, 1)] == [2]
    assert [entry.index for entry in node.log.read(2, sizes[1] + sizes[2])] == [2, 3]
    assert [entry.index for entry in node.log.read(2, sizes[1] + sizes[2] - 1)] == [2]
    node.log._cache.cut(0)
    assert [entry.index for entry in node.log.read(2, sizes[1] + sizes[2])] == [2, 3]
    assert b"".join(entry.data for entry in node.log.read(1, 1 << 20)) == node.content


def test_positions_and_indexes(node: Node) -> None:
    lead(node, 4)
    log = node.log
    assert log.end_position(0) == 0
    for index in range(1, 6):
        end = log.end_position(index)
        assert log.index_at(end) == index
        assert log.index_at(end - 1) == index - 1
    assert log.index_at(log.last.end + 99) == 5


def test_R12_nothing_is_dispatched_before_it_is_committed(node: Node) -> None:
    lead(node, 3)
    store, log = node.store, node.log
    assert node.told == []
    assert store.topics() == {RAFT_TOPIC: [0]}
    assert store.stats().dispatch_behind_bytes == store.written
    log.release(3)
    assert [entry.queue_offset for entry in node.told] == [0, 1, 2, 3]
    assert store.max_offset("T", 0) == 4
    assert store.stats().dispatch_behind_bytes == store.written - log.end_position(3)
    log.release(2)
    assert (log.commit, log.released) == (3, 3)
    log.release(4)
    assert store.max_offset("T", 0) == 6


def test_control_records_are_seen_by_nobody(node: Node) -> None:
    lead(node, 2)
    node.log.release(3)
    assert {entry.topic for entry in node.told} == {"T"}
    assert node.store.get(RAFT_TOPIC, 0, 1, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    hints = node.store.queue_entries(RAFT_TOPIC, 0, 1, 9)
    assert [entry.tags_code for entry in hints] == [1, 1, 1]
    assert [node.store.record_at(entry.physical_offset) for entry in hints] == [None] * 3
    assert all(node.store.any_record_at(entry.physical_offset) for entry in hints)


def test_records_are_put_in_entries_only(node: Node) -> None:
    assert node.store.put(record()).status is PutStatus.OS_PAGE_CACHE_BUSY
    lead(node)
    assert node.store.put(record()).status is PutStatus.OS_PAGE_CACHE_BUSY
    assert node.store.write() == node.log.last.end


def test_refused_records_make_no_entry(node: Node) -> None:
    lead(node, 1)
    before = node.log.last
    index, results = node.log.append_records([record(topic=""), [record(), record(properties=b"x\0")]], 1, 0)
    assert index == -1
    assert results[0].status is PutStatus.MESSAGE_ILLEGAL
    assert [result.status for result in results[1]] == [PutStatus.MESSAGE_ILLEGAL]
    assert node.log.last == before
    index, results = node.log.append_records([record(topic=""), record(b"good")], 1, 0)
    assert index == before.index + 1
    assert [result.status for result in results] == [PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK]
    assert results[1].queue_offset == 2


def test_R11_an_entry_stands_in_one_file(node: Node, follower: Node) -> None:
    log = node.log
    log.append(EntryType.CONFIG, 1, b"c", 0)
    for number in range(100):
        node.records(*[bytes(700 + number)] * 3)
    log.append(EntryType.META, 1, bytes(60_000), 0)
    log.append(EntryType.META, 1, bytes(6_000), 0)
    for entry in log.read(1, 1 << 30):
        assert entry.position % FILE_BYTES + len(entry.data) + BLANK_BYTES <= FILE_BYTES
    assert log.last.end > 3 * FILE_BYTES
    while follower.log.last.index < log.last.index:
        follower.log.accept(log.read(follower.log.last.index + 1, 20_000))
    assert follower.content == node.content


def test_R11_limits_of_one_entry(node: Node) -> None:
    log = node.log
    log.append(EntryType.CONFIG, 1, b"c", 0)
    room = FILE_BYTES - control_bytes(HOST) - BLANK_BYTES
    assert log.entry_room(room)
    assert not log.entry_room(room + 1)
    assert log.append(EntryType.META, 1, bytes(room), 0) == 2
    assert log.last.end == 2 * FILE_BYTES - BLANK_BYTES
    with pytest.raises(ValueError, match="do not fit"):
        log.append(EntryType.META, 1, bytes(room + 1), 0)
    index, results = log.append_records([record(bytes(30_000))] * 3, 1, 0)
    assert index == 3
    assert [result.status for result in results] == [PutStatus.PUT_OK] * 2 + [PutStatus.OS_PAGE_CACHE_BUSY]
    assert log.append_records([record(bytes(FILE_BYTES))], 1, 0)[0] == -1
    assert log.last.index == 3


def test_two_members_are_byte_for_byte_equal(node: Node, follower: Node) -> None:
    lead(node, 60)
    node.log.append(EntryType.META, 2, b"meta", 5)
    while follower.log.last.index < node.log.last.index:
        follower.log.accept(sent(node, follower.log.last.index + 1, follower.log.last.index + 7))
    assert follower.log.last == node.log.last
    assert follower.content == node.content
    for each in (node, follower):
        each.log.release(40)
    assert follower.told == node.told
    assert follower.log.last_config() == 1
    assert follower.store.stats().latest_timestamp == node.store.stats().latest_timestamp


def test_offsets_go_on_behind_what_is_not_committed(node: Node, follower: Node) -> None:
    lead(node, 3)
    follower.log.accept(sent(node, 1))
    follower.log.release(2)
    _, results = follower.log.append_records([record(), record(queue_id=1)], 2, 2)
    assert [result.queue_offset for result in results] == [6, 0]
    follower.log.cut(3)
    assert follower.log.append_records([record()], 3, 2)[1][0].queue_offset == 4
    follower.log.release(4)
    assert [entry.queue_offset for entry in follower.told] == [0, 1, 2, 3, 4]


def test_offsets_of_a_deleted_topic_go_on_behind_what_is_held(node: Node) -> None:
    lead(node, 3)
    node.log.release(3)
    node.store.delete_topic("T")
    assert node.log.append_records([record()], 1, 3)[1][0].queue_offset == 6
    node.log.release(5)
    node.store.delete_topic("T")
    assert node.log.append_records([record()], 1, 3)[1][0].queue_offset == 0


def test_what_does_not_fit_into_memory_is_read_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.raftlog.uncommitted.HELD_RECORDS_MAX", 5)
    lead(node, 10)
    assert node.log._held.records == 4
    node.log._cache.cut(0)
    node.log.release(11)
    assert [entry.queue_offset for entry in node.told] == list(range(20))
    assert node.log._held.records == 0


def test_the_cache_is_bounded(node: Node) -> None:
    lead(node, 5)
    cache = EntryCache(bytes_max=1000, controls_max=3)
    for entry in node.log.read(1, 1 << 20):
        cache.add(node.log._finder.kept(entry.index), entry.data)
        assert cache.data_bytes <= 1000
    assert cache.control(3) is None
    assert cache.control(4) is not None
    assert cache.data(6) is not None
    cache.cut(4)
    assert (cache.control(5), cache.data(5), cache.data(6)) == (None, None, None)


def test_durable_follows_the_flusher(node: Node) -> None:
    lead(node, 2)
    assert (node.log.durable, node.log.floor) == (0, 0)
    node.log.sync_soon()
    node.sync()
    assert (node.log.durable, node.log.floor) == (3, 3)
    lead(node, 1)
    assert node.log.settle(node.store.written) == 3
    node.sync()
    node.store.close()
    assert read_floor(node.folder / "store") == node.log.last


def test_R4_what_was_cut_and_not_synced_again_is_not_durable(node: Node) -> None:
    lead(node, 3)
    node.sync()
    told = node.store.flushed
    node.log.cut(2)
    assert (node.log.durable, node.log.floor) == (2, 2)
    lead(node, 3, term=2)
    # The flusher's word of before, which was still on its way.
    assert node.log.settle(told) == 2
    node.sync()
    assert node.log.durable == 5


def test_cut_removes_everything_behind(node: Node, follower: Node) -> None:
    lead(node, 2)
    follower.log.accept(sent(node, 1))
    node.log.append(EntryType.CONFIG, 2, b"second", 0)
    for _ in range(5):
        node.log.append(EntryType.META, 2, bytes(50_000), 0)
    assert node.log.last_config() == 4
    node.sync()
    node.log.cut(3)
    assert node.log.last == follower.log.last
    assert node.log.last_config() == 1
    assert node.store.written == node.store.flushed == node.log.last.end
    while node.store.step_helper():
        pass
    assert [path.name for path in (node.folder / "store" / "commitlog").iterdir()] == [f"{0:020d}"]
    assert not any((node.folder / "store" / "commitlog" / f"{0:020d}").read_bytes()[node.log.last.end :])
    node.log.cut(7)
    node.log.cut(0)
    assert node.log.last == Mark(0, 0, 0, 0)
    while node.store.step_helper():
        pass
    node.log.accept(sent(follower, 1))
    assert node.content == follower.content


def test_what_is_committed_is_never_cut(node: Node) -> None:
    lead(node, 3)
    node.log.release(3)
    with pytest.raises(AssertionError, match="never cut"):
        node.log.cut(2)
    node.log.cut(3)


def test_a_full_disk_undoes_the_entry(tmp_path: Path) -> None:
    disk = FullDisk()
    node = open_node(tmp_path, disk=disk)
    lead(node, 2)
    before = node.log.last
    disk.error = errno.ENOSPC
    with pytest.raises(EntryRefused, match="the disk is full"):
        node.records(b"lost")
    assert node.log.last == before
    assert node.log.append_records([record()], 1, 0)[1][0].status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.error = None
    # Room stays for what is no message, at once.
    assert node.log.append(EntryType.META, 1, b"m", 0) == 4
    node.store.close()
    node = open_node(tmp_path)
    assert node.log.last.index == 4
    assert node.log.append_records([record()], 1, 0)[1][0].queue_offset == 4
    node.store.close()


def test_a_broken_disk_ends_it(tmp_path: Path) -> None:
    disk = FullDisk()
    node = open_node(tmp_path, disk=disk)
    lead(node, 2)
    disk.error = errno.EIO
    with pytest.raises(OSError, match="no"):
        node.log.append(EntryType.NOOP, 1, b"", 0)
    disk.error = None
    for act in (
        lambda: node.log.append(EntryType.NOOP, 1, b"", 0),
        lambda: node.log.accept([]),
        lambda: node.log.cut(1),
    ):
        with pytest.raises(OSError, match="restart"):
            act()
    node.store.close()
    assert node.again().log.last.index == 3


def test_queues_that_cannot_take_records_end_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    lead(node, 1)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(node.store._delivery._dispatcher, "dispatch", refuse)
    with pytest.raises(StoreWriteError):
        node.log.release(2)
    assert node.log.released == 0
    with pytest.raises(OSError, match="restart"):
        node.log.append(EntryType.NOOP, 1, b"", 0)


def test_bytes_for_a_copy(node: Node) -> None:
    lead(node, 200)
    log = node.log
    position = log.end_position(190)
    parts = log.files_upto(position)
    assert b"".join(bytes(log.read_bytes(*part)) for part in parts) == node.content[:position]
    assert sum(size for _, size in parts) == position
    assert log.digest() == 0


def test_R4_cuts_and_syncs_in_threads_agree(tmp_path: Path) -> None:
    told: SimpleQueue[int] = SimpleQueue()
    events = StoreEvents(flushed=told.put)
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, group=True, events=events)
    log = store.entries
    assert log is not None
    log.append(EntryType.CONFIG, 1, b"c", 0)
    for term in range(1, 60):
        for _ in range(3):
            log.append_records([record(bytes(3000))], term, 0)
            log.sync_soon()
        log.cut(log.last.index - 2)
        if term % 2:
            # Else it is what the next append waits for.
            store._helper.worker.drain()
            mark = read_floor(tmp_path / "store")
            assert mark is None or mark.end <= log.last.end
    log.sync_soon()
    while log.durable < log.last.index:
        log.settle(told.get(timeout=10))
    last = log.last
    store.close()
    again = open_node(tmp_path)
    assert (again.log.last, again.log.floor) == (last, last.index)
    again.store.close()
