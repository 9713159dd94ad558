"""A24, A25: whether what was recorded as done is certain, and whether the service was there."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pipeline.catalogue import finding, skipped, unknown
from pipeline.evidence import NEVER, History
from pipeline.finalscan import Span, joined
from pipeline.history import UNKNOWN, Fault, Kind, Op
from pipeline.promises import Promises
from pipeline.results import Finding, Verdict

Witness = dict[str, Any]
# Statuses that say "stored, and perhaps not for good", as RocketMQ names them, and what clients call no answer.
_UNCERTAIN = ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "TIMEOUT", "CONNECTIONLOST")
# Between two attempts that are not further apart, somebody would have sent (s).
_IMPATIENCE_S = 2.0


class Outage(NamedTuple):
    """A time in which sends of a broker group were tried and none was acknowledged, monotonic ns."""

    broker: str
    began: int
    ended: int


def check_a24(history: History) -> Finding:
    """Judge the recorder: a send with a status that leaves its fate open must not stand there as OK.

    That is the harness' error and no broker's, so the run becomes unknown.
    """
    found = (
        {"ops": [op.op], "error": op.error}
        for op in history.sends
        if op.kind == Kind.OK and any(status in op.error.upper() for status in _UNCERTAIN)
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
    """
    if not history.sends:
        return skipped("A25", "nothing was sent")
    windows = _excused(history.faults, history.promises)
    hiccup = int(history.promises.hiccup_bound_s * 1e9)
    groups: dict[str, list[Op]] = {}
    for op in history.sends:
        groups.setdefault(history.group_of(op), []).append(op)
    found: list[Witness] = []
    undecided: list[str] = []
    for group, sends in sorted(groups.items()):
        for outage in outages(group, sends):
            if outage.ended - outage.began <= hiccup:
                continue
            for began, end in _beyond(outage, windows):
                if began > outage.began or end - began > hiccup:
                    why = "after a fault" if began > outage.began else "without a fault"
                    found.append(_witness(outage, why, end - began))
                    break
        why, silence = _progress(history, group, sends)
        if silence is not None:
            found.append(_witness(silence, why, silence.ended - silence.began))
        elif why:
            undecided.append(f"{group or 'the group'}: {why}")
    if undecided and not found:
        return unknown("A25", "; ".join(undecided))
    return finding("A25", found)


def outages(group: str, sends: Sequence[Op]) -> list[Outage]:
    """Return the outages of one broker group, in order; also the short ones between any two acknowledgements."""
    slack = int(_IMPATIENCE_S * 1e9)
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


def _excused(faults: Sequence[Fault], promises: Promises) -> list[Span]:
    """Return the times in which an outage is no violation."""
    rto = int(promises.rto_bound_s * 1e9)
    spans: list[Span] = []
    for fault in faults:
        end = NEVER if fault.ended == UNKNOWN else fault.ended + rto
        if fault.name in promises.survives and fault.ended != UNKNOWN:
            spans += [(fault.began, fault.began + rto), (fault.ended, end)]
        else:
            spans.append((fault.began, end))
    return joined(spans)


def _beyond(outage: Outage, windows: list[Span]) -> Iterator[Span]:
    """Yield the parts of an outage that no window excuses."""
    at = outage.began
    for start, end in windows:
        if end <= at:
            continue
        if start >= outage.ended:
            break
        if start > at:
            yield at, start
        at = max(at, end)
    if at < outage.ended:
        yield at, outage.ended


def _progress(history: History, group: str, sends: Sequence[Op]) -> tuple[str, Outage | None]:
    """Judge the time after the last fault: nothing, what was wrong and when, or why nobody can tell."""
    ends = [fault.ended for fault in history.faults if fault.ended != UNKNOWN]
    if not ends:
        return "", None
    healed = max(ends)
    later = [op for op in sends if op.completed > healed]
    if not later:
        return "no send after the last fault", None
    first = min((op.completed for op in later if op.kind == Kind.OK), default=NEVER)
    began = max(healed, min(op.invoked for op in later))
    end = first if first != NEVER else max(op.completed for op in later)
    if end - began > int(history.promises.progress_bound_s * 1e9):
        return "no progress after the last fault", Outage(group, began, end)
    return "" if first != NEVER else "after the last fault, sends were not tried for long enough", None


def _witness(outage: Outage, why: str, length: int) -> Witness:
    times = {"began": outage.began, "ended": outage.ended}
    return {"ops": [], "broker": outage.broker, "why": why, "seconds": round(length / 1e9, 3), **times}
