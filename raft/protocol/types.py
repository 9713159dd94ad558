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


class Mending(Protocol):
    """Repair of a log (R4): bytes at equal positions are equal on every member, so bytes are asked for and given.

    What is given is checked entry by entry, written and synced, and counts only then. No call waits for the disk.
    """

    @property
    def contradicted(self) -> bool:
        """Whether what was refused last continues what stands before the damage, and what stands behind it does not."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing that was checked waits to be written and taken over."""
        ...

    @property
    def busy(self) -> bool:
        """Whether something is being read or written, or was and is not told of."""
        ...

    def wanted(self) -> tuple[int, int] | None:
        """Return begin and end of the bytes to be given next; None when none are, or enough wait already."""
        ...

    def give(self, position: int, data: bytes | memoryview, *, sure: bool = True) -> None:
        """Take bytes that follow those given before; they must stay as they are. What is not wanted is passed over.

        `sure`: the group has committed them, or its leader says so; others count only when what follows proves them.
        """
        ...

    def read_own(self) -> None:
        """Give what this member's own disk has there."""
        ...

    def drop(self) -> None:
        """Forget what was given and is not checked yet."""
        ...

    def step(self) -> bool:
        """Do a slice of the work on what was given; tell whether there is more to do at once. EntryRefused."""
        ...

    def finish(self) -> None:
        """Tell those who fetch of what was read for them."""
        ...

    def progress(self) -> tuple[int, int]:
        """Return the bytes mended since the process began, and those with the ones that are still damaged."""
        ...

    def fetch(self, position: int, size: int, tell: Callable[[bytes | memoryview], None]) -> None:
        """Have `tell` given up to `size` bytes, nothing when there are none that are intact as far as is known."""
        ...


class Log(Protocol):
    """What the group needs of a log; store.raftlog.entrylog.EntryLog is one. Called in one thread.

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
        """The index up to which everything is on this disk; moves in the loop alone, before RaftNode.durable()."""
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
        """Remove every entry behind index `last`, for good at once; never below the floor of commit (an assertion)."""
        ...

    @property
    def full(self) -> bool:
        """Whether the disk had no room a moment ago: what is written raises EntryRefused, until it is asked again."""
        ...

    @property
    def refused(self) -> str | None:
        """Why it takes no messages, None when it does: without room for them a member should not lead."""
        ...

    @property
    def cutting(self) -> bool:
        """Whether the disk has yet to follow a cut: until it has, accept() refuses and append() waits (R11)."""
        ...

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        """Return entries from `index` on, at least one when it is kept, then as many as fit into `bytes_max`."""
        ...

    @property
    def readable(self) -> int:
        """The index up to which what is committed can be applied now: behind it stands damage."""
        ...

    @property
    def mending(self) -> Mending:
        """What fetches `damaged` from peers, and reads for them."""
        ...

    def end_position(self, index: int) -> int:
        """Return the position behind an entry from base to last. Raises LookupError when it cannot be read."""
        ...

    def digest(self) -> int:
        """Return a CRC over everything before the first entry, for entry 1 of a group (R1)."""
        ...

    def sync_soon(self) -> None:
        """Have everything appended made durable; whoever owns the log has RaftNode.durable called then."""
        ...


class EntryRefused(Exception):
    """Entries that a leader sent do not continue this log: wrong position, CRC, chain or index."""
