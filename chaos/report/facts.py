"""What a report draws, taken from a history: series, lanes, silences; times are seconds from the first event."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Op, Read

T = TypeVar("T")

NS = 1e9
# Columns over the width of a report: more could not be told apart on any screen.
BUCKETS = 180
# Points of the latency scatter and of one line; a report of millions of operations stays a file that a phone opens.
POINTS_MAX = 1_800
LINE_POINTS_MAX = 400
# A member that was not heard of for so long is drawn as silent.
SILENT_S = 2.5
LEADING = {"leader", "master", "sync_master", "async_master"}


@dataclass(frozen=True, slots=True)
class Band:
    """A fault as it is drawn. `silence_s`: the longest time without an acknowledgement that touches it, or None."""

    fault: Fault
    start: float
    end: float
    silence_s: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sends that ended in one column: counts, and quantiles of the acknowledged ones in ms (0 where there is none)."""

    ok: int = 0
    info: int = 0
    fail: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RoleSpan:
    """A member in one role and term, [start, end] as far as it was heard."""

    start: float
    end: float
    leads: bool
    term: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is drawn and counted."""

    seconds: float
    bucket_s: float
    buckets: tuple[Bucket, ...]
    points: tuple[tuple[float, float, str], ...]
    """(seconds, latency in ms, kind) of single sends: of each column the slowest, and a sample of the others."""
    bands: tuple[Band, ...]
    lanes: dict[str, tuple[RoleSpan, ...]]
    commits: dict[str, tuple[tuple[float, int], ...]]
    unseen: tuple[tuple[float, int], ...]
    """Acknowledged messages that nobody had read yet, over time; empty when nothing was read."""
    counts: dict[str, Counter[str]]
    """Act → how operations ended."""
    origin: int = 0
    leader_changes: int = 0
    silence_s: float = 0.0
    """Longest time without an acknowledged send, from the first to the last."""
    quantiles_ms: dict[str, float] = field(default_factory=dict)

    def at(self, ns: int) -> float:
        """Seconds from the first event."""
        return (ns - self.origin) / NS


def gather(ops: Sequence[Op], reads: Sequence[Read], faults: Sequence[Fault], looks: Sequence[Look]) -> Facts:
    """Return what is drawn of a history, whatever its size."""
    origin, end = _bounds(ops, faults, looks)
    seconds = max((end - origin) / NS, 1e-3)
    sends = [op for op in ops if op.act == Act.SEND]
    acknowledged = sorted(op.completed for op in sends if op.kind == Kind.OK)
    gaps = [(a, b) for a, b in pairwise(acknowledged) if b - a >= NS / 100]
    lanes = _lanes(looks, origin)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for op in ops:
        counts[op.act][op.kind] += 1
    latencies = sorted((op.completed - op.invoked) / 1e6 for op in sends if op.kind == Kind.OK)
    columns, points = _columns(sends, origin, seconds)
    return Facts(
        seconds=seconds,
        bucket_s=seconds / BUCKETS,
        buckets=columns,
        points=points,
        bands=tuple(_band(fault, origin, end, gaps, bool(acknowledged)) for fault in _in_order(faults)),
        lanes=lanes,
        commits=_commits(looks, origin),
        unseen=_unseen(sends, ops, reads, origin),
        counts=dict(counts),
        origin=origin,
        leader_changes=_changes(lanes),
        silence_s=max(((b - a) / NS for a, b in gaps), default=0.0),
        quantiles_ms={f"p{name}": quantile(latencies, q) for name, q in (("50", 0.5), ("99", 0.99), ("99.9", 0.999))},
    )


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the q-quantile of ordered values, 0 of none."""
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def ended(op: Op) -> int:
    """When an operation was over for its client; one never answered counts where it began."""
    return op.completed if op.completed != UNKNOWN else op.invoked


def _bounds(ops: Sequence[Op], faults: Sequence[Fault], looks: Sequence[Look]) -> tuple[int, int]:
    starts = [op.invoked for op in ops] + [fault.began for fault in faults] + [look.at for look in looks]
    ends = [ended(op) for op in ops] + [max(fault.began, fault.ended) for fault in faults] + [look.at for look in looks]
    return (min(starts), max(ends)) if starts else (0, 0)


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: (fault.began, fault.fault))


def _band(fault: Fault, origin: int, end: int, gaps: Sequence[tuple[int, int]], asked: bool) -> Band:
    until = fault.ended if fault.ended != UNKNOWN else end
    touching = [b - a for a, b in gaps if a <= until and b >= fault.began]
    silence = max(touching, default=0) / NS if asked else None
    return Band(fault, (fault.began - origin) / NS, (until - origin) / NS, silence)


