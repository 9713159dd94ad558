import pytest

from pipeline.history.results import Verdict
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind
from pipeline.plain.check_service import check_a24, check_a25
from pipeline.plain.check_transactions import check_a18, check_a21
from tests.parts.little_history import Little, S


def halves(name: str, *counters: int, began: int = 0) -> Little:
    little = Little(delay_bound_s=0.0)
    for queue, counter in enumerate(counters):
        little.send(counter, began, began + 5, 77, queue=queue, transaction=name)
    return little


def reasons(little: Little) -> list[str]:
    return [one["why"] for one in check_a18(little.history()).witnesses]


def test_a_committed_transaction_is_visible_in_whole() -> None:
    little = halves("t", 0, 1)
    little.op(Act.END_COMMIT, 10, 20, transaction="t")
    little.scan(100, [(0, 0)], 1)
    little.scan(110, [(0, 1)], 1, queue=1)
    assert check_a18(little.history()).verdict is Verdict.VALID
    little.op(Act.CHECK, 15, 16, transaction="t")
    assert reasons(little) == []
    little.op(Act.CHECK, 21, 22, transaction="t")
    assert reasons(little) == ["asked for after its end"]


def test_transactions_that_show_too_early_or_too_much() -> None:
    little = halves("t", 0)
    little.poll(10, 0, [(0, 0)])
    assert reasons(little) == ["visible without a commit"]
    little.op(Act.END_COMMIT, 20, 25, transaction="t")
    assert reasons(little) == ["visible before its commit"]
    little.op(Act.END_ROLLBACK, 30, 35, transaction="t")
    assert reasons(little) == ["visible before its commit", "visible after its rollback", "committed and rolled back"]


def test_a_commit_of_unknown_end_may_show_and_may_not() -> None:
    little = halves("t", 0)
    little.op(Act.END_COMMIT, 10, UNKNOWN, Kind.INFO, transaction="t")
    assert reasons(little) == []
    little.poll(20, 0, [(0, 0)])
    assert reasons(little) == []


def test_committed_and_never_visible_needs_a_whole_scan() -> None:
    little = halves("t", 0)
    little.op(Act.END_COMMIT, 10, 20, transaction="t")
    assert reasons(little) == []
    little.scan(15, [], 0)
    assert reasons(little) == []
    little.scan(30, [], 0)
    assert reasons(little) == ["committed, and never visible"]


def test_torn() -> None:
    little = halves("t", 0, 1)
    little.op(Act.END_COMMIT, 10, UNKNOWN, Kind.INFO, transaction="t")
    little.scan(100, [(0, 0)], 1)
    assert reasons(little) == []
    little.scan(110, [], 0, queue=1)
    assert reasons(little) == ["visible in part"]


def test_no_transactions_and_open_ones() -> None:
    assert check_a18(Little().history()).verdict is Verdict.SKIPPED
    found = check_a18(halves("t", 0).history())
    assert (found.verdict, found.text) == (Verdict.VALID, "1 of 1 have no end")


@pytest.mark.parametrize(("isolated", "wanted"), [(True, Verdict.INVALID), (False, Verdict.INFO)])
def test_a_circle_over_two_queues(isolated: bool, wanted: Verdict) -> None:
    little = Little(isolated_transactions=isolated)
    for counter, name in enumerate(("a", "b", "c")):
        for queue in (0, 1):
            little.send(10 * queue + counter, 0, 5, 77, queue=queue, transaction=name)
    little.poll(10, 0, [(0, 0), (1, 1), (2, 2)])
    little.poll(20, 0, [(0, 10), (1, 11), (2, 12)], queue=1)
    assert check_a21(little.history()).count == 0
    little.poll(30, 3, [(3, 10)], queue=1)
    found = check_a21(little.history())
    assert (found.verdict, found.count) == (wanted, 1)
    assert found.witnesses[0]["transactions"] in (["a", "b", "c", "a"], ["a", "c", "a"])


def test_reading_one_another_is_a_circle() -> None:
    little = Little(isolated_transactions=True)
    little.send(0, 0, 5, 77, transaction="a")
    little.send(1, 0, 5, 77, queue=1, transaction="b")
    little.poll(10, 0, [(0, 0)], transaction="b")
    assert check_a21(little.history()).verdict is Verdict.VALID
    little.poll(10, 0, [(0, 1)], queue=1, transaction="a")
    assert check_a21(little.history()).witnesses[0]["transactions"] == ["a", "b", "a"]


def test_a_circle_of_many_needs_no_recursion() -> None:
    little = Little(isolated_transactions=True)
    for number in range(3000):
        little.send(number, 0, 5, 77, transaction=f"t{number:04}")
    little.poll(10, 0, [(number, number) for number in range(3000)])
    little.poll(20, 3000, [(3000, 0)])
    assert check_a21(little.history()).count == 1


