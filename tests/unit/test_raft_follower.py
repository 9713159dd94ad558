"""The follower's append path: what is skipped, cut, refused, and what is said about it."""

from collections.abc import Sequence

import pytest

from raft.core.follower import Follower, newest_not_above
from raft.protocol.messages import RaftMessage, append
from raft.protocol.types import Entry, EntryType, Mark
from tests.parts.raft_memory_log import MemoryLog


def log_of(*terms: int, durable: int = 0, base: Mark | None = None) -> MemoryLog:
    log = MemoryLog(base)
    for term in terms:
        log.append(EntryType.MESSAGES, term, b"m", 0)
    log.durable = max(durable, log.base.index)
    return log


def follower_of(log: MemoryLog, term: int = 9) -> Follower:
    follower = Follower(log)
    follower.follow("n1", term)
    return follower


def taken(
    follower: Follower,
    prev: tuple[int, int],
    entries: Sequence[Entry] = (),
    *,
    seq: int = 1,
    told: int = 0,
    own: int = 0,
) -> RaftMessage:
    """The answer to an append of term 9 that tells the commit index `told`; `own` is the follower's.

    Of one that waits for the disk: what it would be now.
    """
    answer = follower.append(append(9, seq, prev, told, entries), own)
    assert (answer is None) == follower.owes
    if follower.owes:
        answer = follower._answer(follower._seq, None)
    assert answer is not None
    return answer


def test_entries_that_are_present_are_skipped_and_nothing_is_cut() -> None:
    leader, log = log_of(1, 1, 2, 2), log_of(1, 1, 2, 2)
    follower = follower_of(log)
    answer = taken(follower, (0, 0), leader.read(1, 0)[:1])
    assert (log.cuts, log.last.index) == ([], 4)
    assert (answer.fields["ok"], answer.fields["match"]) == (True, 1)


def test_a_delayed_append_does_not_take_back_what_came_after_it() -> None:
    leader, log = log_of(9, 9, 9), log_of()
    follower = follower_of(log)
    entries = leader.read(1, 1000)
    taken(follower, (0, 0), entries, seq=2)
    answer = taken(follower, (0, 0), entries[:1], seq=1)
    assert log.last.index == 3
    assert answer.fields["match"] == 3


def test_the_first_entry_that_differs_is_cut_with_all_behind_it() -> None:
    leader, log = log_of(1, 1, 5, 5), log_of(1, 1, 2, 2, 2)
    answer = taken(follower_of(log), (1, 1), leader.read(2, 1000))
    assert log.cuts == [2]
    assert [row[0].term for row in log.rows] == [1, 1, 5, 5]
    assert (answer.fields["match"], answer.fields["durable"]) == (4, 0)


def test_nothing_committed_is_ever_cut() -> None:
    leader, log = log_of(1, 5), log_of(1, 2)
    with pytest.raises(AssertionError, match="up to 2 are committed"):
        follower_of(log).append(append(9, 1, (0, 0), 0, leader.read(1, 1000)), 2)
    assert log.cuts == []


def test_what_was_verified_in_a_term_cannot_differ_in_it() -> None:
    log = log_of(1, 2)
    follower = follower_of(log)
    taken(follower, (2, 2))
    with pytest.raises(AssertionError, match="was verified in this term"):
        follower.append(append(9, 2, (0, 0), 0, log_of(1, 5).read(1, 1000)), 0)


def test_R5_match_and_durable_are_told_apart_and_the_second_follows_when_it_moves() -> None:
    log = log_of()
    follower = follower_of(log)
    answer = taken(follower, (0, 0), log_of(9, 9).read(1, 1000), seq=7)
    assert (answer.fields["match"], answer.fields["durable"], answer.fields["seq"]) == (2, 0, 7)
    assert follower.owes
    assert follower.acknowledge() is None
    log.sync()
    later = follower.acknowledge()
    assert later is not None
    assert (later.fields["durable"], later.fields["seq"], later.fields["term"]) == (2, 7, 9)
    assert follower.acknowledge() is None


def test_commit_is_the_smallest_of_told_verified_and_durable() -> None:
    log = log_of(1, 1, 1, 1, durable=4)
    follower = follower_of(log)
    taken(follower, (2, 1), told=9)
    assert follower.committed() == 2
    taken(follower, (4, 1), seq=2, told=3)
    assert follower.committed() == 4
    log.durable = 1
    assert follower.committed() == 1


def test_another_leader_or_term_begins_with_nothing_verified() -> None:
    log = log_of(1, 1, durable=2)
    follower = follower_of(log)
    taken(follower, (2, 1), told=2)
    follower.follow("n2", 10)
    assert (follower.verified, follower.committed(), follower.ackable()) == (0, 0, 0)
    assert follower.acknowledge() is None


