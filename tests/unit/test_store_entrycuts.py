"""A cut is decided at once, and the disk follows: no loop waits, nothing gets between (R11)."""

import threading
from pathlib import Path

import pytest

from raft.core.follower import Follower
from raft.protocol.messages import append
from raft.protocol.types import EntryRefused
from store.files.disk import Disk
from store.files.floorfile import read_floor
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from tests.parts.entry_tools import Node, damage, lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, HOST, make_config, record


class Counting(Disk):
    """What was asked of the disk that may take long, and by whom; a sync can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.hold = False

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.calls.append("pwrite")
        super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self.calls.append("fdatasync")
        if self.hold:
            self.hold = False
            self.held.set()
            assert self.go_on.wait(20)
        super().fdatasync(fd)

    def unlink(self, path: Path) -> None:
        self.calls.append("unlink")
        super().unlink(path)

    def sync_folder(self, folder: Path) -> None:
        self.calls.append("sync_folder")
        super().sync_folder(folder)


def over_files(folder: Path, disk: Disk | None = None) -> Node:
    """A log of two files and a half, of which nothing is committed."""
    node = open_node(folder, disk=disk)
    lead(node)
    while node.store.written < 2.5 * FILE_BYTES:
        node.records(bytes(3000))
    node.sync()
    return node


def test_R11_a_cut_is_decided_at_once_and_waits_for_no_disk(tmp_path: Path) -> None:
    disk = Counting()
    node = over_files(tmp_path, disk)
    log, told = node.log, node.store.flushed
    end = log.end_position(3)
    disk.calls.clear()
    log.cut(3)
    assert disk.calls == []
    # Nothing of it can be read, acknowledged, promised or asked for any more.
    assert (log.last.index, log.durable, log.floor, log.settle(told)) == (3, 3, 3, 3)
    assert (log.term(4), log.read(4, 1 << 20), log.index_at(1 << 30)) == (None, [], 3)
    assert (node.store.written, node.store.flushed) == (end, end)
    answers: list[bytes] = []
    log.mending.fetch(end, 100, lambda data: answers.append(bytes(data)))
    assert answers == [b""]
    assert log.cutting
    while node.store.step_helper():
        pass
    assert not log.cutting
    assert {"pwrite", "fdatasync", "unlink", "sync_folder"} <= set(disk.calls)
    assert [path.name for path in (tmp_path / "store" / "commitlog").iterdir()] == [f"{0:020d}"]
    assert not any((tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes()[end:])
    assert read_floor(tmp_path / "store") == log.last
    node.store.close()


def follow_behind_a_cut(folder: Path) -> tuple[bytes, bytes]:
    """Cut, offer the leader's entries until they are taken; return both logs."""
    leader = over_files(folder / "a")
    follower = open_node(folder / "b")
    follower.log.accept(sent(leader, 1, 3))
    lead(follower, 9, term=1)
    follower.sync()
    follower.log.cut(3)
    with pytest.raises(EntryRefused, match="being cut"):
        follower.log.accept(sent(leader, 4))
    while follower.store.step_helper():
        pass
    follower.log.accept(sent(leader, 4))
    found = leader.content, follower.content
    for each in (leader, follower):
        each.store.close()
    return found


def test_R11_nothing_is_taken_behind_a_cut_before_the_disk_has_it(tmp_path: Path) -> None:
    whole, found = follow_behind_a_cut(tmp_path)
    assert found == whole


