from typing import Any

import pytest

from pipeline.history.results import Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.plain.check_groups import check_a16, check_a17, check_a19, check_a20
from tests.parts.little_history import Little, S


def commit(little: Little, began: int, ended: int, value: int, kind: Kind = Kind.OK, **fields: Any) -> None:
    little.op(Act.COMMIT, began, ended, kind, value=value, group="g", **fields)


def query(little: Little, began: int, value: int, **fields: Any) -> None:
    little.op(Act.QUERY, began, began + 2, value=value, group="g", **fields)


@pytest.mark.parametrize(
    ("value", "wanted"), [(7, Verdict.VALID), (9, Verdict.VALID), (3, Verdict.INVALID), (UNKNOWN, Verdict.INVALID)]
)
def test_a_committed_offset_stays(value: int, wanted: Verdict) -> None:
    little = Little()
    commit(little, 0, 5, 3)
    commit(little, 6, 9, 7)
    query(little, 10, value)
    assert check_a16(little.history()).verdict is wanted


@pytest.mark.parametrize(
    ("began", "ended", "kind"),
    [
        (1, UNKNOWN, Kind.INFO),  # of unknown end: may happen at any time
        (5, 8, Kind.OK),  # overlaps the greater one
        (11, 20, Kind.OK),  # overlaps the question
    ],
)
def test_another_commit_may_explain_a_smaller_offset(began: int, ended: int, kind: Kind) -> None:
    little = Little()
    commit(little, 6, 9, 7)
    commit(little, began, ended, 3, kind)
    query(little, 10, 3)
    assert check_a16(little.history()).verdict is Verdict.VALID


def test_a_refused_commit_explains_nothing_a_reset_does() -> None:
    little = Little()
    commit(little, 0, 5, 7)
    commit(little, 6, 8, 3, Kind.FAIL)
    query(little, 10, 3)
    assert check_a16(little.history()).verdict is Verdict.INVALID
    little.op(Act.RESET, 6, 8, value=3, group="g")
    assert check_a16(little.history()).verdict is Verdict.VALID


def test_followers_may_lag_and_classic_modes_may_forget() -> None:
    little = Little()
    commit(little, 0, 5, 7)
    query(little, 10, 3, address="n1", leader="n0")
    assert check_a16(little.history()).verdict is Verdict.VALID
    query(little, 20, 3)
    little.promises = Little(offsets_kept=False).promises
    found = check_a16(little.history())
    assert (found.verdict, found.count) == (Verdict.INFO, 1)


def test_created_topics_and_groups_stay() -> None:
    little = Little()
    little.op(Act.CREATE_TOPIC, 0, 5, topic="new", queue=UNKNOWN)
    little.op(Act.CREATE_GROUP, 0, 5, Kind.INFO, topic="", group="late", queue=UNKNOWN)
    little.op(Act.SEEN_TOPIC, 4, 9, topic="new", queue=UNKNOWN, value=0)
    little.op(Act.SEEN_TOPIC, 6, 9, topic="", group="late", queue=UNKNOWN, value=0)
    assert check_a16(little.history()).verdict is Verdict.VALID
    little.op(Act.SEEN_TOPIC, 6, 9, topic="new", queue=UNKNOWN, value=0)
    assert check_a16(little.history()).witnesses[0]["topic"] == "new"


def consumed(**promises: object) -> Little:
    """Two messages, of which the group was given the second, and committed behind it."""
    little = Little(**{"consumer_groups": ("g",), **promises})
    little.send(0, 0, 5, 0)
    little.send(1, 6, 9, 1)
    little.poll(10, 1, [(1, 1)], group="g")
    commit(little, 20, 21, 2)
    little.scan(100, [(0, 0), (1, 1)], 2)
    return little


def test_nothing_lies_undelivered_behind_the_offset() -> None:
    little = consumed()
    assert [one["offset"] for one in check_a17(little.history()).witnesses] == [0]
    little.poll(15, 0, [(0, 0)], group="g", topic="%RETRY%g")
    assert check_a17(little.history()).verdict is Verdict.VALID


def test_delivery_to_another_group_does_not_count() -> None:
    little = consumed()
    little.poll(15, 0, [(0, 0)], group="h")
    assert check_a17(little.history()).verdict is Verdict.INVALID


def test_what_lies_before_a_reset_is_excused_and_what_is_not_promised_too() -> None:
    little = consumed()
    little.op(Act.RESET, 6, 8, value=1, group="g")
    assert check_a17(little.history()).verdict is Verdict.VALID
    assert check_a17(consumed(consumer_groups=()).history()).verdict is Verdict.SKIPPED


def test_an_answer_that_was_cut_off_from_its_recorder_may_have_brought_it() -> None:
    little = consumed()
    little.op(Act.POLL, 7, UNKNOWN, Kind.INFO, group="g", offset=0, error="RequestTimeout")
    assert check_a17(little.history()).verdict is Verdict.INVALID
    little.op(Act.POLL, 7, UNKNOWN, Kind.INFO, group="g", offset=0)
    assert check_a17(little.history()).verdict is Verdict.UNKNOWN


def test_a_group_without_recorded_polls_cannot_be_judged() -> None:
    little = Little(consumer_groups=("g",))
    little.send(0, 0, 5, 0)
    commit(little, 20, 21, 1)
    assert check_a17(little.history()).verdict is Verdict.UNKNOWN


def holding(*, second_at: int, unlocked: bool = False, orderly: bool = True) -> Verdict:
    little = Little(orderly_groups=("g",) if orderly else (), lock_ttl_s=60.0)
    little.op(Act.LOCK, 0, 10, process=1, group="g")
    if unlocked:
        little.op(Act.UNLOCK, 20, 21, process=1, group="g")
    little.op(Act.POLL, 50, 51, process=1, group="g", offset=0, value=0)
    little.op(Act.LOCK, second_at, second_at + 5, process=2, group="g")
    return check_a19(little.history()).verdict


def test_holds_overlap_only_as_far_as_they_show() -> None:
    assert holding(second_at=30) is Verdict.INVALID
    assert holding(second_at=60) is Verdict.VALID
    assert holding(second_at=30, unlocked=True) is Verdict.VALID
    assert holding(second_at=30, orderly=False) is Verdict.INFO
    assert check_a19(Little().history()).verdict is Verdict.SKIPPED


def test_a_lock_ends_by_itself() -> None:
    little = Little(orderly_groups=("g",), lock_ttl_s=1.0)
    little.op(Act.LOCK, 0, 10, process=1, group="g")
    little.op(Act.LOCK, 2 * S, 2 * S + 5, process=2, group="g")
    little.op(Act.POLL, 3 * S, 3 * S + 1, process=1, group="g", offset=0, value=0)
    assert check_a19(little.history()).verdict is Verdict.VALID


def test_early_delivery_is_judged_by_the_time_of_the_answer() -> None:
    assert check_a20(Little().history()).verdict is Verdict.SKIPPED
    for read_at, wanted in ((S, Verdict.INVALID), (3 * S - S // 100, Verdict.VALID), (3 * S, Verdict.VALID)):
        little = Little(clock_bound_s=0.05)
        little.send(0, 0, 5, 9, delay_until=3 * S)
        little.poll(read_at, 0, [(0, 0)])
        assert check_a20(little.history()).verdict is wanted
