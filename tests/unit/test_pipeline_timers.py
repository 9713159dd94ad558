"""What is told of timer messages: twice, late, and what nobody looked at."""

from typing import Any

import pytest

from pipeline.history.promises import Promises, promises_of
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Op, Read
from pipeline.history.timers import TOPIC, check_timers

S = 10**9
DUE = 10 * S
RAFT = Promises(timer_late_s=5.0, rto_bound_s=15.0)


class Run:
    """A history under construction: one timer message, due at DUE, whose send was acknowledged after 1 s."""

    def __init__(self) -> None:
        self.ops = [
            Op(0, 0, Act.SEND, Kind.OK, 0, S, TOPIC, 1, writer=1, counter=0, delay_until=DUE),
        ]
        self.reads: list[Read] = []

    def seen(self, at: int, offset: int, queue: int = 1, kind: Kind = Kind.OK) -> "Run":
        number = len(self.ops)
        self.ops.append(Op(number, number, Act.POLL, kind, at - 1, at, TOPIC, queue, offset=offset, value=offset + 1))
        self.reads.append(Read(number, TOPIC, queue, offset, 100 + offset, 1, 0, 0, 5))
        return self

    def end(self, at: int, value: int) -> "Run":
        number = len(self.ops)
        self.ops.append(Op(number, number, Act.MAX, Kind.OK, at, at + 1, TOPIC, 1, leader="l", value=value))
        return self

    def judged(self, *faults: Fault, promises: Promises = RAFT) -> Finding:
        return check_timers(self.ops, self.reads, faults, promises, asked=True)


def test_one_that_comes_in_time_is_valid() -> None:
    found = Run().end(DUE + S, 4).seen(DUE + 2 * S, 4).judged()
    assert (found.verdict, found.count) == (Verdict.VALID, 0)
    assert "1 timer messages, 1 seen (2.00 s after their time in the middle, 2.00 s at most)" in found.text
    assert found.text.endswith("1 fell due outside of faults, 1 of them were looked at")


def test_what_a_leader_did_not_have_in_time_was_late() -> None:
    found = Run().end(DUE + 6 * S, 4).seen(DUE + 7 * S, 4).judged()
    assert found.verdict is Verdict.INVALID
    assert found.witnesses[0] == {"ops": [0], "message": [1, 0], "why": "not there 6.0 s after it was due"}
    # It was there: the end is past it.
    assert Run().end(DUE + 6 * S, 5).seen(DUE + 4 * S, 4).judged().verdict is Verdict.VALID


@pytest.mark.parametrize("fault", [Fault(0, "kill-leader", "", "", 9 * S, 11 * S), Fault(0, "x", "", "", 2 * S)])
def test_nothing_is_late_within_the_reach_of_a_fault(fault: Fault) -> None:
    found = Run().end(DUE + 6 * S, 4).seen(DUE + 7 * S, 4).judged(fault)
    # Nor was anything looked at.
    assert (found.verdict, found.count) == (Verdict.UNKNOWN, 0)
    assert "0 fell due outside of faults" in found.text


def test_a_fault_that_is_long_over_excuses_nothing() -> None:
    over = Fault(0, "kill-leader", "", "", -20 * S, -10 * S)
    assert Run().end(DUE + 6 * S, 4).seen(DUE + 7 * S, 4).judged(over).verdict is Verdict.INVALID


def test_who_was_told_of_the_send_late_is_promised_no_more() -> None:
    run = Run().end(DUE + 6 * S, 4).seen(DUE + 8 * S, 4)
    run.ops[0] = run.ops[0]._replace(completed=DUE + 4 * S)
    assert run.judged().verdict is Verdict.VALID


@pytest.mark.parametrize(("queue", "offset"), [(1, 5), (2, 4)])
def test_two_places_are_one_too_many(queue: int, offset: int) -> None:
    found = Run().seen(DUE + S, 4).seen(DUE + 2 * S, offset, queue).judged()
    assert found.verdict is Verdict.INVALID
    assert found.witnesses[0]["why"] == "delivered twice"
    assert found.witnesses[0]["places"] == sorted([[1, 4], [queue, offset]])


def test_one_place_seen_by_many_is_one() -> None:
    assert Run().seen(DUE + S, 4).seen(DUE + 2 * S, 4).seen(DUE + 3 * S, 4).judged().verdict is Verdict.VALID


def test_what_a_mode_may_lose_it_may_deliver_again() -> None:
    single = promises_of("single", {}, timer_late_s=5.0, rto_bound_s=15.0)
    run, kill = Run().seen(DUE + S, 4).seen(DUE + 2 * S, 5), Fault(0, "kill-leader", "", "", 90 * S, 91 * S)
    assert run.judged(kill, promises=single).verdict is Verdict.VALID
    assert run.judged(promises=single).verdict is Verdict.INVALID


def test_what_nobody_looked_at_is_unknown() -> None:
    assert Run().judged().verdict is Verdict.UNKNOWN, "nobody saw it"
    assert Run().seen(DUE + 20 * S, 4).judged().verdict is Verdict.UNKNOWN, "nobody knows since when it was there"
    assert Run().seen(DUE + S, 4, kind=Kind.INFO).judged().verdict is Verdict.UNKNOWN, "an answer of unknown end"


@pytest.mark.parametrize(("asked", "verdict"), [(True, Verdict.UNKNOWN), (False, Verdict.SKIPPED)])
def test_a_run_without_timers(asked: bool, verdict: Verdict) -> None:
    refused: Any = Run().ops[0]._replace(kind=Kind.INFO, completed=UNKNOWN)
    assert check_timers([refused], [], [], RAFT, asked=asked).verdict is verdict
