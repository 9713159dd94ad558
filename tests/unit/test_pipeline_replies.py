"""What is told of requests and their replies: mixed up, again, withheld, too late, and what nobody looked at."""

from typing import Any

import pytest

from pipeline.history.promises import Promises
from pipeline.history.replies import check_replies
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Op

S = 10**9
RIGHT, WRONG = 77, 78
RAFT = Promises(rto_bound_s=15.0)


def op(number: int, act: Act, kind: Kind = Kind.OK, at: int = S, **fields: Any) -> Op:
    given = {"completed": at + S // 10, "writer": 1, "counter": number // 10, "digest": RIGHT, **fields}
    return Op(number, number, act, kind, at, **given)


def request(number: int = 0, kind: Kind = Kind.OK, **fields: Any) -> Op:
    return op(
        number, Act.REQUEST, kind, delay_until=4 * S, **{"value": RIGHT if kind is Kind.OK else UNKNOWN, **fields}
    )


def judged(*ops: Op, faults: tuple[Fault, ...] = (), beats: tuple[Beat, ...] = ()) -> Finding:
    return check_replies(ops, faults, beats, RAFT, asked=True)


def test_a_request_with_its_own_reply_is_valid() -> None:
    found = judged(request(), op(1, Act.ANSWER), op(2, Act.REPLY, value=RIGHT))
    assert (found.verdict, found.count) == (Verdict.VALID, 0)
    assert found.text == "1 requests, 1 replied to; 1 while nothing was broken, 1 of them replied to"


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ([request(value=WRONG)], "got another request's reply"),
        ([request(), op(1, Act.REPLY, value=WRONG)], "was brought another request's reply"),
        ([request(), op(1, Act.REPLY, writer=UNKNOWN, value=RIGHT)], "a reply to no request of its client"),
        ([request(), *(op(at, Act.REPLY, value=RIGHT) for at in (1, 2))], "was brought its reply again"),
        ([request(), request(10, Kind.INFO, completed=5 * S + 1)], "was over 1.0 s after its deadline"),
        (
            [request(), request(10, Kind.INFO), op(11, Act.ANSWER)],
            "a broker said that it has its reply, and it has not",
        ),
    ],
)
def test_what_is_wrong_is_told(ops: list[Op], why: str) -> None:
    found = judged(*ops)
    assert found.verdict is Verdict.INVALID
    assert [one["why"] for one in found.witnesses] == [why]


def test_a_reply_may_be_brought_again_behind_a_fault() -> None:
    ops = request(), op(10, Act.REQUEST, at=30 * S, delay_until=33 * S, value=RIGHT)
    again = [op(at, Act.REPLY, value=RIGHT) for at in (1, 2)]
    found = judged(*ops, *again, faults=(Fault(0, "reset-links", "", "", 0, S),))
    assert found.verdict is Verdict.VALID
    assert "1 replies brought again" in found.text


def test_an_answer_that_nobody_waited_for_any_more_is_no_violation() -> None:
    late = op(11, Act.ANSWER, at=4 * S, completed=4 * S + 5)
    assert judged(request(), request(10, Kind.INFO, completed=4 * S), late).verdict is Verdict.VALID
    unsure = op(11, Act.ANSWER, Kind.INFO)
    assert judged(request(), request(10, Kind.INFO, completed=4 * S), unsure).verdict is Verdict.VALID


def test_what_the_harness_slept_through_is_nobodys_delay() -> None:
    ops = request(), request(10, Kind.INFO, completed=7 * S)
    assert judged(*ops).verdict is Verdict.INVALID
    slept = Beat(3 * S), Beat(3 * S + S // 10), Beat(6 * S), Beat(6 * S + S // 10)
    assert judged(*ops, beats=slept).verdict is Verdict.VALID


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [request(0, Kind.INFO)],
        [request(), request(10, Kind.INFO), request(20, Kind.INFO)],
        [request(), request(10, Kind.INFO, completed=UNKNOWN)],
    ],
    ids=["none was made", "none was replied to", "too few were", "one has no end"],
)
def test_what_proves_nothing_is_unknown(ops: list[Op]) -> None:
    assert judged(*ops).verdict is Verdict.UNKNOWN


def test_requests_within_faults_alone_prove_nothing() -> None:
    assert judged(request(), faults=(Fault(0, "kill-leader", "", "", 0, S),)).verdict is Verdict.UNKNOWN


def test_a_run_without_requests_is_skipped() -> None:
    assert check_replies([op(0, Act.SEND)], (), (), RAFT, asked=False).verdict is Verdict.SKIPPED
