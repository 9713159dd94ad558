"""Which timer messages are pending: a bounded buffer in memory, sorted runs on disk, and a manifest that names them.

The manifest says up to which offsets of the two queues of rmq_sys_wheel_timer the runs have everything. What came later
stands in the buffer, and is read from the queues again at a start: at most BUFFER_MAX messages. It is replaced as a
whole; a run that it does not name is a leftover of a kill. A run is removed only when the mark that passes its last
entry is on the disk.

All in one thread but the work() of a Job.
"""

import contextlib
import logging
from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from broker.delay.pending_topics import PendingTopics, TimerTopicNumbers
from runtime.durable import read_file, replace_file
from store.timerruns import (
    DELETES,
    OFFSET_MAX,
    Key,
    RunInfo,
    TimerEntry,
    TimerRun,
    as_array,
    first_of,
    merged,
    write_run,
)
from store.timertopics import tails_of

_log = logging.getLogger(__name__)

# Entries in memory, twice while one such buffer is being written: some 8 MB each.
BUFFER_MAX = 32_768
# Runs of one size class that are merged into one; a class is a power of this number.
MERGE_AT = 16
# A stop writes the buffer when it holds this many; fewer are read again faster than a run is worth.
WORTH_A_RUN = 4096
MANIFEST = "manifest.json"
VERSION = 1
NOWHERE: Key = (-1, -1)


class IndexStamp(NamedTuple):
    """Up to where an index has everything."""

    taken: int = 0
    """The next offset of queue 0."""
    marks: int = 0
    """The next offset of queue 1, the marks."""
    position: int = -1
    """Where the last message taken stands in the log, -1: none was; by this an index is known to fit the log."""
    mark_position: int = -1
    """Where the last mark does."""
    closed: int = -1
    """The last slot that was closed."""
    slot: int = -1
    offset: int = -1
    """Of slot and queue: the last one delivered."""


class _Manifest(msgspec.Struct):
    version: int
    stamp: IndexStamp
    runs: list[RunInfo]
    topics: list[str] = []
    """By the numbers that entries name them by, from 1 on."""


class Job:
    """Work on files for another thread; then done() in the index's own."""

    def __init__(
        self, index: "TimerIndex", frozen: list[TimerEntry], runs: list[TimerRun], stamp: IndexStamp, drop: Key
    ) -> None:
        self._index = index
        self._frozen = frozen
        self._merging = runs
        self._stamp = stamp
        self._drop = drop
        self._topics = index.topics.names
        self._kept = [run.info for run in index.runs if run not in runs and run.info.last > drop]
        self._name = f"{index.next_number():010d}.run"
        self._made: RunInfo | None = None
        self.stopped = False

    def work(self) -> None:
        """Write a run, of the buffer or of other runs, and the manifest that names it. Raises OSError."""
        index = self._index
        index.folder.mkdir(parents=True, exist_ok=True)
        if self._merging:
            self._made = write_run(index.folder / self._name, merged(self._merging, self._drop, lambda: self.stopped))
        elif self._frozen:
            waiting = [entry for entry in self._frozen if entry[:2] > self._drop]
            self._made = write_run(index.folder / self._name, iter([as_array(waiting)]))
        made = [self._made] if self._made is not None else []
        if not self.stopped:
            index.write_manifest(self._stamp, [*self._kept, *made], self._topics)

    def done(self) -> None:
        """Take over what was written."""
        if not self.stopped:
            self._index.adopt(self._kept, self._made, merged_buffer=not self._merging)


