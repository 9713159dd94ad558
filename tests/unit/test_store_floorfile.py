import threading
from pathlib import Path

import pytest

from raft.protocol.types import Mark
from runtime.clock import ManualClock
from store.errors import StoreDamaged
from store.files.disk import Disk
from store.files.floorfile import FLOOR_NAME, LAG_SECONDS, SECTOR_STRIDE, FloorFile, read_floor
from store.log.syncround import Witnessed
from tests.parts.entry_tools import lead, open_node


class Seconds:
    """A clock in seconds that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Hurried:
    """One that runs so fast that the file never lags."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def mark(index: int) -> Mark:
    return Mark(index, 1, index * 100, index * 7)


def test_R4_the_floor_comes_back(tmp_path: Path) -> None:
    assert read_floor(tmp_path) is None
    floor = FloorFile(tmp_path, Disk(), Hurried())
    assert floor.mark is None
    for index in (1, 2, 5):
        floor.advance(mark(index), floor.epoch)
        assert floor.mark == read_floor(tmp_path) == mark(index)
    floor.close()
    again = FloorFile(tmp_path, Disk())
    assert again.mark == mark(5)
    again.close()
    again.close()


def test_it_rises_and_is_lowered_on_purpose_only(tmp_path: Path) -> None:
    floor = FloorFile(tmp_path, Disk(), Hurried())
    before = floor.epoch
    floor.advance(mark(9), before)
    floor.advance(mark(4), before)
    assert floor.mark == mark(9)
    floor.retract()
    floor.lower(mark(6))
    assert read_floor(tmp_path) == mark(6)
    # What the flusher saw before the cut is no floor after it.
    floor.advance(mark(9), before)
    assert floor.mark == mark(6)
    floor.lower(mark(8))
    assert floor.mark == mark(6)
    floor.advance(mark(7), floor.epoch)
    assert read_floor(tmp_path) == mark(7)
    floor.close()


def test_R4_a_torn_sector_leaves_the_other_one(tmp_path: Path) -> None:
    floor = FloorFile(tmp_path, Disk(), Hurried())
    floor.advance(mark(1), 0)
    floor.advance(mark(2), 0)
    floor.close()
    path = tmp_path / FLOOR_NAME
    content = bytearray(path.read_bytes())
    for torn, left in ((0, 1), (SECTOR_STRIDE, 2)):
        damaged = content.copy()
        damaged[torn + 10] ^= 1
        path.write_bytes(damaged)
        assert read_floor(tmp_path) == mark(left)
    content[10] ^= 1
    content[SECTOR_STRIDE + 10] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match="add it again"):
        FloorFile(tmp_path, Disk())


def test_threads_agree(tmp_path: Path) -> None:
    floor = FloorFile(tmp_path, Disk(), Hurried())
    epoch = floor.epoch
    threads = [threading.Thread(target=floor.advance, args=(mark(index), epoch)) for index in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert floor.mark == read_floor(tmp_path) == mark(8)
    floor.close()


def test_R4_the_file_lags_by_10_ms_at_most(tmp_path: Path) -> None:
    clock = Seconds()
    floor = FloorFile(tmp_path, Disk(), clock)
    assert floor.catch_up() is None
    floor.advance(mark(1), floor.epoch)
    assert read_floor(tmp_path) == mark(1)
    clock.now += 0.004
    floor.advance(mark(2), floor.epoch)
    assert (floor.mark, read_floor(tmp_path)) == (mark(2), mark(1))
    assert floor.catch_up() == pytest.approx(0.006)
    clock.now += 0.006
    assert floor.catch_up() is None
    assert read_floor(tmp_path) == mark(2)
    assert floor.catch_up() is None
    clock.now += 0.001
    floor.advance(mark(3), floor.epoch)
    clock.now += 0.010
    # Whoever comes first takes the latest along.
    floor.advance(mark(4), floor.epoch)
    assert read_floor(tmp_path) == mark(4)
    floor.advance(mark(5), floor.epoch)
    floor.sync()
    assert read_floor(tmp_path) == mark(5)
    assert floor.catch_up() is None
    floor.close()


def test_R4_what_the_file_lacks_is_never_written_once_it_may_be_cut(tmp_path: Path) -> None:
    clock = Seconds()
    floor = FloorFile(tmp_path, Disk(), clock)
    floor.advance(mark(1), floor.epoch)
    floor.advance(mark(5), floor.epoch)
    floor.retract()
    clock.now += 1
    # Between the two nobody knows yet where the cut will be.
    assert floor.catch_up() is None
    assert read_floor(tmp_path) == mark(1)
    floor.lower(mark(3))
    assert (floor.mark, read_floor(tmp_path)) == (mark(3), mark(3))
    assert floor.catch_up() is None
    floor.advance(mark(4), floor.epoch)
    assert read_floor(tmp_path) == mark(3)
    floor.retract()
    # A cut behind it takes nothing away, and the file does not wait for the next sync to say so.
    floor.lower(mark(6))
    assert read_floor(tmp_path) == mark(4)
    clock.now += 1
    assert floor.catch_up() is None
    assert read_floor(tmp_path) == mark(4)
    floor.close()


def test_R4_the_file_follows_when_the_flow_pauses_and_at_the_end(tmp_path: Path) -> None:
    clock = ManualClock()
    node = open_node(tmp_path, clock=clock)
    lead(node, 1)
    node.sync()
    filed = read_floor(node.folder / "store")
    assert filed is not None
    node.records(b"within 10 ms")
    node.sync()
    assert (read_floor(node.folder / "store"), node.log.floor) == (filed, filed.index + 1)
    clock.advance(LAG_SECONDS)
    assert not node.store.step_flush()
    followed = read_floor(node.folder / "store")
    assert followed is not None
    assert followed.index == node.log.floor
    node.records(b"the last one")
    node.sync()
    node.store.close()
    assert read_floor(node.folder / "store") == node.log.last


def test_R4_the_floor_covers_what_was_synced_though_nothing_follows(tmp_path: Path) -> None:
    """An entry that was written while the flusher had looked already: synced, acknowledged, and the last for now."""
    node = open_node(tmp_path)
    lead(node, 1)
    node.records(b"1")
    flusher = node.store.flusher
    witness = flusher._witness

    def overtaken() -> Witnessed | None:
        flusher._witness = witness
        seen = witness()
        node.records(b"2")
        return seen

    flusher._witness = overtaken
    node.sync()
    assert node.store.flushed == node.log.last.end
    assert node.log.floor == node.log.last.index
    node.store.close()
