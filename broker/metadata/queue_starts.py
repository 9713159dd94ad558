"""Where each queue begins, once the messages before are deleted with the log: config/queueStart.json.

A queue whose messages have all expired must not begin at 0 again, on no member, whatever else it forgets: consumers'
offsets would lie beyond its end. So the leader, before old files are deleted, proposes the first offset of every queue
that loses messages, and then where the log begins; applying that is what deletes the files, on every member alike.
A group's first leader proposes where all queues begin that lost messages before there was a group.

The file is ours, RocketMQ has none of the kind: {"dataVersion": ..., "logStart": bytes,
"queueStartTable": {topic: {queue: first offset}}}.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from broker.metadata.operations import Done, MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamped
from broker.metadata.versions import next_version, packed, unpacked
from remoting.bodies.registry import DataVersion
from remoting.errors import HeaderError
from runtime.clock import Clock


class _Content(msgspec.Struct):
    """The file's content."""

    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    logStart: int = 0
    queueStartTable: dict[str, dict[int, int]] = {}


@dataclass(frozen=True, slots=True)
class StartEvents:
    """What the table of starts tells of, and asks for."""

    moved: Callable[[int], None] = lambda _start: None
    """log_start was moved: the files before it are to be deleted."""
    begins: Callable[[Mapping[str, Mapping[int, int]]], None] = lambda _starts: None
    """These first offsets were applied: queues that hold nothing are to begin there."""
    begin_now: Callable[[], Mapping[tuple[str, int], int]] = dict
    """Tells where the queues begin now, by (topic, queue), for a group that begins."""


class QueueStarts:
    """First offset by topic and queue; bounded by the queues that exist."""

    routes: tuple[Table, ...] = (Table.QUEUE_STARTS, Table.TOPICS)

    def __init__(self, path: Path, clock: Clock, meta: MetaLog, events: StartEvents) -> None:
        """Read the file; raises MetadataError."""
        self._events = events
        self._clock = clock
        self._meta = meta
        self.file = ConfigFile(path, self._snapshot)
        loaded = self.file.load(_decode) or _Content(DataVersion(0, 0, clock.now_ms()))
        self.version = loaded.dataVersion
        # Where the log begins on every member, in bytes: what stands before may be deleted.
        self.log_start = loaded.logStart
        self._starts = loaded.queueStartTable
        meta.attach(self)

    def first(self, topic: str, queue_id: int) -> int:
        """Return the offset that a queue begins at; 0 when nothing of it was ever deleted."""
        return self._starts.get(topic, {}).get(queue_id, 0)

    @property
    def tables(self) -> Mapping[str, Mapping[int, int]]:
        """The first offsets by topic and queue; not to be changed by readers."""
        return self._starts

    def move(self, log_start: int, starts: Mapping[tuple[str, int], int], done: Done | None = None) -> None:
        """Propose a new start of the log, with the first offset of each queue that loses messages.

        `starts` is keyed by (topic, queue). Raises CommandError when this broker does not lead or too much is pending.
        """
        rows: list[list[Any]] = [
            [topic, queue, offset] for (topic, queue), offset in starts.items() if offset > self.first(topic, queue)
        ]
        if rows:
            self._meta.propose(self._operation(0, rows))
        # By itself: the rows may be split over several operations, and the start counts when all of them are known.
        self._meta.propose(self._operation(log_start, []), done)

    def apply(self, operation: Operation, *, own: bool) -> None:  # noqa: ARG002 # nothing is shown before it is applied
        """Do what an operation says; see MetaTable."""
        if operation[1] == Table.TOPICS:
            if operation[0] == Verb.DELETE:
                self._forget(operation[3])
            return
        if operation[0] == Verb.CLEAR:
            self._starts.clear()
        elif operation[0] == Verb.PUT:
            for topic, queue, offset in operation[4]:
                queues = self._starts.setdefault(topic, {})
                queues[queue] = max(offset, queues.get(queue, 0))
                self._events.begins({topic: {queue: queues[queue]}})
        else:
            raise MetadataError(f"operation {operation[0]!r} on queue starts is unknown: upgrade this member")
        self.version = unpacked(operation[2], self.version)
        self.file.mark()
        if operation[0] == Verb.PUT and operation[3] > self.log_start:
            self.log_start = operation[3]
            self._events.moved(self.log_start)

    def drop(self) -> None:
        """Nothing is shown before it is applied; see MetaTable."""

    def lead(self, *, first: bool) -> None:
        """Propose everything where the group's log has nothing of it; see MetaTable."""
        if first:
            self._meta.propose([int(Verb.CLEAR), int(Table.QUEUE_STARTS), self._next_version()])
            begins = {(topic, queue): at for topic, queues in self._starts.items() for queue, at in queues.items()}
            for key, at in self._events.begin_now().items():
                begins[key] = max(at, begins.get(key, 0))
            rows: list[list[Any]] = [[topic, queue, at] for (topic, queue), at in begins.items()]
            self._meta.propose(self._operation(0, rows))
            self._meta.propose(self._operation(self.log_start, []))

    def _forget(self, topics: list[str]) -> None:
        """Forget topics that were deleted: their queues begin anew if they are made again."""
        for topic in topics:
            if self._starts.pop(topic, None) is not None:
                self.file.mark()

    def _operation(self, log_start: int, rows: list[list[Any]]) -> Operation:
        return [int(Verb.PUT), int(Table.QUEUE_STARTS), self._next_version(), log_start, rows]

    def _next_version(self) -> list[int]:
        return packed(next_version(self.version, self._clock.now_ms(), self._meta.term))

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        content = msgspec.json.encode(_Content(self.version, self.log_start, self._starts))
        return lambda: (stamped(content, stamp),)


def _decode(content: bytes) -> _Content:
    try:
        return msgspec.json.decode(content, type=_Content)
    except msgspec.DecodeError as error:
        raise HeaderError(f"not a table of queue starts: {error}") from None
