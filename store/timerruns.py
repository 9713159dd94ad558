"""Sorted files of pending timer messages: written once, read from front to back, merged when they are many.

A run holds entries of 40 bytes in the order of (slot, offset). Nothing in it is ever changed; what has been delivered
is passed over, and a run whose last entry has been is removed.
"""

import contextlib
import heapq
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.durable import fsync_folder

# The entry recalls another; the entry is due later than its slot says, and goes on waiting then.
DELETES, ROLLS = 1, 2
# Above these bits of an entry's flags stands the number of its topic, 0 for one that is not known (broker/delay).
TOPIC_SHIFT = 8
# Entries that are read at once from a run.
CHUNK = 512
# Entries that are merged at once of each run.
MERGE_CHUNK = 8192
ENTRY_TYPE = np.dtype(
    [("slot", "<i8"), ("offset", "<i8"), ("position", "<i8"), ("size", "<i4"), ("flags", "<i4"), ("hash", "<u8")]
)
ENTRY_BYTES = ENTRY_TYPE.itemsize
# Behind every offset.
OFFSET_MAX = 2**62
Entries = npt.NDArray[np.void]
Key = tuple[int, int]


class TimerEntry(NamedTuple):
    """One pending timer message; entries are in order when they are sorted as tuples."""

    slot: int
    """ms: it is due when this slot is over."""
    offset: int
    """In rmq_sys_wheel_timer's queue 0."""
    position: int
    """In the CommitLog."""
    size: int
    flags: int
    hash: int
    """Of its topic and unique key; of one that recalls another, of that one's."""


class RunInfo(NamedTuple):
    """What the manifest says of a run."""

    name: str
    entries: int
    deletes: int
    """How many entries recall others."""
    low: int
    """The smallest position in the CommitLog."""
    last_slot: int
    last_offset: int

    @property
    def last(self) -> Key:
        """The key of the last entry."""
        return self.last_slot, self.last_offset


def write_run(path: Path, parts: Iterator[Entries]) -> RunInfo | None:
    """Write sorted entries to a new file, durably; None (and no file) when there are none. Raises OSError."""
    count = deletes = 0
    low = 2**63 - 1
    last = (0, 0)
    try:
        with path.open("wb") as file:
            for part in parts:
                if not len(part):
                    continue
                file.write(part.tobytes())
                count += len(part)
                deletes += int(((part["flags"] & DELETES) != 0).sum())
                low = min(low, int(part["position"].min()))
                last = (int(part["slot"][-1]), int(part["offset"][-1]))
            file.flush()
            os.fsync(file.fileno())
        if count:
            fsync_folder(path.parent)
            return RunInfo(path.name, count, deletes, low, *last)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    path.unlink()
    return None


def as_array(entries: Sequence[TimerEntry]) -> Entries:
    """Return entries as a run holds them."""
    return np.array([tuple(entry) for entry in entries], ENTRY_TYPE)


class TimerRun:
    """One open run, read from a key on. `at` is the number of its entries that are passed."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        """Open it; raises OSError, also when its file is shorter than the manifest says."""
        self.info = info
        self.path = folder / info.name
        self._file = os.open(self.path, os.O_RDONLY)
        if os.fstat(self._file).st_size != info.entries * ENTRY_BYTES:
            os.close(self._file)
            raise OSError(f"{self.path} has not the {info.entries} entries that it should have")
        self.at = 0
        self._chunk: list[TimerEntry] = []
        self._chunk_at = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def another_file(self) -> int:
        """Return a descriptor of the file that is the caller's to close; raises OSError."""
        return os.dup(self._file)

    def read(self, at: int, count: int) -> Entries:
        """Return entries from number `at` on. For any thread. Raises OSError."""
        count = max(0, min(count, self.info.entries - at))
        data = os.pread(self._file, count * ENTRY_BYTES, at * ENTRY_BYTES)
        if len(data) != count * ENTRY_BYTES:
            raise OSError(f"{self.path} cannot be read at entry {at}")
        return np.frombuffer(data, ENTRY_TYPE)

    def find(self, key: Key) -> int:
        """Return the number of the first entry behind a key. For any thread."""
        low, high = 0, self.info.entries
        while low < high:
            middle = (low + high) // 2
            entry = self.read(middle, 1)[0]
            if (int(entry["slot"]), int(entry["offset"])) <= key:
                low = middle + 1
            else:
                high = middle
        return low

    def seek(self, key: Key) -> None:
        """Pass what stands up to a key; it may lie before what was passed already."""
        chunk, begin = self._chunk, self._chunk_at
        if self.info.last <= key:
            self.at = self.info.entries
        elif chunk and chunk[0][:2] <= key < chunk[-1][:2]:
            self.at = begin + bisect_right(chunk, key, key=lambda entry: entry[:2])
        elif chunk and begin == 0 and key < chunk[0][:2]:
            self.at = 0
        else:
            self.at = self.find(key)

    def _entry(self, at: int) -> TimerEntry:
        if not self._chunk_at <= at < self._chunk_at + len(self._chunk):
            begin = max(0, at - 1)
            self._chunk = [TimerEntry(*entry) for entry in self.read(begin, CHUNK).tolist()]
            self._chunk_at = begin
            os.posix_fadvise(self._file, (begin + CHUNK) * ENTRY_BYTES, CHUNK * ENTRY_BYTES, os.POSIX_FADV_WILLNEED)
        return self._chunk[at - self._chunk_at]

    def pending(self) -> Iterator[TimerEntry]:
        """Yield the entries that are not passed, in order; the run must not be used otherwise meanwhile."""
        for at in range(self.at, self.info.entries):
            yield self._entry(at)

    @property
    def first(self) -> TimerEntry | None:
        """The first entry that is not passed."""
        return self._entry(self.at) if self.at < self.info.entries else None


def deletes_of(runs: Sequence[TimerRun], first_slot: int, last_slot: int) -> list[TimerEntry]:
    """Return the entries of slots that recall others. For any thread. Raises OSError."""
    found: list[TimerEntry] = []
    for run in runs:
        if not run.info.deletes or run.info.last_slot < first_slot:
            continue
        at, end = run.find((first_slot, -1)), run.find((last_slot, OFFSET_MAX))
        while at < end:
            part = run.read(at, min(MERGE_CHUNK, end - at))
            found += [TimerEntry(*entry) for entry in part[(part["flags"] & DELETES) != 0].tolist()]
            at += len(part)
    return found


def merged(runs: Sequence[TimerRun], after: Key, stopped: Callable[[], bool]) -> Iterator[Entries]:
    """Yield the entries of several runs behind a key, in one order. For any thread. Raises OSError."""
    places = {run: run.find(after) for run in runs}
    while not stopped():
        heads = {run: run.read(at, MERGE_CHUNK) for run, at in places.items() if at < run.info.entries}
        if not heads:
            return
        # Everything up to the smallest of the last keys at hand is complete.
        border = min((int(head["slot"][-1]), int(head["offset"][-1])) for head in heads.values())
        taken = []
        for run, head in heads.items():
            slots, offsets = head["slot"], head["offset"]
            count = int(((slots < border[0]) | ((slots == border[0]) & (offsets <= border[1]))).sum())
            taken.append(head[:count])
            places[run] += count
        together = np.concatenate(taken)
        yield together[np.lexsort((together["offset"], together["slot"]))]


def first_of(sources: Sequence[Iterator[TimerEntry]], count: int) -> list[TimerEntry]:
    """Return the first entries of several sorted sources."""
    found: list[TimerEntry] = []
    for entry in heapq.merge(*sources):
        found.append(entry)
        if len(found) == count:
            break
    return found
