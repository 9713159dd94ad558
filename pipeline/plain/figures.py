"""What a run was like, for people: delivery, recovery from each fault, availability, latency, throughput.

Nothing here is judged. Times are seconds, latencies milliseconds; quantiles are those of acknowledged sends, from
before the first byte to the decoded answer. A fault's window is [began, ended]; one that never ended lasts to the end.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Op
from pipeline.plain.evidence import History
from pipeline.plain.replicas import Replicas

NS = 1_000_000_000
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p99.9_ms": 0.999}
# Roles of whoever takes sends.
LEADING = frozenset({"leader", "master"})
# A stretch of this length counts as available if a send was acknowledged in it.
AVAILABILITY_WINDOW_S = 1.0

Figures = dict[str, Any]


def figures_of(replicas: Replicas) -> Figures:
    """Return all figures, as plain values for results.json."""
    history = replicas.history
    acknowledged = sorted(
        (op for op in history.sends if op.kind == Kind.OK and op.completed != UNKNOWN), key=lambda op: op.completed
    )
    timeline = _Timeline(history, acknowledged)
    return {
        "operations": _operations(history),
        "delivery": delivery(history),
        "seconds": round(timeline.seconds, 3),
        "availability_percent": timeline.availability_percent(),
        "longest_silence_s": timeline.longest_silence_s(),
        "sends": {"all": timeline.sends(acknowledged, timeline.seconds), "without_faults": timeline.quiet_sends()},
        "faults": [timeline.fault(fault) for fault in sorted(history.faults, key=lambda fault: fault.began)],
        "leader_changes": _leader_changes(history),
        "logs": [_log(replicas, number) for number in range(len(replicas.groups))],
    }


def quantiles(ops: Sequence[Op]) -> Figures:
    """Return the latency quantiles of some acknowledged sends: of n, the one of rank ceil(q n); None when n is 0."""
    latencies = sorted(op.completed - op.invoked for op in ops)
    last = len(latencies) - 1
    return {
        name: round(latencies[min(last, max(0, -int(-share * len(latencies) // 1) - 1))] / 1e6, 3)
        if latencies
        else None
        for name, share in QUANTILES.items()
    }


def delivery(history: History) -> Figures:
    """Return which delivery semantics the run had.

    `lost`: acknowledged messages that no read returned and no merged log holds. `redelivered`: pairs of consumer group
    and message that polls of the group returned more than once; the groups are those that promise to consume, or, where
    none does, those that commit offsets. Neither: exactly once; redelivered only: at least once; lost only: at most
    once; both: neither. Without such a group only the loss can be told.
    """
    sent = {(op.writer, op.counter) for op in history.sends if op.kind == Kind.OK}
    found = {(read.writer, read.counter) for read in history.reads}
    found |= {(row.writer, row.counter) for row in (history.merged.messages if history.merged is not None else ())}
    groups = set(history.promises.consumer_groups) or {op.group for op in history.ops if op.act == Act.COMMIT}
    polls = {op.op: op.group for op in history.ops if op.act == Act.POLL and op.kind == Kind.OK and op.group in groups}
    given = Counter((polls[read.op], read.writer, read.counter) for read in history.reads if read.op in polls)
    lost, again = len(sent - found), sum(1 for times in given.values() if times > 1)
    return {
        "semantics": semantics_of(len(sent), lost, again, consumed=bool(groups)),
        "acknowledged": len(sent),
        "lost": lost,
        "delivered": len(given),
        "redelivered": again,
    }


def semantics_of(sent: int, lost: int, again: int, *, consumed: bool) -> str:
    """Return what so many acknowledged, lost and redelivered messages amount to."""
    if not sent:
        return "nothing was acknowledged"
    if not consumed:
        return "at most once" if lost else "nothing was lost; no group consumed"
    return {
        (False, False): "exactly once",
        (False, True): "at least once",
        (True, False): "at most once",
        (True, True): "neither at least nor at most once",
    }[lost > 0, again > 0]


def _operations(history: History) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for op in history.ops:
        counts.setdefault(op.act, Counter())[op.kind] += 1
    return {str(act): {str(kind): count for kind, count in sorted(kinds.items())} for act, kinds in counts.items()}


class _Timeline:
    """The acknowledged sends in order of their completion, and the times between which there were any."""

    def __init__(self, history: History, acknowledged: list[Op]) -> None:
        self._history = history
        self._acknowledged = acknowledged
        self._times = [op.completed for op in acknowledged]
        sends = history.sends
        self._start = min((op.invoked for op in sends), default=0)
        self._end = max((max(op.invoked, op.completed) for op in sends), default=0)
        self._windows = [(fault.began, self._ended(fault)) for fault in history.faults]

    @property
    def seconds(self) -> float:
        """From the first send to the end of the last."""
        return (self._end - self._start) / NS

    def _ended(self, fault: Fault) -> int:
        return fault.ended if fault.ended != UNKNOWN else max(self._end, fault.began)

    def availability_percent(self) -> float | None:
        """Share of the windows of AVAILABILITY_WINDOW_S with an acknowledgement; None for a run without sends."""
        window = int(AVAILABILITY_WINDOW_S * NS)
        count = -(-(self._end - self._start) // window)
        served = {min((at - self._start) // window, count - 1) for at in self._times}
        return round(100 * len(served) / count, 2) if count else None

    def longest_silence_s(self) -> float | None:
        """Longest time without an acknowledgement, ends of the run included."""
        edges = [self._start, *self._times, self._end]
        return round(max(later - earlier for earlier, later in pairwise(edges)) / NS, 3) if self._end else None

    def sends(self, ops: Sequence[Op], seconds: float) -> Figures:
        """Throughput and latency of some acknowledged sends."""
        rate = round(len(ops) / seconds, 1) if seconds > 0 else None
        return {"acknowledged": len(ops), "per_second": rate, **quantiles(ops)}

    def quiet_sends(self) -> Figures:
        """Throughput and latency of the sends that no fault's window touched."""
        windows = sorted(self._windows)
        starts = [start for start, _ in windows]
        # Of the windows up to each: when all are over.
        over = list(accumulate((end for _, end in windows), max, initial=UNKNOWN))
        ops = [op for op in self._acknowledged if op.invoked > over[bisect_right(starts, op.completed)]]
        faulty, at = 0, self._start
        for start, end in windows:
            faulty += max(0, min(end, self._end) - max(start, at))
            at = max(at, end)
        return self.sends(ops, self.seconds - faulty / NS)

    def fault(self, fault: Fault) -> Figures:
        """Describe what a fault did to the sends.

        `silence_s`: the longest time without an acknowledgement that touches the fault's window. `recovery_s`: from the
        fault's begin to the end of that silence; None when no acknowledgement ended it.
        """
        ended = self._ended(fault)
        first = max(0, bisect_left(self._times, fault.began) - 1)
        edges = [self._start, *self._times[first:]] if first == 0 else self._times[first:]
        silence, until = 0, fault.began
        for earlier, later in pairwise(edges):
            if earlier > ended:
                break
            if later - earlier > silence:
                silence, until = later - earlier, later
        if edges[-1] <= ended and self._end - edges[-1] > silence:
            silence, until = self._end - edges[-1], UNKNOWN
        after = self._acknowledged[bisect_left(self._times, fault.began) :]
        inside = [op for op in after if op.invoked <= ended]
        return {
            "fault": fault.fault,
            "name": fault.name,
            "target": fault.target,
            "effect": fault.effect,
            "began_s": round((fault.began - self._start) / NS, 3),
            "lasted_s": round((ended - fault.began) / NS, 3),
            "silence_s": round(silence / NS, 3),
            "recovery_s": None if until == UNKNOWN else round(max(0, until - fault.began) / NS, 3),
            **self.sends(inside, (ended - fault.began) / NS),
        }


def _leader_changes(history: History) -> int:
    """How often a term had another leader than the one before, as far as anybody looked."""
    led = {look.term: look.member for look in history.looks if look.role in LEADING}
    return sum(1 for before, after in pairwise(sorted(led)) if led[before] != led[after])


def _log(replicas: Replicas, number: int) -> Figures:
    group = replicas.groups[number]
    return {
        "broker": group.name,
        "members": [log.member for log in group.logs],
        "earlier": _earlier(replicas, group.name),
        "raft": group.is_raft,
        "committed": group.committed if group.is_raft else None,
        "end": group.end,
        "messages": len(group.messages),
        "complete": group.complete,
    }


def _earlier(replicas: Replicas, name: str) -> int:
    """Return how many stores of a group were read of moments before the end."""
    groups = [group for copies in replicas.earlier for group in replicas.grouped(copies)]
    return sum(len(group.logs) for group in groups if group.name == name)
