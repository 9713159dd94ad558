"""All that is known of a run, in one value, with the look-up tables that several checks need."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Look, Op, Read
from pipeline.plain.finalscan import Queue, QueueScan, readers

# In place of the time at which something ended that never did.
NEVER = 2**63 - 1

Message = tuple[int, int]
"""Writer, counter."""
Attempt = tuple[int, int, int]
"""Writer, counter, attempt."""
Place = tuple[Queue, int]
"""Queue, offset."""
Sight = tuple[Queue, int, int, int, int, int]
"""What was read where: queue, offset, position, writer, counter, attempt."""


class HeldMessage(NamedTuple):
    """A committed message as the replicas of one broker group hold it after the run."""

    broker: str
    """Broker group."""
    topic: str
    queue: int
    offset: int
    position: int
    writer: int
    counter: int
    attempt: int
    digest: int
    """CRC-32 of the body."""
    term: int = UNKNOWN
    entry: int = UNKNOWN
    """The index of the Raft entry that covers it."""
    transaction: str = ""


class MergedLog(NamedTuple):
    """What the replicas agree on (see twin_log). `messages` are in the order of each group's log."""

    messages: Sequence[HeldMessage]
    complete: bool
    """All replicas were read up to one common end: what is in no replica never happened."""


@dataclass(frozen=True)
class History:
    """A run's evidence. `merged` is None where no store folder was read."""

    ops: Sequence[Op]
    reads: Sequence[Read]
    faults: Sequence[Fault] = ()
    looks: Sequence[Look] = ()
    promises: Promises = field(default_factory=Promises)
    merged: MergedLog | None = None
    beats: Sequence[Beat] = ()

    @cached_property
    def lossy(self) -> bool:
        """Whether acknowledged messages may be missing after this run, by its promises and its faults."""
        promises = self.promises
        if promises.may_lose_acknowledged:
            return bool(self.faults)
        return promises.may_lose_after_power_loss and any(cuts_power(fault) for fault in self.faults)

    @cached_property
    def by_number(self) -> dict[int, Op]:
        """All operations by number."""
        return {op.op: op for op in self.ops}

    @cached_property
    def answers(self) -> dict[int, list[Read]]:
        """What each poll or scan returned, in the order of the answer."""
        # One loop for each stretch of reads of one operation, which is what recorders write.
        found: dict[int, list[Read]] = {}
        for number, some in groupby(self.reads, attrgetter("op")):
            found.setdefault(number, []).extend(some)
        return found

    @cached_property
    def sends(self) -> list[Op]:
        """All attempts to send, in the order of their numbers."""
        return sorted(op for op in self.ops if op.act == Act.SEND and op.writer != UNKNOWN)

    @cached_property
    def attempts(self) -> dict[Attempt, Op]:
        """Attempts to send, by what they sent."""
        return {(op.writer, op.counter, op.attempt): op for op in self.sends}

    @cached_property
    def messages(self) -> dict[Message, list[Op]]:
        """The attempts of each message."""
        found: dict[Message, list[Op]] = {}
        for op in self.sends:
            found.setdefault((op.writer, op.counter), []).append(op)
        return found

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics that something was sent to: what is read elsewhere (retry topics) is a copy."""
        return frozenset(op.topic for op in self.sends)

    @cached_property
    def acknowledged(self) -> list[Op]:
        """Sends that were told which offset of their queue they have."""
        return [op for op in self.sends if op.offset != UNKNOWN and op.kind == Kind.OK and is_plain(op)]

    @cached_property
    def sights(self) -> list[tuple[Op, Read]]:
        """Every message that any poll or scan returned from a topic that something was sent to, in order of numbers."""
        topics = self.topics
        ops = {number: op for number, op in self.by_number.items() if op.kind != Kind.FAIL}
        found = ((ops.get(read.op), read) for read in sorted(self.reads) if read.topic in topics)
        return [(op, read) for op, read in found if op is not None]

    @cached_property
    def special_sights(self) -> list[tuple[Op, Read, Op]]:
        """The sights of delayed messages and of those of transactions, each with its send."""
        sent = {attempt: op for attempt, op in self.attempts.items() if not is_plain(op)}
        if not sent:
            return []
        found = ((op, read, sent.get((read.writer, read.counter, read.attempt))) for op, read in self.sights)
        return [(op, read, send) for op, read, send in found if send is not None]

    @cached_property
    def seen(self) -> dict[Sight, int]:
        """All that was read where → the operation that did so first; as every member is scanned, far fewer."""
        found: dict[Sight, int] = {}
        queues: dict[Queue, Queue] = {}
        many = self._many
        for op, (_, topic, number, offset, position, writer, counter, attempt, _, _) in self.sights:
            queue = (op.broker if many else "", topic, number)
            found.setdefault((queues.setdefault(queue, queue), offset, position, writer, counter, attempt), op.op)
        return found

    @cached_property
    def read_at(self) -> dict[Attempt, dict[Place, int]]:
        """Where each attempt was read, in any queue → the operation that did so first."""
        found: dict[Attempt, dict[Place, int]] = {}
        for (queue, offset, _, writer, counter, attempt), number in self.seen.items():
            found.setdefault((writer, counter, attempt), {}).setdefault((queue, offset), number)
        return found

    @cached_property
    def read_messages(self) -> frozenset[Message]:
        """The messages that were read."""
        return frozenset((writer, counter) for writer, counter, _ in self.read_at)

    @cached_property
    def held(self) -> list[HeldMessage]:
        """The merged log's messages in topics that something was sent to."""
        topics = self.topics
        return [row for row in self.merged.messages if row.topic in topics] if self.merged else []

    @cached_property
    def held_at(self) -> dict[Attempt, list[HeldMessage]]:
        """Where each attempt stands in the merged log."""
        found: dict[Attempt, list[HeldMessage]] = {}
        for row in self.held:
            found.setdefault((row.writer, row.counter, row.attempt), []).append(row)
        return found

    @cached_property
    def lowest(self) -> dict[Queue, int]:
        """Each queue's first retained offset where messages may be removed; one that is not in it begins at 0."""
        if not self.promises.retention:
            return {}
        lowest: dict[Queue, int] = {}
        for op, read in self.sights:
            if op.act == Act.SCAN:
                queue = self.queue_of_read(op, read)
                lowest[queue] = min(read.offset, lowest.get(queue, read.offset))
        for op in self.oks(Act.MIN):
            queue = self.queue_of(op)
            lowest[queue] = max(op.value, lowest.get(queue, 0))
        return lowest

    @cached_property
    def readers(self) -> dict[Queue, list[QueueScan]]:
        """Who scanned the final state of each queue."""
        scans = ((self.queue_of(op), op, self.of_leader(op)) for op in self.oks(Act.SCAN))
        return readers(scans, self.answers, self.lowest, retention=self.promises.retention)

    def queue_of(self, op: Op) -> Queue:
        """Return the queue that an operation is about."""
        return (op.broker if self._many else "", op.topic, op.queue)

    def queue_of_read(self, op: Op, read: Read) -> Queue:
        """Return the queue that a message was read from."""
        return (op.broker if self._many else "", read.topic, read.queue)

    def queue_of_held(self, row: HeldMessage) -> Queue:
        """Return the queue that a message stands in."""
        return (row.broker if self._many else "", row.topic, row.queue)

    def group_of(self, op: Op) -> str:
        """Return the broker group of an operation."""
        return op.broker if self._many else ""

    def of_leader(self, op: Op) -> bool:
        """Return whether an answer was given as the leader's: there is one replica, or `leader` names who answered."""
        return self.promises.replicas == 1 or (op.leader != "" and op.leader == op.address)

    def oks(self, *acts: Act) -> Iterable[Op]:
        """Return what was answered of some acts, in the order of the operations."""
        if len(acts) == 1:
            return self._answered.get(acts[0], ())
        return [op for op in self.ops if op.act in acts and op.kind == Kind.OK]

    @cached_property
    def _answered(self) -> dict[str, list[Op]]:
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            if op.kind == Kind.OK:
                found.setdefault(op.act, []).append(op)
        return found

    @cached_property
    def _many(self) -> bool:
        return len(self.promises.group_members) > 1


def cuts_power(fault: Fault) -> bool:
    """Return whether a fault takes what was not flushed: its name says so."""
    return "power" in fault.name or "part-kill" in fault.name


def is_plain(op: Op) -> bool:
    """Return whether a send went straight into its queue: the offsets told for delayed ones and halves are others'."""
    return op.delay_until == UNKNOWN and not op.transaction


def ended(op: Op) -> int:
    """Return when an operation was over: NEVER if nobody knows."""
    return op.completed if op.kind == Kind.OK and op.completed != UNKNOWN else NEVER
