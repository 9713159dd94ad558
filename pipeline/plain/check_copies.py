"""A4 to A9: what is read must be what was sent, once, and where the acknowledgement said."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pipeline.history.catalogue import finding
from pipeline.history.promises import DUPLICATES_ANY, DUPLICATES_NEVER
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind, Op, Read
from pipeline.plain.evidence import Attempt, HeldMessage, History, Place
from pipeline.plain.finalscan import Queue

Witness = dict[str, Any]


def check_a4(history: History) -> Finding:
    """Judge that what is read was sent, just so.

    Violated by a message that is read (or stands in the merged log) and whose attempt nobody invoked, or not to that
    queue, or with another body; and by a read that was answered before its send was invoked.
    """
    return finding("A4", _phantoms(history))


def check_a5(history: History) -> Finding:
    """Judge that what was refused did not happen: an attempt that ended FAIL is read by nobody and in no merged log."""
    return finding("A5", _aborted(history))


def check_a6(history: History) -> Finding:
    """Judge how often a message is in the log.

    One attempt at two places (queue, offset) is a violation. Another attempt of the same message at a second place is
    what at-least-once allows: counted, and a violation only where duplicates are promised never to be. A delayed
    message that is released again after a failure counts like a second attempt.
    """
    strict = history.promises.duplicates == DUPLICATES_NEVER
    twice, again = _copies(history)
    text = "" if strict or not again else f"{len(again):,} messages stand there again by another attempt or release"
    found = [*twice, *again] if strict else twice
    if not found and again:
        return Finding("A6", finding("A6", []).title, Verdict.INFO, len(again), text, tuple(again[:5]))
    return finding("A6", found, judged=history.promises.duplicates != DUPLICATES_ANY, text=text)


def check_a7(history: History) -> Finding:
    """Count deliveries of a message to a consumer group beyond the first: at-least-once allows them, after failures."""
    return finding("A7", _again(history), judged=False)


def check_a8(history: History) -> Finding:
    """Judge that an offset means one message.

    Violated by an offset of a queue at which two messages stand, over all acknowledgements, all that anybody read
    through whichever replica, and the merged log.
    """
    return finding("A8", _two_at_one(history), judged=history.promises.stable_reads and not history.lossy)


def check_a9(history: History) -> Finding:
    """Judge that acknowledgements told the truth.

    Violated by a send acknowledged at (queue, offset, position, term) if another attempt is read or held at that
    offset, or this attempt only at other offsets, or there with another position or term. What was not told is not
    compared.
    """
    return finding("A9", _mismatches(history), judged=history.promises.stable_reads and not history.lossy)


def _phantoms(history: History) -> Iterator[Witness]:
    attempts = history.attempts
    for op, read in history.sights:
        sent = attempts.get((read.writer, read.counter, read.attempt))
        if sent is not None and _as_sent(sent, op, read):
            continue
        wrong = _wrong(sent, history.queue_of_read(op, read), read.digest, history)
        if not wrong and sent and op.kind == Kind.OK and op.completed < sent.invoked:
            wrong = "before it was sent"
        if wrong:
            yield _witness(op, history.queue_of_read(op, read), read.offset, _attempt(read), wrong, sent)
    for row in history.held:
        sent = history.attempts.get(_attempt(row))
        if wrong := _wrong(sent, history.queue_of_held(row), row.digest, history):
            yield _witness(None, history.queue_of_held(row), row.offset, _attempt(row), wrong, sent)


def _as_sent(sent: Op, op: Op, read: Read) -> bool:
    """Tell whether a closer look is idle, as all is equal; of most reads it is."""
    same_place = sent.queue == read.queue and sent.topic == read.topic and sent.broker == op.broker
    return same_place and sent.digest == read.digest and sent.invoked <= op.completed


def _wrong(sent: Op | None, queue: Queue, digest: int, history: History) -> str:
    """Return what is wrong with a message that stands in a queue, "" if nothing is."""
    if sent is None:
        return "never sent"
    asked = history.queue_of(sent)
    if asked[1] != queue[1] or (sent.queue != UNKNOWN and asked != queue):
        return "sent to another queue"
    # The recorder writes 0 where it did not keep a digest.
    return "another body" if sent.digest and sent.digest != digest else ""


def _attempt(row: Read | HeldMessage) -> Attempt:
    return (row.writer, row.counter, row.attempt)


def _witness(op: Op | None, queue: Queue, offset: int, attempt: Attempt, why: str, sent: Op | None = None) -> Witness:
    ops = [one.op for one in (sent, op) if one is not None]
    return {"ops": ops, "queue": list(queue), "offset": offset, "message": list(attempt), "why": why}


def _aborted(history: History) -> Iterator[Witness]:
    for op in history.sends:
        attempt = (op.writer, op.counter, op.attempt)
        if op.kind != Kind.FAIL:
            continue
        for (queue, offset), number in history.read_at.get(attempt, {}).items():
            yield _witness(history.by_number[number], queue, offset, attempt, "read", op)
            break
        else:
            for row in sorted(history.held_at.get(attempt, ())):
                yield _witness(None, history.queue_of_held(row), row.offset, attempt, "in the log", op)
                break


def _places(history: History) -> dict[Attempt, set[Place]]:
    places: dict[Attempt, set[Place]] = {attempt: set(where) for attempt, where in history.read_at.items()}
    for row in history.held:
        places.setdefault(_attempt(row), set()).add((history.queue_of_held(row), row.offset))
    return places


def _copies(history: History) -> tuple[list[Witness], list[Witness]]:
    """Return which attempts stand at two places, and which messages do so by two attempts or releases."""
    twice: list[Witness] = []
    again: list[Witness] = []
    everywhere: dict[tuple[int, int], set[Place]] = {}
    for attempt, where in _places(history).items():
        everywhere.setdefault(attempt[:2], set()).update(where)
        sent = history.attempts.get(attempt) if len(where) > 1 else None
        if sent is not None and sent.delay_until == UNKNOWN:
            twice.append(_many(history, list(attempt), where))
    twice.sort(key=lambda witness: witness["message"])
    reported = {tuple(witness["message"][:2]) for witness in twice}
    for message, where in sorted((message, where) for message, where in everywhere.items() if len(where) > 1):
        if message not in reported and message in history.messages:
            again.append(_many(history, list(message), where))
    return twice, again


def _many(history: History, message: list[int], where: set[Place]) -> Witness:
    sent = history.messages.get((message[0], message[1]), [])
    places = [[*queue, offset] for queue, offset in sorted(where)]
    return {"ops": [op.op for op in sent], "message": message, "places": places}


def _again(history: History) -> Iterator[Witness]:
    polls = {
        number: op.group
        for number, op in history.by_number.items()
        if op.group and op.act == Act.POLL and op.kind == Kind.OK
    }
    times: dict[tuple[str, int, int], list[int]] = {}
    for read in history.reads:
        if read.op in polls:
            times.setdefault((polls[read.op], read.writer, read.counter), []).append(read.op)
    for (group, writer, counter), ops in times.items():
        if len(ops) > 1:
            yield {"ops": sorted(ops)[:8], "group": group, "message": [writer, counter], "times": len(ops)}


def _two_at_one(history: History) -> Iterator[Witness]:
    first: dict[Place, tuple[int, int, int]] = {}
    told: set[Place] = set()
    for place, writer, counter, number in _named(history):
        other = first.setdefault(place, (writer, counter, number))
        if other[:2] != (writer, counter) and place not in told:
            told.add(place)
            queue, offset = place
            ops = [one for one in (other[2], number) if one != UNKNOWN]
            messages = [list(other[:2]), [writer, counter]]
            yield {"ops": ops, "queue": list(queue), "offset": offset, "messages": messages}


def _named(history: History) -> Iterator[tuple[Place, int, int, int]]:
    """Iterate over all that names the message at an offset: place, writer, counter, operation."""
    for op in history.acknowledged:
        yield (history.queue_of(op), op.offset), op.writer, op.counter, op.op
    for (queue, offset, _, writer, counter, _), number in history.seen.items():
        yield (queue, offset), writer, counter, number
    for row in sorted(history.held):
        yield (history.queue_of_held(row), row.offset), row.writer, row.counter, UNKNOWN


class _Found(NamedTuple):
    """An attempt at a place of the merged log, or read there by an operation."""

    attempt: Attempt
    place: Place
    position: int
    term: int
    op: int


def _mismatches(history: History) -> Iterator[Witness]:
    at: dict[Place, list[_Found]] = {}
    found: dict[Attempt, list[_Found]] = {}
    for (queue, offset, position, writer, counter, number), op_number in history.seen.items():
        one = _Found((writer, counter, number), (queue, offset), position, UNKNOWN, op_number)
        at.setdefault(one.place, []).append(one)
        found.setdefault(one.attempt, []).append(one)
    for row in sorted(history.held):
        one = _Found(_attempt(row), (history.queue_of_held(row), row.offset), row.position, row.term, UNKNOWN)
        at.setdefault(one.place, []).append(one)
        found.setdefault(one.attempt, []).append(one)
    for op in history.acknowledged:
        attempt = (op.writer, op.counter, op.attempt)
        place = (history.queue_of(op), op.offset)
        others = [one.op for one in at.get(place, ()) if one.attempt != attempt]
        why, number = ("another attempt there", others[0]) if others else _differs(op, place, found.get(attempt, []))
        if why:
            ops = [op.op] if number == UNKNOWN else [op.op, number]
            yield {"ops": ops, "queue": list(place[0]), "offset": op.offset, "message": list(attempt), "why": why}


def _differs(op: Op, place: Place, found: list[_Found]) -> tuple[str, int]:
    """Return how what was found of an attempt differs from what its acknowledgement said, and who found it."""
    here = [one for one in found if one.place == place]
    if found and not here:
        return "at another offset", found[0].op
    for _, _, position, term, number in here:
        if UNKNOWN not in {op.position, position} and op.position != position:
            return "at another position", number
        if UNKNOWN not in {op.term, term} and op.term != term:
            return "of another term", number
    return "", UNKNOWN
