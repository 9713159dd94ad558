"""A disk without room for what is derived from the log: sends are refused (14), and all is right when there is room."""

import errno
from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused
from remoting.properties import encode_properties
from runtime.clock import ManualClock
from store.derived import consumequeue, indexfile
from store.errors import StoreWriteError
from store.files import checkpoint
from store.files.descriptors import Descriptors
from store.files.disk import Disk
from store.log import checkpointer as keeper
from store.messagestore import MessageStore
from store.types import PutStatus
from tests.parts.entry_tools import lead, open_node, sent
from tests.parts.slave_tools import Slave, open_master, piece
from tests.parts.slave_tools import send as send_many
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config, record


class Full:
    """The file system takes nothing more in some files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        self.on = True
        self.tried = 0
        write = Descriptors.write

        def refusing(
            files: Descriptors, path: str, position: int, content: bytes | memoryview, *, file_bytes: int
        ) -> None:
            if self.on and f"/{kind}/" in path:
                self.tried += 1
                # As a real one: a part is written.
                write(files, path, position, memoryview(content)[: len(content) // 2], file_bytes=file_bytes)
                raise OSError(errno.ENOSPC, "No space left on device", path)
            write(files, path, position, content, file_bytes=file_bytes)

        monkeypatch.setattr(Descriptors, "write", refusing)


def open_store(folder: Path, clock: ManualClock) -> MessageStore:
    return MessageStore.open(make_config(folder), store_host=HOST, clock=clock, stepped=True)


def step(store: MessageStore, clock: ManualClock, seconds: float = 1) -> None:
    clock.advance(seconds)
    store.idle()
    while store.step_flush() or store.step_helper():
        pass
    store.idle()


def send(store: MessageStore, number: int) -> PutStatus:
    result = store.put(record(b"%d" % number, properties=encode_properties({"KEYS": f"k{number}"})))
    store.write()
    return result.status


def check(folder: Path, clock: ManualClock, count: int) -> None:
    """Everything is in queue and index, and a queue built anew is the same."""
    store = open_store(folder, clock)
    queue = store.queue_entries("T", 0, 0, 10_000)
    assert len(queue) == count
    for number in range(count):
        (found,) = store.query("T", f"k{number}", 9, 0, 1 << 60).records
        assert bytes(found[88 : 88 + len(str(number))]) == str(number).encode()
    store.close()
    for path in sorted((folder / "store" / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store = open_store(folder, clock)
    assert store.queue_entries("T", 0, 0, 10_000) == queue
    store.close()


@pytest.mark.parametrize("kind", ["consumequeue", "index"])
def test_no_room_for_derived_files_refuses_sends_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(indexfile, "BUFFERED_MESSAGES_MAX", 8)
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    full = Full(monkeypatch, kind)
    sent = 0
    # What is taken before the store looks is kept in memory.
    for _ in range(40):
        assert send(store, sent) is PutStatus.PUT_OK
        sent += 1
    step(store, clock)
    assert full.tried
    assert "the disk is full" in (store.writable() or "")
    assert send(store, 999) is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.get("T", 0, 0, 64).count == 32, "what was taken is served"
    for _ in range(5):
        step(store, clock)
    assert store.writable() is not None
    full.on = False
    step(store, clock)
    assert store.writable() is None
    for _ in range(20):
        assert send(store, sent) is PutStatus.PUT_OK
        sent += 1
    for _ in range(4):
        step(store, clock, 6)
    store.close()
    check(tmp_path, clock, sent)


def test_no_room_for_the_checkpoint_refuses_sends_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    save, on = checkpoint.save_checkpoint, True

    def refusing(root: Path, disk: Disk, coming: checkpoint.Checkpoint) -> None:
        if on:
            raise OSError(errno.ENOSPC, "No space left on device", str(root))
        save(root, disk, coming)

    monkeypatch.setattr(keeper, "save_checkpoint", refusing)
    fill(store, 5)
    before = store._keeper.checkpoint.dispatched
    for _ in range(4):
        step(store, clock, 6)
    assert "the disk is full" in (store.writable() or "")
    on = False
    for _ in range(4):
        step(store, clock, 6)
    assert store.writable() is None
    fill(store, 1)
    for _ in range(4):
        step(store, clock, 6)
    assert store._keeper.checkpoint.dispatched == store.written > before
    store.close()


def test_no_room_for_the_fillers_of_a_queue_that_begins_late_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    master = open_master(tmp_path / "master")
    send_many(master, 400)
    slave = Slave(tmp_path / "slave", clock=clock)
    full = Full(monkeypatch, "slave/store/consumequeue")
    # As syncFromLastFile does: its queues begin with the offsets that the second file begins with.
    slave.log.append(FILE_BYTES, piece(master, FILE_BYTES, master.written))
    while slave.log.dispatch():
        pass
    assert full.tried
    full.on = False
    step(slave.store, clock)
    queues = [(topic, queue_id) for topic, ids in slave.store._queues.topics().items() for queue_id in ids]
    assert any(slave.store.min_offset(*queue) for queue in queues)

    def ends() -> list[tuple[int, int]]:
        return [(slave.store.min_offset(*queue), slave.store.max_offset(*queue)) for queue in queues]

    expected = ends()
    assert {end for _, end in expected} == {master.max_offset(*queue) for queue in queues}
    slave.sync()
    slave.store.close()
    slave = Slave(tmp_path / "slave")
    assert ends() == expected
    for topic, queue_id in queues:
        low, end = slave.store.min_offset(topic, queue_id), slave.store.max_offset(topic, queue_id)
        theirs = master.queue_entries(topic, queue_id, low, end - low)
        assert slave.store.queue_entries(topic, queue_id, low, end - low) == theirs
    slave.store.close()
    master.close()


def test_a_follower_without_room_for_its_queues_takes_less_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumequeue, "BUFFERED_ENTRIES_MAX", 10)
    clock = ManualClock()
    node, follower = open_node(tmp_path / "n0"), open_node(tmp_path / "n1", clock=clock)
    lead(node, 60)
    node.sync()
    full = Full(monkeypatch, "n1/store/consumequeue")

    def take() -> None:
        while follower.log.last.index < node.log.last.index:
            index = follower.log.last.index + 1
            follower.log.accept(sent(node, index, index))
            follower.sync()
            follower.log.release(index)

    with pytest.raises(EntryRefused, match="wait for room"):
        take()
    stopped = follower.log.last.index
    assert 5 < stopped < 60
    assert follower.store.writable() is None or "full" in (follower.store.writable() or "")
    step(follower.store, clock)
    with pytest.raises(EntryRefused, match="wait for room"):
        take()
    assert follower.log.last.index == stopped
    full.on = False
    step(follower.store, clock)
    take()
    assert follower.content == node.content
    assert follower.store.max_offset("T", 0) == 120
    follower.store.close()
    node.store.close()


def test_a_slave_without_room_for_its_queues_takes_less_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumequeue, "BUFFERED_ENTRIES_MAX", 10)
    clock = ManualClock()
    master = open_master(tmp_path / "master")
    send_many(master, 100)
    slave = Slave(tmp_path / "slave", clock=clock)
    full = Full(monkeypatch, "slave/store/consumequeue")
    for _ in range(2):
        with pytest.raises(StoreWriteError, match="wait for room"):
            slave.take(master)
        step(slave.store, clock)
    full.on = False
    step(slave.store, clock)
    slave.take(master)
    assert slave.log.dispatched == master.written
    slave.store.close()
    master.close()


def test_no_room_for_tables_refuses_sends_until_there_is(tmp_path: Path) -> None:
    store = open_store(tmp_path, ManualClock())
    assert send(store, 0) is PutStatus.PUT_OK
    for _ in range(2):
        store.tables_full(OSError(errno.ENOSPC, "No space left on device"))
        assert "the disk is full: tables" in (store.writable() or "")
        assert send(store, 1) is PutStatus.SERVICE_NOT_AVAILABLE
    store.tables_full(None)
    assert store.writable() is None
    assert send(store, 1) is PutStatus.PUT_OK
    store.close()
