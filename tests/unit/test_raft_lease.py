"""raft/core/lease.py: R7, a lease is as old as the question that a majority answered."""

import pytest

from raft.core.lease import ROUNDS_MAX, Lease
from raft.protocol.config import GroupConfig, Member
from runtime.clock import ManualClock

SPAN_S = 0.4


def group(voters: int, learners: int = 0) -> GroupConfig:
    count = range(voters + learners)
    return GroupConfig(b"G" * 16, tuple(Member(f"n{i}", f"h:{i + 1}", bytes([i]) * 16, i < voters) for i in count))


def leased(clock: ManualClock) -> Lease:
    lease = Lease(clock.monotonic, SPAN_S)
    lease.begin()
    return lease


def left(lease: Lease, clock: ManualClock, config: GroupConfig) -> float:
    """For how many seconds it lasts if nobody answers any more."""
    return lease._until(config, "n0") - clock.monotonic()


def test_R7_it_counts_from_the_sending_not_from_the_answer() -> None:
    clock = ManualClock()
    lease = leased(clock)
    lease.sent(1)
    clock.advance(0.3)
    lease.acked("n1", 1)
    assert lease.valid(group(3), "n0")
    assert left(lease, clock, group(3)) == pytest.approx(0.1)
    clock.advance(0.11)
    assert not lease.valid(group(3), "n0")


def test_R7_an_answer_that_waited_in_a_stopped_process_renews_nothing() -> None:
    clock = ManualClock()
    lease = leased(clock)
    lease.sent(1)
    clock.advance(10)
    lease.acked("n1", 1)
    lease.acked("n2", 1)
    assert not lease.valid(group(3), "n0")
    lease.sent(2)
    assert not lease.valid(group(3), "n0")
    lease.acked("n1", 2)
    assert lease.valid(group(3), "n0")


@pytest.mark.parametrize(("voters", "answers"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_R7_a_majority_must_have_answered(voters: int, answers: int) -> None:
    lease = leased(ManualClock())
    lease.sent(1)
    config = group(voters, learners=2)
    lease.acked(f"n{voters}", 1)
    lease.acked(f"n{voters + 1}", 1)
    for number in range(answers):
        assert not lease.valid(config, "n0")
        lease.acked(f"n{number + 1}", 1)
    assert lease.valid(config, "n0")


def test_R7_the_majority_is_of_one_moment_the_oldest_it_needs() -> None:
    clock = ManualClock()
    lease = leased(clock)
    for seq in (1, 2, 3):
        lease.sent(seq)
        lease.acked(f"n{seq}", seq)
        clock.advance(0.1)
    assert left(lease, clock, group(5)) == pytest.approx(0.2)
    assert left(lease, clock, group(3)) == pytest.approx(0.2)
    assert left(lease, clock, group(4)) == pytest.approx(0.2)


def test_answers_in_the_wrong_order_or_to_nothing_change_nothing() -> None:
    clock = ManualClock()
    lease = leased(clock)
    lease.sent(5)
    clock.advance(0.1)
    lease.sent(7)
    lease.acked("n1", 7)
    lease.acked("n1", 5)
    for unknown in (0, 6, 8):
        lease.acked("n2", unknown)
    assert left(lease, clock, group(3)) == pytest.approx(SPAN_S)
    assert not lease.valid(group(5), "n0")


def test_R7_who_hands_over_has_no_lease_again_in_its_term() -> None:
    lease = leased(ManualClock())
    lease.sent(1)
    lease.acked("n1", 1)
    lease.drop()
    assert not lease.valid(group(3), "n0")
    lease.sent(2)
    lease.acked("n1", 2)
    assert not lease.valid(group(3), "n0")
    assert not lease.valid(group(1), "n0")
    lease.begin()
    lease.acked("n1", 2)
    assert not lease.valid(group(3), "n0"), "an answer from before"
    lease.sent(3)
    lease.acked("n1", 3)
    assert lease.valid(group(3), "n0")


def test_a_follower_never_has_one() -> None:
    lease = Lease(ManualClock().monotonic, SPAN_S)
    lease.sent(1)
    lease.acked("n1", 1)
    assert not lease.valid(group(1), "n0")


def test_who_does_not_vote_does_not_count_itself() -> None:
    lease = leased(ManualClock())
    lease.sent(1)
    lease.acked("n1", 1)
    assert not lease.valid(group(3), "n9")
    lease.acked("n2", 1)
    assert lease.valid(group(3), "n9")


def test_what_is_remembered_has_a_limit() -> None:
    clock = ManualClock()
    lease = leased(clock)
    for seq in range(ROUNDS_MAX + 10):
        lease.sent(seq)
    assert len(lease._rounds) == ROUNDS_MAX
    lease.acked("n1", 9)
    assert not lease.valid(group(3), "n0"), "forgotten"
    lease.acked("n1", 10)
    assert lease.valid(group(3), "n0")
    clock.advance(1)
    lease.sent(ROUNDS_MAX + 10)
    assert len(lease._rounds) == 1


def test_sequences_rise() -> None:
    lease = leased(ManualClock())
    lease.sent(3)
    with pytest.raises(AssertionError, match="round 3 after 3"):
        lease.sent(3)
