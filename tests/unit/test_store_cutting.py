"""Cutting a closed store: where, what is kept of it, and what a crash at any step leaves."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from remoting.message import MessageExt
from runtime.clock import ManualClock
from store.errors import StoreError, StoreLocked
from store.files.checkpoint import load_checkpoint
from store.files.disk import Disk
from store.messagestore import MessageStore
from store.recovery.inspect import Gap, StoreFolder
from store.slave.truncation import Cut, begin_folder_anew, cut_folder
from tests.parts.entry_tools import lead, open_node
from tests.parts.slave_tools import Slave, borders, contents, open_master, send
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config

COUNT = 500


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A closed store of some files, and where its records end."""
    folder = tmp_path_factory.mktemp("filled")
    store = open_master(folder)
    send(store, COUNT)
    ends = list(borders(store))
    assert store.written > 2 * FILE_BYTES + 1000
    store.close()
    return folder, ends


@pytest.fixture
def folder(filled: tuple[Path, list[int]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled[0], tmp_path / "copy"))


@pytest.fixture
def ends(filled: tuple[Path, list[int]]) -> list[int]:
    return filled[1]


def shorter(folder: Path, count: int) -> dict[str, bytes]:
    """What a store holds that was never given more."""
    store = open_master(folder)
    if count:
        send(store, count)
    store.close()
    return contents(folder)


def cut(folder: Path, position: int, disk: Disk | None = None) -> Cut | None:
    return cut_folder(make_config(folder), position, disk, clock=ManualClock())


def reopened(folder: Path) -> dict[str, bytes]:
    """What is there after a start and a clean stop."""
    open_master(folder).close()
    return contents(folder)


@pytest.mark.parametrize("number", [1, 150, 350, COUNT - 1])
@pytest.mark.parametrize("beyond", [0, 1, 60])
def test_the_log_ends_at_the_last_border(
    folder: Path, tmp_path: Path, ends: list[int], number: int, beyond: int
) -> None:
    found = cut(folder, ends[number - 1] + beyond)
    assert found is not None
    assert (found.begin, found.end, found.records) == (ends[number - 1], ends[-1], COUNT - number)
    expected = shorter(tmp_path / "shorter", number)
    got = reopened(folder)
    assert {name for name in got if "commitlog" in name} == {name for name in expected if "commitlog" in name}
    assert got == expected


def test_what_was_cut_can_still_be_read(folder: Path, ends: list[int]) -> None:
    before = [message for message in StoreFolder(folder / "store").messages() if isinstance(message, MessageExt)]
    found = cut(folder, ends[149])
    assert found is not None
    assert found.kept_in.parent == folder / "store" / "cut"
    assert found.kept_in.name.startswith(f"{ends[149]:020d}-")
    kept = list(StoreFolder(found.kept_in).messages())
    assert isinstance(kept[0], Gap)
    assert kept[1:]
    assert [message for message in kept if isinstance(message, MessageExt)] == before[150:]


def test_nothing_behind_is_nothing_to_cut(folder: Path, ends: list[int]) -> None:
    before = contents(folder)
    for position in (ends[-1], ends[-1] + 1, ends[-1] + 10 * FILE_BYTES):
        assert cut(folder, position) is None
    assert contents(folder) == before
    assert not (folder / "store" / "cut").exists()
    assert not (folder / "store" / "abort").exists()
    assert cut_folder(make_config(folder / "nowhere"), 0) is None


def test_a_file_that_only_holds_what_is_cut_goes(folder: Path, ends: list[int]) -> None:
    last = max(end for end in ends if end < FILE_BYTES)
    found = cut(folder, FILE_BYTES)
    assert found is not None
    assert found.begin == FILE_BYTES
    store = open_master(folder)
    assert store.log_range() == (0, FILE_BYTES)
    store.close()
    found = cut(folder, FILE_BYTES - 1)
    # The blank is no record, and no part of what is common either.
    assert found is not None
    assert (found.begin, found.end, found.records) == (last, FILE_BYTES, 0)
    store = open_master(folder)
    assert store.log_range() == (0, last)
    store.close()


