"""What the scans of the final state covered, queue by queue and reader by reader."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.history.rows import UNKNOWN, Op, Read

Queue = tuple[str, str, int]
"""Broker group ("" if the run has one group only), topic, queue."""
Span = tuple[int, int]
"""Offsets, [start, end)."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans without overlaps, in order; those that touch become one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged


def within(spans: list[Span], offset: int) -> bool:
    """Return whether one of some joined spans holds an offset."""
    at = bisect_right(spans, offset, key=lambda span: span[0]) - 1
    return at >= 0 and offset < spans[at][1]


def span_of(op: Op, rows: list[Read], *, retention: bool) -> Span | None:
    """Return the offsets that an answer went past: from the one asked for to the one to go on from.

    Where old messages may have been removed, an answer that begins later than it was asked for proves nothing about
    what lies before the lowest offset in it.
    """
    start, end = op.offset, op.value if op.value != UNKNOWN else _end_of(rows)
    if retention:
        start = max(start, min(row.offset for row in rows)) if rows else end
    return (start, end) if 0 <= start < end else None


def _end_of(rows: list[Read]) -> int:
    return max((row.offset for row in rows), default=UNKNOWN - 1) + 1


@dataclass
class QueueScan:
    """What one scan of a queue, through one address, brought."""

    queue: Queue
    address: str
    leader: bool = False
    """Whether the end was told as the leader's."""
    began: int = 0
    """When its last question was asked: what was acknowledged before must be in it."""
    end: int = UNKNOWN
    """The queue's end that it was told last."""
    spans: list[Span] = field(default_factory=list)
    rows: dict[int, Read] = field(default_factory=dict)
    """Offset → what was read there first."""
    messages: set[tuple[int, int]] = field(default_factory=set)
    """Writer and counter of all that was read."""
    complete: bool = False
    """Whether it went past every offset from the queue's first to `end`."""

    def holds(self, offset: int) -> bool:
        """Return whether it went past an offset."""
        return within(self.spans, offset)


def readers(
    scans: Iterable[tuple[Queue, Op, bool]],
    answers: Mapping[int, list[Read]],
    lowest: Mapping[Queue, int],
    *,
    retention: bool,
) -> dict[Queue, list[QueueScan]]:
    """Return who scanned each queue, from answered scans: the queue, the operation, whether a leader answered."""
    found: dict[tuple[Queue, str], QueueScan] = {}
    for queue, op, leader in scans:
        reader = found.setdefault((queue, op.address), QueueScan(queue, op.address))
        rows = answers.get(op.op, [])
        if (span := span_of(op, rows, retention=retention)) is not None:
            reader.spans.append(span)
        for row in rows:
            reader.rows.setdefault(row.offset, row)
            reader.messages.add((row.writer, row.counter))
        if op.end != UNKNOWN and op.invoked >= reader.began:
            reader.began, reader.end, reader.leader = op.invoked, op.end, leader
    by_queue: dict[Queue, list[QueueScan]] = {}
    for (queue, _), reader in found.items():
        reader.spans = joined(reader.spans)
        start = lowest.get(queue, 0)
        reader.complete = reader.end != UNKNOWN and (
            reader.end <= start or any(first <= start and reader.end <= last for first, last in reader.spans)
        )
        by_queue.setdefault(queue, []).append(reader)
    return by_queue