class TimerIndex:
    """The pending timer messages of one broker."""

    def __init__(self, folder: Path) -> None:
        """Use open()."""
        self.folder = folder
        self.runs: list[TimerRun] = []
        self.stamp = IndexStamp()
        self.topics = TimerTopicNumbers()
        self._buffer: list[TimerEntry] = []
        self._frozen: list[TimerEntry] = []
        self._frozen_stamp = IndexStamp()
        # Runs that another thread may still read.
        self._gone: list[TimerRun] = []
        # Of the manifest: what is durable of the stamp.
        self.saved = IndexStamp()
        self._numbered = 0
        self.job: Job | None = None

    def open(self) -> None:
        """Read what was kept; whatever is unreadable is as if nothing had been. Raises OSError."""
        self._drop_all()
        try:
            content = read_file(self.folder / MANIFEST)
            manifest = None if content is None else msgspec.json.decode(content, type=_Manifest)
            if manifest is not None and manifest.version == VERSION:
                for info in manifest.runs:
                    self.runs.append(TimerRun(self.folder, info))
                self.stamp = self.saved = manifest.stamp
                self.topics = TimerTopicNumbers(manifest.topics)
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("the index of timer messages is unreadable, it is built anew from the log: %s", error)
            self._drop_all()
        known = {run.info.name for run in self.runs}
        for path in self.folder.glob("*.run*"):
            if path.name not in known:
                path.unlink()
        self._numbered = max([int(name[:10]) for name in known], default=0)
        self.seek()

    def reset(self) -> None:
        """Forget everything: it is built anew from the log. Raises OSError."""
        paths = [run.path for run in self.runs]
        self._drop_all()
        if self.folder.exists():
            self.write_manifest(self.stamp, [], [])
        for path in paths:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files."""
        if self.job is not None:
            # It reads the runs in another thread, and ends with the process.
            self.job.stopped = True
            return
        self._drop_all()
        self.close_gone()

    # -- what is pending

    @property
    def cursor(self) -> Key:
        """The key of the last entry that was delivered."""
        return self.stamp.slot, self.stamp.offset

    @property
    def full(self) -> bool:
        """Whether the buffer takes nothing more until a job is done."""
        return len(self._buffer) >= BUFFER_MAX

    @property
    def count(self) -> int:
        """How many entries are pending, those that recall others among them."""
        cursor = self.cursor
        return sum([run.info.entries - run.at for run in self.runs]) + sum(
            [len(part) - bisect_right(part, (*cursor, OFFSET_MAX)) for part in (self._buffer, self._frozen)]
        )

    def due(self, slot: int) -> int:
        """Return how many entries up to a slot are pending; those of a run that cannot be read now do not count."""
        key, cursor = (slot, OFFSET_MAX), (*self.cursor, OFFSET_MAX)
        parts = [part[bisect_right(part, cursor) : bisect_right(part, key)] for part in (self._buffer, self._frozen)]
        found = sum(map(len, parts))
        for run in self.runs:
            with contextlib.suppress(OSError):
                found += max(0, run.find(key) - run.at)
        return found

    @property
    def low(self) -> int:
        """The position in the log before which nothing pending stands, at the least; -1 when nothing is pending."""
        cursor = self.cursor
        lows = [run.info.low for run in self.runs if run.info.last > cursor]
        for part in (self._buffer, self._frozen):
            waiting = part[bisect_right(part, (*cursor, OFFSET_MAX)) :]
            lows += [min([entry.position for entry in waiting])] if waiting else []
        return min(lows, default=-1)

    def pending_topics(self) -> PendingTopics:
        """Return what is pending now, to be counted by topic in another thread. Raises OSError."""
        key = (*self.cursor, OFFSET_MAX)
        parts = [islice(part, bisect_right(part, key), None) for part in (self._buffer, self._frozen)]
        flags = [entry.flags for part in parts for entry in part]
        return PendingTopics(tails_of(self.runs), flags, self.topics.names)

    def add(self, entry: TimerEntry) -> None:
        """Take an entry; it may stand anywhere in the order."""
        insort(self._buffer, entry)

    def move(self, stamp: IndexStamp) -> None:
        """Take a new stamp; the cursor may go back, but not before what is removed already."""
        before = self.cursor
        self.stamp = stamp
        if self.cursor != before:
            self.seek()

    def seek(self) -> None:
        """Have all runs pass what was delivered."""
        for run in self.runs:
            run.seek(self.cursor)

    def first(self) -> TimerEntry | None:
        """Return the first pending entry."""
        return min([entry for entry in self._firsts() if entry is not None], default=None)

    def batch(self, count: int, upto: Key, after: Key | None = None) -> list[TimerEntry]:
        """Return the first pending entries up to a key; `after`: those behind this key, not behind the cursor."""
        if after is not None:
            for run in self.runs:
                run.seek(after)
        key = (*(self.cursor if after is None else after), OFFSET_MAX)
        parts = [islice(part, bisect_right(part, key), None) for part in (self._buffer, self._frozen)]
        found = first_of([*parts, *[run.pending() for run in self.runs]], count)
        if after is not None:
            self.seek()
        return [entry for entry in found if entry[:2] <= upto]

    def deletes(self, first_slot: int, last_slot: int) -> list[TimerEntry]:
        """Return the entries of the buffer that recall others of slots; for those of runs see deletes_of()."""
        return [
            entry
            for part in (self._buffer, self._frozen)
            for entry in islice(
                part, bisect_right(part, (first_slot, -1, 0)), bisect_right(part, (last_slot, OFFSET_MAX))
            )
            if entry.flags & DELETES
        ]

    def _firsts(self) -> Iterator[TimerEntry | None]:
        key = (*self.cursor, OFFSET_MAX)
        for part in (self._buffer, self._frozen):
            at = bisect_right(part, key)
            yield part[at] if at < len(part) else None
        for run in self.runs:
            yield run.first

    # -- files

    def next_job(self, durable: Key, *, stopping: bool = False) -> Job | None:
        """Return what is to be done on files now; the caller has work() done, then done(), or failed().

        `durable`: the cursor that no power cut takes back.
        """
        if self.job is not None:
            return None
        if self.full or (stopping and len(self._buffer) >= WORTH_A_RUN) or self._frozen:
            if not self._frozen:
                self._frozen, self._buffer = self._buffer, []
                self._frozen_stamp = self.stamp
            self.job = Job(self, self._frozen, [], self._frozen_stamp, durable)
        elif merging := self._to_merge():
            self.job = Job(self, [], merging, self.saved, durable)
        elif any(run.info.last <= durable for run in self.runs):
            self.job = Job(self, [], [], self.saved, durable)
        return self.job

    def failed(self) -> None:
        """Take note that a job failed; it is done again with the next one."""
        self.job = None

    def _to_merge(self) -> list[TimerRun]:
        classes: dict[int, list[TimerRun]] = {}
        for run in self.runs:
            level, size = 0, run.info.entries
            while size > BUFFER_MAX:
                size //= MERGE_AT
                level += 1
            classes.setdefault(level, []).append(run)
        return next((found for _, found in sorted(classes.items()) if len(found) >= MERGE_AT), [])

    def next_number(self) -> int:
        """Return the number of a new run."""
        self._numbered += 1
        return self._numbered

    def write_manifest(self, stamp: IndexStamp, runs: list[RunInfo], topics: list[str]) -> None:
        """Replace the manifest. For any thread. Raises OSError."""
        replace_file(self.folder / MANIFEST, msgspec.json.encode(_Manifest(VERSION, stamp, runs, topics)))

    def adopt(self, kept: list[RunInfo], made: RunInfo | None, *, merged_buffer: bool) -> None:
        """Go on with the runs that the manifest names now. Raises OSError."""
        job, self.job = self.job, None
        assert job is not None, "a job is adopted once"
        names = {info.name for info in kept}
        gone = [run for run in self.runs if run.info.name not in names]
        self.runs = [run for run in self.runs if run.info.name in names]
        if made is not None:
            run = TimerRun(self.folder, made)
            run.seek(self.cursor)
            self.runs.append(run)
        if merged_buffer and self._frozen:
            self._frozen = []
            self.saved = self._frozen_stamp
        for run in gone:
            run.path.unlink(missing_ok=True)
        self._gone += gone

    def close_gone(self) -> None:
        """Close the runs that are no more; called when no other thread reads any."""
        for run in self._gone:
            run.close()
        self._gone = []

    def _drop_all(self) -> None:
        """Know nothing any more; runs are closed when no other thread reads them."""
        if self.job is not None:
            self.job.stopped = True
            self.job = None
        self._gone += self.runs
        self.runs, self._buffer, self._frozen = [], [], []
        self.stamp = self.saved = IndexStamp()
        self.topics = TimerTopicNumbers()
