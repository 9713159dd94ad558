from typing import Any

import pytest

from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Look
from pipeline.plain.check_liveness import check_a26
from tests.parts.little_history import TOPIC, Little, S

GROUP = "g"
BOUND = 5.0


def consumed(*moves: float, until: float | None = None, orderly: bool = False, **promises: Any) -> Little:
    """A message is sent every half second and acknowledged; at `moves` the group takes all that is there.

    Seconds. Sends, and the group's one consumer, go on until `until`; nothing is done before 0.
    """
    given = {"consumer_groups": (GROUP,), "orderly_groups": (GROUP,) if orderly else (), "orderly_bound_s": 10.0}
    little = Little(**{**given, "group_bound_s": BOUND, **promises})
    end = moves[-1] if until is None else until
    count = int(end * 2) + 1
    for number in range(count):
        little.send(number, number * S // 2, number * S // 2 + 1, number)
    taken = 0
    for at in moves:
        there = min(count, int(at * 2) + 1)
        little.poll(int(at * S) + 2, taken, [(one, one) for one in range(taken, there)], group=GROUP)
        taken = there
    return little


def life(little: Little, began: float, ended: float) -> None:
    little.op(Act.CONSUME, int(began * S), int(ended * S), group=GROUP, queue=UNKNOWN)


def judged(little: Little, *lives: tuple[float, float]) -> Finding:
    for began, ended in lives:
        life(little, began, ended)
    return check_a26(little.history())


def test_a_group_that_moves_on_in_time_is_well() -> None:
    found = judged(consumed(0, 4.8, 9.6), (0, 9.7))
    assert (found.check, found.verdict) == ("A26", Verdict.VALID)
    assert found.text == "watched for 9.7 of 9.7 s in which groups had consumers"


@pytest.mark.parametrize(("orderly", "quiet", "wanted"), [
    (False, 5.0, Verdict.VALID), (False, 6.0, Verdict.INVALID),
    (True, 9.5, Verdict.VALID), (True, 11.0, Verdict.INVALID),
])  # fmt: skip
def test_a_silence_is_too_long_by_the_bound_of_its_kind(orderly: bool, quiet: float, wanted: Verdict) -> None:
    found = judged(consumed(0, 1, 1 + quiet, orderly=orderly), (0, 30))
    assert found.verdict is wanted
    if wanted is Verdict.INVALID:
        kind = "an orderly group" if orderly else "a group"
        began = 1.5 * S + 1  # Of what came after the delivery, the first was acknowledged then.
        assert found.witnesses == ({
            "ops": [], "group": GROUP, "queue": ["", TOPIC, 0], "why": f"{kind} does not move on",
            "seconds": quiet - 0.5, "began": began, "ended": (1 + quiet) * S + 3,
        },)  # fmt: skip


def test_one_queue_that_stands_still_is_not_hidden_by_another() -> None:
    little = consumed(0, *range(1, 20))
    little.send(500, S, S + 1, 0, queue=1)
    found = judged(little, (0, 20))
    assert [one["queue"] for one in found.witnesses] == [["", TOPIC, 1]]


def test_what_comes_again_and_again_moves_nothing() -> None:
    little = consumed(0, 1, 9)
    for second in range(2, 9):
        little.poll(second * S, 0, [(0, 0), (1, 1)], group=GROUP)
    assert judged(little, (0, 10)).verdict is Verdict.INVALID


def test_nothing_due_is_no_silence() -> None:
    little = consumed(0, 1)
    little.send(90, 60 * S, 60 * S + 1, 3)
    little.poll(61 * S, 3, [(3, 90)], group=GROUP)
    assert judged(little, (0, 62)).verdict is Verdict.VALID


def test_what_a_retry_topic_or_another_queue_brought_is_not_due_any_more() -> None:
    little = consumed(0, 1, 2)
    little.send(90, 0, 1, 0, queue=1)
    little.poll(2 * S, 0, [(0, 90)], topic="%RETRY%g", group=GROUP)
    assert judged(little, (0, 30)).verdict is Verdict.VALID


def never_read(**promises: Any) -> Little:
    """One queue moves on; what stands in another is never read."""
    little = consumed(*range(20), **promises)
    little.send(500, S, S + 1, 5, queue=1)
    assert judged(little, (0, 20)).verdict is Verdict.INVALID
    return little


def test_what_was_reset_past_or_removed_is_not_due() -> None:
    little = never_read()
    little.op(Act.RESET, 2 * S, 2 * S + 1, group=GROUP, queue=1, value=6)
    assert check_a26(little.history()).verdict is Verdict.VALID
    little = never_read(retention=True)
    little.op(Act.MIN, 40 * S, 40 * S + 1, queue=1, value=6)
    assert check_a26(little.history()).verdict is Verdict.VALID


def test_without_a_living_consumer_nothing_has_to_move() -> None:
    # One dies, or is held up, at 2 s; the next one begins, or goes on, at 18 s.
    assert judged(consumed(0, 1, 20), (0, 2), (18, 21)).verdict is Verdict.VALID
    assert judged(consumed(0, 1, 20), (0, 2), (4, 21)).verdict is Verdict.INVALID
    assert judged(consumed(0, 1, 20), (0, 2), (1.5, 9)).verdict is Verdict.INVALID, "another one lived on"


def test_who_never_gets_a_queue_lives_all_the_same() -> None:
    found = judged(consumed(0, 1, until=20), (0, 20))
    assert (found.verdict, found.witnesses[0]["ended"]) == (Verdict.INVALID, 20 * S)


def fault(began: float, ended: float, name: str = "kill") -> Fault:
    return Fault(0, name, "n0", "leader", int(began * S), int(ended * S), "gone")


def test_a_fault_and_the_time_to_get_over_it_are_excused() -> None:
    # rto_bound_s is 1: from 11 s on the group has its own time again.
    for back, wanted in ((15.5, Verdict.VALID), (17, Verdict.INVALID)):
        little = consumed(0, 1, back)
        little.faults = [fault(1.2, 10)]
        assert judged(little, (0, 30)).verdict is wanted


def test_a_fault_that_is_survived_excuses_its_begin_and_its_end() -> None:
    little = consumed(0, 1, 9, survives=("kill",))
    little.faults = [fault(1.2, 12)]
    little.poll(13 * S, 30, [], group=GROUP)
    assert judged(little, (0, 14)).verdict is Verdict.INVALID
    little = consumed(0, 1, 9)
    little.faults = [fault(1.2, 12)]
    assert judged(little, (0, 9.5)).verdict is Verdict.VALID


def test_a_time_in_which_the_harness_stood_still_is_no_silence() -> None:
    little = consumed(0, 1, 9, 11, 13)
    assert judged(little, (0, 13)).verdict is Verdict.INVALID, "nobody watched the harness"
    little.beats = [Beat(tenth * S // 10) for tenth in (*range(15), *range(75, 130))]
    found = check_a26(little.history())
    assert found.verdict is Verdict.VALID
    assert found.text == (
        "watched for 6.9 of 6.9 s in which groups had consumers; the harness stood still for 6.1 s in all: cut out"
    )


def test_where_stalls_leave_less_than_half_of_its_consumers_lives_a_group_is_unknown() -> None:
    little = consumed(0, 1, 9, 11)
    little.beats = [Beat(tenth * S // 10) for tenth in (*range(15), *range(75, 130))]
    said = f"{GROUP}: too little is left to judge, as the harness stood still for 6.1 of 11.0 s"
    assert why(little, (0, 11)) == (Verdict.UNKNOWN, said)
    little = consumed(0, 1, 9, 11)
    little.beats = [Beat(tenth * S // 10) for tenth in (*range(15), *range(75, 130))]
    assert judged(little, (7.5, 11)).verdict is Verdict.VALID, "its only consumer lived behind the stall"


def test_a_stall_before_a_fault_moves_the_fault_with_it() -> None:
    # The stall lasts from 1.4 to 7.5 s: without it the fault lasts from 4.9 to 5.9 s and is got over until 6.9 s.
    for back, wanted in ((17.5, Verdict.VALID), (18.5, Verdict.INVALID)):
        little = consumed(0, 1, 10.8, back, 20)
        little.faults = [fault(11, 12)]
        little.beats = [Beat(tenth * S // 10) for tenth in (*range(15), *range(75, 200))]
        assert judged(little, (0, 20)).verdict is wanted


def test_what_the_harness_asks_in_the_end_is_no_consumer_and_no_move() -> None:
    little = consumed(0, 1, until=2)
    little.scan(3 * S, [(0, 0)], 5)
    little.poll(40 * S, 3, [(3, 3), (4, 4)], group=GROUP)
    assert judged(little).verdict is Verdict.VALID, "nobody noted a life: the consumer asked for a second"


def test_a_history_without_lives_is_judged_by_who_asks() -> None:
    little = consumed(0, 1, 9)
    assert judged(little).verdict is Verdict.VALID, "nobody asked meanwhile"
    for second in range(2, 9):
        little.op(Act.LOCK, second * S, second * S + 1, Kind.FAIL, group=GROUP)
    assert judged(little).verdict is Verdict.INVALID


def why(little: Little, *lives: tuple[float, float]) -> tuple[Verdict, str]:
    found = judged(little, *lives)
    return found.verdict, found.text


def test_what_was_promised_and_not_looked_at_is_unknown() -> None:
    assert judged(consumed(0, 1, consumer_groups=()), (0, 2)).verdict is Verdict.SKIPPED
    assert judged(Little(consumer_groups=(GROUP,)), (0, 2)).verdict is Verdict.SKIPPED, "nothing was sent"
    little = consumed(0, 1, consumer_groups=(GROUP, "h"))
    assert why(little, (0, 2)) == (Verdict.UNKNOWN, "h: no consumer lived")
    quiet = Little(consumer_groups=(GROUP,))
    quiet.send(0, 50 * S, 50 * S + 1, 0)
    assert why(quiet, (0, 2)) == (Verdict.UNKNOWN, f"{GROUP}: nothing was due to it")
    assert why(consumed(until=3), (0, 3)) == (Verdict.UNKNOWN, f"{GROUP}: nothing came to it")
    little = consumed(0, 1, 2)
    little.faults = [fault(0, 3)]
    assert why(little, (0, 2)) == (Verdict.UNKNOWN, f"{GROUP}: its consumers lived in faults' reach only")
    cut_off = consumed(0, 1)
    cut_off.op(Act.CONSUME, 0, UNKNOWN, Kind.INFO, group=GROUP)
    assert why(cut_off) == (Verdict.UNKNOWN, f"{GROUP}: no consumer lived")


def test_after_the_last_fault_something_must_have_come() -> None:
    little = consumed(0, 1, until=6)
    little.faults = [fault(2, 3)]
    verdict, text = why(little, (0, 6))
    assert (verdict, "after the last fault" in text) == (Verdict.UNKNOWN, True)
    little.poll(4 * S, 3, [(3, 3)], group=GROUP)
    assert check_a26(little.history()).verdict is Verdict.VALID
    late = consumed(0, 1, until=12)
    late.faults = [fault(2, 3)]
    assert judged(late, (0, 12)).verdict is Verdict.INVALID


def test_a_load_that_ends_within_a_silence_proves_nothing_of_that_queue() -> None:
    # A queue may be silent for 5 s: with more than half of that in the end, it may be so for good.
    assert judged(consumed(0, 1, 2, until=4), (0, 4)).verdict is Verdict.VALID
    said = f"{GROUP}: nothing came of queue 0 of {TOPIC} in the end, and the load was over too soon"
    assert why(consumed(0, 1, 2, until=6.5), (0, 6.5)) == (Verdict.UNKNOWN, said)
    assert judged(consumed(0, 1, 2, until=7.6), (0, 7.6)).verdict is Verdict.INVALID
    never = consumed(0, 1, 2)
    never.send(500, 0, 1, 0, queue=1)
    said = f"{GROUP}: nothing came of queue 1 of {TOPIC}, and it was not watched for long enough"
    assert why(never, (0, 2.5)) == (Verdict.UNKNOWN, said), "without a fault, too"


def test_whoever_locks_has_the_time_anew_with_each_new_leader() -> None:
    for orderly, term, wanted in (
        (True, 2, Verdict.VALID), (True, 1, Verdict.INVALID), (False, 2, Verdict.INVALID),
    ):  # fmt: skip
        little = consumed(0, 1, 17, orderly=orderly)
        looks = [(0, 1), (8, 1), (8, term), (9, term)]
        little.looks = [Look(at * S, "n0", "leader", term, "n0", 1, 1, 1, 1) for at, term in looks]
        assert judged(little, (0, 18)).verdict is wanted
    little = consumed(0, 1, 20, orderly=True)
    little.looks = [Look(8 * S, "n0", "leader", 2, "n0", 1, 1, 1, 1)]
    assert judged(little, (0, 21)).verdict is Verdict.INVALID, "it has had all of its time since"


def test_where_messages_may_be_lost_it_is_counted() -> None:
    little = consumed(0, 1, until=20, may_lose_acknowledged=True)
    little.faults = [fault(0.2, 0.4)]
    found = judged(little, (0, 20))
    assert (found.verdict, found.count) == (Verdict.INFO, 1)


CALM: dict[str, Any] = {"orderly": True, "orderly_bound_s": 40.0, "orderly_calm_s": 5.0, "lock_left_s": 10.0}


def led(at: float, term: int) -> Look:
    return Look(int(at * S), "n0", "leader", term, "n0", 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("looks", "back", "wanted"),
    [
        ((), 6, Verdict.VALID),
        ((), 7, Verdict.INVALID),
        # Who led before anybody consumed has found no lock.
        ((led(-1, 1),), 7, Verdict.INVALID),
        # Of who came to lead at 2 s the locks that were found have run out at 12 s.
        ((led(-1, 1), led(2, 2)), 16.5, Verdict.VALID),
        ((led(-1, 1), led(2, 2)), 17.5, Verdict.INVALID),
    ],
)
def test_whoever_locks_moves_on_soon_when_no_lock_can_be_in_the_way(
    looks: tuple[Look, ...], back: float, wanted: Verdict
) -> None:
    little = consumed(0, 1, back, **CALM)
    little.looks = list(looks)
    assert judged(little, (0, 30)).verdict is wanted


@pytest.mark.parametrize(("back", "wanted"), [(17.5, Verdict.VALID), (19, Verdict.INVALID)])
def test_a_fault_may_leave_a_lock_where_nobody_is_seen_to_lead_anew(back: float, wanted: Verdict) -> None:
    """A broker without a group that was killed and comes back: it finds the locks in its file."""
    little = consumed(0, 1, back, **CALM)
    little.faults = [fault(1.2, 3)]
    assert judged(little, (0, 30)).verdict is wanted


@pytest.mark.parametrize(
    ("faults", "looks", "back", "wanted"),
    [
        # The stall lasts from 1.4 to 7.5 s. Locks may be left until 10 s after the fault's end, with it or without.
        ((fault(9, 10),), (), 24.5, Verdict.VALID),
        ((fault(9, 10),), (), 25.5, Verdict.INVALID),
        # The same of a new leader, who came 9 s by the clock after the begin.
        ((), (led(-1, 1), led(9, 2)), 23.5, Verdict.VALID),
        ((), (led(-1, 1), led(9, 2)), 24.5, Verdict.INVALID),
    ],
)
def test_a_stall_before_a_fault_or_a_new_leader_moves_the_locks_that_may_be_left(
    faults: tuple[Fault, ...], looks: tuple[Look, ...], back: float, wanted: Verdict
) -> None:
    little = consumed(0, 1, 8.8, back, back + 1, **CALM)
    little.faults, little.looks = list(faults), list(looks)
    little.beats = [Beat(tenth * S // 10) for tenth in (*range(15), *range(75, 270))]
    assert judged(little, (0, back + 1)).verdict is wanted