def test_everything_can_be_cut(folder: Path, tmp_path: Path) -> None:
    found = cut(folder, 0)
    assert found is not None
    assert (found.begin, found.records) == (0, COUNT)
    assert reopened(folder) == shorter(tmp_path / "empty", 0) == {}


def test_before_the_log_s_beginning_nothing_is_cut(folder: Path) -> None:
    (folder / "store" / "commitlog" / f"{0:020d}").unlink()
    before = contents(folder)
    with pytest.raises(StoreError, match="begin anew"):
        cut(folder, FILE_BYTES - 1)
    assert contents(folder) == before


def test_a_store_in_use_is_not_cut(folder: Path) -> None:
    store = open_master(folder)
    with pytest.raises(StoreLocked):
        cut(folder, 0)
    with pytest.raises(StoreLocked):
        begin_folder_anew(make_config(folder))
    store.close()


def test_times_do_not_go_back_behind_a_cut(folder: Path, ends: list[int]) -> None:
    newest = load_checkpoint(folder / "store").log_timestamp
    cut(folder, ends[0])
    store = open_master(folder, clock=ManualClock(1))
    assert store.stats().latest_timestamp == newest
    store.close()


def test_a_folder_that_rocketmq_left_is_cut_too(folder: Path, tmp_path: Path, ends: list[int]) -> None:
    path = folder / "store" / "checkpoint"
    path.write_bytes(path.read_bytes()[:32])
    assert cut(folder, ends[200]) is not None
    lowered = load_checkpoint(folder / "store")
    assert (lowered.dispatched, lowered.flushed) == (-1, ends[200])
    assert reopened(folder) == shorter(tmp_path / "shorter", 201)


