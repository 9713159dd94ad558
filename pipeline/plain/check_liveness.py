"""A26: whether consumer groups move on."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.promises import Promises
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Op
from pipeline.plain.check_service import IMPATIENCE_S, RemainingTime, beyond, excused, stalls
from pipeline.plain.evidence import NEVER, History, Message
from pipeline.plain.finalscan import Queue, Span, joined

Witness = dict[str, Any]
GroupTopic = tuple[str, str]
"""Consumer group, topic."""
GroupQueue = tuple[str, Queue]
Due = tuple[int, int]
"""When a message was acknowledged, and when its group was given it; NEVER if it was not."""
# What shows that somebody consumes, where nobody noted who lives; the next of these comes within so many ns.
ASKS = (Act.POLL, Act.QUERY, Act.COMMIT, Act.LOCK)
SLACK_NS = int(IMPATIENCE_S * 1e9)


class Silence(NamedTuple):
    """A longest time in which a queue held something for a group, and nothing new of it came; monotonic ns."""

    group: str
    queue: Queue
    began: int
    ended: int


class QueueWatch(NamedTuple):
    """What there was to look at of one queue for one group, while that had a consumer."""

    waited: bool
    """Whether anything was due."""
    moved: int
    """When something that was due came last, monotonic ns; UNKNOWN if nothing did."""
    latest: int
    """When the last came of what was due for IMPATIENCE_S at the end; NEVER if some of it did not come at all."""
    left: int = NEVER
    """Since when something was due that had not come in the end; NEVER if all had."""


class GroupWatch(NamedTuple):
    """What there was to look at of one group and topic."""

    lives: Sequence[Span]
    """When it had a consumer under load, in order and apart."""
    queues: Mapping[Queue, QueueWatch] = MappingProxyType({})


def check_a26(history: History) -> Finding:
    """Judge that consumer groups move on.

    Something is due to a group in a queue from the acknowledgement of its send until a poll of the group has
    brought it, from wherever; not what lies before a reset, nor what may have been removed. A silence is a longest
    time in which something is due in one queue, and nothing comes of that queue that the group has not had.
    Violated, in groups that promise to consume everything, by a silence of which more than group_bound_s
    (orderly_bound_s for groups that lock) in one piece lie where a consumer of the group lived, and where A25
    excuses no outage. Groups that lock have their time anew with each new leader, who lets be whom it finds; and when
    no such lock can be left (lock_left_s after each new leader and each fault) they have orderly_calm_s.

    Consumers live as noted (Act.CONSUME); in a history without, while they ask. Under load only: what is asked
    behind the first final scan is the harness's own. Times in which its loop stood still are cut out.

    Unknown of a group that nothing was looked at: no consumer lived, nothing was due, nothing came, all of it lay
    in faults' reach, or nothing came of a queue behind the last fault's end although something was due. Unknown too
    if a queue had been silent in the end for more than half of what it may be, or if less than LEFT_MIN of the time
    in which its consumers lived is left where the harness's stalls are cut out.
    """
    promises = history.promises
    if not promises.consumer_groups:
        return skipped("A26", "no consumer group is promised to consume everything")
    if not history.sends:
        return skipped("A26", "nothing was sent")
    load_end = min((op.invoked for op in history.ops if op.act == Act.SCAN), default=NEVER)
    first = _first_deliveries(history)
    moves: dict[GroupQueue, list[int]] = {}
    for (group, _), (at, queue) in first.items():
        moves.setdefault((group, queue), []).append(at)
    lives = _lives(history, load_end)
    due = _due(history, lives, first)
    progress: dict[GroupTopic, dict[Queue, QueueWatch]] = {key: {} for key in lives}
    silences: list[Silence] = []
    for (group, queue), some in due.items():
        silences += silences_of(group, queue, some, sorted(moves.get((group, queue), ())))
        key = (group, queue[1])
        if lives[key] and (found := _progress(lives[key][-1][1], some)):
            progress[key][queue] = found
    watched = {key: GroupWatch(spans, progress[key]) for key, spans in lives.items()}
    terms: dict[tuple[str, int], int] = {}
    for look in history.looks:
        if look.role == "leader":
            terms[look.member, look.term] = min(look.at, terms.get((look.member, look.term), NEVER))
    stood_still = stalls(history.beats)
    return judge_moving(
        silences, watched, history.faults, promises, stood_still, sorted(terms.values()), judged=not history.lossy
    )


def judge_moving(
    silences: Iterable[Silence],
    watched: Mapping[GroupTopic, GroupWatch],
    faults: Sequence[Fault],
    promises: Promises,
    stood_still: Sequence[Span] = (),
    terms: Sequence[int] = (),
    *,
    judged: bool = True,
) -> Finding:
    """Return the finding of A26; silences that are no longer than any bound of their group may be left out.

    `terms`: when somebody was first seen to lead, in order.
    """
    time = RemainingTime(stood_still)
    windows = excused([time.of_fault(fault) for fault in faults], promises)
    lives = {key: [(time.of(start), time.of(end)) for start, end in watch.lives] for key, watch in watched.items()}
    seen = {key: [part for life in some for part in beyond(life, windows)] for key, some in lives.items()}
    changes = [time.of(moment) for moment in terms]
    calm: dict[GroupTopic, list[Span]] = {}
    for key, parts in seen.items():
        if key[0] in promises.orderly_groups and lives[key]:
            # Who led before anybody consumed has found no lock.
            later = [moment for moment in changes if moment > lives[key][0][0]]
            left = _locks_left([time.of_fault(fault) for fault in faults], later, promises)
            calm[key] = [piece for part in parts for piece in beyond(part, left)]
            seen[key] = [piece for part in parts for piece in divided(part, changes)]
    found: list[Witness] = []
    calm_ns = int(promises.orderly_calm_s * 1e9)
    for silence in sorted(silences):
        key = (silence.group, silence.queue[1])
        span = time.of(silence.began), time.of(silence.ended)
        length = _too_long(span, seen.get(key, ()), bound_ns(silence.group, promises))
        if length is None:
            length = _too_long(span, calm.get(key, ()), calm_ns)
        if length is not None:
            last = min(silence.ended, watched[key].lives[-1][1])
            found.append(_witness(silence._replace(ended=last), promises, length))
    healed = max((fault.ended for fault in faults), default=UNKNOWN)
    undecided = []
    for group in sorted(set(promises.consumer_groups)):
        keys, bearable = [key for key in sorted(watched) if key[0] == group], bound_ns(group, promises) // 2
        whys = [time.too_little(watched[key].lives) for key in keys]
        whys += [_undecided(watched[key], seen[key], healed) for key in keys]
        whys += [_broken_off(watched[key], seen[key], time, bearable) for key in keys]
        if any(whys) or not keys:
            undecided.append(f"{group}: {next(filter(None, whys), 'no consumer lived')}")
    if undecided and judged and not found:
        return unknown("A26", "; ".join(undecided))
    told = f"watched for {_seconds(seen):.1f} of {_seconds(lives):.1f} s in which groups had consumers"
    return replace(finding("A26", found, judged=judged), text="; ".join(filter(None, (told, time.text))))


def bound_ns(group: str, promises: Promises) -> int:
    """Return how long a queue may be silent to a group, ns."""
    orderly = group in promises.orderly_groups
    return int((promises.orderly_bound_s if orderly else promises.group_bound_s) * 1e9)


def _locks_left(faults: Sequence[Fault], changes: Sequence[int], promises: Promises) -> list[Span]:
    """Return when a lock of somebody who is gone may be left: from a fault, or a new leader, on."""
    left = int(promises.lock_left_s * 1e9)
    of_faults = [(fault.began, NEVER if fault.ended == UNKNOWN else fault.ended + left) for fault in faults]
    return joined([*of_faults, *((moment, moment + left) for moment in changes)])


def _too_long(silence: Span, watched: Iterable[Span], bound: int) -> int | None:
    """Return how much of a silence lies in one of the times that were watched, when that is more than a bound."""
    began, ended = silence
    lengths = (min(end, ended) - max(start, began) for start, end in watched)
    return next((one for one in lengths if one > bound), None)


def silences_of(group: str, queue: Queue, due: Iterable[Due], moves: Sequence[int]) -> list[Silence]:
    """Return the silences of a queue; `moves` are the times at which something new came of it, in order."""
    found = []
    for start, end in joined(due):
        at = start
        for moment in (*moves[bisect_right(moves, start) : bisect_right(moves, end)], end):
            if moment > at:
                found.append(Silence(group, queue, at, moment))
            at = moment
    return found


def divided(span: Span, moments: Sequence[int]) -> list[Span]:
    """Return a time in pieces, divided at those of some moments, in order, that lie in it."""
    start, end = span
    edges = [start, *moments[bisect_right(moments, start) : bisect_left(moments, end)], end]
    return list(pairwise(edges))


def without_slack(spans: Iterable[Span]) -> list[Span]:
    """Return the times in which somebody asked again and again.

    Spans begin with a question and go on after it for as long as the next one may take.
    """
    return [(start, max(start, end - SLACK_NS)) for start, end in joined(spans)]


def under_load(spans: Iterable[Span], load_end: int) -> list[Span]:
    """Return what of some spans lies before the load's end."""
    return [(start, min(end, load_end)) for start, end in spans if start < min(end, load_end)]


