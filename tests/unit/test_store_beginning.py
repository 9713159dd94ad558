"""A lost oldest file of the log is told from one that retention removed, whatever kills what (R4, R12)."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raft.protocol.types import Mark
from runtime.clock import ManualClock
from store.errors import StoreDamaged
from store.files.beginning import Beginning, leftovers
from store.files.checkpoint import CHECKPOINT_NAME, Checkpoint, load_checkpoint
from store.files.disk import Disk
from store.files.mappedfile import file_name
from store.log import checkpointer as keeper
from store.log.checkpointer import Helper
from store.messagestore import MessageStore
from tests.parts.entry_tools import Node, checkpoint, damage, lead, mend, open_node
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config

FOUR = 4


def single(folder: Path) -> MessageStore:
    return MessageStore.open(make_config(folder), store_host=HOST)


def log_of(folder: Path) -> Path:
    return folder / "store" / "commitlog"


def numbers_of(log: Path) -> list[int]:
    return sorted(int(path.name) // FILE_BYTES for path in log.iterdir())


def numbers(folder: Path) -> list[int]:
    return numbers_of(log_of(folder))


def four_files(folder: Path) -> None:
    """A single broker's log that ends in its fourth file, stopped in good order; one more may be made ahead."""
    store = single(folder)
    fill(store, 220, body=bytes(1000))
    store.close()
    assert numbers(folder)[:FOUR] == list(range(FOUR))


def lose(folder: Path, *gone: int) -> None:
    for number in gone:
        (log_of(folder) / file_name(number * FILE_BYTES)).unlink()


def forget_beginning(folder: Path) -> None:
    """Leave the checkpoint as a version before this note wrote it."""
    path = folder / "store" / CHECKPOINT_NAME
    page = bytearray(path.read_bytes())
    page[1280:] = bytes(len(page) - 1280)
    path.write_bytes(page)


def trimmed_node(folder: Path, clock: ManualClock, upto: int = 2 * FILE_BYTES) -> Node:
    """A member whose group agreed that the first files go; two files and a half are left of it."""
    node = open_node(folder / "a", clock=clock)
    lead(node)
    while node.store.written < 4.5 * FILE_BYTES:
        node.records(bytes(3000), topic="U")
    node.sync()
    node.log.release(node.log.last.index)
    checkpoint(node, clock)
    assert node.store.group_cleaner is not None
    node.store.group_cleaner.trim(upto, 1 << 40)
    return node


def content_of(node: Node) -> bytes:
    """The log by position: zeros stand for what retention removed."""
    files = sorted(log_of(node.folder).iterdir())
    kept = b"".join(file.read_bytes() for file in files)
    return (bytes(int(files[0].name)) + kept)[: node.store.written]


# -- a single broker


@pytest.mark.parametrize("gone", [[0], [0, 1], [0, 1, 2]])
def test_a_single_broker_that_lost_its_oldest_file_is_refused_in_words(tmp_path: Path, gone: list[int]) -> None:
    four_files(tmp_path)
    lose(tmp_path, *gone)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=f"begins with {file_name(len(gone) * FILE_BYTES)}, but the log began"):
            single(tmp_path)
    # The way out that the words name.
    (tmp_path / "store" / CHECKPOINT_NAME).unlink()
    store = single(tmp_path)
    assert (store.min_physical, store.max_offset("T", 0)) == (len(gone) * FILE_BYTES, 220)
    store.close()
    single(tmp_path).close()


def test_a_kill_soon_after_the_first_start_makes_no_difference(tmp_path: Path) -> None:
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, stepped=True, clock=ManualClock())
    fill(store, 220, body=bytes(1000))
    store._health.failed = "killed"
    store.flusher._failure = OSError("killed")
    store.close()
    lose(tmp_path, 0)
    with pytest.raises(StoreDamaged, match="but the log began with"):
        single(tmp_path)


