"""A10 to A12, A14, A15, A22, A23: order, recency and leadership. Offsets are the witness, so nothing is searched."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.promises import Promises
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Kind, Op, Read
from pipeline.plain.evidence import NEVER, HeldMessage, History, ended, is_plain
from pipeline.plain.finalscan import Queue

Witness = dict[str, Any]
# What a consumer does when it begins a queue anew.
_BEGINS_ANEW = frozenset({Act.QUERY, Act.LOCK, Act.UNLOCK, Act.RESET, Act.MIN, Act.MAX})
_TOLD_BY_LEADERS = (Act.SEND, Act.COMMIT, Act.RESET, Act.CREATE_TOPIC, Act.CREATE_GROUP)


class _Placed(NamedTuple):
    """A send whose place in some order is known."""

    place: int
    invoked: int
    ended: int
    op: int


class _Passed:
    """What was known at a time: the greatest value of all that had ended before."""

    def __init__(self, ended_values: Iterable[tuple[int, int, int]]) -> None:
        """Take (time of the end, value, operation)."""
        rows = sorted(ended_values)
        self._times = [row[0] for row in rows]
        self._best: list[tuple[int, int]] = []
        for _, value, op in rows:
            best = self._best[-1] if self._best else (UNKNOWN, UNKNOWN)
            self._best.append(max(best, (value, op), key=lambda one: one[0]))

    def before(self, time: int) -> tuple[int, int]:
        """Return the greatest value of all that ended before `time`, and whose it was; UNKNOWN if there is none."""
        at = bisect_left(self._times, time)
        return self._best[at - 1] if at else (UNKNOWN, UNKNOWN)


def check_a10(history: History) -> Finding:
    """Judge that a sender's messages keep its order.

    Violated by two acknowledged sends of one process to one queue, m1 before m2 in the process' program, with
    offset(m2) <= offset(m1).
    """
    promises = history.promises
    return finding("A10", _reversed(history), judged=promises.real_time_order and not history.lossy)


def check_a11(history: History) -> Finding:
    """Judge that what was sent after an acknowledgement stands behind it.

    Violated by sends a and b in one queue with offset(a) > offset(b), although a had ended before b was invoked; and
    over all queues of a broker group with the position in the log in place of the offset. A send of unknown end that
    was read or is held counts as ended when it was first read, if at all.
    """
    promises = history.promises
    return finding("A11", _inversions(history), judged=promises.real_time_order and not history.lossy)


def check_a12(history: History) -> Finding:
    """Judge that an answer to a poll is a stretch of its queue.

    Violated inside of an answer: it begins behind (dense offsets, nothing removed) or before the offset that was asked
    for, two neighbours do not follow one another, or the offset to go on from is not the one behind its last message.
    Between two polls of one process and group on a queue, with no query, lock or reset between: the second asks for
    another offset than the first told; counted, and judged if sessions are.
    """
    inside, between = list(_jumps_inside(history)), list(_jumps_between(history))
    judged = not history.lossy
    text = f"{len(between):,} polls began elsewhere than the one before told" if between else ""
    found = [*inside, *between] if history.promises.sessions_judged else inside
    return finding("A12", found, judged=judged, text=text)


def check_a14(history: History) -> Finding:
    """Judge that a leader's answer holds all that was acknowledged before it was asked.

    Violated by a poll or question for the end, answered as a leader's (`leader` is the address that answered), that
    told an end n, although a send to that queue at an offset >= n was acknowledged before the question was invoked.
    Followers may lag.
    """
    asked = list(_ends(history, leaders=False))
    told = [one for one in asked if history.of_leader(one[1])]
    if not asked:
        return skipped("A14", "nobody asked for the end of a queue")
    if not told and history.promises.linearizable_reads:
        return unknown("A14", "no answer says that a leader gave it")
    return finding("A14", _stale(history, told), judged=history.promises.linearizable_reads and not history.lossy)


def check_a15(history: History) -> Finding:
    """Judge that a queue's end never goes back.

    Violated by two ends of one queue that leaders told (questions, polls and scans), the first answered before the
    second was invoked, and the second smaller.
    """
    told = list(_ends(history, leaders=True))
    if not told:
        return skipped("A15", "no answer says that a leader gave it")
    return finding("A15", _regressions(told), judged=history.promises.linearizable_reads and not history.lossy)


def check_a22(history: History) -> Finding:
    """Judge that old leaders are fenced.

    Violated by an acknowledgement (of a send, an offset, a topic or a group) in term T1 that was asked for after one
    of a newer term T2 > T1 of the same broker group had been given. The term of a send that was told none is that of
    the entry which holds it in the merged log; of one that went straight into its queue.
    """
    acks = _acks_by_group(history, resolved=True)
    if not acks:
        return skipped("A22", "no acknowledgement tells its term")
    return finding("A22", _old_terms(acks), judged=history.promises.fencing)


def check_a23(history: History) -> Finding:
    """Judge that a term has one leader.

    Violated by acknowledgements of one broker group and term that name two leaders, or by two members of it that each
    said of themselves to lead in one term.
    """
    acks = _acks_by_group(history)
    if not acks and not any(look.role == "leader" for look in history.looks):
        return skipped("A23", "nothing names a leader and its term")
    return finding("A23", _two_leaders(history, acks))


def _reversed(history: History) -> Iterator[Witness]:
    last: dict[tuple[int, Queue], Op] = {}
    for op in sorted(history.acknowledged, key=lambda one: (one.process, one.invoked, one.op)):
        queue = history.queue_of(op)
        before = last.get((op.process, queue))
        if before is not None and op.offset <= before.offset:
            yield {"ops": [before.op, op.op], "queue": list(queue), "offsets": [before.offset, op.offset]}
        last[op.process, queue] = op


def _inversions(history: History) -> Iterator[Witness]:
    by_queue: dict[Queue, list[_Placed]] = {}
    by_group: dict[str, list[_Placed]] = {}
    for op, offset, position, end in _located(history):
        if offset != UNKNOWN:
            by_queue.setdefault(history.queue_of(op), []).append(_Placed(offset, op.invoked, end, op.op))
        if position != UNKNOWN:
            by_group.setdefault(history.group_of(op), []).append(_Placed(position, op.invoked, end, op.op))
    told: set[tuple[int, int]] = set()
    for queue, placed in sorted(by_queue.items()):
        for later, earlier in _inverted(placed):
            told.add((later.op, earlier.op))
            places = {"offsets": [later.place, earlier.place]}
            yield {"ops": [later.op, earlier.op], "queue": list(queue), **places}
    for group, placed in sorted(by_group.items()):
        for later, earlier in _inverted(placed):
            if (later.op, earlier.op) not in told:
                places = {"positions": [later.place, earlier.place]}
                yield {"ops": [later.op, earlier.op], "broker": group, **places}


def _located(history: History) -> Iterator[tuple[Op, int, int, int]]:
    """Iterate over sends whose place is known: offset and position (or UNKNOWN), and when each had ended."""
    first: dict[tuple[int, int, int], tuple[int, Read]] = {}
    unsure = {(op.writer, op.counter, op.attempt) for op in history.sends if op.kind == Kind.INFO}
    for op, read in history.sights:
        attempt = (read.writer, read.counter, read.attempt)
        if attempt in unsure and (attempt not in first or ended(op) < first[attempt][0]):
            first[attempt] = (ended(op), read)
    for op in history.sends:
        if op.kind == Kind.OK:
            yield op, op.offset if is_plain(op) else UNKNOWN, op.position, ended(op)
        elif op.kind == Kind.INFO and is_plain(op):
            attempt = (op.writer, op.counter, op.attempt)
            seen, held = first.get(attempt), history.held_at.get(attempt)
            end = seen[0] if seen else NEVER
            copy = min(held, key=_place_of) if held else None
            if copy is not None and history.queue_of_held(copy) == history.queue_of(op):
                yield op, copy.offset, copy.position, end
            elif seen and (seen[1].topic, seen[1].queue) == (op.topic, op.queue):
                yield op, seen[1].offset, seen[1].position, end


def _place_of(row: HeldMessage) -> tuple[str, int, str, int, int]:
    return row.broker, row.position, row.topic, row.queue, row.offset


def _inverted(placed: list[_Placed]) -> Iterator[tuple[_Placed, _Placed]]:
    """Yield (later in place, earlier in place) where the later one had ended before the earlier one was invoked."""
    placed = sorted(placed, key=lambda one: -one.place)
    soonest: _Placed | None = None  # to end, of all at strictly greater places
    same: _Placed | None = None  # the soonest to end of those at the place at hand
    for one in placed:
        if same is not None and same.place != one.place:
            if soonest is None or same.ended <= soonest.ended:
                soonest = same
            same = None
        if soonest is not None and soonest.ended < one.invoked:
            yield soonest, one
        if same is None or one.ended < same.ended:
            same = one


def _rows_of(history: History, op: Op) -> list[Read]:
    return [row for row in history.answers.get(op.op, ()) if (row.topic, row.queue) == (op.topic, op.queue)]


def _jumps_inside(history: History) -> Iterator[Witness]:
    for op in history.oks(Act.POLL):
        offsets = [row.offset for row in _rows_of(history, op)]
        if wrong := _jump(op, offsets, history.promises):
            yield {"ops": [op.op], "queue": list(history.queue_of(op)), "offsets": offsets[:8], "why": wrong}


def _jump(op: Op, offsets: list[int], promises: Promises) -> str:
    """Return where an answer is no stretch of its queue, "" if it is one."""
    dense = promises.dense_offsets
    for one, other in pairwise(offsets):
        if other <= one or (dense and other != one + 1):
            return f"{other} after {one}"
    if op.offset == UNKNOWN:
        return ""
    if not offsets:
        # Who asked beyond the end is sent back; who asked for what was removed is sent forward.
        forward = dense and not promises.retention and op.value > op.offset
        return f"nothing, but go on from {op.value}" if forward else ""
    start, end = offsets[0], offsets[-1] + 1
    if start < op.offset or (dense and not promises.retention and start > op.offset):
        return f"begins at {start}, asked for {op.offset}"
    if op.value != UNKNOWN and (op.value < end or (dense and op.value > end)):
        return f"go on from {op.value}, not from {end}"
    return ""


def _jumps_between(history: History) -> Iterator[Witness]:
    last: dict[tuple[int, str, Queue], Op] = {}
    about = [op for op in history.ops if op.act == Act.POLL or op.act in _BEGINS_ANEW]
    for op in sorted(about, key=lambda one: (one.process, one.invoked, one.op)):
        key = (op.process, op.group, history.queue_of(op))
        if op.act in _BEGINS_ANEW:
            last.pop(key, None)
        elif op.kind == Kind.OK:
            before = last.get(key)
            if before is not None and before.value not in {UNKNOWN, op.offset}:
                yield {"ops": [before.op, op.op], "queue": list(key[2]), "offsets": [before.value, op.offset]}
            last[key] = op


def _ends(history: History, *, leaders: bool) -> Iterator[tuple[Queue, Op, int]]:
    """Iterate over all ends of queues that were told; `leaders`: by leaders, and by scans, too."""
    for op in history.oks(Act.MAX, Act.POLL, *((Act.SCAN,) if leaders else ())):
        end = op.value if op.act == Act.MAX else op.end
        if end != UNKNOWN and (not leaders or history.of_leader(op)):
            yield history.queue_of(op), op, end


def _stale(history: History, told: list[tuple[Queue, Op, int]]) -> Iterator[Witness]:
    acks: dict[Queue, list[tuple[int, int, int]]] = {}
    for op in history.acknowledged:
        acks.setdefault(history.queue_of(op), []).append((op.completed, op.offset, op.op))
    passed = {queue: _Passed(some) for queue, some in acks.items()}
    for queue, op, end in told:
        if queue in passed:
            offset, number = passed[queue].before(op.invoked)
            if number != UNKNOWN and offset >= end:
                yield {"ops": [number, op.op], "queue": list(queue), "offset": offset, "end": end}


def _regressions(told: list[tuple[Queue, Op, int]]) -> Iterator[Witness]:
    ends: dict[Queue, list[tuple[int, int, int]]] = {}
    for queue, op, end in told:
        ends.setdefault(queue, []).append((op.completed, end, op.op))
    passed = {queue: _Passed(some) for queue, some in ends.items()}
    for queue, op, end in told:
        greatest, number = passed[queue].before(op.invoked)
        if greatest > end:
            yield {"ops": [number, op.op], "queue": list(queue), "ends": [greatest, end]}


def _acks_by_group(history: History, *, resolved: bool = False) -> dict[str, list[Op]]:
    """Return the acknowledgements with a term; `resolved`: also those whose term only the merged log tells."""
    found: dict[str, list[Op]] = {}
    for op in history.oks(*_TOLD_BY_LEADERS):
        term = op.term
        # What was acknowledged of a delayed or prepared message is an entry of its own, in another topic.
        if resolved and term == UNKNOWN and op.act == Act.SEND and is_plain(op):
            held = history.held_at.get((op.writer, op.counter, op.attempt), ())
            term = min(held, key=lambda row: row.position).term if held else UNKNOWN
        if term != UNKNOWN:
            found.setdefault(history.group_of(op), []).append(op if term == op.term else op._replace(term=term))
    return found


def _old_terms(acks: dict[str, list[Op]]) -> Iterator[Witness]:
    for group, ops in sorted(acks.items()):
        passed = _Passed((op.completed, op.term, op.op) for op in ops)
        for op in ops:
            term, number = passed.before(op.invoked)
            if term > op.term:
                yield {"ops": [number, op.op], "broker": group, "terms": [term, op.term]}


def _two_leaders(history: History, acks: dict[str, list[Op]]) -> Iterator[Witness]:
    first: dict[tuple[str, int], Op] = {}
    told: set[tuple[str, int]] = set()
    for group, ops in sorted(acks.items()):
        for op in ops:
            if not op.leader:
                continue
            other = first.setdefault((group, op.term), op)
            if other.leader != op.leader and (group, op.term) not in told:
                told.add((group, op.term))
                leaders = [other.leader, op.leader]
                yield {"ops": [other.op, op.op], "broker": group, "term": op.term, "leaders": leaders}
    groups = {member: group for group, members in history.promises.group_members.items() for member in members}
    said: dict[tuple[str, int], str] = {}
    for look in sorted(history.looks):
        if look.role == "leader" and look.term != UNKNOWN and (not groups or look.member in groups):
            place = (groups.get(look.member, ""), look.term)
            member = said.setdefault(place, look.member)
            if member != look.member and place not in told:
                told.add(place)
                yield {
                    "ops": [],
                    "broker": place[0],
                    "term": look.term,
                    "leaders": [member, look.member],
                    "at": look.at,
                }
