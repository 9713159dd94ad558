"""A member's log on a full disk: what is refused, what room was kept for (R12), and that nothing half-written stays."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused, EntryType
from runtime.clock import ManualClock
from store.files.disk import Disk
from store.log.health import CLOSED_SECONDS, FULL_DISK_RETRY_SECONDS, RELAPSE_SECONDS
from store.types import PutStatus
from tests.parts.entry_tools import Node, lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, record

BODY = b"x" * 1000


class SmallDisk(Disk):
    """Files of the log have their bytes up to those that there is room for, as a file system that keeps its word."""

    def __init__(self) -> None:
        # Bytes that can still be had; None: as many as are wanted.
        self.room: int | None = None
        self.given: dict[str, int] = {}

    def allocate(self, fd: int, offset: int, length: int) -> None:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        new = max(0, offset + length - max(offset, self.given.get(path, 0)))
        if self.room is not None:
            if new > self.room:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            self.room -= new
        self.given[path] = max(self.given.get(path, 0), offset + length)

    def free_bytes(self, folder: Path) -> int:
        return super().free_bytes(folder) if self.room is None else self.room

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        if self.room is not None and "/commitlog/" in path:
            assert offset + len(data) <= self.given[path], "it is written where there is room for certain"
        super().pwrite(fd, data, offset)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


@pytest.fixture
def node(tmp_path: Path, disk: SmallDisk, clock: ManualClock) -> Iterator[Node]:
    made = open_node(tmp_path / "n0", disk=disk, clock=clock)
    yield made
    made.store.close()


def until_full(node: Node, append: Callable[[], int] | None = None) -> int:
    """Append messages, or something else, until the disk is full; return how many were taken."""
    for taken in range(1000):
        try:
            append() if append is not None else node.records(BODY)
        except EntryRefused:
            return taken
    raise AssertionError("it is never full")


def test_R12_room_stays_for_metadata_and_some_of_it_for_no_ops_and_configs(
    node: Node, disk: SmallDisk, clock: ManualClock
) -> None:
    lead(node, 1)
    disk.room = FILE_BYTES // 2
    assert until_full(node) > 5
    last, log = node.log.last, node.log
    assert log.full
    assert log.refused == "the disk is full"
    assert node.store.writable() == node.store.stats().refused == "the disk is full"
    assert log.append_records([record()], 1, 0)[1][0].status is PutStatus.SERVICE_NOT_AVAILABLE
    # What goes on without messages does, far beyond what they were refused for.
    metas = until_full(node, lambda: log.append(EntryType.META, 1, bytes(500), 0))
    assert metas * 500 > FILE_BYTES // 8
    assert log.last.index == last.index + metas
    for kind in (EntryType.NOOP, EntryType.CONFIG) * 3:
        log.append(kind, 2, b"", 0)
    # And when there is room all is as before, without a restart.
    disk.room = None
    clock.advance(CLOSED_SECONDS)
    assert not log.full
    node.store.idle()
    assert node.store.stats().refused is None
    assert node.records(BODY, term=2) == last.index + metas + 7


def test_what_a_full_disk_refused_is_not_there_at_the_next_start(
    node: Node, disk: SmallDisk, clock: ManualClock, tmp_path: Path
) -> None:
    lead(node, 1)
    for _ in range(2):
        disk.room = FILE_BYTES
        until_full(node)
        disk.room = None
        clock.advance(FULL_DISK_RETRY_SECONDS)
        assert node.records(BODY) == node.log.last.index
        clock.advance(RELAPSE_SECONDS)
    node.sync()
    expected, content = node.log.last, node.content
    node.kill()
    again = open_node(tmp_path / "n0")
    assert again.log.last == expected
    assert again.content == content
    assert again.log.whole
    again.store.close()


def test_a_follower_on_a_full_disk_takes_nothing_and_goes_on_when_there_is_room(
    node: Node, disk: SmallDisk, clock: ManualClock, tmp_path: Path
) -> None:
    leader = open_node(tmp_path / "n1")
    lead(leader, 0)
    for _ in range(3 * FILE_BYTES // len(BODY)):
        leader.records(BODY)
    node.log.accept(sent(leader, 1, 4))
    node.sync()
    disk.room = FILE_BYTES
    with pytest.raises(EntryRefused, match="the disk is full"):
        node.log.accept(sent(leader, 5))
    assert (node.log.last.index, node.log.durable) == (4, 4)
    assert node.content == leader.content[: node.log.last.end], "nothing of it is there"
    assert node.log.full
    disk.room = None
    clock.advance(CLOSED_SECONDS)
    assert not node.log.full
    node.log.accept(sent(leader, 5))
    node.sync()
    assert node.log.durable == leader.log.last.index
    assert node.content == leader.content
    leader.store.close()


def test_idle_finds_out_that_there_is_no_room_and_that_there_is(
    node: Node, disk: SmallDisk, clock: ManualClock
) -> None:
    disk.room = 0
    node.store.idle()
    assert node.store.writable() == "the disk is full"
    for _ in range(3):
        clock.advance(FULL_DISK_RETRY_SECONDS)
        node.store.idle()
        assert node.store.writable() == "the disk is full"
    disk.room = None
    clock.advance(FULL_DISK_RETRY_SECONDS)
    node.store.idle()
    assert node.store.writable() is None


def test_a_write_that_fails_in_spite_of_its_room_is_undone(tmp_path: Path, clock: ManualClock) -> None:
    class Lying(SmallDisk):
        lies = False

        def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            if self.lies and any(data):
                super().pwrite(fd, bytes(data)[: len(data) // 2], offset)
                raise OSError(errno.ENOSPC, "No space left on device")
            super().pwrite(fd, data, offset)

    disk = Lying()
    node = open_node(tmp_path, disk=disk, clock=clock)
    lead(node, 2)
    before = node.log.last
    acts: list[Callable[[], int]] = [
        lambda: node.records(BODY),
        lambda: node.log.append(EntryType.NOOP, 1, b"", 0),
    ]
    for act in acts:
        disk.lies = True
        with pytest.raises(EntryRefused, match="the disk is full"):
            act()
        disk.lies = False
        assert node.log.last == before
        (first,) = (tmp_path / "store" / "commitlog").glob("0" * 20)
        assert not any(first.read_bytes()[before.end :]), "the half that was written is zeros again"
        clock.advance(RELAPSE_SECONDS)
    assert node.records(BODY) == before.index + 1
    node.store.close()


def test_the_floor_has_its_room_from_the_start(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "n0" / "store" / "raft" / "floor"
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 0
    assert node.log.floor == 0
