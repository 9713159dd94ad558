import pytest

from pipeline.history.results import Verdict
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind
from pipeline.plain.check_loss import check_a1, check_a2, check_a3, check_a13
from pipeline.plain.evidence import History
from tests.parts.little_history import Little


def sent(*offsets: int, **promises: object) -> Little:
    little = Little(**promises)
    for offset in offsets:
        little.send(offset, 10 * offset, 10 * offset + 5, offset)
    return little


def verdicts(history: History) -> dict[str, Verdict]:
    return {one.check: one.verdict for one in (check(history) for check in (check_a1, check_a2, check_a3, check_a13))}


def test_what_a_scan_brings_is_not_lost() -> None:
    little = sent(0, 1)
    little.scan(100, [(0, 0), (1, 1)], 2)
    assert set(verdicts(little.history()).values()) == {Verdict.VALID}


@pytest.mark.parametrize(
    ("rows", "end", "lost", "where"),
    [
        ([(1, 1), (2, 2)], 3, 0, "before the first"),
        ([(0, 0), (2, 2)], 3, 1, "in the middle"),
        ([(0, 0), (1, 1)], 3, 2, "behind the last"),
        ([(0, 0), (1, 1)], 2, 2, "behind the end"),
    ],
)
def test_lost_before_between_and_behind(rows: list[tuple[int, int]], end: int, lost: int, where: str) -> None:
    little = sent(0, 1, 2)
    little.scan(100, rows, end)
    found = check_a1(little.history())
    assert found.verdict is Verdict.INVALID
    assert [(one["offset"], one["where"]) for one in found.witnesses] == [(lost, where)]


def test_the_end_that_a_follower_tells_proves_no_loss() -> None:
    little = sent(0, 1)
    little.scan(100, [(0, 0)], 1, address="n1")
    assert verdicts(little.history()) == {
        "A1": Verdict.VALID, "A2": Verdict.VALID, "A3": Verdict.UNKNOWN, "A13": Verdict.VALID
    }  # fmt: skip


def test_an_end_that_was_asked_for_before_the_acknowledgement_proves_no_loss() -> None:
    little = sent(0, 1)
    little.scan(12, [(0, 0)], 1)
    assert check_a1(little.history()).verdict is Verdict.VALID
    assert check_a3(little.history()).verdict is Verdict.UNKNOWN


def test_without_any_scan_what_nobody_read_is_unknown() -> None:
    assert verdicts(sent(0).history())["A3"] is Verdict.UNKNOWN


def test_the_replicas_log_accounts_for_what_no_scan_reached() -> None:
    little = sent(0)
    little.hold(0, 0)
    assert set(verdicts(little.history()).values()) == {Verdict.VALID}


def test_what_no_replica_holds_is_lost_if_all_were_read() -> None:
    little = sent(0, 1)
    little.hold(0, 0)
    assert [one["offset"] for one in check_a1(little.history()).witnesses] == [1]
    little.complete = False
    assert check_a1(little.history()).verdict is Verdict.VALID
    assert check_a3(little.history()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("kind", [Kind.INFO, Kind.FAIL])
def test_what_was_not_acknowledged_cannot_be_lost(kind: Kind) -> None:
    little = Little()
    little.send(0, 0, 5, kind=kind)
    little.scan(100, [], 0)
    assert set(verdicts(little.history()).values()) == {Verdict.VALID}


def test_another_attempt_of_the_message_keeps_it() -> None:
    little = Little()
    little.send(0, 0, 5, kind=Kind.INFO)
    little.send(0, 6, 9, 1, attempt=1)
    little.scan(100, [(0, 0)], 2)
    assert check_a1(little.history()).verdict is Verdict.VALID


def test_what_may_be_lost_is_only_counted() -> None:
    little = sent(0, 1, may_lose_acknowledged=True)
    little.scan(100, [(0, 0)], 1)
    assert check_a1(little.history()).verdict is Verdict.INVALID, "a healthy cluster loses nothing"
    little.faults.append(Fault(0, "kill", "n0", "leader", 50, 60, "gone"))
    found = check_a1(little.history())
    assert (found.verdict, found.count) == (Verdict.INFO, 1)


@pytest.mark.parametrize(("name", "wanted"), [("kill", Verdict.INVALID), ("power-all", Verdict.INFO)])
def test_loss_after_power_loss_only(name: str, wanted: Verdict) -> None:
    little = sent(0, 1, may_lose_after_power_loss=True)
    little.scan(100, [(0, 0)], 1)
    little.faults.append(Fault(0, name, "n0", "leader", 50, 60, "gone"))
    assert check_a1(little.history()).verdict is wanted


def test_what_was_removed_by_age_is_not_lost() -> None:
    little = sent(0, 1, 2, retention=True)
    little.op(Act.MIN, 90, 91, value=2)
    little.scan(100, [(2, 2)], 3)
    assert set(verdicts(little.history()).values()) == {Verdict.VALID}


def test_without_retention_an_empty_beginning_is_loss() -> None:
    little = sent(0, 1, 2)
    little.op(Act.MIN, 90, 91, value=2)
    little.scan(100, [(2, 2)], 3)
    assert check_a1(little.history()).count == 2
    assert check_a13(little.history()).witnesses[0]["missing"] == 2


def test_a_delayed_message_is_lost_only_when_it_is_long_due() -> None:
    for asked, wanted in ((100, Verdict.VALID), (5 * 10**9, Verdict.INVALID)):
        little = Little(delay_bound_s=1.0)
        little.send(0, 0, 5, 77, delay_until=50)
        little.scan(asked, [], 0)
        assert check_a1(little.history()).verdict is wanted
        assert check_a3(little.history()).verdict is (Verdict.UNKNOWN if wanted is Verdict.VALID else Verdict.VALID)


def test_passed_over_needs_an_answer_that_went_past_it() -> None:
    little = sent(0, 1, 2)
    little.poll(100, 0, [(0, 0), (2, 2)])
    assert [one["offset"] for one in check_a2(little.history()).witnesses] == [1]
    little.poll(110, 1, [(1, 1)])
    assert check_a2(little.history()).verdict is Verdict.VALID


def test_a_reader_that_began_later_passed_nothing_over() -> None:
    little = sent(0, 1, 2)
    little.poll(100, 2, [(2, 2)])
    assert check_a2(little.history()).verdict is Verdict.VALID
    assert check_a3(little.history()).count == 2


def test_a_send_of_unknown_end_that_is_held_must_not_be_passed_over() -> None:
    little = sent(0, 2)
    little.send(1, 30, UNKNOWN, kind=Kind.INFO)
    little.poll(100, 0, [(0, 0), (2, 2)])
    assert check_a2(little.history()).verdict is Verdict.VALID
    little.hold(1, 1)
    assert check_a2(little.history()).verdict is Verdict.INVALID


def test_holes_are_counted_per_stretch_and_only_where_a_scan_went() -> None:
    little = sent(0, 5)
    little.scan(100, [(0, 0), (5, 5)], 8)
    found = check_a13(little.history())
    assert [(one["offset"], one["missing"]) for one in found.witnesses] == [(1, 4), (6, 2)]
    little.promises = Little(dense_offsets=False).promises
    assert check_a13(little.history()).verdict is Verdict.INFO
