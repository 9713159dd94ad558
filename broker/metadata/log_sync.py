"""Has the log synced before something is written down that depends on it: a table's stamp must not lead the log (R3).

With flushDiskType=ASYNC_FLUSH an entry counts as committed before any disk has it. A table that says that it holds the
entry, beside a log that lost it in a power cut, would pass over whatever gets the entry's index afterwards.
"""

import asyncio
from typing import Protocol

from store.log.flusher import Flusher

# How long a sync is waited for; a disk that takes longer is too slow to be written to now.
SYNC_SECONDS_MAX = 5.0
POLL_SECONDS = 0.01


class SyncedLog(Protocol):
    """What is needed of the store."""

    @property
    def written(self) -> int:
        """The position behind the last written byte."""
        ...

    @property
    def flushed(self) -> int:
        """Everything before this position is on disk."""
        ...

    def flush_soon(self, position: int) -> None:
        """Ask for fdatasync up to a position."""
        ...

    @property
    def flusher(self) -> Flusher:
        """What syncs it."""
        ...


class LogSync:
    """Waits for what is written at the moment."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log

    async def wait(self) -> None:
        """Return when all that was written at the time of the call is on disk. Raises OSError when that takes long."""
        position = self._log.written
        self._log.flush_soon(position)
        for _ in range(round(SYNC_SECONDS_MAX / POLL_SECONDS)):
            if self._log.flushed >= position:
                return
            await asyncio.sleep(POLL_SECONDS)
        self._check(position)

    def wait_here(self) -> None:
        """Do the same without letting the loop go on: what comes next must find it done. Raises OSError."""
        position = self._log.written
        self._log.flusher.wait(position, SYNC_SECONDS_MAX)
        self._check(position)

    def _check(self, position: int) -> None:
        if self._log.flushed < position:
            raise OSError(f"the log is not synced up to {position} within {SYNC_SECONDS_MAX:g} s")
