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
    little = pulse(0, 0.4, 8.4, *range(9, 18))
    assert check_a25(little.history()).verdict is Verdict.INVALID, "nobody watched the harness"
    little.beats = beats((0, 0.5), (8.3, 18))
    found = check_a25(little.history())
    assert (found.verdict, found.text) == (Verdict.VALID, "the harness stood still for 7.8 s in all: cut out")
    little.beats = beats((0, 18))
    assert check_a25(little.history()).verdict is Verdict.INVALID, "it ran all the time"


@pytest.mark.parametrize(("last", "wanted"), [(16, Verdict.VALID), (15, Verdict.UNKNOWN)])
def test_where_stalls_leave_less_than_half_of_the_sends_time_nothing_is_known(last: int, wanted: Verdict) -> None:
    little = pulse(0, 0.4, 8.4, *range(9, last + 1))
    little.beats = beats((0, 0.5), (8.3, 18))
    found = check_a25(little.history())
    assert found.verdict is wanted
    if wanted is Verdict.UNKNOWN:
        said = "the group: too little is left to judge, as the harness stood still for 7.8 of 15.0 s"
        assert found.text == said
        little.faults = [fault(8.5, 8.6)]
        assert check_a25(little.history()).text == said, "a service that came back after a fault makes up for nothing"


def test_a_harness_that_hardly_ever_had_its_turn_makes_nothing_valid() -> None:
    little = pulse(*range(30))
    little.beats = [Beat(5 * number * S) for number in range(7)]
    assert check_a25(little.history()).verdict is Verdict.UNKNOWN
    little.beats = beats((-9, -8), (-1, 30))
    assert check_a25(little.history()).verdict is Verdict.VALID, "before the first send it may stand still"


def test_each_broker_group_needs_a_time_of_its_own_that_is_left() -> None:
    little = Little(group_members={"g": ("n0",), "h": ("m0",)})
    for second in range(20):
        little.send(second, second * S, second * S + 1, second, broker="g")
    little.send(90, 5 * S, 5 * S + 1, 0, broker="h")
    little.send(91, 9 * S, 9 * S + 1, 1, broker="h")
    little.beats = beats((0, 5.1), (7.9, 20))
    found = check_a25(little.history())
    said = "h: too little is left to judge, as the harness stood still for 2.8 of 4.0 s"
    assert (found.verdict, found.text) == (Verdict.UNKNOWN, said)


def test_a_stall_before_a_fault_moves_the_fault_with_all_that_comes_after_it() -> None:
    # Without the stall: acknowledged at 1 s, a fault from 2 to 3 s that is got over until 4 s, and nothing until 3 s.
    little = pulse(0, 1, 6.6, 7.4, 8.2, 9)
    little.faults = [fault(5.6, 6.6)]
    little.beats = beats((0, 1.4), (5.0, 9))
    assert check_a25(little.history()).verdict is Verdict.VALID
    # The fault is got over until 4 s of what is left, 7.6 s by the clock; half a second later is too late.
    little = pulse(0, 1, 5, 5.5, 8.1, 9)
    little.faults = [fault(5.6, 6.6)]
    little.beats = beats((0, 1.4), (5.0, 9))
    found = check_a25(little.history())
    assert (found.verdict, [one["why"] for one in found.witnesses]) == (Verdict.INVALID, ["after a fault"])
    assert found.witnesses[0]["seconds"] == 0.5


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
