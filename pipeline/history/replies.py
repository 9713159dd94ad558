"""Requests and replies of a run: the right reply, once, and an end of every request by its deadline."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from pipeline.history.calm import Calm
from pipeline.history.promises import Promises
from pipeline.history.results import WITNESSES_MAX, Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Op

WORKLOAD = "requests"
REPLIES_CHECK = "W-replies"
TITLE = "requests get their own reply once, or an error by their deadline"
# A request may be over so much later than its deadline: a send that is under way is asked for its end (client), and
# the harness's loop has other things to do. What it slept through is not counted.
SLACK_S = 1.0
STALL_S = 0.3
# Of the requests at times at which nothing was broken so many must have been replied to: otherwise nothing was proved.
REPLIED_SHARE_MIN = 0.5

Witness = dict[str, Any]
Message = tuple[int, int]
"""Writer, counter."""


def check_replies(
    ops: Iterable[Op], faults: Sequence[Fault], beats: Sequence[Beat], promises: Promises, *, asked: bool
) -> Finding:
    """Judge the requests of a run; `asked`: whether the run has such a workload.

    Violated by a reply that belongs to another request, or to none that the client asked; by a second one that a broker
    brought for a request at a time that was calm since it was asked; by a request that was over later than its deadline
    and SLACK_S; and by one that ended without a reply although a broker said before its deadline that it is there.
    Unknown when the workload ran and no request was replied to, too few at times at which nothing was broken, or one
    has no end.
    """
    requests: list[Op] = []
    answered: dict[Message, Op] = {}
    brought: dict[Message, list[Op]] = {}
    for op in ops:
        if op.act == Act.REQUEST:
            requests.append(op)
        elif op.act == Act.ANSWER and op.kind == Kind.OK:
            answered.setdefault((op.writer, op.counter), op)
        elif op.act == Act.REPLY:
            brought.setdefault((op.writer, op.counter), []).append(op)
    if not requests:
        if not asked:
            return Finding(REPLIES_CHECK, TITLE, Verdict.SKIPPED, text="nothing was requested")
        return Finding(REPLIES_CHECK, TITLE, Verdict.UNKNOWN, text="no request was made")
    calm, times = Calm(faults, promises.rto_bound_s), _Stalls(beats)
    wrong = [
        *_strange(requests, brought),
        *_again(requests, brought, calm),
        *(_late(op, times) for op in requests if _is_late(op, times)),
        *_withheld(requests, answered),
    ]
    return _found(requests, brought, calm, wrong)


def _found(requests: Sequence[Op], brought: dict[Message, list[Op]], calm: Calm, wrong: Sequence[Witness]) -> Finding:
    replied = sum(op.kind == Kind.OK for op in requests)
    at_rest = [op for op in requests if op.completed != UNKNOWN and calm.all_of(op.invoked, op.completed)]
    replied_at_rest = sum(op.kind == Kind.OK for op in at_rest)
    endless = sum(op.completed == UNKNOWN for op in requests)
    again = sum(len(some) > 1 for some in brought.values())
    text = (
        f"{len(requests):,} requests, {replied:,} replied to; {len(at_rest):,} while nothing was broken, "
        f"{replied_at_rest:,} of them replied to"
    )
    text += f"; {again:,} replies brought again" if again else ""
    text += f"; {endless:,} requests have no end" if endless else ""
    verdict = Verdict.INVALID if wrong else Verdict.VALID
    proved = replied and at_rest and replied_at_rest >= len(at_rest) * REPLIED_SHARE_MIN
    if not wrong and (endless or not proved):
        verdict = Verdict.UNKNOWN
    return Finding(REPLIES_CHECK, TITLE, verdict, len(wrong), text, tuple(wrong[:WITNESSES_MAX]))


def _strange(requests: Sequence[Op], brought: dict[Message, list[Op]]) -> Iterable[Witness]:
    for op in requests:
        if op.kind == Kind.OK and op.value != op.digest:
            yield _witness("got another request's reply", op)
    known = {(op.writer, op.counter) for op in requests}
    for message, some in sorted(brought.items()):
        for op in some:
            if message not in known:
                yield _witness("a reply to no request of its client", op)
            elif op.value != op.digest:
                yield _witness("was brought another request's reply", op)


def _again(requests: Sequence[Op], brought: dict[Message, list[Op]], calm: Calm) -> Iterable[Witness]:
    for request in requests:
        some = brought.get((request.writer, request.counter), ())
        if len(some) > 1 and calm.all_of(request.invoked, some[-1].completed):
            yield _witness("was brought its reply again", request, *some)


class _Stalls:
    """The times in which the harness's loop stood still."""

    def __init__(self, beats: Sequence[Beat]) -> None:
        moments = sorted(beat.at for beat in beats)
        self._spans = [(one, other) for one, other in pairwise(moments) if other - one > STALL_S * 1e9]

    def within(self, began: int, ended: int) -> int:
        """Return how long it stood still between two times, ns."""
        return sum(max(min(last, ended) - max(first, began), 0) for first, last in self._spans)


def _over_s(op: Op, times: _Stalls) -> float:
    return (op.completed - op.delay_until - times.within(op.invoked, op.completed)) / 1e9


def _is_late(op: Op, times: _Stalls) -> bool:
    return op.completed != UNKNOWN and _over_s(op, times) > SLACK_S


def _late(op: Op, times: _Stalls) -> Witness:
    return _witness(f"was over {_over_s(op, times):.1f} s after its deadline", op)


def _withheld(requests: Sequence[Op], answered: dict[Message, Op]) -> Iterable[Witness]:
    for op in requests:
        told = answered.get((op.writer, op.counter))
        if told is not None and op.kind != Kind.OK and told.completed < op.delay_until:
            yield _witness("a broker said that it has its reply, and it has not", op, told)


def _witness(why: str, *ops: Op) -> Witness:
    return {"ops": [op.op for op in ops], "message": [ops[0].writer, ops[0].counter], "why": why}
