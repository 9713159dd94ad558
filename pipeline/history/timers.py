"""Timer messages of a run: each comes once, and outside of faults no later than is promised.

That none is early, and none lost, is judged as for every delayed message (A20, A1). How late one is, is told by who
leads: asked for its queue's end after it was due, it named one that the message is not before. What a reader saw late
may be the reader's delay, and proves nothing.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.history.calm import Calm
from pipeline.history.promises import Promises
from pipeline.history.results import WITNESSES_MAX, Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Op, Read

TOPIC = "chaos_timers"
WORKLOAD = "timers"
TIMERS_CHECK = "W-timers"
TITLE = "timer messages come once, and outside of faults in time"
# Of the timers that fell due outside of faults so many must have been looked at: otherwise nothing was proved.
LOOKED_SHARE_MIN = 0.5

Message = tuple[int, int]
"""Writer, counter."""
Place = tuple[int, int]
"""Queue, offset."""


class _Timer(NamedTuple):
    """One acknowledged timer message, and where it came to."""

    op: Op
    places: Sequence[Place]
    first_seen: int
    """When the first answer that brought it was complete; UNKNOWN: never."""


class _Ends:
    """What who led said where a queue ends, for questions about when an offset was not there yet."""

    def __init__(self, asked: Iterable[Op]) -> None:
        self._values: list[int] = []
        self._latest: list[int] = []
        for op in sorted(asked, key=lambda one: (one.value, one.invoked)):
            self._values.append(op.value)
            self._latest.append(max(op.invoked, self._latest[-1] if self._latest else UNKNOWN))

    def missing_at(self, offset: int) -> int:
        """Return when the end was last asked for and an offset was not there yet; UNKNOWN: it always was."""
        at = bisect_right(self._values, offset)
        return self._latest[at - 1] if at else UNKNOWN


def check_timers(
    ops: Sequence[Op], reads: Iterable[Read], faults: Sequence[Fault], promises: Promises, *, asked: bool
) -> Finding:
    """Judge the timer messages of a run; `asked`: whether the run has such a workload.

    Violated by one that stands at two places, unless acknowledged messages may be lost by the run's faults, and by one
    that was late by more than timer_late_s at a time that was calm since it fell due. Unknown when the workload ran and
    nothing was acknowledged, or too few of those that fell due outside of faults were looked at.
    """
    timers = _timers(ops, reads)
    if not timers:
        if not asked:
            return Finding(TIMERS_CHECK, TITLE, Verdict.SKIPPED, text="no timer messages were sent")
        return Finding(TIMERS_CHECK, TITLE, Verdict.UNKNOWN, text="no timer message was acknowledged")
    calm = Calm(faults, promises.rto_bound_s)
    late, due, looked = _late(timers, _ends(ops), calm, int(promises.timer_late_s * 1e9))
    wrong = late if _may_lose(promises, faults) else [*_twice(timers), *late]
    text = (
        f"{len(timers):,} timer messages, {sum(one.first_seen != UNKNOWN for one in timers):,} seen{_lateness(timers)};"
        f" {due:,} fell due outside of faults, {looked:,} of them were looked at"
    )
    verdict = Verdict.INVALID if wrong else Verdict.VALID
    if not wrong and (not due or looked < due * LOOKED_SHARE_MIN):
        verdict = Verdict.UNKNOWN
    return Finding(TIMERS_CHECK, TITLE, verdict, len(wrong), text, tuple(wrong[:WITNESSES_MAX]))


def _timers(ops: Iterable[Op], reads: Iterable[Read]) -> list[_Timer]:
    """Return what was acknowledged, with where it was seen."""
    answered: dict[int, int] = {}
    sent: dict[Message, Op] = {}
    for op in ops:
        if op.act in {Act.POLL, Act.SCAN} and op.kind == Kind.OK and op.topic == TOPIC:
            answered[op.op] = op.completed
        elif op.act == Act.SEND and op.kind == Kind.OK and op.topic == TOPIC and op.delay_until != UNKNOWN:
            sent[op.writer, op.counter] = op
    seen: dict[Message, dict[Place, int]] = {}
    for read in reads:
        message, at = (read.writer, read.counter), answered.get(read.op)
        if at is not None and message in sent:
            places = seen.setdefault(message, {})
            place = read.queue, read.offset
            places[place] = min(at, places.get(place, at))
    return [
        _Timer(op, sorted(seen.get(message, {})), min(seen.get(message, {}).values(), default=UNKNOWN))
        for message, op in sorted(sent.items())
    ]


def _ends(ops: Iterable[Op]) -> Mapping[int, _Ends]:
    asked: dict[int, list[Op]] = {}
    for op in ops:
        if op.act == Act.MAX and op.kind == Kind.OK and op.topic == TOPIC and op.leader:
            asked.setdefault(op.queue, []).append(op)
    return {queue: _Ends(some) for queue, some in asked.items()}


def _twice(timers: Iterable[_Timer]) -> list[dict[str, Any]]:
    return [
        {"ops": [one.op.op], "message": [one.op.writer, one.op.counter], "places": places, "why": "delivered twice"}
        for one in timers
        if len(places := [list(place) for place in one.places]) > 1
    ]


def _late(
    timers: Iterable[_Timer], ends: Mapping[int, _Ends], calm: Calm, bound: int
) -> tuple[list[dict[str, Any]], int, int]:
    """Return those that were late, how many fell due at a calm time, and of how many of these it is known how late."""
    late: list[dict[str, Any]] = []
    due = looked = 0
    for timer in timers:
        # Who was told of the send only after it was due was not promised more.
        since = max(timer.op.delay_until, timer.op.completed)
        if not calm.all_of(since, since + bound):
            continue
        due += 1
        missing = max((ends[q].missing_at(o) for q, o in timer.places[:1] if q in ends), default=UNKNOWN)
        if missing > since + bound and calm.all_of(since, missing):
            looked += 1
            late.append(
                {
                    "ops": [timer.op.op],
                    "message": [timer.op.writer, timer.op.counter],
                    "why": f"not there {(missing - since) / 1e9:.1f} s after it was due",
                }
            )
        elif UNKNOWN < timer.first_seen <= since + bound:
            looked += 1
    return late, due, looked


def _lateness(timers: Iterable[_Timer]) -> str:
    """Return how long after their time they were seen, faults and readers included; for people."""
    delays = sorted((one.first_seen - one.op.delay_until) / 1e9 for one in timers if one.first_seen != UNKNOWN)
    if not delays:
        return ""
    return f" ({delays[len(delays) // 2]:.2f} s after their time in the middle, {delays[-1]:.2f} s at most)"


def _may_lose(promises: Promises, faults: Iterable[Fault]) -> bool:
    """Whether acknowledged messages, and with them what says how far delivery is, may be gone after this run."""
    if promises.may_lose_acknowledged:
        return any(True for _ in faults)
    return promises.may_lose_after_power_loss and any("power" in one.name or "part-kill" in one.name for one in faults)
