"""Core and what RaftNode builds on it: the rules, each with the accident it prevents, in groups in one process."""

from itertools import pairwise

import pytest

from raft.protocol.config import GroupConfig
from raft.protocol.messages import MessageKind, RaftMessage, append
from raft.protocol.types import Entry, EntryType, Fate, Mark, Refusal, Role
from runtime.clock import ManualClock
from tests.parts.raft_memory_log import Group, MemoryLog


def ask(group: Group, source: str, target: str, *, transfer: bool = False, term: int | None = None) -> bool:
    """Whether a member gives its vote to another whose log is as good as its own."""
    last = group[target].log.last
    fields = {"term": term or group[target].node.term + 1, "last_index": last.index, "last_term": last.term}
    group.seen.clear()
    group[target].node.receive(source, RaftMessage(MessageKind.VOTE, fields | {"config": 1, "transfer": transfer}))
    return any(to == source and said.fields["granted"] for _, to, said in group.kinds(MessageKind.VOTE_REPLY))


# -- R1: the beginning


def test_R1_empty_members_wait_until_all_are_there() -> None:
    group = Group(link=False)
    group["n0"].node.connected("n1", group["n1"].hello())
    group["n1"].node.connected("n0", group["n0"].hello())
    group.run(5)
    assert [machine.node.config for machine in group.machines.values()] == [None, None, None]
    assert {machine.node.term for machine in group.machines.values()} == {0}
    group.link()
    group.elect()
    assert len({m.node.config.group_id for m in group.machines.values() if m.node.config is not None}) == 1


def test_R1_a_member_without_a_config_entry_gives_no_vote() -> None:
    group = Group(link=False)
    group["n0"].node.connected("n1", group["n1"].hello())
    group.run(1)
    assert not ask(group, "n1", "n0", term=5)
    assert group["n0"].votes.term == 0


def test_R1_a_store_with_messages_begins_alone_and_the_others_learn() -> None:
    group = Group(logs={"n1": MemoryLog(Mark(0, 0, 4096, 99))})
    leader = group.elect()
    assert leader.name == "n1"
    config = leader.node.config
    assert config is not None
    assert (config.voters, config.learners) == (("n1",), ("n0", "n2"))
    assert (config.base_position, config.base_digest) == (4096, 99)


def test_R1_the_first_entry_is_durable_before_anybody_is_offered_it() -> None:
    group = Group()
    group["n0"].auto_sync = False
    group.run(2)
    assert group["n0"].log.last.index == 1
    assert group.kinds(MessageKind.ADOPT) == []


def test_R1_the_first_entry_is_taken_only_by_who_is_listed_with_its_disk() -> None:
    group = Group()
    group["n1"].store_id = b"another disk....".ljust(16)
    group.link(["n1"])
    group["n1"].store_id = b"n1".ljust(16, b"-")  # what its vote file says
    group.run(2)
    answers = [said.fields["ok"] for source, _, said in group.kinds(MessageKind.ADOPT_REPLY) if source == "n1"]
    assert answers[:1] == [False]
    assert ask(group, "n0", "n1") is False


def test_R1_a_store_that_holds_messages_takes_no_entries_of_others() -> None:
    group = Group(1)
    group.elect()
    stranger = group.add("n3", MemoryLog(Mark(0, 0, 50, 1)))
    entry = Entry(1, 1, 0, bytes([EntryType.NOOP]))
    stranger.node.receive("n0", append(1, 1, (0, 0), 0, [entry]))
    adopt = RaftMessage(MessageKind.ADOPT, {"group_id": b"g" * 16, "entries": [[1, 1, 0, 1]]}, (entry.data,))
    stranger.node.receive("n0", adopt)
    assert stranger.log.rows == []
    assert stranger.node.config is None


# -- R4, R5, R6: the disk


def test_R4_who_cannot_read_up_to_its_floor_neither_stands_nor_votes_for_who_is_behind_it() -> None:
    group = Group()
    group.elect("n0")
    log = group["n2"].log
    log.whole, log.damaged, log.floor = False, (2, 2), log.last.index + 1
    group.cut_links |= {("n2", "n0"), ("n2", "n1")}
    group.kill("n0")
    group.run(2)
    assert "cannot read" in group["n2"].node.status()["held_back"]
    assert not ask(group, "n1", "n2")


def test_R4_what_this_disk_lost_comes_back_from_a_peer() -> None:
    group = Group()
    group.elect("n0")
    log = group["n2"].log
    log.whole, log.damaged = False, (1, 2)
    group.propose("n0")
    group.run(2)
    assert [log.whole, log.damaged] == [True, None]
    assert group.logs_equal()


def test_R5_a_started_member_votes_only_when_what_it_read_is_synced() -> None:
    group = Group()
    group.elect("n0")
    machine = group["n1"]
    machine.auto_sync = False
    machine.log.durable = 1
    machine.restart()
    group.link(["n1"])
    group.kill("n0")
    group.clock.advance(2)
    assert not ask(group, "n2", "n1")
    machine.sync()
    assert ask(group, "n2", "n1")