def test_a_folder_without_our_note_begins_with_whatever_is_there(tmp_path: Path) -> None:
    """One that an earlier version left, and one that RocketMQ has had since."""
    four_files(tmp_path)
    forget_beginning(tmp_path)
    lose(tmp_path, 0)
    store = single(tmp_path)
    assert store.min_physical == FILE_BYTES
    store.close()
    path = tmp_path / "store" / CHECKPOINT_NAME
    assert load_checkpoint(path.parent).beginning == Beginning(FILE_BYTES)
    with path.open("r+b") as file:
        # RocketMQ writes its times, and nothing else of it.
        file.write((1).to_bytes(8, "big"))
    lose(tmp_path, 1)
    store = single(tmp_path)
    assert store.min_physical == 2 * FILE_BYTES
    store.close()


CUT_SHORT: list[list[int]] = [[], [0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]]


@pytest.mark.parametrize("removed", CUT_SHORT)
def test_a_kill_in_the_middle_of_retention_starts_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: list[int]
) -> None:
    """The note of the new begin is there, and any of the files that it was made for: a crash keeps no order."""
    four_files(tmp_path)
    store = single(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Helper, "remove", lambda *_: None)
        assert len(store._cleaner.remove(3 * FILE_BYTES, "they are old")) == 3
        store.close()
    lose(tmp_path, *removed)
    for _ in range(3):
        store = single(tmp_path)
        # What goes on up to the new begin without a gap may as well stay.
        assert store.min_physical == (max(removed, default=-1) + 1) * FILE_BYTES
        assert store.max_offset("T", 0) == 220
        store.close()
        assert numbers(tmp_path)[0] == max(removed, default=-1) + 1


def test_the_new_begin_is_on_the_disk_before_a_file_is_removed(tmp_path: Path) -> None:
    four_files(tmp_path)
    noted: list[Beginning | None] = []

    class Watched(Disk):
        def unlink(self, path: Path) -> None:
            if path.parent.name == "commitlog":
                noted.append(load_checkpoint(tmp_path / "store").beginning)
            super().unlink(path)

    store = MessageStore.open(make_config(tmp_path), store_host=HOST, disk=Watched())
    store._cleaner.remove(2 * FILE_BYTES, "they are old")
    store.close()
    assert noted == [Beginning(2 * FILE_BYTES)] * 2


def test_a_full_disk_does_not_keep_retention_from_making_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four_files(tmp_path)
    store = single(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    known = load_checkpoint(tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "save_checkpoint", full)
        store._keeper.shrunk = lambda: None  # type: ignore[method-assign]  # it wants room of its own
        store._cleaner.remove(FILE_BYTES, "they are old")
        store._helper.close()
    assert numbers(tmp_path)[0] == 1
    assert load_checkpoint(tmp_path / "store") == replace(known, beginning=Beginning(FILE_BYTES))
    store.close()


def test_leftovers_are_what_a_gap_divides_from_the_begin() -> None:
    assert leftovers([0, 1, 2, 3, 4], 3, 1) == []
    assert leftovers([0, 2, 3, 4], 3, 1) == [0]
    assert leftovers([0, 1, 3, 4], 3, 1) == [0, 1]
    assert leftovers([3, 4], 3, 1) == []
    assert leftovers([5], 3, 1) == []


@pytest.mark.parametrize("beginning", [None, Beginning(0), Beginning(5, Mark(1, 2, 5, 3), 1), Beginning(7, None)])
def test_the_checkpoint_keeps_the_beginning(beginning: Beginning | None) -> None:
    kept = Checkpoint(1, 2, 3, 4, 5, totals=(6, 7), beginning=beginning)
    assert Checkpoint.decode(kept.encode()) == kept
    page = bytearray(kept.encode())
    page[1281] ^= 1
    assert Checkpoint.decode(bytes(page)).beginning is None


# -- members of a group


@pytest.mark.parametrize("gone", [[2], [2, 3], [2, 4], [2, 3, 4]])
@pytest.mark.parametrize("stop", [MessageStore.close, None])
def test_R4_a_member_s_oldest_file_is_fetched_behind_retention_too(
    tmp_path: Path, gone: list[int], stop: Callable[[MessageStore], None] | None
) -> None:
    whole = trimmed_node(tmp_path, ManualClock())
    while whole.store.step_helper():
        pass
    base, last, content = whole.log.base, whole.log.last, content_of(whole)
    ends = whole.store.min_offset("U", 0), whole.store.max_offset("U", 0)
    assert base.end == 2 * FILE_BYTES
    if stop is not None:
        stop(whole.store)
    else:
        whole.kill()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    lose(tmp_path / "b", *gone)
    for _ in range(3):
        hurt = open_node(tmp_path / "b")
        assert (hurt.log.whole, hurt.log.base, hurt.log.last) == (False, base, last)
        assert hurt.log.damaged == (base.index + 1, hurt.log.damaged[1] if hurt.log.damaged else 0)
        hurt.store._queues.persist()
        hurt.kill()
    hurt = open_node(tmp_path / "b")
    mend(hurt, content)
    hurt.log.release(last.index)
    assert content_of(hurt) == content
    hurt.kill()
    hurt = open_node(tmp_path / "b")
    assert (hurt.log.whole, hurt.log.base, hurt.log.last) == (True, base, last)
    hurt.log.release(last.index)
    assert (hurt.store.min_offset("U", 0), hurt.store.max_offset("U", 0)) == ends
    hurt.store.close()


@pytest.mark.parametrize("removed", CUT_SHORT)
def test_R12_a_member_killed_in_the_middle_of_retention_starts_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: list[int]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Helper, "remove", lambda *_: None)
        node = trimmed_node(tmp_path, ManualClock(), upto=3 * FILE_BYTES)
        while node.store.step_helper():
            pass
    base, last = node.log.base, node.log.last
    assert base.end == 3 * FILE_BYTES
    node.kill()
    lose(tmp_path / "a", *removed)
    for _ in range(3):
        node = open_node(tmp_path / "a")
        assert (node.log.whole, node.log.last) == (True, last)
        assert node.store.min_physical == (max(removed, default=-1) + 1) * FILE_BYTES
        node.kill()


