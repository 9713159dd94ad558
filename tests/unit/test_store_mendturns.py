"""Repair, and what follows it, hold up the loop for a bounded part of the work in each turn (R4)."""

from pathlib import Path

import pytest

from store.raftlog.entryrepair import SLICE_BYTES, SLICE_ENTRIES
from store.raftlog.givenbytes import GivenBytes
from tests.parts.entry_tools import mend
from tests.parts.mending_tools import Counted, pair
from tests.parts.store_tools import FILE_BYTES


def test_R4_a_slice_is_bounded(tmp_path: Path) -> None:
    whole, hurt = pair(tmp_path, 6)
    content, mending = whole.content, hurt.log.mending
    wanted = mending.wanted()
    assert wanted is not None
    mending.give(wanted[0], content[wanted[0] : wanted[1]])
    mender, largest = mending._mender, 0
    while hurt.log.damaged is not None:
        before, cursor = hurt.log.damaged[0], mender._given.cursor
        more = mending.step()
        after = hurt.log.damaged[0] if hurt.log.damaged is not None else hurt.log.last.index + 1
        largest = max(largest, mender._given.cursor.index - cursor.index, after - before if hurt.log.damaged else 0)
        assert mender._given.cursor.end - cursor.end <= SLICE_BYTES + FILE_BYTES
        # Nothing counts before the worker has written and synced it.
        if not more:
            hurt.store.step_helper()
    assert 0 < largest <= SLICE_ENTRIES
    hurt.store.close()
    whole.store.close()


def test_R4_a_slice_looks_once_at_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by time: entries side by side are read in one view of the bytes, and one more wherever a piece ends."""
    whole, hurt = pair(tmp_path, 4)
    content, mending = whole.content, hurt.log.mending
    views = slices = pieces = 0
    look = GivenBytes.view

    def counted(given: GivenBytes, position: int, size: int) -> memoryview | None:
        nonlocal views
        views += 1
        return look(given, position, size)

    monkeypatch.setattr(GivenBytes, "view", counted)
    assert hurt.log.damaged is not None
    entries = hurt.log.damaged[1] - hurt.log.damaged[0] + 1
    while hurt.log.damaged is not None:
        wanted = mending.wanted()
        if wanted is not None:
            pieces += 1
            mending.give(wanted[0], content[wanted[0] : min(wanted[0] + FILE_BYTES // 2, wanted[1])])
        slices += 1
        if not mending.step():
            hurt.store.step_helper()
    # Beside a blank and at a piece's end it looks again.
    assert views <= slices + 4 * pieces < entries
    hurt.store.close()
    whole.store.close()


def test_R4_what_stands_behind_a_filled_hole_is_dispatched_as_far_as_is_said(tmp_path: Path) -> None:
    """All of it is known as committed since the start: whoever calls decides how much is done in one turn."""
    whole, hurt = pair(tmp_path, 3)
    first = hurt.log.released
    hurt.log.commit = whole.log.commit
    mend(hurt, whole.content)
    assert hurt.log.released == first
    for index in (first + 1, first + 5):
        hurt.log.release(index)
        assert hurt.log.released == index
    hurt.log.release(hurt.log.commit)
    assert hurt.log.released == whole.log.released
    hurt.store.close()
    whole.store.close()


def test_R4_what_stands_behind_a_filled_hole_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by time: what is on disk there counts at once, and an entry that is dispatched is read once."""
    whole, hurt = pair(tmp_path, 3)
    content, log = whole.content, hurt.log
    mend(hurt, content)
    log.commit = whole.log.commit
    log._finder.cut(0)
    counted = Counted(hurt, monkeypatch)
    behind = log.last.index - log.released
    assert behind > 100
    hurt.store._log.flushed -= 1
    log.durable = log.released
    log.settle(log.last.end - 1)
    assert log.durable == log.last.index - 1
    assert counted.hints <= 2 * behind.bit_length()
    for index in range(log.released + 1, log.commit + 1):
        log.end_position(index)
        assert log.term(index) == 1
        log.release(index)
    assert counted.hints <= behind + 2 * behind.bit_length()
    hurt.store.close()
    whole.store.close()


def test_R4_what_was_mended_and_then_cut_is_forgotten(tmp_path: Path) -> None:
    whole, hurt = pair(tmp_path, 3)
    assert hurt.log.damaged is not None
    last = hurt.log.damaged[1]
    mend(hurt, whole.content)
    hurt.log.commit = last - 2
    assert hurt.log._finder.control(last) is not None
    hurt.log._finder.cut(last - 1)
    assert last - 1 in hurt.log._finder._mended._controls
    assert last not in hurt.log._finder._mended._controls
    hurt.store.close()
    whole.store.close()
