"""The rows of what a member left behind: entries, messages, gaps, configurations. Positions in bytes of the log."""

from typing import NamedTuple

Queue = tuple[str, int]
"""Topic and queue id."""
QueueRow = tuple[int, int, int, int]
"""(offset, position, size, tags code) of a ConsumeQueue's entry; zeros behind the offset where none was written."""


class EntryRow(NamedTuple):
    """A Raft entry whose bytes are whole: its control record, and the records that it covers."""

    index: int  # type: ignore[assignment] # the position in a log hides tuple.index, which nobody needs here
    term: int
    position: int
    size: int
    """Of all its bytes."""
    crc: int
    """CRC-32 of all its bytes."""
    kind: int
    """NOOP 0, MESSAGES 1, META 2, CONFIG 3."""
    classic: bool
    """Whether it ends the group: what follows is a single broker's."""
    head: int
    """Bytes of the control record alone."""
    records: int
    previous_term: int
    commit: int
    """What its leader knew as committed when it appended the entry."""
    config: int
    chain: int
    follows: bool
    """Whether its chain continues that of the entry before it in this log; true where there is none."""

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.position + self.size


class MessageRow(NamedTuple):
    """A record that is no control record."""

    topic: str
    queue: int
    offset: int
    position: int
    size: int
    tags_code: int
    timestamp: int
    crc: int
    """CRC-32 of the whole record."""
    index: int  # type: ignore[assignment] # as above
    """Of the entry that covers it; UNKNOWN when none does."""
    term: int
    writer: int
    counter: int
    attempt: int
    digest: int
    sys_flag: int
    transaction: str
    prepared: int
    """Its prepared transaction offset: of a committed transaction's message, where its half stands."""
    refers: tuple[int, ...]
    """Of a record that settles transactions: the offsets of the halves that it settles, in the queue of its number."""

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.position + self.size


class GapRow(NamedTuple):
    """A part of the log, [start, end), where something else stands than intact records."""

    start: int
    end: int
    reason: str
    empty: bool = False
    """Whether nothing stands where it begins: zeros, or no file."""


class Config(NamedTuple):
    """The content of a CONFIG entry: who is a member from there on, and who of them votes."""

    index: int  # type: ignore[assignment] # as above
    members: tuple[str, ...]
    voters: tuple[str, ...]