def test_R6_a_member_with_another_disk_gets_no_vote_and_its_votes_and_acks_do_not_count() -> None:
    group = Group()
    leader = group.elect("n0")
    group["n2"].store_id = b"an empty disk...".ljust(16)
    group.link(["n2"])
    group.clock.advance(2)
    assert not ask(group, "n2", "n1")
    group.cut("n1")
    group.propose("n0")
    group.run(0.2)
    assert group.fates == []
    assert leader.node.commit_index < leader.log.last.index


# -- R7: lease, quiet times, transfer


def test_R7_the_lease_ends_when_nobody_answers_and_is_asked_at_the_moment() -> None:
    group = Group()
    leader = group.elect("n0")
    group.run(0.2)
    assert leader.node.has_lease()
    group.clock.advance(0.45)
    assert (leader.node.serving, leader.node.has_lease()) == (True, False)


def test_R7_answers_that_waited_in_a_stopped_process_are_not_fresh() -> None:
    group = Group()
    leader = group.elect("n0")
    group.cut("n1", "n2")
    group.run(0.1)
    late = group.seen[-8:]
    group.clock.advance(1.2)
    for source, target, message in late:
        if target == "n0":
            leader.node.receive(source, message)
    assert not leader.node.has_lease()


@pytest.mark.parametrize(("quiet", "granted"), [(0.4, False), (0.6, True)])
def test_R7_no_vote_within_the_shortest_timeout_of_the_leaders_last_append(quiet: float, granted: bool) -> None:
    group = Group()
    group.elect("n0")
    group.run(0.01)
    group["n0"].node.tick()
    group.cut("n0")
    appended = group.clock.monotonic()
    group["n1"].node.receive("n0", append(group["n0"].node.term, 9999, (0, 0), 0, []))
    group.clock.advance(quiet - (group.clock.monotonic() - appended))
    assert ask(group, "n2", "n1") is granted


def test_R7_a_started_member_grants_nothing_for_the_shortest_timeout_not_even_for_a_transfer() -> None:
    group = Group()
    group.elect("n0")
    group["n1"].restart()
    group.link(["n1"])
    group.clock.advance(0.4)
    assert not ask(group, "n2", "n1", transfer=True)
    group.clock.advance(0.2)
    assert ask(group, "n2", "n1")


def test_R7_a_transfer_stops_proposing_and_drops_the_lease_before_the_other_is_told() -> None:
    group = Group()
    leader = group.elect("n0")
    group["n1"].auto_sync = False
    group.propose("n0")
    group.run(0.1)
    group.seen.clear()
    assert leader.node.transfer("n1") is None
    assert leader.node.transfer("n1") is Refusal.TRANSFERRING
    assert group.propose("n0") is Refusal.TRANSFERRING
    assert not leader.node.has_lease()
    assert group.kinds(MessageKind.TIMEOUT_NOW) == []
    group["n1"].sync()
    took = group.run(1, lambda: group["n1"].node.serving or group["n1"].node.role is Role.LEADER)
    assert took <= 0.02
    assert group["n1"].node.role is Role.LEADER


def test_R7_a_transfer_that_was_told_and_failed_costs_the_term() -> None:
    group = Group()
    leader = group.elect("n0")
    term = leader.node.term
    group.drop = lambda _source, _target, message: message.kind is MessageKind.TIMEOUT_NOW
    assert leader.node.transfer("n1") is None
    group.run(0.9)
    assert not leader.node.has_lease()
    group.run(0.2)
    assert leader.node.role is Role.FOLLOWER
    assert group.elect().node.term > term


def test_a_transfer_to_who_never_catches_up_is_given_up_and_the_leader_goes_on() -> None:
    group = Group()
    leader = group.elect("n0")
    group["n1"].auto_sync = False
    group.propose("n0")
    assert leader.node.transfer("n1") is None
    group.run(1.2)
    assert (leader.node.serving, leader.node.has_lease()) == (True, True)
    assert group.propose("n0") is None
    assert leader.node.transfer("n7") is Refusal.BUSY


def test_the_preferred_leader_is_handed_the_lead() -> None:
    group = Group(preferred_leader="n2")
    group.run(10, lambda: group["n2"].node.serving)
    assert group["n2"].node.serving


# -- R9: membership


def test_R9_a_learner_is_added_catches_up_and_votes() -> None:
    group = Group()
    leader = group.elect("n0")
    joined = group.add("n3")
    assert leader.node.add_learner(group.member("n3"), group.fates.append) is None
    config = leader.node.config
    assert config is not None
    assert config.learners == ("n3",)
    assert leader.node.remove("n1", group.fates.append) is Refusal.CHANGE_PENDING
    group.run(1)
    assert group.fates == [Fate.COMMITTED]
    assert joined.node.config is not None
    assert joined.node.config.voters == ("n0", "n1", "n2", "n3")
    assert group.logs_equal()


