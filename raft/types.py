"""The nouns of a group, and the seams to what it stands on: a log of entries, and somebody who carries messages."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol


class EntryType(IntEnum):
    """What an entry is for. MESSAGES cover records that stand behind them; the others carry a payload or nothing."""

    NOOP = 0
    MESSAGES = 1
    META = 2
    CONFIG = 3


class Entry(NamedTuple):
    """An entry as it stands in the log and travels between members: `data` is all its bytes, verbatim."""

    index: int  # type: ignore[assignment] # Raft's own word; nobody searches these tuples
    term: int
    position: int
    """Where it begins in the log, bytes; equal on every member."""
    data: bytes | memoryview


class Mark(NamedTuple):
    """A point of the log: the entry, where it ends, and the CRC chained up to it."""

    index: int  # type: ignore[assignment] # as above
    term: int
    end: int
    chain: int


class Role(IntEnum):
    """What a member is at the moment."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class Fate(IntEnum):
    """What became of a proposal that was appended."""

    COMMITTED = 0
    OVERWRITTEN = 1
    """Another entry was committed in its place: it never happened and never will."""
    UNKNOWN = 2
    """This member stops, or lost track: it may or may not be committed one day."""


class Refusal(IntEnum):
    """Why a proposal was not appended; nothing of it is in any log."""

    NOT_LEADER = 0
    TRANSFERRING = 1
    LOG_REFUSES = 2
    CHANGE_PENDING = 3
    """A membership change is refused until the last one, and this term's no-op, are committed."""
    BUSY = 4


OnFate = Callable[[Fate], None]


class Log(Protocol):
    """What the group needs of a log; store.entrylog.EntryLog is one. Called in one thread.

    Entries are dense; `base` is a virtual entry before the first one kept (index 0, term 0 in a log that began empty).
    Methods that write raise OSError (the disk) or EntryRefused; what they wrote counts once they return, and is
    durable once `durable` has reached it.
    """

    @property
    def base(self) -> Mark:
        """The mark before the first entry that is kept."""
        ...

    @property
    def last(self) -> Mark:
        """The mark of the last entry; equals `base` when there is none."""
        ...

    @property
    def floor(self) -> int:
        """The index up to which this member has ever synced its log, or known as committed: nothing below is cut."""
        ...

    @property
    def durable(self) -> int:
        """The index up to which everything is on this disk; moves only in the loop, before on_durable is called."""
        ...

    @property
    def commit(self) -> int:
        """The index up to which entries are known as committed; at a start what the log itself says, 0 for nothing."""
        ...

    @property
    def whole(self) -> bool:
        """Whether everything up to the floor can be read: without it a member neither stands nor votes."""
        ...

    @property
    def damaged(self) -> tuple[int, int] | None:
        """First and last index below the floor that cannot be read and must come from a peer (R4); None when whole."""
        ...

    def term(self, index: int) -> int | None:
        """Return the term of an entry from base to last, None outside."""
        ...

    def kind(self, index: int) -> EntryType:
        """Return the type of an entry that is kept."""
        ...

    def payload(self, index: int) -> bytes:
        """Return the payload of a META or CONFIG entry, b"" for the others."""
        ...

    def last_config(self) -> int:
        """Return the index of the newest CONFIG entry that can be read, committed or not; 0 when there is none."""
        ...

    def append(self, kind: EntryType, term: int, payload: bytes, commit: int) -> int:
        """Append a NOOP, META or CONFIG as leader and return its index; `commit` is written into it."""
        ...

    def accept(self, entries: Sequence[Entry]) -> None:
        """Append a leader's entries verbatim behind `last`, all checked first; EntryRefused when one does not fit."""
        ...

    def cut(self, last: int) -> None:
        """Remove every entry behind index `last`; never below the floor of commit (an assertion)."""
        ...

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        """Return entries from `index` on, at least one when it is kept, then as many as fit into `bytes_max`."""
        ...

    def repair(self, entries: Sequence[Entry]) -> None:
        """Write a peer's bytes over entries that cannot be read, checked against the chain; EntryRefused otherwise."""
        ...

    def digest(self) -> int:
        """Return a CRC over everything before the first entry, for entry 1 of a group (R1)."""
        ...

    def sync_soon(self) -> None:
        """Have everything appended made durable; on_durable tells when."""
        ...


class EntryRefused(Exception):
    """Entries that a leader sent do not continue this log: wrong position, CRC, chain or index."""