def _columns(
    sends: Sequence[Op], origin: int, seconds: float
) -> tuple[tuple[Bucket, ...], tuple[tuple[float, float, str], ...]]:
    kinds: list[Counter[str]] = [Counter() for _ in range(BUCKETS)]
    held: list[list[tuple[float, float, str]]] = [[] for _ in range(BUCKETS)]
    for op in sends:
        at = (ended(op) - origin) / NS
        column = min(int(at / seconds * BUCKETS), BUCKETS - 1)
        kinds[column][op.kind] += 1
        if op.completed != UNKNOWN:
            held[column].append((at, (op.completed - op.invoked) / 1e6, op.kind))
    buckets, points = [], []
    for count, ends in zip(kinds, held, strict=True):
        slow = sorted(ms for _, ms, kind in ends if kind == Kind.OK)
        found = Bucket(count[Kind.OK], count[Kind.INFO], count[Kind.FAIL], quantile(slow, 0.5), quantile(slow, 0.99))
        buckets.append(found)
        points += _thinned(ends, POINTS_MAX // BUCKETS)
    return tuple(buckets), tuple(points)


def _thinned(points: list[tuple[float, float, str]], most: int) -> list[tuple[float, float, str]]:
    """Return the slowest of a column, and evenly spread ones of the others."""
    by_latency = sorted(points, key=lambda point: -point[1])
    if len(by_latency) <= most:
        return by_latency
    step = len(by_latency) / most
    return [by_latency[int(i * step)] for i in range(most)]


def _lanes(looks: Iterable[Look], origin: int) -> dict[str, tuple[RoleSpan, ...]]:
    lanes: defaultdict[str, list[RoleSpan]] = defaultdict(list)
    for look in sorted(looks, key=lambda look: look.at):
        at, leads = (look.at - origin) / NS, look.role.lower() in LEADING
        spans = lanes[look.member]
        last = spans[-1] if spans else None
        if last and at - last.end <= SILENT_S and (leads, look.term) == (last.leads, last.term):
            spans[-1] = RoleSpan(last.start, at, leads, look.term)
        else:
            # One role ends where the next is first heard of, unless there was silence between.
            if last and at - last.end <= SILENT_S:
                spans[-1] = RoleSpan(last.start, at, last.leads, last.term)
            spans.append(RoleSpan(at, at, leads, look.term))
    return {member: tuple(spans) for member, spans in sorted(lanes.items())}


def _changes(lanes: dict[str, tuple[RoleSpan, ...]]) -> int:
    """How often a term had another leader than the one before, as the figures of the checks count it."""
    led = {span.term: member for member, spans in lanes.items() for span in spans if span.leads}
    return sum(1 for before, after in pairwise(sorted(led)) if led[before] != led[after])


def _commits(looks: Iterable[Look], origin: int) -> dict[str, tuple[tuple[float, int], ...]]:
    lines: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for look in sorted(looks, key=lambda look: look.at):
        value = look.commit if look.commit != UNKNOWN else look.end
        if value != UNKNOWN:
            lines[look.member].append(((look.at - origin) / NS, value))
    return {member: tuple(spread(line, LINE_POINTS_MAX)) for member, line in sorted(lines.items())}


def spread(values: Sequence[T], most: int) -> list[T]:
    """Return at most `most` values, evenly spread, first and last among them."""
    if len(values) <= most:
        return list(values)
    step = (len(values) - 1) / (most - 1)
    return [values[round(i * step)] for i in range(most)]


def _unseen(
    sends: Iterable[Op], ops: Iterable[Op], reads: Iterable[Read], origin: int
) -> tuple[tuple[float, int], ...]:
    """Messages acknowledged and not yet read, at the end of each column."""
    told = {op.op: op.completed for op in ops if op.act in {Act.POLL, Act.SCAN} and op.completed != UNKNOWN}
    first_read: dict[tuple[int, int], int] = {}
    for read in reads:
        at = told.get(read.op)
        if at is not None:
            message = (read.writer, read.counter)
            first_read[message] = min(at, first_read.get(message, at))
    if not first_read:
        return ()
    acknowledged = {(op.writer, op.counter): op.completed for op in sends if op.kind == Kind.OK}
    came = sorted(acknowledged.values())
    gone = sorted(max(at, first_read[message]) for message, at in acknowledged.items() if message in first_read)
    end = max([*came, *gone, *told.values()])
    edges = [origin + round((end - origin) * i / BUCKETS) for i in range(BUCKETS + 1)]
    return tuple(((edge - origin) / NS, bisect_right(came, edge) - bisect_right(gone, edge)) for edge in edges)
