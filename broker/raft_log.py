"""The log of a group whose file says flushDiskType=ASYNC_FLUSH: what is written counts as if it were on disk.

That is a trade of safety for speed which a person asked for; it is warned about at start and shown in every status.
"""

from collections.abc import Callable
from typing import Any

from store.entrylog import EntryLog


class WrittenLog:
    """An EntryLog whose durable index is its last; everything else is the EntryLog's."""

    def __init__(self, entries: EntryLog) -> None:
        self._entries = entries
        self.on_durable: Callable[[int], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entries, name)

    @property
    def durable(self) -> int:
        """The index up to which the log is written."""
        return self._entries.last.index

    def sync_soon(self) -> None:
        """Tell at once that it is done; the flusher syncs at its intervals, as a broker's alone with ASYNC_FLUSH."""
        if self.on_durable is not None:
            self.on_durable(self._entries.last.end)

    def settle(self, position: int) -> int:
        """Return the index up to which the log is written; see EntryLog.settle."""
        self._entries.settle(position)
        return self.durable
