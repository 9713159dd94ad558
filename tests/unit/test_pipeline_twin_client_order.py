import itertools
import random
from typing import Any

import pytest

from pipeline.history.results import Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind, Look
from pipeline.plain.check_order import (
    check_a10,
    check_a11,
    check_a12,
    check_a14,
    check_a15,
    check_a22,
    check_a23,
)
from pipeline.plain.evidence import NEVER, History, ended
from tests.parts.little_history import Little

LEADS: dict[str, Any] = {"address": "n0", "leader": "n0"}


def test_a_process_keeps_its_order_within_a_queue() -> None:
    little = Little()
    little.send(0, 0, 5, 3, process=1)
    little.send(1, 5, 9, 2, process=1, queue=1)
    little.send(2, 10, 15, 4, process=1)
    assert check_a10(little.history()).verdict is Verdict.VALID
    little.send(3, 20, 25, 4, process=1)
    assert check_a10(little.history()).witnesses[0]["offsets"] == [4, 4]


def test_real_time_order_binds_what_had_ended() -> None:
    for began, wanted in ((5, Verdict.VALID), (6, Verdict.INVALID)):
        little = Little()
        little.send(0, 0, 5, 1)
        little.send(1, began, 9, 0)
        assert check_a11(little.history()).verdict is wanted


def test_positions_order_all_queues_of_a_group() -> None:
    little = Little()
    little.send(0, 0, 5, 0, position=200)
    little.send(1, 6, 9, 0, queue=1, position=100)
    found = check_a11(little.history())
    assert found.witnesses[0]["positions"] == [200, 100]
    little.promises = Little(real_time_order=False).promises
    assert check_a11(little.history()).verdict is Verdict.INFO


def test_a_send_of_unknown_end_ended_when_it_was_first_read() -> None:
    little = Little()
    little.send(0, 0, UNKNOWN, kind=Kind.INFO)
    little.hold(1, 0)
    little.send(1, 50, 60, 0)
    assert check_a11(little.history()).verdict is Verdict.VALID
    little.poll(40, 1, [(1, 0)])
    assert check_a11(little.history()).verdict is Verdict.INVALID


def test_a_send_of_unknown_end_stands_behind_what_had_ended_before_it() -> None:
    little = Little()
    little.send(0, 0, 5, 1)
    little.send(1, 50, UNKNOWN, kind=Kind.INFO)
    little.hold(0, 1)
    assert check_a11(little.history()).verdict is Verdict.INVALID


def slow_a11(history: History) -> set[int]:
    """Which sends stand before one that had ended before them: every pair is compared."""
    pairs = itertools.permutations(history.acknowledged, 2)
    return {b.op for a, b in pairs if a.offset > b.offset and ended(a) < b.invoked and ended(a) != NEVER}


@pytest.mark.parametrize("seed", range(60))
def test_one_pass_finds_what_all_pairs_find(seed: int) -> None:
    rng = random.Random(seed)
    little = Little()
    for counter in range(12):
        began = rng.randrange(60)
        little.send(counter, began, began + rng.randrange(1, 25), rng.randrange(12))
    history = little.history()
    assert {one["ops"][1] for one in check_a11(history).witnesses} == slow_a11(history)


@pytest.mark.parametrize(
    ("offset", "rows", "value", "good"),
    [
        (0, [0, 1, 2], 3, True),
        (5, [], 5, True),
        (9, [], 5, True),  # asked beyond the end: sent back
        (0, [], 4, False),  # nothing was removed
        (0, [0, 2], 3, False),
        (0, [1, 0], 2, False),
        (0, [1, 2], 3, False),
        (2, [1, 2], 3, False),
        (0, [0, 1], 5, False),
        (0, [0, 1], 1, False),
    ],
)
def test_an_answer_is_a_stretch(offset: int, rows: list[int], value: int, good: bool) -> None:
    little = Little()
    little.poll(0, offset, [(at, at) for at in rows], value=value)
    assert check_a12(little.history()).verdict is (Verdict.VALID if good else Verdict.INVALID)


def test_after_removal_an_answer_may_begin_later() -> None:
    little = Little(retention=True)
    little.poll(0, 0, [(4, 4)])
    little.poll(10, 0, [], value=4)
    assert check_a12(little.history()).verdict is Verdict.VALID


def test_jumps_between_polls_are_judged_where_sessions_are() -> None:
    for judged, wanted in ((False, Verdict.VALID), (True, Verdict.INVALID)):
        little = Little(sessions_judged=judged)
        little.poll(0, 0, [(0, 0)], process=1, group="g")
        little.poll(10, 5, [(5, 5)], process=1, group="g")
        found = check_a12(little.history())
        assert (found.verdict, found.text[:1]) == (wanted, "1")