def _seconds(spans: Mapping[GroupTopic, Sequence[Span]]) -> float:
    return sum(end - start for some in spans.values() for start, end in some) / 1e9


def _undecided(watch: GroupWatch, seen: Sequence[Span], healed: int) -> str:
    """Return why nothing can be said of a group and topic, "" if something can."""
    if not watch.lives:
        return "no consumer lived"
    if not any(one.waited for one in watch.queues.values()):
        return "nothing was due to it"
    if all(one.moved == UNKNOWN for one in watch.queues.values()):
        return "nothing came to it"
    if not seen:
        return "its consumers lived in faults' reach only"
    still = sorted(queue for queue, one in watch.queues.items() if one.latest > healed >= one.moved)
    since = "" if healed == UNKNOWN else " after the last fault"
    return f"nothing came of {_named(still)}{since}, and it was not watched for long enough" if still else ""


def _broken_off(watch: GroupWatch, seen: Sequence[Span], time: RemainingTime, bearable: int) -> str:
    """Return which queues were silent for too long in the end to say that they had moved on, "" if none was."""
    still = []
    for queue, one in watch.queues.items():
        began = time.of(max(one.moved, one.left)) if one.left != NEVER else NEVER
        if any(end - max(start, began) > bearable for start, end in seen):
            still.append(queue)
    return f"nothing came of {_named(sorted(still))} in the end, and the load was over too soon" if still else ""


