"""The index of timer messages: memory that does not grow, starts that read little, merges, and what a kill leaves."""

import tracemalloc
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from broker.delay import index as index_module
from broker.delay.index import BUFFER_MAX, MANIFEST, Job, TimerIndex
from broker.delay.index_files import IndexFiles
from store import timerruns
from store.timerruns import DELETES, OFFSET_MAX, Key, TimerEntry, TimerRun

MANY = 200_000


def entry(slot: int, offset: int, flags: int = 0) -> TimerEntry:
    return TimerEntry(slot, offset, 1000 + offset * 200, 200, flags, offset)


def fill(index: TimerIndex, entries: list[TimerEntry], durable: Key = (-1, -1)) -> None:
    for each in entries:
        index.add(each)
        index.move(index.stamp._replace(taken=each.offset + 1, position=each.position))
        work(index, durable)


def work(index: TimerIndex, durable: Key = (-1, -1)) -> None:
    while (job := index.next_job(durable)) is not None:
        job.work()
        job.done()
        index.close_gone()


def drained(index: TimerIndex, count: int = 1000) -> list[TimerEntry]:
    found = []
    while batch := index.batch(count, (2**60, OFFSET_MAX)):
        found += batch
        index.move(index.stamp._replace(slot=batch[-1].slot, offset=batch[-1].offset))
    return found


def spread(count: int) -> list[TimerEntry]:
    """Entries as they come: in the order of offsets, their slots all over three days."""
    slots = np.random.default_rng(7).integers(0, 3 * 86_400, count) * 1000
    return [entry(int(slot), offset) for offset, slot in enumerate(slots)]


def test_many_entries_cost_no_memory_and_a_start_reads_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = TimerIndex(tmp_path)
    index.open()
    entries = spread(MANY)
    fill(index, entries[:BUFFER_MAX])
    tracemalloc.start()
    fill(index, entries[BUFFER_MAX:])
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 16 << 20, "a buffer, whatever the number"
    assert peak < 40 << 20
    assert index.count == MANY
    waiting = MANY % BUFFER_MAX
    index.close()

    read = 0

    def counted(run: TimerRun, at: int, count: int) -> object:
        nonlocal read
        read += min(count, run.info.entries - at)
        return genuine(run, at, count)

    genuine = TimerRun.read
    monkeypatch.setattr(TimerRun, "read", counted)
    again = TimerIndex(tmp_path)
    again.open()
    assert again.stamp.taken == MANY - waiting, "the rest is read again from the queue: at most a buffer"
    assert again.first() == min(entries[: MANY - waiting])
    assert read <= len(again.runs) * (timerruns.CHUNK + 64)
    again.close()


def test_entries_come_in_order_whatever_files_they_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BUFFER_MAX", 50)
    monkeypatch.setattr(index_module, "MERGE_AT", 4)
    monkeypatch.setattr(timerruns, "MERGE_CHUNK", 30)
    monkeypatch.setattr(timerruns, "CHUNK", 16)
    index = TimerIndex(tmp_path)
    index.open()
    entries = [entry(offset * 7919 % 100, offset) for offset in range(3000)]
    fill(index, entries)
    assert len(index.runs) <= 3 * 4
    assert drained(index, 37) == sorted(entries)
    assert index.count == 0
    assert index.first() is None
    # Back, as after a torn batch.
    index.move(index.stamp._replace(slot=98, offset=5))
    assert drained(index) == [each for each in sorted(entries) if each[:2] > (98, 5)]
    index.close()


def test_runs_go_when_the_log_says_for_good_that_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BUFFER_MAX", 10)
    index = TimerIndex(tmp_path)
    index.open()
    fill(index, [entry(offset, offset) for offset in range(35)])
    assert len(index.runs) == 3
    index.move(index.stamp._replace(slot=25, offset=25))
    work(index)
    assert len(index.runs) == 3, "the mark may be lost in a power cut"
    assert index.low == 1000 + 20 * 200
    work(index, (25, 25))
    assert [run.info.last for run in index.runs] == [(29, 29)]
    assert len(list(tmp_path.glob("*.run"))) == 1
    index.close()


@pytest.mark.parametrize("stage", ["run written", "manifest written"])
def test_a_kill_at_any_step_of_a_job_leaves_a_whole_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setattr(index_module, "BUFFER_MAX", 10)
    index = TimerIndex(tmp_path)
    index.open()
    fill(index, [entry(offset, offset) for offset in range(25)])
    for offset in range(25, 30):
        index.add(entry(offset, offset))
        index.move(index.stamp._replace(taken=offset + 1))
    job = index.next_job((-1, -1))
    assert isinstance(job, Job)
    if stage == "run written":
        monkeypatch.setattr(TimerIndex, "write_manifest", lambda *_: None)
    job.work()
    monkeypatch.undo()
    again = TimerIndex(tmp_path)
    again.open()
    taken = 20 if stage == "run written" else 30
    assert again.stamp.taken == taken
    assert drained(again) == [entry(offset, offset) for offset in range(taken)]
    assert len(list(tmp_path.glob("*.run"))) == taken // 10, "what no manifest names is removed"
    again.close()
    index.close()


def test_a_job_that_fails_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BUFFER_MAX", 10)
    index = TimerIndex(tmp_path)
    index.open()
    for offset in range(10):
        index.add(entry(offset, offset))
        index.move(index.stamp._replace(taken=offset + 1))
    (tmp_path / MANIFEST).mkdir()
    job = index.next_job((-1, -1))
    assert job is not None
    with pytest.raises(OSError):
        job.work()
    index.failed()
    assert index.count == 10
    assert not index.full, "more is taken meanwhile"
    (tmp_path / MANIFEST).rmdir()
    work(index)
    assert index.count == 10
    assert len(index.runs) == 1
    index.close()


def test_recalls_of_a_slot_are_found_in_runs_and_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BUFFER_MAX", 10)
    index = TimerIndex(tmp_path)
    index.open()
    entries = [entry(offset % 3, offset, DELETES if offset % 4 == 0 else 0) for offset in range(27)]
    fill(index, entries)
    wanted = [each for each in entries if each.flags and 1 <= each.slot <= 2]
    assert sorted([*timerruns.deletes_of(index.runs, 1, 2), *index.deletes(1, 2)]) == sorted(wanted)
    index.close()


def test_a_slot_keeps_its_recalls_until_the_whole_of_it_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a recall names may stand behind it: it was stored anew since. A restart between the two must find both."""
    monkeypatch.setattr(index_module, "BUFFER_MAX", 1)
    index = TimerIndex(tmp_path)
    index.open()
    fill(index, [entry(5, 1, DELETES), entry(5, 2), entry(6, 3)])
    jobs: list[Job] = []
    files = IndexFiles(index, lambda work, then: then(work()), lambda: 100, lambda: jobs.append(cast(Job, index.job)))
    index.move(index.stamp._replace(slot=5, offset=1))
    files.moved(50, (5, 1))
    files.look()
    assert [each.offset for each in timerruns.deletes_of(index.runs, 5, 5)] == [1]
    files.moved(60, (6, 3))
    files.look()
    assert timerruns.deletes_of(index.runs, 5, 5) == []
    assert len(index.runs) == 1
    files.moved(101, (7, 0))
    files.look()
    assert len(index.runs) == 1, "not yet on the disk"
    index.close()
