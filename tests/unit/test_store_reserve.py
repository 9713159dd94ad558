"""Room that a store keeps and gives up on a full disk, and what is told when messages are refused and taken again."""

import errno
import logging
from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused, EntryType
from runtime.clock import ManualClock
from store.errors import StoreWriteError
from store.files.disk import Disk
from store.files.reserve import RESERVE_BYTES, RESERVE_NAME, Reserve
from store.log.health import CLOSED_SECONDS, FULL_DISK_RETRY_SECONDS, RELAPSE_SECONDS
from store.messagestore import MessageStore
from store.types import PutStatus
from tests.parts.entry_tools import lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, HOST, make_config, record

KEPT = FILE_BYTES // 4


class ScarceDisk(Disk):
    """`free` bytes are left, None: as many as there are; `refuses`: no write of the log finds room."""

    def __init__(self) -> None:
        self.free: int | None = None
        self.refuses = False
        self.ratio = 0.1

    def free_bytes(self, folder: Path) -> int:
        return super().free_bytes(folder) if self.free is None else self.free

    def used_ratio(self, _folder: Path) -> float:
        return self.ratio

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.refuses and any(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pwrite(fd, data, offset)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> ScarceDisk:
    return ScarceDisk()


def open_store(folder: Path, disk: Disk, clock: ManualClock) -> MessageStore:
    return MessageStore.open(make_config(folder), store_host=HOST, clock=clock, disk=disk, stepped=True)


def send(store: MessageStore) -> PutStatus:
    if store.writable() is not None:
        return PutStatus.SERVICE_NOT_AVAILABLE
    result = store.put(record())
    if result.status is PutStatus.PUT_OK:
        store.write()
    return result.status


def on_disk(folder: Path) -> int | None:
    path = folder / "store" / RESERVE_NAME
    return path.stat().st_blocks * 512 if path.exists() else None


def test_it_is_kept_given_up_and_had_again(tmp_path: Path, disk: ScarceDisk, clock: ManualClock) -> None:
    store = open_store(tmp_path, disk, clock)
    assert store.stats().reserve_bytes == KEPT
    assert on_disk(tmp_path) == KEPT
    assert send(store) is PutStatus.PUT_OK
    disk.refuses, disk.free = True, 0
    with pytest.raises(StoreWriteError):
        send(store)
    assert on_disk(tmp_path) is None, "given up"
    assert store.stats().reserve_bytes == 0
    # What was given up is for what must go on: messages do not get it, however often they try.
    disk.refuses, disk.free = False, 2 * KEPT - 1
    for _ in range(5):
        clock.advance(FULL_DISK_RETRY_SECONDS)
        store.idle()
        assert store.refused == "the disk is full"
        assert send(store) is PutStatus.SERVICE_NOT_AVAILABLE
    clock.advance(FULL_DISK_RETRY_SECONDS)
    # Nor does one that is let through to see whether there is room.
    with pytest.raises(StoreWriteError):
        send(store)
    disk.free = 2 * KEPT
    clock.advance(FULL_DISK_RETRY_SECONDS)
    store.idle()
    assert store.refused is None, "without a message that asks"
    assert on_disk(tmp_path) == KEPT
    assert send(store) is PutStatus.PUT_OK
    store.close()
    assert on_disk(tmp_path) == KEPT


def test_what_the_last_run_kept_counts_on_a_full_disk(tmp_path: Path, disk: ScarceDisk, clock: ManualClock) -> None:
    open_store(tmp_path, disk, clock).close()
    disk.free = 0
    store = open_store(tmp_path, disk, clock)
    assert store.refused is None
    assert store.stats().reserve_bytes == KEPT
    store.close()
    (tmp_path / "store" / RESERVE_NAME).write_bytes(b"half")
    store = open_store(tmp_path, disk, clock)
    assert store.refused == "the disk is full", "it starts, so that people and retention can make room"
    assert store.get("T", 0, 0, 1) is not None
    disk.free = None
    clock.advance(FULL_DISK_RETRY_SECONDS)
    store.idle()
    assert store.refused is None
    store.close()


def test_it_is_small_for_small_files_and_16_mib_at_most(tmp_path: Path, disk: ScarceDisk) -> None:
    reserve = Reserve(disk, tmp_path, tmp_path, 4 * RESERVE_BYTES + 4)
    reserve.hold()
    assert reserve.size == RESERVE_BYTES == 16 * 1024 * 1024
    reserve.give_up()
    assert not (tmp_path / RESERVE_NAME).exists()


def test_a_log_on_another_disk_must_have_room_too(tmp_path: Path) -> None:
    log = tmp_path / "log"

    class TwoDisks(Disk):
        def free_bytes(self, folder: Path) -> int:
            return 0 if folder == log else 1 << 40

    reserve = Reserve(TwoDisks(), tmp_path, log, FILE_BYTES)
    with pytest.raises(OSError, match="No space left"):
        reserve.hold()
    assert reserve.size == 0


def test_a_disk_that_keeps_no_room_is_used_without(
    tmp_path: Path, disk: ScarceDisk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path, _size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(disk, "keep_room", refused)
    store = open_store(tmp_path, disk, clock)
    assert send(store) is PutStatus.PUT_OK
    store.close()


def test_every_change_is_told_once_and_counted(
    tmp_path: Path, disk: ScarceDisk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "the store takes" in each.getMessage()]

    store = open_store(tmp_path, disk, clock)
    assert (told(), store.stats().refused_changes) == ([], 0)
    # From diskSpaceWarningLevelRatio on.
    disk.ratio = 0.899
    store.clean()
    assert store.refused is None
    disk.ratio = 0.90
    store.clean()
    assert send(store) is PutStatus.SERVICE_NOT_AVAILABLE
    for _ in range(3):
        clock.advance(1)
        store.idle()
    disk.ratio = 0.93
    store.clean()
    (line,) = told()
    assert "90% full" in line
    assert "diskSpaceWarningLevelRatio" in line
    disk.ratio = 0.5
    clock.advance(1)
    store.idle()
    assert send(store) is PutStatus.PUT_OK
    assert told()[1:] == ["the store takes messages again, after 4.0 s"]
    assert store.stats().refused_changes == 2
    # And by a disk that has no room.
    disk.refuses, disk.free = True, 0
    for _ in range(3):
        clock.advance(FULL_DISK_RETRY_SECONDS)
        with pytest.raises(StoreWriteError):
            send(store)
    assert told()[2:] == ["the store takes no messages: the disk is full"]
    disk.refuses, disk.free = False, None
    clock.advance(FULL_DISK_RETRY_SECONDS)
    store.idle()
    assert told()[3:] == ["the store takes messages again, after 3.0 s"]
    assert store.stats().refused_changes == 4
    store.close()


def test_a_disk_that_has_room_and_takes_nothing_is_asked_less_often(
    tmp_path: Path, disk: ScarceDisk, clock: ManualClock
) -> None:
    store = open_store(tmp_path, disk, clock)
    disk.refuses = True
    pauses = []
    for _ in range(5):
        with pytest.raises(StoreWriteError):
            send(store)
        began = clock.monotonic()
        while store.refused is not None:
            clock.advance(0.5)
            store.idle()
        pauses.append(clock.monotonic() - began)
    # So a leader's log takes nothing for long enough to have another one lead.
    assert pauses == [1, 2, 4, 4, 4]
    clock.advance(RELAPSE_SECONDS)
    with pytest.raises(StoreWriteError):
        send(store)
    clock.advance(FULL_DISK_RETRY_SECONDS)
    assert store.writable() is None
    store.close()


def test_a_members_log_takes_nothing_from_the_warning_level_on_and_so_should_not_lead(
    tmp_path: Path, disk: ScarceDisk, clock: ManualClock
) -> None:
    node = open_node(tmp_path, disk=disk, clock=clock)
    lead(node, 1)
    assert node.log.refused is None
    disk.ratio = 0.91
    assert node.store.group_cleaner is not None
    node.store.group_cleaner.wanted(now=False)
    assert "91% full" in (node.log.refused or "")
    assert not node.log.full, "a follower takes what its leader sends as long as there is room"
    disk.ratio = 0.89
    clock.advance(1)
    node.store.idle()
    assert node.log.refused is None
    node.store.close()


def test_R12_a_follower_without_room_takes_what_the_group_itself_needs(
    tmp_path: Path, disk: ScarceDisk, clock: ManualClock
) -> None:
    leader, node = open_node(tmp_path / "n1"), open_node(tmp_path / "n0", disk=disk, clock=clock)
    lead(leader, 1)
    node.log.accept(sent(leader, 1))
    disk.free = 0
    node.store._health.no_room(OSError(errno.ENOSPC, "No space left on device"))
    assert node.log.refused == "the disk is full"
    # No-ops and metadata in front of messages: at once.
    for kind in (EntryType.NOOP, EntryType.META):
        leader.log.append(kind, 2, b"x" if kind is EntryType.META else b"", 0)
    taken = leader.log.last.index
    leader.records(b"too much", term=2)
    assert not node.log.full
    with pytest.raises(EntryRefused, match="the disk is full"):
        node.log.accept(sent(leader, node.log.last.index + 1))
    assert node.log.last.index == taken
    assert node.log.full, "it need not be sent again yet"
    clock.advance(CLOSED_SECONDS)
    assert not node.log.full
    with pytest.raises(EntryRefused, match="the disk is full"):
        node.log.accept(sent(leader, taken + 1))
    disk.free = None
    clock.advance(CLOSED_SECONDS)
    node.log.accept(sent(leader, taken + 1))
    assert node.log.refused is None
    assert node.content == leader.content
    node.store.close()
    leader.store.close()
