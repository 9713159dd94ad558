from typing import Any

import pytest

from pipeline.history.results import Verdict
from pipeline.history.rows import Act, Kind
from pipeline.plain.check_copies import check_a4, check_a5, check_a6, check_a7, check_a8, check_a9
from tests.parts.little_history import Little


def test_what_is_read_as_it_was_sent_is_right() -> None:
    little = Little()
    little.send(0, 0, 5, 0, position=50)
    little.poll(10, 0, [(0, 0)])
    little.hold(0, 0)
    for check in (check_a4, check_a5, check_a6, check_a8, check_a9):
        assert check(little.history()).verdict is Verdict.VALID


def test_phantoms() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    little.send(1, 90, 95, 1)
    little.poll(10, 0, [(0, 8)])
    little.poll(20, 0, [(0, 0)], digest=8)
    little.poll(30, 0, [(0, 0)], queue=3)
    little.poll(40, 1, [(1, 1)])
    little.poll(50, 0, [(0, 0)], attempt=4)
    why = [one["why"] for one in check_a4(little.history()).witnesses]
    assert why == ["never sent", "another body", "sent to another queue", "before it was sent", "never sent"]


def test_a_read_that_overlaps_its_send_is_no_phantom() -> None:
    little = Little()
    little.send(0, 10, 50, 0)
    little.poll(10, 0, [(0, 0)])
    assert check_a4(little.history()).verdict is Verdict.VALID


def test_copies_in_retry_topics_are_no_phantoms() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    little.poll(10, 0, [(0, 0)], topic="%RETRY%g")
    assert check_a4(little.history()).verdict is Verdict.VALID
    assert check_a6(little.history()).verdict is Verdict.VALID


@pytest.mark.parametrize("kind", [Kind.FAIL, Kind.INFO])
def test_only_what_was_refused_must_not_be_there(kind: Kind) -> None:
    little = Little()
    little.send(0, 0, 5, kind=kind)
    little.send(0, 6, 9, 1, attempt=1)
    little.poll(10, 1, [(1, 0)], attempt=1)
    assert check_a5(little.history()).verdict is Verdict.VALID
    little.hold(0, 0)
    assert check_a5(little.history()).verdict is (Verdict.INVALID if kind is Kind.FAIL else Verdict.VALID)


def test_an_attempt_twice_is_wrong_a_second_attempt_is_counted() -> None:
    little = Little()
    little.send(0, 0, 5, kind=Kind.INFO)
    little.send(0, 6, 9, 1, attempt=1)
    little.poll(10, 0, [(0, 0)])
    little.poll(12, 1, [(1, 0)], attempt=1)
    found = check_a6(little.history())
    assert (found.verdict, found.count) == (Verdict.INFO, 1)
    little.promises = Little(duplicates="never").promises
    assert check_a6(little.history()).verdict is Verdict.INVALID
    little.promises = Little().promises
    little.poll(14, 2, [(2, 0)])
    assert check_a6(little.history()).verdict is Verdict.INVALID
    little.promises = Little(duplicates="any").promises
    assert check_a6(little.history()).verdict is Verdict.INFO


def test_reading_one_place_often_is_no_duplicate_but_a_redelivery() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    for at in (10, 20, 30):
        little.poll(at, 0, [(0, 0)], group="g")
    little.scan(40, [(0, 0)], 1)
    assert check_a6(little.history()).verdict is Verdict.VALID
    found = check_a7(little.history())
    assert (found.verdict, found.count, found.witnesses[0]["times"]) == (Verdict.INFO, 1, 3)


def test_two_messages_at_one_offset() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    little.send(1, 0, 5, 0)
    assert check_a8(little.history()).witnesses[0]["messages"] == [[1, 0], [1, 1]]


def test_what_a_lost_master_showed_is_counted_only_where_nobody_promised_it() -> None:
    little = Little(stable_reads=False)
    little.send(0, 0, 5, 0)
    little.send(1, 0, 5, 0)
    found = check_a8(little.history())
    assert (found.verdict, found.count) == (Verdict.INFO, 1)


def test_offsets_told_for_delayed_messages_are_another_queues() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    little.send(1, 0, 5, 0, delay_until=50)
    little.poll(100, 1, [(1, 1)])
    assert check_a8(little.history()).verdict is Verdict.VALID
    assert check_a9(little.history()).verdict is Verdict.VALID


def test_queues_of_broker_groups_are_told_apart_only_where_there_are_several() -> None:
    for members, wanted in (({}, Verdict.INVALID), ({"a": ("n0",), "b": ("n1",)}, Verdict.VALID)):
        little = Little(group_members=members)
        little.send(0, 0, 5, 0, broker="a")
        little.send(1, 0, 5, 0, broker="b")
        assert check_a8(little.history()).verdict is wanted


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"offset": 1}, "at another offset"),
        ({"position": 51}, "at another position"),
        ({"term": 3}, "of another term"),
        ({"attempt": 1}, "another attempt there"),
    ],
)
def test_acknowledgements_that_do_not_tell_the_truth(told: dict[str, Any], why: str) -> None:
    little = Little()
    little.send(0, 0, 5, **{"offset": 0, "position": 50, "term": 2, **told})
    little.hold(0, 0, term=2)
    assert [one["why"] for one in check_a9(little.history()).witnesses] == [why]


def test_what_an_acknowledgement_did_not_tell_is_not_compared() -> None:
    little = Little()
    little.send(0, 0, 5, 0)
    little.hold(0, 0, term=2)
    little.op(Act.MAX, 6, 7, value=1)
    assert check_a9(little.history()).verdict is Verdict.VALID