def test_R11_planted_not_waiting_for_the_cut_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: entries are taken at once, and the cut takes their bytes."""
    monkeypatch.setattr(EntryLog, "cutting", property(lambda _: False))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        follow_behind_a_cut(tmp_path)
    node = open_node(tmp_path / "c")
    lead(node, 9)
    node.log.cut(3)
    node.records(b"taken at once", term=2)
    while node.store.step_helper():
        pass
    assert not any(node.content[node.log.end_position(3) :])
    node.kill()


def test_R11_a_leader_s_append_waits_for_the_cut(tmp_path: Path) -> None:
    node = over_files(tmp_path)
    node.log.cut(3)
    node.records(b"more", term=2)
    assert not node.log.cutting
    node.log.cut(3)
    node.log.cut(2)
    node.records(b"and more", term=3)
    assert [entry.term for entry in node.log.read(1, 1 << 20)] == [1, 1, 3]
    content = node.content
    node.sync()
    node.kill()
    again = node.again()
    assert (again.content, again.log.last.index, again.log.floor) == (content, 3, 3)
    again.store.close()


def test_R11_a_kill_before_the_disk_follows_is_as_if_nothing_was_cut(tmp_path: Path) -> None:
    node = over_files(tmp_path)
    last, content = node.log.last, node.content
    node.log.cut(3)
    assert node.store._helper.worker._jobs.get() is not None
    node.kill()
    again = node.again()
    assert (again.log.last, again.log.whole, again.content) == (last, True, content)
    again.log.cut(3)
    while again.store.step_helper():
        pass
    again.kill()
    again = node.again()
    assert (again.log.last.index, again.log.floor) == (3, 3)
    again.store.close()


def test_R11_what_is_to_go_is_no_room_ahead_until_the_disk_follows(tmp_path: Path) -> None:
    node = over_files(tmp_path)
    node.kill()
    # As after any start: of no file is it known how far it was zeroed.
    again = node.again()
    last, content = again.log.last, again.content
    again.log.cut(3)
    assert again.store._helper.worker._jobs.get() is not None
    again.store._log.prepare(_failed)
    again.kill()
    again = node.again()
    assert (again.log.last, again.log.whole, again.content) == (last, True, content)
    again.log.cut(3)
    while again.store.step_helper():
        pass
    again.store._log.prepare(_failed)
    assert not any(again.store._log._file_of(again.log.last.end).view(again.log.last.end, 1000))
    again.store.close()


def _failed(error: BaseException) -> None:
    raise error


def test_R11_a_follower_says_that_it_can_take_nothing_yet(tmp_path: Path) -> None:
    leader = open_node(tmp_path / "a")
    lead(leader, 3)
    node = open_node(tmp_path / "b")
    node.log.accept(sent(leader, 1))
    leader.log.cut(2)
    lead(leader, 3, term=2)
    follower = Follower(node.log)
    follower.follow("n0", 2)
    news = append(2, 1, (2, 1), 0, sent(leader, 3))
    answer = follower.append(news, 0)
    assert answer is not None
    assert (answer.fields["ok"], answer.fields["hint_index"], follower.verified) == (False, 2, 0)
    while node.store.step_helper():
        pass
    assert follower.append(news, 0) is None
    assert (follower.owes, follower.verified) == (True, 5)
    assert node.content == leader.content
    leader.store.close()
    node.store.close()


def test_R4_a_sync_under_way_is_not_awaited_by_a_cut(tmp_path: Path) -> None:
    disk = Counting()
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, group=True, disk=disk)
    log = store.entries
    assert log is not None
    log.append(3, 1, b"c", 0)
    for _ in range(5):
        log.append_records([record(bytes(3000))], 1, 0)
    disk.hold = True
    log.sync_soon()
    assert disk.held.wait(20)
    written = store.written
    log.cut(3)
    assert (log.last.index, store.written < written, log.cutting) == (3, True, True)
    with pytest.raises(EntryRefused):
        log.accept([])
    disk.go_on.set()
    log.append_records([record(bytes(100))], 2, 0)
    assert not log.cutting
    # What was synced meanwhile is the part that was left, and the new entry is not.
    assert store.flushed <= log.end_position(3)
    mark = read_floor(tmp_path / "store")
    assert mark is None or mark.index <= 3
    store.close()
    again = open_node(tmp_path)
    assert [again.log.term(index) for index in range(1, 5)] == [1, 1, 1, 2]
    again.store.close()


def test_R4_a_cut_does_not_wait_for_what_is_being_mended(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 12)
    node.sync()
    content, position = node.content, node.start_of(8)
    node.kill()
    damage(tmp_path, position + 90)
    node = node.again()
    mending, wanted = node.log.mending, node.log.mending.wanted()
    assert wanted is not None
    mending.give(wanted[0], content[wanted[0] : wanted[1]])
    mending.step()
    node.log.cut(5)
    assert (node.log.whole, node.log.last.index, mending.busy) == (True, 5, True)
    while node.store.step_helper():
        pass
    mending.finish()
    assert not any(node.content[node.log.last.end :])
    node.records(b"more", term=2)
    node.sync()
    node.store.close()
    again = node.again()
    assert [again.log.term(index) for index in range(4, 8)] == [1, 1, 2, None]
    again.store.close()
