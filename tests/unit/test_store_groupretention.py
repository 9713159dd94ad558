"""What a member forgets, and what it keeps whatever the clock and the disk say (R12)."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from raft.protocol.types import EntryType
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.types import PutStatus
from tests.parts.entry_tools import Node, lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, record


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def node(tmp_path: Path, clock: ManualClock) -> Iterator[Node]:
    """Four files of entries, all synced and older than any file may become."""
    made = open_node(tmp_path, clock=clock)
    lead(made, 0)
    while made.store.written < 3.5 * FILE_BYTES:
        made.records(bytes(1000), bytes(1000))
    made.sync()
    for path in (tmp_path / "store" / "commitlog").iterdir():
        os.utime(path, (0, 0))
    yield made
    made.store.close()


def checkpoint(node: Node, clock: ManualClock) -> None:
    for _ in range(4):
        clock.advance(6)
        node.store.idle()
        while node.store.step_helper():
            pass


def trim(node: Node, keep_from: int = 1 << 40) -> list[int]:
    """What a group does that agrees with everything at once."""
    cleaner = node.store.group_cleaner
    assert cleaner is not None
    return cleaner.trim(cleaner.wanted(now=True).start, keep_from)


def starts(node: Node) -> list[int]:
    while node.store.step_helper():
        pass
    return sorted(int(path.name) for path in (node.folder / "store" / "commitlog").iterdir())


def test_R12_nothing_above_the_commit_is_removed(node: Node, clock: ManualClock) -> None:
    checkpoint(node, clock)
    assert trim(node) == []
    node.log.release(node.log.index_at(2 * FILE_BYTES + 5000))
    # Committed, and not yet in a checkpoint: a kill would have to read it again.
    assert trim(node) == []
    checkpoint(node, clock)
    assert trim(node) == [0, FILE_BYTES]
    assert starts(node)[:2] == [2 * FILE_BYTES, 3 * FILE_BYTES]


def test_R12_nothing_that_somebody_needs_is_removed(node: Node, clock: ManualClock) -> None:
    node.log.release(node.log.last.index)
    checkpoint(node, clock)
    node.log.pin()
    node.log.pin()
    node.log.unpin()
    cleaner = node.store.group_cleaner
    assert cleaner is not None
    assert cleaner.wanted(now=True)[:2] == (0, "another member copies the files")
    assert cleaner.trim(FILE_BYTES, 1 << 40) == []
    node.log.unpin()
    assert trim(node, FILE_BYTES - 1) == []
    assert trim(node, FILE_BYTES) == [0]
    assert trim(node) == [FILE_BYTES, 2 * FILE_BYTES]


@pytest.mark.parametrize("clean", [True, False])
def test_the_base_moves_with_the_start_of_the_log(node: Node, clock: ManualClock, tmp_path: Path, clean: bool) -> None:
    log = node.log
    log.release(log.last.index)
    checkpoint(node, clock)
    before = {index: log.term(index) for index in range(log.last.index + 1)}
    ends = {index: log.end_position(index) for index in range(log.last.index + 1)}
    chains = {index: log._finder.kept(index).chain for index in range(1, log.last.index + 1)}
    trim(node)
    base = log.base
    assert base.end == 3 * FILE_BYTES
    assert log.term(base.index) == before[base.index]
    assert log.term(base.index - 1) is None
    assert ends[base.index] <= base.end
    assert base.chain == chains[base.index]
    assert log.read(base.index, 1 << 20) == []
    assert log.read(base.index + 1, 1)[0].position == base.end
    assert node.store.min_offset(RAFT_TOPIC, 0) == base.index + 1
    node.records(b"more")
    last = log.last
    if clean:
        node.store.close()
    else:
        node.kill()
    again = node.again()
    assert (again.log.base, again.log.last) == (base, last)
    assert again.log.last_config() == 1
    again.store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_the_base_stays_when_the_members_were_written_anew_behind_it(
    node: Node, clock: ManualClock, clean: bool
) -> None:
    """The CONFIG before it is gone then, and what stands between is the group's all the same."""
    log = node.log
    log.append(EntryType.CONFIG, 1, b"config", log.commit)
    lead(node, 3)
    newest = log.last
    log.release(newest.index)
    node.sync()
    checkpoint(node, clock)
    trim(node)
    base = log.base
    assert 1 < base.index < newest.index - 4
    for _ in range(2):
        node.store.close() if clean else node.kill()
        node = node.again()
        assert (node.log.base, node.log.last) == (base, newest)
    node.store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_the_base_stays_behind_a_group_that_ended(node: Node, clock: ManualClock, clean: bool) -> None:
    """Also when its first CONFIG is gone."""
    node.log.append(EntryType.CONFIG, 1, b"classic", node.log.commit)
    ended = node.log.last
    node.log.release(ended.index)
    node.sync()
    node.log.append(EntryType.CONFIG, 2, b"config", node.log.commit)
    lead(node, 3, term=2)
    node.log.append(EntryType.CONFIG, 2, b"config", node.log.commit)
    lead(node, 3, term=2)
    last = node.log.last
    node.log.release(last.index)
    node.sync()
    checkpoint(node, clock)
    trim(node)
    for _ in range(2):
        node.store.close() if clean else node.kill()
        node = node.again()
        assert (node.log.base.index, node.log.last) == (ended.index, last)
    node.store.close()