def test_statuses_that_leave_the_fate_open_are_the_harness_error() -> None:
    little = Little()
    little.send(0, 0, 5, kind=Kind.INFO, error="12 FLUSH_SLAVE_TIMEOUT")
    assert check_a24(little.history()).verdict is Verdict.VALID
    little.send(1, 0, 5, 1, error="12 FLUSH_SLAVE_TIMEOUT")
    assert check_a24(little.history()).verdict is Verdict.UNKNOWN


def pulse(*times: float, **promises: object) -> Little:
    """Sends that are acknowledged at these seconds; between them one is refused every half second."""
    little = Little(**{"progress_bound_s": 3.0, **promises})
    for counter, (at, following) in enumerate(zip(times, [*times[1:], times[-1]], strict=True)):
        little.send(counter, int(at * S), int(at * S) + 1, counter)
        for half in range(int((following - at) * 2)):
            began = int((at + half / 2) * S) + 2
            little.send(1000 * counter + half + 100, began, began + 1, kind=Kind.FAIL)
    return little


def fault(began: float, ended: float, name: str = "kill") -> Fault:
    return Fault(0, name, "n0", "leader", int(began * S), int(ended * S), "gone")


def test_an_outage_needs_a_fault() -> None:
    assert check_a25(pulse(0, 0.9, 1.8).history()).verdict is Verdict.VALID
    found = check_a25(pulse(0, 5).history())
    assert (found.verdict, found.witnesses[0]["why"]) == (Verdict.INVALID, "without a fault")


@pytest.mark.parametrize(("back", "wanted"), [(4.9, Verdict.VALID), (5.5, Verdict.INVALID)])
def test_an_outage_ends_within_the_bound_after_its_fault(back: float, wanted: Verdict) -> None:
    little = pulse(0, 1, back)
    little.faults = [fault(1, 4)]
    assert check_a25(little.history()).verdict is wanted


def test_faults_that_must_be_survived_excuse_no_more_than_the_bound() -> None:
    for survives, wanted in (((), Verdict.VALID), (("kill",), Verdict.INVALID)):
        little = pulse(0, 1, 5, survives=survives)
        little.faults = [fault(1, 6)]
        little.send(99, 6 * S + S // 2, 6 * S + S // 2 + 1, 9)
        assert check_a25(little.history()).verdict is wanted


def beats(*spans: tuple[float, float]) -> list[Beat]:
    """A turn every tenth of a second in each span."""
    return [
        Beat(int((start + tenth / 10) * S)) for start, end in spans for tenth in range(round((end - start) * 10) + 1)
    ]


def test_a_time_in_which_the_harness_stood_still_is_no_outage() -> None:
    little = pulse(0, 0.4, 8.4, 8.8)
    assert check_a25(little.history()).verdict is Verdict.INVALID, "nobody watched the harness"
    little.beats = beats((0, 0.5), (8.3, 9))
    found = check_a25(little.history())
    assert (found.verdict, found.text) == (Verdict.VALID, "the harness stood still for 7.8 s in all: cut out")
    little.beats = beats((0, 9))
    assert check_a25(little.history()).verdict is Verdict.INVALID, "it ran all the time"


def test_what_is_left_of_an_outage_beside_a_stall_is_judged() -> None:
    little = pulse(0, 0.4, 8.4, 8.8)
    little.beats = beats((0, 1), (6, 9))
    found = check_a25(little.history())
    assert (found.verdict, found.witnesses[0]["seconds"]) == (Verdict.INVALID, 3.0)
    assert found.witnesses[0]["began"] < S


def test_a_stall_after_a_fault_does_not_count_as_time_to_recover() -> None:
    little = pulse(0, 1, 8)
    little.faults = [fault(1, 4)]
    assert check_a25(little.history()).verdict is Verdict.INVALID
    little.beats = beats((0, 4.2), (7.6, 9))
    assert check_a25(little.history()).verdict is Verdict.VALID
    little.beats = beats((0, 5.5), (6.8, 9))
    assert check_a25(little.history()).verdict is Verdict.INVALID, "the bound had passed before"


def test_nobody_who_asks_meets_no_outage() -> None:
    little = Little()
    little.send(0, 0, 1, 0)
    little.send(1, 50 * S, 50 * S + 1, 1)
    assert check_a25(little.history()).verdict is Verdict.VALID
    assert check_a25(Little().history()).verdict is Verdict.SKIPPED


def test_after_the_last_fault_somebody_must_have_asked_for_long_enough() -> None:
    little = pulse(0, 1)
    little.faults = [fault(1, 4)]
    assert check_a25(little.history()).verdict is Verdict.UNKNOWN, "nobody asked"
    little.send(90, 4 * S + 1, 5 * S, kind=Kind.INFO)
    assert check_a25(little.history()).verdict is Verdict.UNKNOWN, "not for long"
    little.send(91, 5 * S, 8 * S, kind=Kind.INFO)
    found = check_a25(little.history())
    assert found.verdict is Verdict.INVALID
    assert "no progress after the last fault" in [one["why"] for one in found.witnesses]
