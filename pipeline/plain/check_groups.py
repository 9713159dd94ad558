"""A16, A17, A19, A20: what consumer groups rely on."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind, Op
from pipeline.plain.evidence import NEVER, History, ended
from pipeline.plain.finalscan import Queue

Witness = dict[str, Any]
GroupQueue = tuple[str, Queue]


def check_a16(history: History) -> Finding:
    """Judge that acknowledged metadata stays.

    Violated by an answer o' to the question for a consumer group's offset, if a commit (or reset) of o > o' had been
    acknowledged before the question was invoked, and no commit explains o': one of that value, invoked before the
    answer came, that had not ended before the invocation of another that was acknowledged before the question. Commits
    of unknown end explain for ever. Violated, too, by a topic or group that was not there when asked for after its
    creation had been acknowledged.
    """
    found = [*_offsets_lost(history), *_creations_lost(history)]
    return finding("A16", found, judged=history.promises.offsets_kept and not history.lossy)


def check_a17(history: History) -> Finding:
    """Judge that nothing lies undelivered behind a committed offset.

    For the groups that promise to begin at the first offset and to commit only what they were given: violated by a
    message that stands in the queue (final scan or merged log) at an offset below the group's stored one, and that no
    poll of the group brought, from this queue or from a retry topic. What lies before the value of a reset is excused.
    Unknown if the answer that brought it may have gone unrecorded: a poll at or below it that never ended and tells no
    error, because its recorder was cut off.
    """
    if not history.promises.consumer_groups:
        return skipped("A17", "no consumer group is promised to consume everything")
    stored = _stored(history)
    polled = {op.group for op in history.ops if op.act == Act.POLL}
    if silent := sorted({group for group, _ in stored} - polled):
        return unknown("A17", f"no poll of {', '.join(silent)} was recorded, but commits were")
    skips = list(_skipped_over(history, stored))
    sure = [witness for witness in skips if not witness.pop("unrecorded")]
    bad = Verdict.INVALID if sure else Verdict.UNKNOWN
    return finding("A17", sure or skips, bad=bad, judged=not history.lossy)


def check_a19(history: History) -> Finding:
    """Judge that one consumer at a time holds a queue, in orderly groups.

    A hold begins when a lock was answered, and lasts to the invocation of the last poll, commit or renewed lock of
    that process on that queue before it unlocks, at most for the life of the lock. Violated by two holds of one group
    on one queue, by two processes, that overlap.
    """
    if not any(op.act == Act.LOCK for op in history.ops):
        return skipped("A19", "no queue was locked")
    orderly = set(history.promises.orderly_groups)
    holds = _holds(history)
    judged = any(group in orderly for group, _ in holds)
    held = {key: some for key, some in holds.items() if key[0] in orderly or not judged}
    return finding("A19", _overlaps(held), judged=judged)


def check_a20(history: History) -> Finding:
    """Judge that delayed messages wait: none is read by an answer that came before its time, less the clocks' bound."""
    if not any(op.delay_until != UNKNOWN for op in history.sends):
        return skipped("A20", "nothing was delayed")
    return finding("A20", _early(history))


class _Stored:
    """All commits of one group on one queue, for the question whether an answer can be right."""

    def __init__(self, commits: list[Op]) -> None:
        done = sorted((op.completed, op.value, op.invoked, op.op) for op in commits if op.kind == Kind.OK)
        self._ends = [row[0] for row in done]
        # Of all that had ended by then: the greatest value with its operation, the latest invocation.
        self._best: list[tuple[int, int, int]] = []
        for _, value, invoked, number in done:
            greatest, whose, latest = self._best[-1] if self._best else (UNKNOWN, UNKNOWN, UNKNOWN)
            if value > greatest:
                greatest, whose = value, number
            self._best.append((greatest, whose, max(latest, invoked)))
        by_value: dict[int, list[tuple[int, int]]] = {}
        for op in commits:
            by_value.setdefault(op.value, []).append((op.invoked, ended(op)))
        self._by_value: dict[int, tuple[list[int], list[int]]] = {}
        for value, rows in by_value.items():
            latest_ends: list[int] = []
            for _, end in sorted(rows):
                latest_ends.append(max(end, latest_ends[-1] if latest_ends else UNKNOWN))
            self._by_value[value] = (sorted(row[0] for row in rows), latest_ends)

    def lost(self, query: Op) -> tuple[int, int] | None:
        """Return the value and operation of a commit that an answer shows to be lost, None if it may be right."""
        at = bisect_left(self._ends, query.invoked)
        if not at:
            return None
        greatest, whose, latest = self._best[at - 1]
        if greatest <= query.value:
            return None
        invoked, ends = self._by_value.get(query.value, ([], []))
        before = bisect_left(invoked, query.completed)
        explained = before > 0 and ends[before - 1] >= latest
        return None if explained else (greatest, whose)


def _offsets_lost(history: History) -> Iterator[Witness]:
    commits: dict[GroupQueue, list[Op]] = {}
    for op in history.ops:
        if op.act in {Act.COMMIT, Act.RESET} and op.kind != Kind.FAIL:
            commits.setdefault((op.group, history.queue_of(op)), []).append(op)
    stored = {key: _Stored(some) for key, some in commits.items()}
    for op in history.oks(Act.QUERY):
        key = (op.group, history.queue_of(op))
        # Followers may lag; where nobody says who answered, it was whom the client took for the leader.
        if key not in stored or (op.leader and not history.of_leader(op)):
            continue
        if lost := stored[key].lost(op):
            value, number = lost
            yield {"ops": [number, op.op], "group": op.group, "queue": list(key[1]), "offsets": [value, op.value]}


