"""broker/metadata/committers.py: which commits of an offset come too late, by whom and from when they are."""

import pytest

from broker.deadlines import Came
from broker.metadata.committers import ADMINISTRATOR, ANYBODY, Committer, Committers, DoubtfulCommit

PLACE = ("T@g", 0)


class Connection:
    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.closed = False


def name_of(client: Committer) -> str | None:
    return client.name if isinstance(client, Connection) else None


def direct(at: float) -> Came:
    return Came(at, at)


def passed(earliest: float, latest: float | None = None) -> Came:
    return Came(earliest, earliest if latest is None else latest, passed=True)


@pytest.fixture
def committers() -> Committers:
    made = Committers()
    made.join(name_of, lambda: 100.0)
    return made


def late(committers: Committers, client: Committer | None, came: Came | None, *, back: bool = True) -> bool | None:
    """Whether it is ignored; None when it is refused."""
    try:
        return committers.is_late(PLACE, client, came, back=back)
    except DoubtfulCommit:
        return None


def test_A16_what_was_passed_on_late_does_not_go_back_behind_what_its_client_committed_since(
    committers: Committers,
) -> None:
    client = Connection("c")
    committers.note(PLACE, client, direct(10))
    assert late(committers, client, passed(9, 9.9)) is True, "surely older: superseded"
    assert late(committers, client, passed(9, 10.5)) is None, "it may be older: nobody is told that it counts"
    assert late(committers, client, passed(10.1, 10.5)) is False, "a seek"
    assert late(committers, ANYBODY, passed(9, 9.9)) is True
    assert late(committers, ADMINISTRATOR, passed(9, 9.9)) is True
    assert late(committers, ANYBODY, passed(10.1)) is False


def test_A16_who_went_back_is_not_sent_forward_again_by_what_he_committed_before(committers: Committers) -> None:
    client, other = Connection("c"), Connection("d")
    committers.note(PLACE, client, direct(10))
    assert late(committers, client, passed(9, 9.9), back=False) is True
    assert late(committers, client, passed(9, 10.5), back=False) is False
    assert late(committers, other, passed(9, 9.9), back=False) is False, "he has consumed that"


def test_A16_a_client_is_the_same_on_each_of_its_connections(committers: Committers) -> None:
    committers.note(PLACE, Connection("c"), direct(10))
    assert late(committers, Connection("c"), direct(11)) is False
    assert late(committers, Connection("d"), direct(11)) is True, "it lost the queue"
    assert late(committers, Connection("d"), passed(11)) is True
    assert late(committers, Connection("d"), direct(11), back=False) is False


def test_A16_of_a_connection_without_heartbeats_it_is_not_known_whose_it_is(committers: Committers) -> None:
    unknown = Connection()
    committers.note(PLACE, unknown, direct(10))
    assert late(committers, Connection("c"), passed(11)) is False, "it may be his"
    assert late(committers, Connection("c"), direct(11)) is True
    unknown.closed = True
    assert late(committers, Connection("c"), direct(11)) is False


def test_what_comes_from_a_member_of_unknown_clock_is_taken_as_before(committers: Committers) -> None:
    client = Connection("c")
    committers.note(PLACE, client, direct(10))
    assert late(committers, client, None) is False
    assert late(committers, ANYBODY, None) is False
    committers.note(PLACE, ANYBODY, None)
    assert late(committers, client, passed(101)) is False
    assert late(committers, client, passed(99)) is None, "the one before came until 100"


def test_an_administrator_changes_the_time_and_not_whose_the_queue_is(committers: Committers) -> None:
    client = Connection("c")
    committers.note(PLACE, client, direct(10))
    committers.note(PLACE, ADMINISTRATOR, direct(20))
    assert late(committers, client, passed(15), back=False) is True, "what the administrator set holds"
    assert late(committers, Connection("d"), direct(21)) is True
    assert late(committers, client, direct(21)) is False


def test_nothing_that_was_sent_before_a_reset_counts(committers: Committers) -> None:
    committers.reset(PLACE)
    for back in (True, False):
        assert late(committers, Connection("c"), passed(99, 99.5), back=back) is True
        assert late(committers, Connection("c"), direct(101), back=back) is False


def test_A16_what_was_on_its_way_when_a_lead_began_takes_no_offset_back(committers: Committers) -> None:
    """Its client may have lost the queue since, to one that committed at the leader before."""
    committers.led()
    client = Connection("c")
    assert late(committers, client, passed(99, 99.5)) is None
    assert late(committers, client, passed(99, 101)) is None, "nobody knows"
    assert late(committers, client, passed(99, 99.5), back=False) is False
    assert late(committers, client, passed(100, 101)) is False, "a seek"
    assert late(committers, client, direct(99)) is False, "it asked this member"
    committers.note(PLACE, client, direct(101))
    assert late(committers, client, passed(102, 103)) is False


def test_alone_a_broker_needs_no_clock() -> None:
    committers = Committers()
    one, other = Connection(), Connection()
    committers.note(PLACE, one, None)
    assert late(committers, other, None) is True
    assert late(committers, one, None) is False
    committers.reset(PLACE)
    assert late(committers, other, None) is False
    committers.note(PLACE, None, None)
    committers.note(PLACE, ADMINISTRATOR, None)
    assert late(committers, other, None) is False
    committers.note(PLACE, one, None)
    committers.keep({"T@g"})
    assert late(committers, other, None) is True
    committers.keep({"T@h"})
    assert late(committers, other, None) is False
