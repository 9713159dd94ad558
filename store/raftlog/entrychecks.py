"""Checks the entries of a member's log that somebody wants to read, every byte of them (R18)."""

from remoting.topics import RAFT_TOPIC
from store.derived.consumequeue import ConsumeQueues
from store.raftlog.entrylog import EntryLog

# Entries are checked in pieces of so many bytes, the first one whatever its size: half a millisecond with the reading.
PIECE_BYTES = 256 * 1024


class EntryRanges:
    """Finds the entry that covers a position, by the queue of RMQ_SYS_RAFT, and checks it by its CRC."""

    def __init__(self, entries: EntryLog, queues: ConsumeQueues) -> None:
        self._entries = entries
        self._queues = queues

    def checked(self, position: int) -> tuple[int, int] | None:
        """See verifier.EntryChecks. What cannot be read is marked, so that the group mends it. Raises OSError."""
        entries = self._entries
        if position < entries.base.end:
            return position, position
        index = self.index_at(position)
        try:
            found = entries.read(index, PIECE_BYTES)
        except (OSError, EOFError):
            # A sector that cannot be read any more is written anew by whoever mends it.
            found = []
        if found and found[0].position <= position < (end := found[-1].position + len(found[-1].data)):
            return found[0].position, end
        if not found:
            entries.mark_damaged(index, index)
            return None
        # The hint was wrong, so ask the log itself.
        try:
            index = entries.index_at(position) + 1
        except LookupError:
            return None
        found = entries.read(index, PIECE_BYTES)
        if found and found[0].position <= position < (end := found[-1].position + len(found[-1].data)):
            return found[0].position, end
        return None

    @property
    def begin(self) -> int:
        """The position from which on every record is of an entry."""
        return self._entries.base.end

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged that is known."""
        return self._entries.whole

    def index_at(self, position: int) -> int:
        """Return the entry that covers a position, as far as the queue of RMQ_SYS_RAFT knows."""
        low, high = self._entries.base.index + 1, self._entries.last.index
        while low < high:
            middle = (low + high + 1) // 2
            hint = self._queues.entries(RAFT_TOPIC, 0, middle, 1)
            if hint and hint[0][0] <= position:
                low = middle
            else:
                high = middle - 1
        return low