def test_a_group_s_floor_does_not_outlive_what_it_vouched_for(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.sync()
    end = node.log.end_position(3)
    node.store.close()
    raft = tmp_path / "store" / "raft"
    assert (raft / "floor").exists()
    for name in ("vote", "vote.bak"):
        (raft / name).write_bytes(b"who this disk is")
    found = cut(tmp_path, end)
    # R6: what it acknowledged is gone, so it is another disk for its group.
    assert not list(raft.glob("vote*"))
    assert found is not None
    # Three entries are left to cut, each a control record and two messages.
    assert (found.begin, found.records) == (end, 9)
    again = open_node(tmp_path)
    assert again.log.last.index == 3
    again.store.close()


def test_queues_and_index_forget_what_was_cut(folder: Path, ends: list[int]) -> None:
    cut(folder, ends[9])
    slave = Slave(folder)
    assert slave.log.written == ends[9]
    assert len(slave.store.query("topic1", "key1", 9, 0, 1 << 62).records) == 1
    assert slave.store.query("topic1", "key401", 9, 0, 1 << 62).records == []
    slave.store.close()
    assert StoreFolder(folder / "store").check_queues().wrong == 0


# -- beginning anew


def test_a_store_begins_anew(folder: Path, tmp_path: Path, ends: list[int]) -> None:
    before = contents(folder)
    (folder / "store" / "config").mkdir()
    (folder / "store" / "config" / "topics.json").write_text("{}", "ascii")
    (folder / "store" / "raft").mkdir()
    (folder / "store" / "raft" / "vote").write_bytes(b"who this disk is")
    kept = begin_folder_anew(make_config(folder), clock=ManualClock())
    assert not (folder / "store" / "raft" / "vote").exists()
    # Put into a store folder's place, it is one.
    kept.rename(tmp_path / "store")
    assert contents(tmp_path) == before
    assert StoreFolder(tmp_path / "store").checkpoint().dispatched == ends[-1]
    assert (folder / "store" / "config" / "topics.json").exists()
    slave = Slave(folder)
    assert slave.store.log_range() == (0, 0)
    assert slave.store.topics() == {}
    slave.store.close()


def test_a_log_elsewhere_stays_on_its_file_system(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(make_config(folder), storePathCommitLog=str(folder / "log"))
    shutil.move(folder / "store" / "commitlog", folder / "log")
    before = sorted(path.name for path in (folder / "log").iterdir())
    real = Path.stat

    class Elsewhere:
        st_dev = -1

    def stat(path: Path, **options: bool) -> object:
        return Elsewhere() if path == folder / "log" else real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        # is_dir() asks stat() as well.
        patch.setattr(Path, "is_dir", lambda path: real(path).st_mode & 0o40000 != 0)
        kept = begin_folder_anew(config)
    assert sorted(path.name for path in (folder / "log" / "cut" / kept.name).iterdir()) == before
    store = MessageStore.open(config, store_host=HOST)
    assert store.log_range() == (0, 0)
    store.close()


def test_two_of_the_same_moment_do_not_meet(tmp_path: Path) -> None:
    kept = []
    for _ in range(2):
        store = open_master(tmp_path)
        fill(store, 3)
        store.close()
        kept.append(begin_folder_anew(make_config(tmp_path), clock=ManualClock()))
    assert kept[0] != kept[1]
    assert [len(list(StoreFolder(path).messages())) for path in kept] == [3, 3]


# -- crashes


class DyingDisk(Disk):
    """Refuses everything from a certain change on."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, "the power is off")

    def create(self, path: Path, size: int) -> int:
        self._count()
        return super().create(path, size)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._count()
        if self.left == 0:
            data = data[: len(data) // 2]
        super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self._count()
        super().fdatasync(fd)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)

    def rename(self, path: Path, target: Path) -> None:
        self._count()
        super().rename(path, target)

    def sync_folder(self, folder: Path) -> None:
        self._count()
        super().sync_folder(folder)


def crash_everywhere(folder: Path, tmp_path: Path, act: Callable[[Path, Disk], object]) -> list[Path]:
    """Let the disk die at each change in turn; return the folders, the last one is of an act that went through."""
    folders = []
    for changes in range(200):
        copy = Path(shutil.copytree(folder, tmp_path / f"crash{changes}"))
        folders.append(copy)
        try:
            act(copy, DyingDisk(changes))
        except OSError:
            continue
        return folders
    raise AssertionError("it never goes through")


@pytest.mark.parametrize("rocketmq", [False, True])
def test_a_cut_may_be_cut_short_anywhere(folder: Path, tmp_path: Path, ends: list[int], rocketmq: bool) -> None:
    if rocketmq:
        path = folder / "store" / "checkpoint"
        path.write_bytes(path.read_bytes()[:32])
    at = ends[120]
    crashed = crash_everywhere(folder, tmp_path, lambda copy, disk: cut(copy, at, disk))
    assert len(crashed) > 12
    expected = shorter(tmp_path / "shorter", 121)
    for number, copy in enumerate(crashed):
        if number % 2:
            # Somebody starts it before it is cut again: a log that has what it had, or less, and no less than that.
            store = open_master(copy)
            assert at <= store.written <= ends[-1]
            assert store.written in {*ends, FILE_BYTES, 2 * FILE_BYTES}
            store.close()
            assert StoreFolder(copy / "store").check_queues().wrong == 0
        cut(copy, at)
        assert reopened(copy) == expected


def test_beginning_anew_may_be_cut_short_anywhere(folder: Path, tmp_path: Path, ends: list[int]) -> None:
    crashed = crash_everywhere(folder, tmp_path, lambda copy, disk: begin_folder_anew(make_config(copy), disk))
    assert len(crashed) > 8
    for number, copy in enumerate(crashed):
        if number % 2:
            store = open_master(copy)
            assert store.written in {0, *ends, FILE_BYTES, 2 * FILE_BYTES}
            store.close()
            assert StoreFolder(copy / "store").check_queues().wrong == 0
        begin_folder_anew(make_config(copy))
        assert reopened(copy) == {}
