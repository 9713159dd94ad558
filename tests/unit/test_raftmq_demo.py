"""The demonstration's verdict: it must not say OK when it is not."""

from raftmq.demo import DemoOutcome, judge
from raftmq.flights import FlightRecords, Record

RECORDS = FlightRecords("letters", [Record("a", b"a"), Record("b", b"b"), Record("c", b"c")])


def verdict(acknowledged: set[int], received: dict[int, list[bytes]]) -> DemoOutcome:
    return judge(RECORDS, acknowledged, received, leaderless_s=0.5, seconds=2.0)


def test_all_came_back() -> None:
    found = verdict({0, 1, 2}, {0: [b"a"], 1: [b"b", b"b"], 2: [b"c"]})
    assert found.good
    assert (found.sent, found.acknowledged, found.consumed, found.lost, found.duplicates) == (3, 3, 3, 0, 1)
    assert "lost 0" in found.sentence()
    assert found.as_dict()["ok"] is True


def test_an_acknowledged_message_that_is_missing_is_lost() -> None:
    found = verdict({0, 1, 2}, {0: [b"a"], 2: [b"c"]})
    assert not found.good
    assert found.lost == 1
    assert found.sentence().startswith("FAILED")


def test_an_altered_message_fails_even_if_another_copy_is_right() -> None:
    found = verdict({0, 1, 2}, {0: [b"a"], 1: [b"b", b"B"], 2: [b"c"]})
    assert not found.good
    assert found.altered == 1


def test_a_message_that_was_never_acknowledged_fails_without_being_lost() -> None:
    found = verdict({0, 1}, {0: [b"a"], 1: [b"b"]})
    assert not found.good
    assert found.lost == 0
    assert "1 were not acknowledged" in found.sentence()