def test_R13_a_copy_of_the_files_is_a_member_s_log(node: Node, clock: ManualClock, tmp_path: Path) -> None:
    node.log.release(node.log.last.index)
    checkpoint(node, clock)
    trim(node)
    lead(node, 30)
    target = tmp_path / "copy" / "store" / "commitlog"
    target.mkdir(parents=True)
    for start, size in node.log.files_upto(node.log.end_position(node.log.commit)):
        content = bytes(node.log.read_bytes(start, size))
        (target / f"{start:020d}").write_bytes(content.ljust(FILE_BYTES, b"\0"))
    copy = open_node(tmp_path / "copy")
    assert copy.log.base == node.log.base
    assert copy.log.last.index == node.log.commit
    assert copy.log.durable == copy.log.floor == node.log.commit
    copy.log.accept(sent(node, copy.log.last.index + 1))
    copy.log.release(node.log.last.index)
    node.log.release(node.log.last.index)
    assert copy.store.max_offset("T", 0) == node.store.max_offset("T", 0)
    assert copy.store.min_offset("T", 0) == node.store.min_offset("T", 0)
    copy.store.close()


def test_a_checkpoint_comes_after_so_many_bytes_too(node: Node) -> None:
    node.store._keeper._bytes_max = FILE_BYTES
    node.log.release(node.log.index_at(FILE_BYTES // 2))
    for _ in range(3):
        node.store.idle()
        while node.store.step_helper():
            pass
    assert node.store._keeper.checkpoint.dispatched == 0
    node.log.release(node.log.last.index)
    for _ in range(3):
        node.store.idle()
        while node.store.step_helper():
            pass
    assert node.store._keeper.checkpoint.dispatched == node.log.last.end


def only_in_front(node: Node, clock: ManualClock) -> None:
    """Put three messages of topic U into a file that is about to go, and files of T behind it."""
    node.records(b"1", b"2", b"3", topic="U")
    while node.store.written < 8.5 * FILE_BYTES:
        node.records(bytes(1000), bytes(1000))
    node.sync()
    for path in (node.folder / "store" / "commitlog").iterdir():
        os.utime(path, (0, 0))
    node.log.release(node.log.last.index)
    checkpoint(node, clock)


@pytest.mark.parametrize("lost", ["consumequeue", ""])
def test_R12_a_queue_whose_messages_all_expired_goes_on_with_its_offsets(
    node: Node, clock: ManualClock, lost: str
) -> None:
    only_in_front(node, clock)
    cleaner = node.store.group_cleaner
    assert cleaner is not None
    starts = cleaner.first_offsets(5 * FILE_BYTES)
    assert starts["U", 0] == 3
    assert (RAFT_TOPIC, 0) not in starts
    while trim(node):
        pass
    assert cleaner.first_offsets(0)["U", 0] == 3
    assert (node.store.min_offset("U", 0), node.store.max_offset("U", 0)) == (3, 3)
    node.kill()
    if lost:
        shutil.rmtree(node.folder / "store" / lost)
    again = node.again(clock=clock)
    assert again.store.max_offset("U", 0) == (0 if lost else 3)
    assert again.store.group_cleaner is not None
    again.store.group_cleaner.begin_queues({"U": {0: 3}, "T": {0: starts["T", 0]}})
    assert (again.store.min_offset("U", 0), again.store.max_offset("U", 0)) == (3, 3)
    assert again.store.min_offset("T", 0) >= starts["T", 0]
    again.records(b"4", topic="U")
    again.log.release(again.log.last.index)
    assert (again.store.min_offset("U", 0), again.store.max_offset("U", 0)) == (3, 4)
    assert again.store.get("U", 0, 3, 1).count == 1
    again.store.close()
    once_more = again.again()
    assert (once_more.store.min_offset("U", 0), once_more.store.max_offset("U", 0)) == (3, 4)
    once_more.store.close()


def test_a_queue_that_was_begun_takes_what_the_log_says(node: Node) -> None:
    node.log.release(node.log.last.index)
    assert node.store.group_cleaner is not None
    node.records(b"1", topic="U")
    node.store.group_cleaner.begin_queues({"U": {0: 70}})
    assert node.store.max_offset("U", 0) == 70
    node.log.release(node.log.last.index)
    assert (node.store.min_offset("U", 0), node.store.max_offset("U", 0)) == (0, 1)
    node.records(b"2", topic="U")
    node.log.release(node.log.last.index)
    assert node.store.max_offset("U", 0) == 2


def test_a_topic_that_was_made_anew_is_built_again_as_it_was(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node)
    node.log.release(node.log.last.index)
    deleted = node.log.append(EntryType.META, 1, b"delete T", node.log.commit)
    node.log.release(deleted)
    assert node.store.max_offset("T", 0) == 0
    node.store.delete_topic("T", node.log.end_position(deleted))
    node.records(b"anew", b"anew")
    node.log.release(node.log.last.index)
    node.log.append(EntryType.NOOP, 1, b"", node.log.commit)
    assert node.store.max_offset("T", 0) == 2
    node.sync()
    node.kill()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    again = node.again()
    assert (again.store.min_offset("T", 0), again.store.max_offset("T", 0)) == (0, 2)
    # The deletion is applied once more when the tables are replayed, and concerns only what stands before it.
    again.store.delete_topic("T", again.log.end_position(deleted))
    assert again.store.max_offset("T", 0) == 2
    again.store.close()


def test_R12_a_full_disk_refuses_messages_and_takes_what_the_group_itself_needs(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.store.group_cleaner is not None
    monkeypatch.setattr(node.store._disk, "used_ratio", lambda _: 0.96)
    wanted = node.store.group_cleaner.wanted(now=False)
    assert wanted.disk_ratio == 0.96
    assert node.store.group_cleaner.spare(wanted.start, 1 << 40) == 0, "nothing of it is committed"
    assert "is 96% full" in (node.store.writable() or "")
    index, results = node.log.append_records([record(), [record(), record()]], 1, 0)
    assert (index, results[0].status) == (-1, PutStatus.SERVICE_NOT_AVAILABLE)
    for kind in (EntryType.NOOP, EntryType.META, EntryType.CONFIG):
        assert node.log.append(kind, 1, b"" if kind is EntryType.NOOP else b"small", 0) == node.log.last.index
    node.sync()
    assert node.log.durable == node.log.last.index
