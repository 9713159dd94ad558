"""Guards against verdicts that mean little: a run that proves nothing is unknown, however clean it looks."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from pipeline.history.catalogue import finding, skipped
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Fault, Kind, Op
from pipeline.plain.evidence import History, is_plain
from pipeline.plain.finalscan import Queue

Witness = dict[str, Any]


def check_v1(history: History) -> Finding:
    """Demand as many acknowledged sends as the scenario asks for."""
    least = history.promises.acknowledged_min
    count = sum(1 for op in history.sends if op.kind == Kind.OK)
    short = [{"acknowledged": count, "asked": least}] if count < least else []
    return finding("V1", short, bad=Verdict.UNKNOWN, text=f"{count:,} acknowledged, {least:,} asked for")


def check_v2(history: History) -> Finding:
    """Demand proof that every fault took effect, and as many faults as the scenario asks for."""
    least = history.promises.faults_min
    found: list[Witness] = [
        {"fault": fault.fault, "name": fault.name, "target": fault.target}
        for fault in history.faults
        if not fault.effect
    ]
    proved = len(history.faults) - len(found)
    if proved < least:
        found.append({"proved": proved, "asked": least})
    return finding("V2", found, bad=Verdict.UNKNOWN, text=f"{proved} of {len(history.faults)} faults show an effect")


def check_v3(history: History) -> Finding:
    """Demand a newer term for every fault that must bring another leader.

    It must be seen, by a leader's look or in an acknowledgement, between the fault's begin and rto_bound_s after its
    end, and be greater than any that was seen before it.
    """
    names = set(history.promises.leader_change_on)
    faults = [fault for fault in history.faults if fault.name in names]
    if not faults:
        return skipped("V3", "no fault had to bring another leader")
    terms = sorted(_terms(history))
    return finding("V3", _without_change(history, faults, terms), bad=Verdict.UNKNOWN)


def check_v4(history: History) -> Finding:
    """Demand of every queue that was sent to a final scan from its first offset to an end beyond all acknowledged ones.

    It must have been asked after the last acknowledgement, and have gone past every offset.
    """
    return finding("V4", _unscanned(history), bad=Verdict.UNKNOWN)


def check_v5(history: History) -> Finding:
    """Demand that most sends have a known end.

    At most info_share_max may be of unknown end, those not counted of which the merged log of all replicas tells
    whether they happened.
    """
    open_ones = [op for op in history.sends if op.kind == Kind.INFO]
    if history.merged and history.merged.complete:
        open_ones = []
    elif history.merged:
        open_ones = [op for op in open_ones if (op.writer, op.counter, op.attempt) not in history.held_at]
    count = len(history.sends)
    share = len(open_ones) / count if count else 0.0
    found: list[Witness] = []
    if share > history.promises.info_share_max:
        found.append({"open": len(open_ones), "sends": count, "share": round(share, 4)})
    return finding("V5", found, bad=Verdict.UNKNOWN, text=f"{share:.2%} of {count:,} sends have no known end")


def check_v6(history: History) -> Finding:
    """Demand that every fault was ended: what was broken to the end proves nothing about what comes after."""
    found = ({"fault": fault.fault, "name": fault.name} for fault in history.faults if fault.ended == UNKNOWN)
    return finding("V6", found, bad=Verdict.UNKNOWN)


def check_v7(history: History) -> Finding:
    """Demand a history that can be judged by its own rules.

    Operations have their own numbers, attempts to send their own names; an answer comes after its question; a process
    asks one thing at a time, and nothing after one of unknown end; what was read belongs to an operation.
    """
    return finding("V7", _malformed(history), bad=Verdict.UNKNOWN)


GUARDS: tuple[Callable[[History], Finding], ...] = (
    check_v1,
    check_v2,
    check_v3,
    check_v4,
    check_v5,
    check_v6,
    check_v7,
)


def _terms(history: History) -> Iterator[tuple[int, int]]:
    """Iterate over (time, term) of everything that tells who leads."""
    for look in history.looks:
        if look.role == "leader" and look.term != UNKNOWN:
            yield look.at, look.term
    for op in history.ops:
        if op.kind == Kind.OK and UNKNOWN not in {op.term, op.completed}:
            yield op.completed, op.term


def _without_change(history: History, faults: list[Fault], terms: list[tuple[int, int]]) -> Iterator[Witness]:
    patience = int(history.promises.rto_bound_s * 1e9)
    times = [at for at, _ in terms]
    greatest = list(accumulate((term for _, term in terms), max, initial=UNKNOWN))
    for fault in faults:
        until = max(fault.began, fault.ended) + patience
        start, end = bisect_right(times, fault.began), bisect_right(times, until)
        before = greatest[start]
        after = max((term for _, term in terms[start:end]), default=UNKNOWN)
        if before == UNKNOWN or after <= before:
            yield {"fault": fault.fault, "name": fault.name, "terms": [before, after]}


def _unscanned(history: History) -> Iterator[Witness]:
    wanted: dict[Queue, tuple[int, int]] = {}
    for op in history.sends:
        if op.queue != UNKNOWN and op.kind != Kind.FAIL:
            offset, completed = wanted.get(history.queue_of(op), (UNKNOWN, UNKNOWN))
            if op.kind == Kind.OK:
                offset, completed = max(offset, op.offset if is_plain(op) else UNKNOWN), max(completed, op.completed)
            wanted[history.queue_of(op)] = (offset, completed)
    for queue, (offset, completed) in sorted(wanted.items()):
        some = history.readers.get(queue, [])
        if not any(one.complete and one.end > offset and one.began > completed for one in some):
            reached = max((one.end for one in some), default=UNKNOWN)
            yield {"queue": list(queue), "acknowledged": offset, "end": reached, "scans": len(some)}


def _malformed(history: History) -> Iterator[Witness]:
    numbers: set[int] = set()
    named: dict[tuple[int, int, int], int] = {}
    last: dict[int, Op] = {}
    for op in sorted(history.ops, key=lambda one: (one.invoked, one.op)):
        if op.op in numbers:
            yield {"ops": [op.op], "why": "a number twice"}
        numbers.add(op.op)
        if op.completed == UNKNOWN and op.kind != Kind.INFO:
            yield {"ops": [op.op], "why": "ended at no time"}
        elif op.completed != UNKNOWN and op.completed < op.invoked:
            yield {"ops": [op.op], "why": "ended before it began"}
        before = last.get(op.process)
        if before is not None and before.kind == Kind.INFO:
            yield {"ops": [before.op, op.op], "why": "a process went on after an unknown end"}
        elif before is not None and before.completed > op.invoked:
            yield {"ops": [before.op, op.op], "why": "two at a time"}
        last[op.process] = op
    for op in history.sends:
        if named.setdefault((op.writer, op.counter, op.attempt), op.op) != op.op:
            yield {"ops": [named[op.writer, op.counter, op.attempt], op.op], "why": "an attempt twice"}
    if strange := history.answers.keys() - numbers:
        yield {"ops": sorted(strange)[:8], "why": "read by no operation"}
