"""The log of a group whose file says flushDiskType=ASYNC_FLUSH: what is written counts as if it were on disk.

That is a trade of safety for speed which a person asked for; it is warned about at start and shown in every status.
"""

from collections.abc import Callable, Sequence

from raft.protocol.types import Entry, EntryType, Mark
from store.raftlog.entrylog import EntryLog
from store.raftlog.mending import EntryMending


class WrittenLog:
    """An EntryLog whose durable index is its last; everything else is the EntryLog's: see raft.protocol.types.Log."""

    def __init__(self, entries: EntryLog, on_written: Callable[[int], None]) -> None:
        """`on_written` is told the position up to which the log is written when it is asked to be synced."""
        self._entries = entries
        self._on_written = on_written
        # What does not differ is called where it is.
        self.term, self.kind, self.payload = entries.term, entries.kind, entries.payload
        self.last_config, self.end_position, self.digest = entries.last_config, entries.end_position, entries.digest
        self.mending: EntryMending = entries.mending

    @property
    def durable(self) -> int:
        """The index up to which the log is written."""
        return self._entries.last.index

    def sync_soon(self) -> None:
        """Tell at once that it is done; the flusher syncs at its intervals, as a broker's alone with ASYNC_FLUSH."""
        self._on_written(self._entries.last.end)

    def settle(self, position: int) -> int:
        """Return the index up to which the log is written; see EntryLog.settle."""
        self._entries.settle(position)
        return self.durable

    def append(self, kind: EntryType, term: int, payload: bytes, commit: int) -> int:
        """See EntryLog.append."""
        return self._entries.append(kind, term, payload, commit)

    def accept(self, entries: Sequence[Entry]) -> None:
        """See EntryLog.accept."""
        self._entries.accept(entries)

    def cut(self, last: int) -> None:
        """See EntryLog.cut."""
        self._entries.cut(last)

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        """See EntryLog.read."""
        return self._entries.read(index, bytes_max)

    @property
    def base(self) -> Mark:
        """See EntryLog.base."""
        return self._entries.base

    @property
    def last(self) -> Mark:
        """See EntryLog.last."""
        return self._entries.last

    @property
    def floor(self) -> int:
        """See EntryLog.floor."""
        return self._entries.floor

    @property
    def commit(self) -> int:
        """See EntryLog.commit."""
        return self._entries.commit

    @property
    def whole(self) -> bool:
        """See EntryLog.whole."""
        return self._entries.whole

    @property
    def damaged(self) -> tuple[int, int] | None:
        """See EntryLog.damaged."""
        return self._entries.damaged

    @property
    def readable(self) -> int:
        """See EntryLog.readable."""
        return self._entries.readable

    @property
    def full(self) -> bool:
        """See EntryLog.full."""
        return self._entries.full

    @property
    def refused(self) -> str | None:
        """See EntryLog.refused."""
        return self._entries.refused

    @property
    def cutting(self) -> bool:
        """See EntryLog.cutting."""
        return self._entries.cutting