def test_R4_the_first_entry_behind_retention_is_mended_when_it_rots(tmp_path: Path) -> None:
    """What comes first names a CONFIG that is no longer kept: the repair must know it."""
    whole = trimmed_node(tmp_path, ManualClock())
    whole.store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    whole = open_node(tmp_path / "a")
    hurt = open_node(tmp_path / "b")
    first = hurt.log.base.index + 1
    damage(tmp_path / "b", hurt.start_of(first) + 400)
    hurt.log.mark_damaged(first, first)
    mend(hurt, content_of(whole))
    assert content_of(hurt) == content_of(whole)
    hurt.store.close()
    whole.store.close()


@pytest.mark.parametrize("gone", [[0], [0, 1], []])
def test_R4_what_stood_before_the_group_is_asked_of_nobody(tmp_path: Path, gone: list[int]) -> None:
    """The member refuses to start, with what can be done; the files put back, it starts. [] takes all of them."""
    four_files(tmp_path)
    node = open_node(tmp_path)
    lead(node)
    while node.store.written < 4.5 * FILE_BYTES:
        node.records(bytes(3000), topic="U")
    node.sync()
    node.log.release(node.log.last.index)
    node.store.close()
    shutil.copytree(log_of(tmp_path), tmp_path / "kept")
    lose(tmp_path, *(gone or numbers(tmp_path)))
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="remove this member from the group, empty its store and add it again"):
            open_node(tmp_path)
    for number in numbers_of(tmp_path / "kept"):
        shutil.copy(tmp_path / "kept" / file_name(number * FILE_BYTES), log_of(tmp_path))
    node = open_node(tmp_path)
    assert node.log.whole
    node.store.close()


def test_a_member_s_folder_without_our_note_begins_with_whatever_is_there(tmp_path: Path) -> None:
    node = trimmed_node(tmp_path, ManualClock())
    node.store.close()
    forget_beginning(tmp_path / "a")
    again = open_node(tmp_path / "a")
    assert (again.log.whole, again.log.base.end) == (True, 2 * FILE_BYTES)
    again.store.close()
    assert load_checkpoint(tmp_path / "a" / "store").beginning == again.log.beginning(2 * FILE_BYTES)
