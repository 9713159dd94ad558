"""A24, A25: whether what was recorded as done is certain, and whether the service was there."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Beat, Fault, Kind, Op
from pipeline.plain.evidence import NEVER, History
from pipeline.plain.finalscan import Span, joined

Witness = dict[str, Any]
# Statuses that say "stored, and perhaps not for good", as RocketMQ names them, and what clients call no answer.
UNCERTAIN = ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "TIMEOUT", "CONNECTIONLOST")
# Between two attempts that are not further apart, somebody would have sent (s).
IMPATIENCE_S = 2.0
# The harness's loop has a turn every tenth of a second; without one for longer than this it stood still (s).
STALL_S = 1.0
# Of a time that is judged so much must be left (a share of 1) where stalls are cut out: of a run that was mostly not
# watched nobody can say that nothing was wrong.
LEFT_MIN = 0.5


class Outage(NamedTuple):
    """A time in which sends of a broker group were tried and none was acknowledged, monotonic ns."""

    broker: str
    began: int
    ended: int


class After(NamedTuple):
    """What was tried in a broker group after the last fault's end, `healed`; None where nothing was."""

    healed: int
    tried: int | None
    """When the first send was invoked of those that ended later."""
    first: int | None
    """When a send was acknowledged first."""
    last: int | None
    """When the last send ended."""


def check_a24(history: History) -> Finding:
    """Judge the recorder: a send with a status that leaves its fate open must not stand there as OK.

    That is the harness' error and no broker's, so the run becomes unknown.
    """
    found = (
        {"ops": [op.op], "error": op.error}
        for op in history.sends
        if op.kind == Kind.OK and any(status in op.error.upper() for status in UNCERTAIN)
    )
    return finding("A24", found, bad=Verdict.UNKNOWN)


def check_a25(history: History) -> Finding:
    """Judge that the service comes back.

    An outage is a longest time, of more than hiccup_bound_s, in which a broker group acknowledged no send although
    some were tried. Violated by
    * one that has as much outside of any fault's reach;
    * one that lasts more than rto_bound_s after the end of the last fault it met, or after the begin of one that the
      service is promised to survive;
    * no acknowledgement within progress_bound_s after the last fault's end, while sends were tried.
    Unknown if after the last fault's end nobody tried for long enough to tell.

    Times in which the harness's own loop stood still are cut out of all of this, for nobody asked then, and nobody
    would have heard an answer. Unknown, if nothing was found, when that leaves less than LEFT_MIN of the time from a
    broker group's first send to its last.
    """
    if not history.sends:
        return skipped("A25", "nothing was sent")
    groups: dict[str, list[Op]] = {}
    for op in history.sends:
        groups.setdefault(history.group_of(op), []).append(op)
    found = {group: outages(group, sends) for group, sends in groups.items()}
    after = {group: _after_faults(history.faults, sends) for group, sends in groups.items()}
    spans = {group: _from_first_to_last(sends) for group, sends in groups.items()}
    return judge_service(found, after, spans, history.faults, history.promises, stalls(history.beats))


def judge_service(
    outages_by_group: Mapping[str, Sequence[Outage]],
    after_by_group: Mapping[str, After | None],
    spans_by_group: Mapping[str, Span],
    faults: Sequence[Fault],
    promises: Promises,
    stood_still: Sequence[Span] = (),
) -> Finding:
    """Return the finding of A25; those outages may be left out that are no longer than hiccup_bound_s.

    `spans_by_group`: from each broker group's first send to its last.
    """
    time = RemainingTime(stood_still)
    windows = excused([time.of_fault(fault) for fault in faults], promises)
    hiccup = int(promises.hiccup_bound_s * 1e9)
    found: list[Witness] = []
    undecided: list[str] = []
    for group, some in sorted(outages_by_group.items()):
        for whole in some:
            outage = Outage(group, time.of(whole.began), time.of(whole.ended))
            if outage.ended - outage.began <= hiccup:
                continue
            for began, end in beyond((outage.began, outage.ended), windows):
                if began > outage.began or end - began > hiccup:
                    why = "after a fault" if began > outage.began else "without a fault"
                    found.append(_witness(whole, why, end - began))
                    break
        why, silence = _progress(promises, group, after_by_group[group], time)
        if silence is not None:
            found.append(_witness(silence, why, time.of(silence.ended) - time.of(silence.began)))
        whys = (why if silence is None else "", time.too_little([spans_by_group[group]]))
        undecided += [f"{group or 'the group'}: {one}" for one in whys if one]
    if undecided and not found:
        return unknown("A25", "; ".join(undecided))
    return replace(finding("A25", found), text=time.text)