@pytest.mark.parametrize(
    ("own", "prev", "hint"),
    [
        ((1, 1), (5, 4), (2, 1)),
        ((1, 2, 2, 2), (4, 3), (4, 2)),
        ((1, 1, 4, 4, 4), (5, 2), (2, 1)),
        ((5, 5), (2, 3), (0, 0)),
    ],
)
def test_a_refusal_says_where_to_go_on_a_whole_term_at_a_time(
    own: tuple[int, ...], prev: tuple[int, int], hint: tuple[int, int]
) -> None:
    answer = taken(follower_of(log_of(*own)), prev)
    assert not answer.fields["ok"]
    assert (answer.fields["hint_index"], answer.fields["hint_term"]) == hint
    assert (answer.fields["match"], answer.fields["durable"]) == (0, 0)


def test_entries_up_to_the_base_are_stepped_over() -> None:
    leader, log = log_of(1, 1, 1, 1), log_of(1, 1, 1)
    log.forget(3)
    answer = taken(follower_of(log), (1, 1), leader.read(2, 1000))
    assert answer.fields["match"] == 4
    assert log.last.index == 4


def test_entries_that_the_log_refuses_get_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of(1)
    odd = Entry(2, 9, 4000, bytes([EntryType.MESSAGES]))
    follower = follower_of(log)
    assert follower.append(append(9, 1, (1, 1), 0, [odd]), 0) is None
    assert follower.verified == 0
    assert "refused" in caplog.text


def test_an_older_term_is_answered_with_the_present_one() -> None:
    answer = follower_of(log_of(1)).refusal(12, 4)
    assert (answer.fields["term"], answer.fields["seq"], answer.fields["ok"]) == (12, 4, False)


def test_newest_not_above_agrees_with_looking_at_every_entry() -> None:
    log = log_of(1, 1, 3, 3, 7)
    for index in range(8):
        for term in range(9):
            fits = [at for at in range(min(index, 5) + 1) if (log.term(at) or 0) <= term]
            assert newest_not_above(log, index, term) == max(fits)


def damaged(log: MemoryLog, first: int, last: int) -> Follower:
    """A follower whose entries from `first` to `last` cannot be read."""
    log.whole, log.damaged = False, (first, last)
    log.durable = log.last.index
    return follower_of(log)


def told(
    follower: Follower, prev: tuple[int, int], entries: Sequence[Entry] = (), seq: int = 1
) -> tuple[bool, int, int]:
    fields = follower.append_damaged(append(9, seq, prev, 0, entries), 0).fields
    return fields["ok"], fields["match"], fields["hint_index"]


def test_R4_what_contradicts_the_entries_in_front_of_a_hole_ends_it() -> None:
    leader, log = log_of(1, 1, 5, 5, 5, 5, 5, 5), log_of(1, 1, 2, 2, 2, 2, 2)
    follower = damaged(log, 5, 6)
    # The leader looks for where the logs part, from behind this one's end on.
    assert told(follower, (8, 5)) == (False, 0, 7)
    assert told(follower, (7, 5)) == (False, 0, 4)
    assert told(follower, (2, 1)) == (True, 2, 0)
    assert log.cuts == []
    assert told(follower, (2, 1), leader.read(3, 1000))[0] is False
    assert log.cuts == [2]


def test_R4_where_the_logs_part_is_found_over_terms_that_only_the_leader_has() -> None:
    leader, log = log_of(1, 1, 2, 2, 2, 5), log_of(1, 1, 4, 4, 4, 4, 4)
    follower = damaged(log, 5, 6)
    # Of its entries those of terms up to this one's last are no nearer than the hole.
    assert told(follower, (5, 2)) == (False, 0, 2)
    assert told(follower, (2, 1))[:2] == (True, 2)
    told(follower, (2, 1), leader.read(3, 1000))
    assert log.cuts == [2]


def test_R4_a_first_entry_behind_the_base_may_be_contradicted_too() -> None:
    leader, log = log_of(5, 5), log_of(2, 2, 2, 2)
    follower = damaged(log, 3, 3)
    assert told(follower, (0, 0)) == (True, 0, 0)
    told(follower, (0, 0), leader.read(1, 1000))
    assert log.cuts == [0]


def test_R4_entries_in_front_of_a_hole_that_match_cut_nothing_and_end_no_repair() -> None:
    leader, log = log_of(1, 1, 2, 2, 2, 2, 2), log_of(1, 1, 2, 2, 2, 2, 2)
    follower = damaged(log, 5, 6)
    # What was on its way, and what asks for the hole itself or behind it: nothing is taken that the repair must bring.
    assert told(follower, (2, 1), leader.read(3, 1000)) == (False, 0, 7)
    assert told(follower, (0, 0), leader.read(1, 1000)) == (False, 0, 7)
    for prev, hint in ((4, 4), (7, 7), (9, 7)):
        assert told(follower, (prev, 2)) == (False, 0, hint)
        assert told(follower, (prev, 2), leader.read(5, 1000)) == (False, 0, hint)
    assert (log.cuts, log.last.index, follower.verified) == ([], 7, 4)


def test_R4_what_is_committed_in_front_of_a_hole_is_never_cut() -> None:
    leader, log = log_of(1, 1, 5), log_of(1, 1, 2, 2, 2)
    follower = damaged(log, 4, 4)
    with pytest.raises(AssertionError, match="up to 3 are committed"):
        follower.append_damaged(append(9, 1, (1, 1), 0, leader.read(2, 1000)), 3)
    assert log.cuts == []