def test_R9_a_learner_neither_counts_nor_stands() -> None:
    group = Group(catch_up_entries=0)
    leader = group.elect("n0")
    learner = group.add("n3")
    learner.auto_sync = False
    leader.node.add_learner(group.member("n3"), group.fates.append)
    group.run(0.2)
    group.cut("n1", "n2")
    group.propose("n0")
    group.propose("n0")
    group.run(0.2)
    learner.log.durable = learner.log.last.index - 1  # all but the last, so that it is not promoted
    learner.node.durable(learner.log.durable)
    group.run(3)
    assert group.fates == [Fate.COMMITTED]
    assert leader.node.role is not Role.LEADER
    assert learner.node.role is Role.FOLLOWER
    assert "does not vote" in learner.node.status()["held_back"]


def test_R9_a_config_that_is_overwritten_is_undone() -> None:
    group = Group()
    group.elect("n0")
    group.cut("n0")
    group["n0"].node.remove("n2", group.fates.append)
    config = group["n0"].node.config
    assert config is not None
    assert config.voters == ("n0", "n1")
    group.run(3, lambda: any(group[name].node.serving for name in ("n1", "n2")))
    group.heal()
    group.run(1)
    assert group.fates == [Fate.OVERWRITTEN]
    restored: GroupConfig | None = group["n0"].node.config
    assert restored is not None
    assert restored.voters == ("n0", "n1", "n2")


def test_R9_a_vote_counts_once_for_a_voter_in_its_term() -> None:
    group = Group(5)
    group.elect("n0")
    group.drop = lambda _source, _target, message: message.kind is MessageKind.VOTE_REPLY
    group.kill("n0")
    group.run(3, lambda: any(machine.node.role is Role.CANDIDATE for machine in group.machines.values()))
    candidate = next(machine for machine in group.machines.values() if machine.node.role is Role.CANDIDATE)
    voter = next(name for name in ("n1", "n2", "n3") if name != candidate.name)
    yes = RaftMessage(MessageKind.VOTE_REPLY, {"term": candidate.node.term, "granted": True})
    for source in (voter, voter, voter, "n9"):
        candidate.node.receive(source, yes)
    assert candidate.node.role is Role.CANDIDATE


def test_R2_a_group_of_one_leaves_and_takes_nothing_any_more() -> None:
    group = Group(1)
    leader = group.elect()
    assert leader.node.leave(group.fates.append) is None
    group.run(0.1)
    assert group.fates == [Fate.COMMITTED]
    assert group.propose("n0") is Refusal.CHANGE_PENDING
    assert leader.node.status()["classic"]


def test_a_stale_leader_learns_from_the_answer_to_its_append() -> None:
    group = Group()
    leader = group.elect("n0")
    group.cut("n0")
    group.run(1.2, lambda: any(group[name].node.role is Role.LEADER for name in ("n1", "n2")))
    assert leader.node.serving
    group.cut_links = {("n1", "n0"), ("n2", "n0")}
    group.run(0.2)
    group.heal()
    group.run(0.15)
    assert leader.node.role is Role.FOLLOWER


def test_two_leaders_in_one_term_end_the_member_that_sees_both() -> None:
    group = Group()
    leader = group.elect("n0")
    group["n1"].node.receive("n2", append(leader.node.term, 1, (0, 0), 0, []))
    assert isinstance(group["n1"].fatal, AssertionError)
    assert "lead term" in str(group["n1"].fatal)


def test_R17_a_member_whose_clock_is_far_from_a_majoritys_does_not_stand() -> None:
    group = Group()
    group.elect("n0")
    group["n2"].clock.ahead_ms = -3_600_000
    group["n2"].restart()
    group.link()
    group.kill("n0")
    group.run(2)
    assert group["n2"].node.role is Role.FOLLOWER
    assert group["n1"].node.serving


def test_R7_a_deadline_that_passes_while_it_is_looked_at_opens_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes between any two looks at the clock; a member that nobody prefers must never raise its term by it."""
    read = ManualClock.monotonic

    def creeping(clock: ManualClock) -> float:
        clock.advance(0.0002)
        return read(clock)

    monkeypatch.setattr(ManualClock, "monotonic", creeping)
    group = Group()
    leader = group.elect()
    term = leader.node.term
    group.cut(*group.names)
    group.run(60)
    assert {machine.node.term for machine in group.machines.values()} == {term}


@pytest.mark.parametrize(("limit", "value"), [("APPLY_BYTES", 100), ("APPLY_ENTRIES", 5)])
def test_what_waits_to_be_applied_is_applied_in_bounded_turns(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(f"raft.core.core.{limit}", value)
    group = Group()
    group.elect("n0")
    group.cut("n2")
    for _ in range(40):
        group.propose("n0", bytes(29))
    group.run(0.5)
    before = len(group["n2"].commits)
    group.heal()
    group.run(3)
    steps = [0, *group["n2"].commits[before:]]
    assert group["n2"].commits[-1] == group["n0"].commits[-1]
    # Four entries of 30 bytes a turn, and perhaps one without any; or five of any size.
    assert max(later - earlier for earlier, later in pairwise(steps[1:])) <= 5