def stalls(beats: Sequence[Beat]) -> list[Span]:
    """Return the times in which the harness's loop stood still for longer than STALL_S, in order."""
    moments = sorted(beat.at for beat in beats)
    return [(before, after) for before, after in pairwise(moments) if after - before > STALL_S * 1e9]


class RemainingTime:
    """Time, monotonic ns, out of which some spans are cut; those are in order and apart."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self.text = ""
        if spans:
            seconds = sum(end - start for start, end in spans) / 1e9
            self.text = f"the harness stood still for {seconds:.1f} s in all: cut out"

    def of(self, moment: int) -> int:
        """Return what is left of the time up to a moment."""
        return moment - sum(min(end, moment) - start for start, end in self._spans if start < moment)

    def of_fault(self, fault: Fault) -> Fault:
        """Return a fault with the times that are left."""
        ended = fault.ended if fault.ended == UNKNOWN else self.of(fault.ended)
        return fault._replace(began=self.of(fault.began), ended=ended)

    def too_little(self, spans: Iterable[Span]) -> str:
        """Return why some spans cannot be judged: less than LEFT_MIN of them is left; "" if they can."""
        whole = left = 0
        for start, end in spans:
            whole += end - start
            left += self.of(end) - self.of(start)
        if left >= whole * LEFT_MIN:
            return ""
        cut = (whole - left) / 1e9
        return f"too little is left to judge, as the harness stood still for {cut:.1f} of {whole / 1e9:.1f} s"


def outages(group: str, sends: Sequence[Op]) -> list[Outage]:
    """Return the outages of one broker group, in order; also the short ones between any two acknowledgements."""
    slack = int(IMPATIENCE_S * 1e9)
    tried = joined((op.invoked, max(op.completed, op.invoked) + slack) for op in sends)
    oks = sorted(op.completed for op in sends if op.kind == Kind.OK)
    found = []
    for start, stretched in tried:
        end = max(start, stretched - slack)
        at = start
        for moment in (*oks[bisect_right(oks, start) : bisect_right(oks, end)], end):
            if moment > at:
                found.append(Outage(group, at, moment))
            at = moment
    return found


def excused(faults: Sequence[Fault], promises: Promises) -> list[Span]:
    """Return the times in which an outage is no violation, in order and apart."""
    rto = int(promises.rto_bound_s * 1e9)
    spans: list[Span] = []
    for fault in faults:
        end = NEVER if fault.ended == UNKNOWN else fault.ended + rto
        if fault.name in promises.survives and fault.ended != UNKNOWN:
            spans += [(fault.began, fault.began + rto), (fault.ended, end)]
        else:
            spans.append((fault.began, end))
    return joined(spans)


def beyond(span: Span, windows: Sequence[Span]) -> Iterator[Span]:
    """Yield the parts of a time that no window excuses; windows are in order and apart."""
    at, last = span
    for start, end in windows:
        if end <= at:
            continue
        if start >= last:
            break
        if start > at:
            yield at, start
        at = max(at, end)
    if at < last:
        yield at, last


def _after_faults(faults: Sequence[Fault], sends: Sequence[Op]) -> After | None:
    """Return what was tried after the last fault; None where none has ended."""
    healed = max((fault.ended for fault in faults), default=UNKNOWN)
    if healed == UNKNOWN:
        return None
    later = [op for op in sends if op.completed > healed]
    tried = min((op.invoked for op in later), default=None)
    first = min((op.completed for op in later if op.kind == Kind.OK), default=None)
    return After(healed, tried, first, max((op.completed for op in later), default=None))


def _from_first_to_last(sends: Sequence[Op]) -> Span:
    return min(op.invoked for op in sends), max(max(op.completed, op.invoked) for op in sends)


def _progress(promises: Promises, group: str, after: After | None, time: RemainingTime) -> tuple[str, Outage | None]:
    """Judge the time after the last fault: nothing, what was wrong and when, or why nobody can tell."""
    if after is None:
        return "", None
    if after.tried is None or after.last is None:
        return "no send after the last fault", None
    began = max(after.healed, after.tried)
    end = after.last if after.first is None else after.first
    if time.of(end) - time.of(began) > int(promises.progress_bound_s * 1e9):
        return "no progress after the last fault", Outage(group, began, end)
    undecided = after.first is None
    return "after the last fault, sends were not tried for long enough" if undecided else "", None


def _witness(outage: Outage, why: str, length: int) -> Witness:
    times = {"began": outage.began, "ended": outage.ended}
    return {"ops": [], "broker": outage.broker, "why": why, "seconds": round(length / 1e9, 3), **times}