def test_a_query_begins_a_new_session() -> None:
    little = Little(sessions_judged=True)
    little.poll(0, 0, [(0, 0)], process=1, group="g")
    little.op(Act.QUERY, 5, 6, process=1, group="g", value=0)
    little.poll(10, 0, [(0, 0)], process=1, group="g")
    assert check_a12(little.history()).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("asked", "end", "told", "wanted"),
    [
        (6, 0, LEADS, Verdict.INVALID),
        (6, 1, LEADS, Verdict.VALID),
        (5, 0, LEADS, Verdict.VALID),  # the acknowledgement was under way
        (6, 0, {"address": "n1", "leader": "n0"}, Verdict.UNKNOWN),  # a follower: nothing of the leader is known
    ],
)
def test_stale_reads(asked: int, end: int, told: dict[str, Any], wanted: Verdict) -> None:
    for act in (Act.MAX, Act.POLL):
        little = Little()
        little.send(0, 0, 5, 0)
        if act is Act.MAX:
            little.op(act, asked, asked + 1, value=end, **told)
        else:
            little.poll(asked, end, [], end=end, **told)
        assert check_a14(little.history()).verdict is wanted


def test_stale_reads_where_nobody_asked_or_nothing_is_promised() -> None:
    little = Little()
    assert check_a14(little.history()).verdict is Verdict.SKIPPED
    little = Little(linearizable_reads=False)
    little.send(0, 0, 5, 0)
    little.op(Act.MAX, 6, 7, value=0, **LEADS)
    found = check_a14(little.history())
    assert (found.verdict, found.count) == (Verdict.INFO, 1)


def test_a_single_replica_is_its_own_leader() -> None:
    little = Little(replicas=1, mode="single")
    little.send(0, 0, 5, 0)
    little.op(Act.MAX, 6, 7, value=0, address="n0")
    assert check_a14(little.history()).verdict is Verdict.INVALID


def test_an_end_that_goes_back() -> None:
    little = Little()
    little.op(Act.MAX, 0, 10, value=5, **LEADS)
    little.op(Act.MAX, 10, 12, value=4, **LEADS)
    assert check_a15(little.history()).verdict is Verdict.VALID, "they overlap"
    little.op(Act.MAX, 11, 13, value=4, address="n1", leader="n0")
    assert check_a15(little.history()).verdict is Verdict.VALID, "a follower may lag"
    little.scan(11, [], 3)
    found = check_a15(little.history())
    assert [(one["ops"], one["ends"]) for one in found.witnesses] == [([0, 3], [5, 3])]


def test_terms_of_acknowledgements_do_not_go_back() -> None:
    little = Little()
    assert check_a22(little.history()).verdict is Verdict.SKIPPED
    little.send(0, 0, 5, 0, term=2)
    little.send(1, 4, 9, 1, term=1)
    assert check_a22(little.history()).verdict is Verdict.VALID
    little.op(Act.COMMIT, 6, 8, term=1)
    assert check_a22(little.history()).witnesses[0]["ops"] == [0, 2]


def test_the_log_tells_the_term_of_a_send_that_was_told_none() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    little.hold(0, 0, term=2)
    little.send(1, 6, 9, 1)
    assert check_a22(little.history()).verdict is Verdict.VALID
    little.hold(1, 1, term=1)
    found = check_a22(little.history())
    assert (found.witnesses[0]["ops"], found.witnesses[0]["terms"]) == ([0, 1], [2, 1])


def test_the_log_tells_no_term_of_a_half_message() -> None:
    """What stands in the queue is the message of its commit, of whichever term that was."""
    for name, wanted in (("", Verdict.INVALID), ("t", Verdict.VALID)):
        little = Little()
        little.send(0, 0, 5, 0, transaction=name)
        little.hold(0, 0, term=3)
        little.send(1, 6, 9, 1)
        little.hold(1, 1, term=2)
        if name:
            little.send(2, 10, 11, 2)
            little.hold(2, 2, term=3)
        assert check_a22(little.history()).verdict is wanted


def test_a_term_has_one_leader_in_acknowledgements_and_looks() -> None:
    little = Little(group_members={"g": ("n0", "n1")})
    assert check_a23(little.history()).verdict is Verdict.SKIPPED
    little.send(0, 0, 5, 0, term=2, leader="n0")
    little.send(1, 6, 9, 1, term=3, leader="n1")
    little.looks = [Look(1, "n0", "leader", 4, "n0", 1, 1, 1, 1), Look(2, "n1", "follower", 4, "n0", 1, 1, 1, 1)]
    assert check_a23(little.history()).verdict is Verdict.VALID
    little.looks.append(Look(3, "n1", "leader", 4, "n1", 1, 1, 1, 1))
    little.send(2, 10, 12, 2, term=2, leader="n1")
    assert sorted(one["term"] for one in check_a23(little.history()).witnesses) == [2, 4]
