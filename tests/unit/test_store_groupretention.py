"""What a member forgets, and what it keeps whatever the clock and the disk say (R12)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from tests.unit.entry_tools import Node, lead, open_node, sent
from tests.unit.store_tools import FILE_BYTES


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


def starts(node: Node) -> list[int]:
    while node.store.step_helper():
        pass
    return sorted(int(path.name) for path in (node.folder / "store" / "commitlog").iterdir())


def test_R12_nothing_above_the_commit_is_removed(node: Node, clock: ManualClock) -> None:
    checkpoint(node, clock)
    assert node.store.clean(now=True).removed == []
    node.log.release(node.log.index_at(2 * FILE_BYTES + 5000))
    # Committed, and not yet in a checkpoint: a kill would have to read it again.
    assert node.store.clean(now=True).removed == []
    checkpoint(node, clock)
    assert node.store.clean(now=True).removed == [0, FILE_BYTES]
    assert starts(node)[:2] == [2 * FILE_BYTES, 3 * FILE_BYTES]


def test_R12_nothing_that_somebody_needs_is_removed(node: Node, clock: ManualClock) -> None:
    node.log.release(node.log.last.index)
    checkpoint(node, clock)
    node.log.pin()
    node.log.pin()
    node.log.unpin()
    report = node.store.clean(now=True)
    assert (report.removed, report.reason) == ([], "another member copies the files")
    node.log.unpin()
    assert node.store.clean(now=True, keep_from=FILE_BYTES - 1).removed == []
    assert node.store.clean(now=True, keep_from=FILE_BYTES).removed == [0]
    assert node.store.clean(now=True).removed == [FILE_BYTES, 2 * FILE_BYTES]


@pytest.mark.parametrize("clean", [True, False])
def test_the_base_moves_with_the_start_of_the_log(node: Node, clock: ManualClock, tmp_path: Path, clean: bool) -> None:
    log = node.log
    log.release(log.last.index)
    checkpoint(node, clock)
    before = {index: log.term(index) for index in range(log.last.index + 1)}
    ends = {index: log.end_position(index) for index in range(log.last.index + 1)}
    chains = {index: log._finder.kept(index).chain for index in range(1, log.last.index + 1)}
    node.store.clean(now=True)
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


def test_R13_a_copy_of_the_files_is_a_member_s_log(node: Node, clock: ManualClock, tmp_path: Path) -> None:
    node.log.release(node.log.last.index)
    checkpoint(node, clock)
    node.store.clean(now=True)
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
    assert node.store._keeper.checkpoint.dispatched == -1
    node.log.release(node.log.last.index)
    for _ in range(3):
        node.store.idle()
        while node.store.step_helper():
            pass
    assert node.store._keeper.checkpoint.dispatched == node.log.last.end
