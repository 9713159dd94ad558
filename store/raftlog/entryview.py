"""What a member's log of entries is and holds, for reading; entrylog is what makes it grow, shrink and count."""

from raft.protocol.types import Entry, EntryType, Mark
from store.controlrecord import Control
from store.files.beginning import Beginning
from store.raftlog.entrycache import EntryCache
from store.raftlog.entryfinder import EntryFinder
from store.raftlog.entryholes import Holes
from store.raftlog.entryparts import EntryParts
from store.raftlog.groupscan import NO_CHAIN, FoundEntries, mark_of
from store.raftlog.logcopies import LogCopies


class EntryView:
    """Owns which entries there are, and which of them cannot be read."""

    def __init__(self, parts: EntryParts, found: FoundEntries) -> None:
        self._parts = parts
        self._log = parts.log
        self._cache = EntryCache()
        self._finder = EntryFinder(parts.log, parts.queues, self._cache, file_bytes=parts.file_bytes)
        self.copies = LogCopies(parts.log)
        self._base = found.base
        self._base_config = found.base_config
        self._last = found.last
        self._last_config = found.last_config
        # The last CONFIG that was read, and so can be.
        self._config_read = 0
        self.holes = Holes(found.damaged)
        self.durable = found.last.index if found.damaged is None else found.damaged[0] - 1
        self.commit = found.commit
        self._hold()

    @property
    def base(self) -> Mark:
        """The mark before the first entry that is kept. Its chain is the digest of what lies before the entries.

        Reads all that lies there when the log has no entry yet.
        """
        if self._base.chain == NO_CHAIN:
            self._base = self._base._replace(chain=self.copies.digest(self._base.end))
            if self._last.index == self._base.index:
                self._last = self._base
        return self._base

    def beginning(self, start: int) -> Beginning:
        """Return where the log begins, its first byte being at `start`: what a start without its first file needs."""
        return Beginning(start, self._base, self._base_config)

    @property
    def last(self) -> Mark:
        """The mark of the last entry; equals `base` when there is none."""
        return self._last if self._last.chain != NO_CHAIN else self.base

    @property
    def floor(self) -> int:
        """The index up to which this member has ever synced its log, or known as committed."""
        mark = self._parts.floor.mark
        # What is being cut was never committed; the file follows.
        return max(self.commit, min(mark.index, self._last.index) if mark is not None else 0)

    @property
    def damaged(self) -> tuple[int, int] | None:
        """First and last index of the range that is fetched from peers now; None when all can be read."""
        return self.holes.first

    @property
    def whole(self) -> bool:
        """Whether everything up to the floor can be read."""
        return not self.holes.ranges

    def mark_damaged(self, first: int, last: int) -> None:
        """Note that entries are not as they were written, on a running member too: they are fetched from peers.

        What has left the log, or is not in it yet, is passed over. Until they are whole again nobody gets them from
        here; what stands before, between and behind them can be read as before.
        """
        first, last = max(first, self._base.index + 1), min(last, self._last.index)
        if first <= last:
            self.holes.add(first, last)
            self._hold()

    def _hold(self) -> None:
        """Have every start read from in front of the first hole, until it is filled: so no kill makes it forgotten."""
        hole = self.holes.first
        self._parts.hold(None if hole is None else self._readable_end(hole[0] - 1))

    def _readable_end(self, index: int) -> int:
        """Return the position behind an entry, or behind the nearest one before it that can be read."""
        while index > self._base.index:
            control = self._control(index)
            if control is not None:
                return control.end
            index -= 1
        return self._base.end

    def _is_stuck(self) -> bool:
        """Whether a hole lies in what this member has not acknowledged: nothing behind it counts as durable."""
        return bool(self.holes.ranges) and self.holes.behind(self.durable) is not None

    def term(self, index: int) -> int | None:
        """Return the term of an entry from base to last, None outside (and for a damaged one)."""
        if index == self._last.index:
            return self._last.term
        if index == self._base.index:
            return self._base.term
        control = self._control(index)
        return control.term if control is not None else None

    def kind(self, index: int) -> EntryType:
        """Return the type of an entry that is kept; equal to Raft's EntryType by number. Raises LookupError."""
        return self.control(index).kind

    def payload(self, index: int) -> bytes:
        """Return the payload of a META or CONFIG entry, b"" for the others."""
        return self.control(index).payload

    def last_config(self) -> int:
        """Return the index of the newest CONFIG entry that can be read, committed or not; 0 when there is none."""
        at = self._last_config
        while at > self._base.index and not self._reads_config(at):
            hole = self.holes.at(at)
            before = self._control(hole[0] - 1) if hole is not None else None
            at = before.config if before is not None else 0
        return at

    def _reads_config(self, index: int) -> bool:
        """Tell whether a CONFIG can be read; looked at once, for this is asked at every append."""
        if self.holes.ranges and self.holes.at(index) is not None:
            return False
        if index != self._config_read:
            if self._control(index) is None:
                self.mark_damaged(index, index)
                return False
            self._config_read = index
        return True

    def end_position(self, index: int) -> int:
        """Return the position behind an entry from base to last."""
        if index == self._base.index:
            return self._base.end
        return self._last.end if index == self._last.index else self.control(index).end

    def index_at(self, position: int) -> int:
        """Return the last entry that ends at or before a position; base's index when none does."""
        if position >= self._last.end:
            return self._last.index
        low, high = self._base.index, self._last.index
        while high - low > 1:
            middle = (low + high) // 2
            if self.end_position(middle) <= position:
                low = middle
            else:
                high = middle
        return low

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        """Return entries from `index` on, at least one when it is kept, then as many as fit into `bytes_max`."""
        last = self._last.index
        if not self._base.index < index <= last or (self.holes.ranges and self.holes.at(index) is not None):
            return []
        if self.holes.ranges and (hole := self.holes.behind(index)) is not None:
            last = hole[0] - 1
        found = self._finder.read(index, last, bytes_max)
        if not found and index <= self.floor:
            # A disk that rots is found out when an old entry is read.
            self.mark_damaged(index, index)
        return found

    def _control(self, index: int) -> Control | None:
        # Not by functions of their own: it is asked several times for each entry, nearly always for one of the newest.
        if not self._base.index < index <= self._last.index or (self.holes.ranges and self.holes.at(index) is not None):
            return None
        return self._cache.control(index) or self._finder.control(index)

    def control(self, index: int) -> Control:
        """Return the control record of an entry that is kept. Raises LookupError: then it is damaged."""
        control = self._control(index)
        if control is None:
            # What ought to be here is fetched from a peer.
            self.mark_damaged(index, index)
            raise LookupError(f"entry {index} cannot be read: kept are {self._base.index + 1} to {self._last.index}")
        return control

    def _mark(self, index: int) -> tuple[Mark, int]:
        """Return the mark of an entry from base to last, and the last CONFIG there."""
        if index == self._base.index:
            return self.base, self._base_config
        control = self.control(index)
        return mark_of(control), control.config

    def digest(self) -> int:
        """Return the CRC-32 of everything before the first entry: what members of a group must have in common."""
        return self.base.chain
