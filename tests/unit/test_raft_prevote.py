"""raft/core/prevote.py: who may stand, and who gets a vote."""

from typing import Any

import pytest

from raft.core.prevote import Ask, PreVote, Stance, may_grant, may_stand
from raft.protocol.config import GroupConfig, Member

ELECTION_S = 0.5
MEMBERS = tuple(Member(f"n{i}", f"h:{i + 1}", bytes([i]) * 16, i < 3) for i in range(4))
CONFIG = GroupConfig(b"G" * 16, MEMBERS)
STANCE = Stance(
    term=4, last_index=10, last_term=3, floor=8, whole=True, quiet_s=9.0, up_s=9.0, leads=False, config_index=1
)
ASK = Ask(term=5, last_index=10, last_term=3, config_index=1)


def refused(self_id: str = "n0", ask: Ask = ASK, config: GroupConfig | None = CONFIG, **changes: Any) -> str:
    return may_grant(STANCE._replace(**changes), config, self_id, ask, ELECTION_S) or ""


def test_a_member_that_has_heard_nobody_grants_to_one_that_is_not_behind() -> None:
    assert refused() == ""
    assert refused(ask=ASK._replace(last_index=11)) == ""
    assert refused(ask=ASK._replace(last_index=1, last_term=4)) == ""


def test_who_is_behind_gets_nothing() -> None:
    assert "ends at 9 of term 3" in refused(ask=ASK._replace(last_index=9))
    assert "ends at 99 of term 2" in refused(ask=ASK._replace(last_index=99, last_term=2))


def test_R1_without_a_CONFIG_nobody_votes_and_nobody_stands() -> None:
    assert "belongs to no group" in refused(config=None)
    assert "belongs to no group" in (may_stand(STANCE, None, "n0") or "")


def test_R2_a_group_that_has_ended_elects_nobody() -> None:
    ended = GroupConfig(b"G" * 16, MEMBERS[:1]).left()
    assert "has ended" in refused(config=ended)
    assert "has ended" in (may_stand(STANCE, ended, "n0") or "")


def test_R4_who_cannot_read_up_to_its_floor_neither_stands_nor_grants_to_anyone_behind_it() -> None:
    rotten: dict[str, Any] = {"whole": False, "last_index": 5, "floor": 12}
    assert "up to 12" in (may_stand(STANCE._replace(**rotten), CONFIG, "n0") or "")
    assert "has had up to 12 on disk" in refused(ask=ASK._replace(last_index=11), **rotten)
    assert refused(ask=ASK._replace(last_index=12), **rotten) == ""
    assert may_stand(STANCE, CONFIG, "n0") is None


def test_R7_votes_are_refused_within_the_shortest_timeout_of_the_leaders_last_append() -> None:
    assert "heard of 0.499 s ago" in refused(quiet_s=0.499)
    assert refused(quiet_s=0.5) == ""
    assert "leads term 4" in refused(leads=True)


def test_R7_a_started_member_grants_nothing_for_that_long() -> None:
    assert "started 0.100 s ago" in refused(up_s=0.1, quiet_s=float("inf"))
    assert "started 0.100 s ago" in refused(up_s=0.1, ask=ASK._replace(transfer=True))
    assert refused(up_s=0.5, quiet_s=float("inf")) == ""


def test_R7_whom_the_leader_told_to_stand_need_not_wait() -> None:
    ask = ASK._replace(transfer=True)
    assert refused(ask=ask, quiet_s=0.0) == ""
    assert refused(ask=ask, leads=True) == ""
    assert "ends at 9" in refused(ask=ask._replace(last_index=9), quiet_s=0.0)


def test_R9_learners_and_strangers_neither_stand_nor_vote() -> None:
    for name in ("n3", "n7"):
        assert "does not vote" in (may_stand(STANCE, CONFIG, name) or "")
        assert "does not vote" in refused(name)


def test_R9_a_learner_votes_for_who_knows_a_newer_list() -> None:
    assert refused("n3", ask=ASK._replace(config_index=2)) == ""
    assert "does not vote" in refused("n3", ask=ASK._replace(config_index=1))


def test_only_answers_of_the_newest_round_count() -> None:
    asked = PreVote()
    assert not asked.granted("n1", 0)
    assert not asked.won(CONFIG, "n0")
    first = asked.begin(5)
    second = asked.begin(6)
    assert (asked.round, asked.term, asked.running) == (second, 6, True)
    assert not asked.granted("n1", first)
    assert not asked.won(CONFIG, "n0")
    assert asked.granted("n1", second)
    assert asked.won(CONFIG, "n0")
    asked.cancel()
    assert not asked.running
    assert not asked.won(CONFIG, "n0")
    assert not asked.granted("n2", second)


def test_R9_each_voter_counts_once() -> None:
    five = GroupConfig(b"G" * 16, tuple(Member(f"n{i}", f"h:{i + 1}", bytes([i]) * 16) for i in range(5)))
    asked = PreVote()
    round_ = asked.begin(5)
    for name in ("n1", "n1", "n9", "n0"):
        assert asked.granted(name, round_)
    assert not asked.won(five, "n0")
    assert asked.granted("n4", round_)
    assert asked.won(five, "n0")


@pytest.mark.parametrize(("voters", "won"), [(1, True), (2, False), (3, False)])
def test_a_group_of_one_needs_nobody(voters: int, won: bool) -> None:
    asked = PreVote()
    asked.begin(1)
    config = GroupConfig(b"G" * 16, MEMBERS[:voters])
    assert asked.won(config, "n0") is won
