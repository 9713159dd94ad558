"""Counts pending timer messages by the numbers of their topics, in runs that may be replaced meanwhile.

For any thread: what is counted is what was pending when it was taken.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from store.timerruns import DELETES, ENTRY_BYTES, ENTRY_TYPE, TOPIC_SHIFT, Entries, TimerRun

# Numbers that topics have: 1 to this, and 0.
TOPICS_MAX = 65_535
# Entries that are counted at once.
COUNT_CHUNK = 65_536


class RunTail:
    """The entries of a run that are not passed now, for another thread: the run may be closed meanwhile."""

    def __init__(self, run: TimerRun) -> None:
        """Keep the file open until close(); raises OSError."""
        self._file = run.another_file()
        self._at, self._entries = run.at, run.info.entries

    def parts(self) -> Iterator[Entries]:
        """Yield them, many at a time. Raises OSError."""
        for at in range(self._at, self._entries, COUNT_CHUNK):
            count = min(COUNT_CHUNK, self._entries - at)
            data = os.pread(self._file, count * ENTRY_BYTES, at * ENTRY_BYTES)
            if len(data) != count * ENTRY_BYTES:
                raise OSError(f"a run of timer messages cannot be read at entry {at}")
            yield np.frombuffer(data, ENTRY_TYPE)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def tails_of(runs: Sequence[TimerRun]) -> list[RunTail]:
    """Return what is not passed of each run; whoever gets them closes them. Raises OSError."""
    tails: list[RunTail] = []
    try:
        for run in runs:
            tails.append(RunTail(run))  # noqa: PERF401 # those that were made are closed when one cannot be
    except OSError:
        for tail in tails:
            tail.close()
        raise
    return tails


def count_by_number(tails: Sequence[RunTail], flags: Sequence[int]) -> dict[int, int]:
    """Return number of topic → entries, of the tails, which are closed, and of `flags`; one that recalls counts off.

    Raises OSError.
    """
    found = _counted(np.array(flags, np.int32))
    try:
        for tail in tails:
            for entries in tail.parts():
                found += _counted(entries["flags"])
    finally:
        for tail in tails:
            tail.close()
    return {int(number): int(found[number]) for number in np.flatnonzero(found > 0)}


def _counted(flags: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    signs = np.where(flags & DELETES, -1, 1)
    return np.bincount(flags >> TOPIC_SHIFT, weights=signs, minlength=TOPICS_MAX + 1).astype(np.int64)