def _creations_lost(history: History) -> Iterator[Witness]:
    created: dict[tuple[str, str, str], tuple[int, int]] = {}
    for op in history.oks(Act.CREATE_TOPIC, Act.CREATE_GROUP):
        key = (history.group_of(op), op.topic, op.group)
        created[key] = min((op.completed, op.op), created.get(key, (NEVER, UNKNOWN)))
    for op in history.oks(Act.SEEN_TOPIC):
        completed, number = created.get((history.group_of(op), op.topic, op.group), (NEVER, UNKNOWN))
        if op.value == 0 and completed < op.invoked and not (op.leader and not history.of_leader(op)):
            yield {"ops": [number, op.op], "topic": op.topic, "group": op.group}


def _stored(history: History) -> dict[GroupQueue, tuple[int, int]]:
    """Return the greatest offset that is known to be stored for each group and queue, and the operation that tells."""
    groups = set(history.promises.consumer_groups)
    found: dict[GroupQueue, tuple[int, int]] = {}
    for op in history.oks(Act.COMMIT, Act.QUERY):
        if op.group in groups:
            key = (op.group, history.queue_of(op))
            found[key] = max(found.get(key, (UNKNOWN, UNKNOWN)), (op.value, op.op))
    return found


def _standing(history: History) -> dict[Queue, set[tuple[int, int, int]]]:
    """Return what stands in each queue: offset, writer and counter."""
    found: dict[Queue, set[tuple[int, int, int]]] = {}
    for op in history.oks(Act.SCAN):
        rows = history.answers.get(op.op, ())
        found.setdefault(history.queue_of(op), set()).update((row.offset, row.writer, row.counter) for row in rows)
    for held in history.held:
        found.setdefault(history.queue_of_held(held), set()).add((held.offset, held.writer, held.counter))
    return found


def _skipped_over(history: History, stored: dict[GroupQueue, tuple[int, int]]) -> Iterator[Witness]:
    delivered: set[tuple[str, int, int]] = set()
    for number, op in history.by_number.items():
        if op.act == Act.POLL and op.kind != Kind.FAIL:
            delivered.update((op.group, read.writer, read.counter) for read in history.answers.get(number, ()))
    reset: dict[GroupQueue, int] = {}
    cut_off: dict[GroupQueue, int] = {}
    for op in history.ops:
        if op.act not in {Act.RESET, Act.POLL}:
            continue
        key = (op.group, history.queue_of(op))
        if op.act == Act.RESET and op.kind != Kind.FAIL:
            reset[key] = max(op.value, reset.get(key, 0))
        elif op.act == Act.POLL and op.kind == Kind.INFO and op.completed == UNKNOWN and not op.error:
            cut_off[key] = min(op.offset, cut_off.get(key, NEVER))
    standing = _standing(history)
    for key, (value, number) in sorted(stored.items()):
        group, queue = key
        start = max(history.lowest.get(queue, 0), reset.get(key, 0))
        for offset, *message in sorted(standing.get(queue, ())):
            if start <= offset < value and (group, *message) not in delivered:
                unrecorded = offset >= cut_off.get(key, NEVER)
                place = {"group": group, "queue": list(queue), "offset": offset, "message": message}
                yield {"ops": [number], **place, "stored": value, "unrecorded": unrecorded}


class _Hold(NamedTuple):
    began: int
    ended: int
    process: int
    op: int


def _holds(history: History) -> dict[GroupQueue, list[_Hold]]:
    life = int(history.promises.lock_ttl_s * 1e9)
    found: dict[GroupQueue, list[_Hold]] = {}
    current: dict[tuple[int, str, Queue], tuple[Op, int, int]] = {}  # the lock, when it ends by itself, the last sign

    def close(key: tuple[int, str, Queue]) -> None:
        lock, _, last = current.pop(key)
        found.setdefault(key[1:], []).append(_Hold(lock.completed, last, key[0], lock.op))

    for op in sorted(history.ops, key=lambda one: (one.process, one.invoked, one.op)):
        key = (op.process, op.group, history.queue_of(op))
        held = current.get(key)
        if held is not None and (op.act == Act.UNLOCK or op.invoked > held[1]):
            close(key)
            held = None
        granted = op.act == Act.LOCK and op.kind == Kind.OK
        if held is None and granted:
            current[key] = (op, op.completed + life, op.completed)
        elif held is not None and op.act in {Act.LOCK, Act.POLL, Act.COMMIT}:
            # A refused lock says that it is another's by now.
            if op.act == Act.LOCK and op.kind == Kind.FAIL:
                close(key)
            else:
                current[key] = (held[0], op.completed + life if granted else held[1], op.invoked)
    for key in list(current):
        close(key)
    return found


def _overlaps(holds: dict[GroupQueue, list[_Hold]]) -> Iterator[Witness]:
    for (group, queue), some in sorted(holds.items()):
        longest: _Hold | None = None  # of those that began before
        for one, following in pairwise([*sorted(some), None]):
            assert one is not None
            if longest is None or one.ended > longest.ended:
                longest = one
            if following is not None and following.began < longest.ended and following.process != longest.process:
                yield {"ops": [longest.op, following.op], "group": group, "queue": list(queue)}


def _early(history: History) -> Iterator[Witness]:
    bound = int(history.promises.clock_bound_s * 1e9)
    for op, read, sent in history.special_sights:
        if sent.delay_until == UNKNOWN or op.kind != Kind.OK:
            continue
        if op.completed < sent.delay_until - bound:
            early = {"early_ms": (sent.delay_until - op.completed) // 1_000_000}
            yield {"ops": [sent.op, op.op], "message": [read.writer, read.counter, read.attempt], **early}