def _named(queues: Sequence[Queue]) -> str:
    """Return in words which queues these are, "" if there are none."""
    if not queues:
        return ""
    _, topic, number = queues[0]
    return f"queue {number} of {topic}" + (f" and {len(queues) - 1} more" if len(queues) > 1 else "")


def _witness(silence: Silence, promises: Promises, length: int) -> Witness:
    why = "an orderly group" if silence.group in promises.orderly_groups else "a group"
    times = {"began": silence.began, "ended": silence.ended}
    place: Witness = {"group": silence.group, "queue": list(silence.queue)}
    return {"ops": [], **place, "why": f"{why} does not move on", "seconds": round(length / 1e9, 3), **times}


def _lives(history: History, load_end: int) -> dict[GroupTopic, list[Span]]:
    """Return when each promised group had a consumer of each topic that something was sent to."""
    promised, topics = set(history.promises.consumer_groups), history.topics
    noted: dict[GroupTopic, list[Span]] = {}
    asked: dict[GroupTopic, list[Span]] = {}
    for op in history.ops:
        if op.group not in promised or op.topic not in topics:
            continue
        key = (op.group, op.topic)
        if op.act == Act.CONSUME:
            # Of one whose end nobody noted, nothing is sure but that it began.
            noted.setdefault(key, []).append((op.invoked, max(op.completed, op.invoked)))
        elif op.act in ASKS:
            asked.setdefault(key, []).append((op.invoked, last_sign(op) + SLACK_NS))
    found = {key: joined(spans) for key, spans in noted.items()}
    found |= {key: without_slack(spans) for key, spans in asked.items() if key not in noted}
    return {key: under_load(spans, load_end) for key, spans in found.items()}


def last_sign(op: Op) -> int:
    """Return when somebody was there surely who asked."""
    return max(op.completed, op.invoked)


def _first_deliveries(history: History) -> dict[tuple[str, Message], tuple[int, Queue]]:
    """Return when and of which queue each message came to each promised group first."""
    promised = set(history.promises.consumer_groups)
    found: dict[tuple[str, Message], tuple[int, Queue]] = {}
    for number, op in history.by_number.items():
        if op.act != Act.POLL or op.kind == Kind.FAIL or op.group not in promised:
            continue
        came = (last_sign(op), history.queue_of(op))
        for read in history.answers.get(number, ()):
            key = (op.group, (read.writer, read.counter))
            found[key] = min(came, found.get(key, came))
    return found


def _due(
    history: History, keys: Iterable[GroupTopic], first: Mapping[tuple[str, Message], tuple[int, Queue]]
) -> dict[GroupQueue, list[Due]]:
    """Return what was due to each group in each queue of its topics."""
    reset: dict[GroupQueue, int] = {}
    for op in history.ops:
        if op.act == Act.RESET and op.kind != Kind.FAIL:
            place = (op.group, history.queue_of(op))
            reset[place] = max(op.value, reset.get(place, 0))
    groups: dict[str, list[str]] = {}
    for group, topic in keys:
        groups.setdefault(topic, []).append(group)
    found: dict[GroupQueue, list[Due]] = {}
    for op in history.acknowledged:
        queue = history.queue_of(op)
        for group in groups.get(op.topic, ()):
            if op.offset < max(history.lowest.get(queue, 0), reset.get((group, queue), 0)):
                continue
            came, _ = first.get((group, (op.writer, op.counter)), (NEVER, queue))
            found.setdefault((group, queue), []).append((op.completed, came))
    return found


def _progress(end: int, due: Iterable[Due]) -> QueueWatch | None:
    """Return what there was to look at of a queue until its group had no consumer any more; None if nothing."""
    some = [(sent, came) for sent, came in due if sent < end]
    if not some:
        return None
    waiting = (came for sent, came in some if sent < end - SLACK_NS)
    return QueueWatch(
        waited=any(came > sent for sent, came in some),
        moved=max((came for _, came in some if came <= end), default=UNKNOWN),
        latest=max(waiting, default=UNKNOWN),
        left=min((sent for sent, came in some if came > end), default=NEVER),
    )
