"""A1, A2, A3, A13: what was acknowledged must be there, and every offset must be taken."""

from collections.abc import Iterable, Iterator
from typing import Any

from pipeline.history.catalogue import finding
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind, Op
from pipeline.plain.evidence import History, is_plain
from pipeline.plain.finalscan import Queue, QueueScan, Span, joined, span_of, within

Witness = dict[str, Any]


def check_a1(history: History) -> Finding:
    """Judge that what was acknowledged is there.

    Lost: a send that ended OK, into queue k at offset o, and
    * a final scan of k went past o without bringing the message, at whatever offset; or
    * every final scan of k told an end at or below o, and a leader told so when asked after the acknowledgement; or
    * replicas were read to one common end, and none holds that attempt.
    For a delayed message, whose offset nobody told: a leader's scan of all of k, asked after it was due (by
    delay_bound_s), did not bring it. Offsets below the first retained one are nobody's loss; for messages of
    transactions see A18.
    """
    return finding("A1", (witness for _, witness in _lost(history, history.sends)), judged=not history.lossy)


def check_a2(history: History) -> Finding:
    """Judge that no poll passes a message over.

    Violated by a message that stands at offset o of k for sure (acknowledged there, or in the merged log), that no
    answer to anyone ever brought, although an answered poll of k went from at or below o to beyond it.
    """
    return finding("A2", _passed_over(history), judged=not history.lossy)


def check_a3(history: History) -> Finding:
    """Judge that everything acknowledged was accounted for.

    Unseen: acknowledged, read by nobody, in no merged log, not proved lost (A1, A2), and not below the first retained
    offset: it is late or lost, and nothing tells which. Makes the run unknown, not invalid.
    """
    found = _unseen(history)
    return finding("A3", found, judged=not history.lossy, bad=Verdict.UNKNOWN)


def check_a13(history: History) -> Finding:
    """Judge that queue offsets are dense: a final scan that goes past an offset of a queue brings a message for it.

    Counted by holes: `missing` says how many offsets in a row have none.
    """
    return finding("A13", _holes(history), judged=history.promises.dense_offsets)


def _lost(history: History, sends: Iterable[Op]) -> Iterator[tuple[Op, Witness]]:
    for op in sends:
        if op.kind != Kind.OK or op.queue == UNKNOWN or op.transaction:
            continue
        queue = history.queue_of(op)
        some = history.readers.get(queue, [])
        where = ""
        if not is_plain(op) or op.offset == UNKNOWN:
            due = max(op.completed, op.delay_until + int(history.promises.delay_bound_s * 1e9))
            brought = any((op.writer, op.counter) in reader.messages for reader in some)
            if not brought and any(reader.complete and reader.leader and reader.began > due for reader in some):
                where = "no offset"
        elif op.offset >= history.lowest.get(queue, 0):
            where = _lost_where(history, op, some)
        if where:
            yield op, _witness(op, queue, where=where)


def _lost_where(history: History, op: Op, some: list[QueueScan]) -> str:
    """Return what proves that a plain acknowledged send is lost, "" when nothing does."""
    message = (op.writer, op.counter)
    without = [reader for reader in some if message not in reader.messages]
    if any(reader.holds(op.offset) for reader in without):
        return _part(some, op.offset)
    asked = len(without) == len(some) and any(reader.leader and reader.began > op.completed for reader in some)
    if asked and max(reader.end for reader in some if reader.end != UNKNOWN) <= op.offset:
        return "behind the end"
    merged = history.merged
    if merged and merged.complete and (op.writer, op.counter, op.attempt) not in history.held_at:
        return "no replica"
    return ""


def _part(some: list[QueueScan], offset: int) -> str:
    offsets = [one for reader in some for one in reader.rows]
    if not offsets or offset < min(offsets):
        return "before the first"
    return "behind the last" if offset > max(offsets) else "in the middle"


def _witness(op: Op, queue: Queue, **more: Any) -> Witness:
    message = [op.writer, op.counter, op.attempt]
    return {"ops": [op.op], "queue": list(queue), "offset": op.offset, "message": message, **more}


def _passed_over(history: History) -> Iterator[Witness]:
    read = history.read_messages
    missing: dict[tuple[Queue, int, int, int], list[int]] = {}
    for op in history.acknowledged:
        if (op.writer, op.counter) not in read:
            missing.setdefault((history.queue_of(op), op.offset, op.writer, op.counter), []).append(op.op)
    for row in history.held:
        if (row.writer, row.counter) not in read:
            missing.setdefault((history.queue_of_held(row), row.offset, row.writer, row.counter), [])
    if not missing:
        return
    spans = _polled(history)
    for (queue, offset, writer, counter), ops in sorted(missing.items()):
        if within(spans.get(queue, []), offset):
            yield {"ops": ops, "queue": list(queue), "offset": offset, "message": [writer, counter]}


def _polled(history: History) -> dict[Queue, list[Span]]:
    """Return which offsets of each queue answered polls went past."""
    spans: dict[Queue, list[Span]] = {}
    for op in history.oks(Act.POLL):
        span = span_of(op, history.answers.get(op.op, []), retention=history.promises.retention)
        if span is not None:
            spans.setdefault(history.queue_of(op), []).append(span)
    return {queue: joined(some) for queue, some in spans.items()}


def _unseen(history: History) -> Iterator[Witness]:
    read = history.read_messages
    unread = [op for op in history.sends if op.kind == Kind.OK and (op.writer, op.counter) not in read]
    if not unread:
        return
    proved = {op.op for op, _ in _lost(history, unread)}
    proved.update(number for witness in _passed_over(history) for number in witness["ops"])
    ended = {op.transaction for op in history.oks(Act.END_COMMIT)}
    for op in unread:
        if op.op in proved:
            continue
        if (op.writer, op.counter, op.attempt) in history.held_at or (op.transaction and op.transaction not in ended):
            continue
        queue = history.queue_of(op)
        if not is_plain(op) or op.offset == UNKNOWN or op.offset >= history.lowest.get(queue, 0):
            yield _witness(op, queue)


def _holes(history: History) -> Iterator[Witness]:
    for queue, some in sorted(history.readers.items()):
        start = history.lowest.get(queue, 0)
        for reader in some:
            for first, last in reader.spans:
                at = max(first, start)
                for offset in [*sorted(one for one in reader.rows if at <= one < last), last]:
                    if offset > at:
                        missing = {"offset": at, "missing": offset - at, "reader": reader.address}
                        yield {"ops": [], "queue": list(queue), **missing}
                    at = offset + 1
