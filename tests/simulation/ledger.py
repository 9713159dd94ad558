"""The truth as an outsider knows it: what was committed, and what was acknowledged to whom."""

from dataclasses import dataclass, field
from typing import NamedTuple

from raft.protocol.types import Entry, EntryType, Fate
from remoting.record import decode_record
from remoting.topics import RAFT_TOPIC
from store.controlrecord import Control, decode_control

Queue = tuple[str, int]
# All that producers write to.
QUEUES: tuple[Queue, ...] = (("A", 0), ("A", 1), ("B", 0))


@dataclass
class Attempt:
    """One try to store records, by one producer at one member. Its bodies are like no other's."""

    number: int
    member: str
    bodies: tuple[bytes, ...] = field(repr=False)
    queue: Queue
    meta: bool = False
    index: int = -1
    term: int = 0
    fate: Fate | None = None
    refused: bool = False


class Placed(NamedTuple):
    """A record as a ConsumeQueue knows it."""

    physical: int
    size: int


@dataclass
class CommittedEntry:
    """An entry that some member called committed, and where queues end behind it."""

    entry: Entry
    control: Control
    bodies: tuple[bytes, ...] = ()
    # The term of whoever first called it committed.
    seen_in: int = 0


@dataclass
class Ledger:
    """All committed entries by index, and the queues that they make."""

    entries: dict[int, CommittedEntry] = field(default_factory=dict)
    last: int = 0
    queues: dict[Queue, list[Placed]] = field(default_factory=dict)
    # Queue → its end behind each entry, as (index, end).
    steps: dict[Queue, list[tuple[int, int]]] = field(default_factory=dict)
    # Queue → where the last record ends that was acknowledged: whoever asks from now on must be told no less.
    promised: dict[Queue, int] = field(default_factory=dict)
    acknowledged: list[Attempt] = field(default_factory=list)
    # Payload of a META → its entry.
    metas: dict[bytes, int] = field(default_factory=dict)
    # What invariants found broken. Noted here too, because whoever called the callback may swallow what it raises.
    broken: list[str] = field(default_factory=list)

    def add(self, entry: Entry, term: int) -> str | None:
        """Take the next committed entry, so called in `term`; return what is wrong with it, if anything."""
        data = bytes(entry.data)
        control = decode_control(data)
        made = CommittedEntry(Entry(entry.index, entry.term, entry.position, data), control, seen_in=term)
        if control.index != entry.index or control.term != entry.term or control.position != entry.position:
            return f"entry {entry} says of itself {control}"
        before = self.entries.get(entry.index - 1)
        if before is not None and control.previous_term != before.control.term:
            return f"entry {entry.index} follows term {control.previous_term}, not {before.control.term}"
        if control.kind is EntryType.MESSAGES:
            wrong = self._take_records(made, data)
            if wrong is not None:
                return wrong
        if control.kind is EntryType.META:
            self.metas[control.payload] = entry.index
        self.entries[entry.index] = made
        self.last = entry.index
        return None

    def _take_records(self, made: CommittedEntry, data: bytes) -> str | None:
        bodies = []
        at = made.control.size
        while at < len(data):
            record = decode_record(data, at, check_crc=True)
            queue = (record.topic, record.queue_id)
            places = self.queues.setdefault(queue, [])
            if record.queue_offset != len(places):
                return (
                    f"entry {made.entry.index}: a record of queue {queue} has offset {record.queue_offset}, "
                    f"{len(places)} is due"
                )
            if record.physical_offset != made.entry.position + at or record.topic == RAFT_TOPIC:
                return f"entry {made.entry.index}: a record says that it stands at {record.physical_offset}"
            places.append(Placed(record.physical_offset, record.size))
            self.steps.setdefault(queue, []).append((made.entry.index, len(places)))
            bodies.append(record.body)
            at += record.size
        made.bodies = tuple(bodies)
        return None

    def last_before(self, term: int) -> int:
        """Return the last entry that was committed in an earlier term, 0 when none was."""
        return next((index for index in range(self.last, 0, -1) if self.entries[index].seen_in < term), 0)

    def end_of(self, queue: Queue, index: int) -> int:
        """Return where a queue ends when everything up to entry `index` is dispatched."""
        for step, end in reversed(self.steps.get(queue, [])):
            if step <= index:
                return end
        return 0
