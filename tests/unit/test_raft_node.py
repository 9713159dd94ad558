"""RaftNode: whole groups in one process, with a clock by hand."""

import json

import pytest

from raft.protocol.config import ConfigRefused
from raft.protocol.messages import MessageKind
from raft.protocol.types import EntryType, Fate, Mark, Refusal, Role
from tests.parts.raft_memory_log import Group, MemoryLog


def test_three_empty_nodes_begin_elect_replicate_and_commit() -> None:
    group = Group()
    leader = group.elect()
    assert {m.node.leader_id for m in group.machines.values()} == {leader.name}
    assert group.propose(leader.name) is None
    group.run(0.05)
    assert group.fates == [Fate.COMMITTED]
    assert group.logs_equal()
    assert {m.node.commit_index for m in group.machines.values()} == {leader.log.last.index}
    assert [m.fatal for m in group.machines.values()] == [None, None, None]
    assert sorted(m.node.role for m in group.machines.values()) == [Role.FOLLOWER, Role.FOLLOWER, Role.LEADER]


def test_everything_committed_is_applied_in_order_before_fates_are_told() -> None:
    group = Group()
    leader = group.elect()
    told: list[int] = []
    for _ in range(3):
        leader.node.propose(
            lambda term, commit: leader.log.append(EntryType.MESSAGES, term, b"m", commit),
            lambda _fate: told.append(leader.commits[-1]),
        )
    group.run(0.05)
    assert told == [leader.log.last.index] * 3
    assert leader.commits == sorted(set(leader.commits))


def test_a_group_of_one_commits_only_what_is_durable() -> None:
    group = Group(1)
    leader = group.elect()
    leader.auto_sync = False
    group.propose("n0")
    group.run(0.3)
    assert (group.fates, leader.node.commit_index) == ([], leader.log.last.index - 1)
    leader.sync()
    group.run(0.01)
    assert group.fates == [Fate.COMMITTED]


def test_a_majority_on_disk_commits_and_an_entry_that_is_only_received_does_not() -> None:
    group = Group()
    leader = group.elect("n0")
    group["n1"].auto_sync = group["n2"].auto_sync = False
    group.propose("n0")
    group.run(0.3)
    assert group.fates == []
    assert group["n1"].log.last.index == leader.log.last.index
    group["n2"].sync()
    group.run(0.01)
    assert group.fates == [Fate.COMMITTED]


def test_the_leader_counts_itself_only_when_its_own_disk_has_it() -> None:
    group = Group()
    group.elect("n0").auto_sync = False
    group.propose("n0")
    group.run(0.3)
    assert group.fates == []
    group["n0"].sync()
    group.run(0.01)
    assert group.fates == [Fate.COMMITTED]


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_leader_is_replaced_soon_after_the_shortest_timeout(seed: int) -> None:
    group = Group(seed=seed)
    group.elect("n0")
    group.kill("n0")
    assert group.run(5, lambda: group.leader is not None) < 0.7


def test_what_a_deposed_leader_appended_is_overwritten_once_another_entry_is_committed() -> None:
    group = Group()
    group.elect("n0")
    group.cut("n0")
    group.propose("n0", b"lost")
    assert group.propose("n1") is Refusal.NOT_LEADER
    group.run(3, lambda: any(group[name].node.serving for name in ("n1", "n2")))
    assert group.fates == []
    group.heal()
    group.run(1)
    assert group.fates == [Fate.OVERWRITTEN]
    assert group.logs_equal()


def test_what_a_deposed_leader_appended_behind_the_new_leaders_log_has_a_fate_too() -> None:
    """The new leader's log ends before these entries, and nobody writes: no entry is ever committed in their place."""
    group = Group()
    group.elect("n0")
    group.cut("n0")
    for body in (b"a", b"b", b"c"):
        group.propose("n0", body)
    group.run(3, lambda: any(group[name].node.serving for name in ("n1", "n2")))
    group.heal()
    group.run(1)
    assert group.fates == [Fate.OVERWRITTEN] * 3
    assert group.logs_equal()


def test_a_leader_without_a_majority_steps_down_and_says_so() -> None:
    group = Group()
    leader = group.elect("n0")
    group.cut("n0")
    group.run(1.4)
    assert leader.node.role is Role.LEADER
    group.run(0.3)
    assert leader.node.role is not Role.LEADER
    assert not leader.node.has_quorum
    assert leader.leaders[-1] is None


def test_a_member_that_was_cut_off_raises_no_term_and_deposes_nobody() -> None:
    group = Group()
    leader = group.elect("n0")
    term = leader.node.term
    group.cut("n2")
    group.run(10)
    assert group["n2"].node.term == term
    group.heal()
    group.run(3)
    assert (leader.node.serving, leader.node.term) == (True, term)
    assert group.propose("n0") is None


def test_a_link_cut_one_way_does_not_depose_a_leader_that_a_majority_answers() -> None:
    group = Group()
    leader = group.elect("n0")
    group.cut_links.add(("n0", "n2"))
    group.run(5)
    assert leader.node.serving
    assert group["n2"].node.term == leader.node.term


def test_stop_makes_every_open_proposal_unknown_and_nothing_happens_after() -> None:
    group = Group()
    leader = group.elect("n0")
    group.cut("n0")
    group.propose("n0")
    leader.node.stop()
    assert group.fates == [Fate.UNKNOWN]
    assert leader.node.tick() > 60
    assert group.propose("n0") is Refusal.NOT_LEADER
    assert leader.node.transfer() is Refusal.NOT_LEADER
    assert leader.node.leave(group.fates.append) is Refusal.NOT_LEADER


@pytest.mark.parametrize("which", ["log", "votes"])
def test_a_failing_disk_ends_the_member(which: str) -> None:
    group = Group()
    leader = group.elect("n0")
    error = OSError(5, "the disk is gone")
    if which == "log":
        leader.log.failing = error
        assert group.propose("n0") is None
        assert group.fates == [Fate.UNKNOWN]
        failed = leader
    else:
        failed = group["n1"]
        failed.vote_disk = error
        assert leader.node.transfer("n1") is None
    group.run(0.2)
    assert failed.fatal is error
    assert failed.node.ended
    assert failed.node.role is Role.FOLLOWER


def test_a_leader_whose_disk_takes_nothing_hands_the_group_to_the_others() -> None:
    group = Group()
    leader = group.elect("n0")
    leader.auto_sync = False
    group.propose("n0")
    group.run(6, lambda: any(group[name].node.serving for name in ("n1", "n2")))
    assert leader.node.role is Role.FOLLOWER
    group.run(0.1)
    assert group.fates == [Fate.COMMITTED] or leader.node.commit_index < leader.log.last.index
    leader.auto_sync = True
    group.run(0.3)
    assert group.fates == [Fate.COMMITTED]


def test_beyond_proposals_max_a_proposal_is_busy() -> None:
    group = Group(proposals_max=2)
    group.elect("n0")
    group.cut("n0")
    assert [group.propose("n0") for _ in range(3)] == [None, None, Refusal.BUSY]


def test_what_the_log_refuses_is_in_no_log_and_has_no_fate() -> None:
    group = Group()
    leader = group.elect("n0")
    last = leader.log.last.index
    assert leader.node.propose(lambda _term, _commit: -1, group.fates.append) is Refusal.LOG_REFUSES
    leader.log.full = True
    assert leader.node.propose_meta(b"meta", group.fates.append) is Refusal.LOG_REFUSES
    leader.log.full = False
    group.run(0.2)
    assert (leader.log.last.index, group.fates) == (last, [])


def test_a_proposal_is_given_term_and_commit_index() -> None:
    group = Group()
    leader = group.elect("n0")
    given: list[tuple[int, int]] = []

    def append(term: int, commit: int) -> int:
        given.append((term, commit))
        return leader.log.append(EntryType.MESSAGES, term, b"", commit)

    leader.node.propose(append, group.fates.append)
    assert given == [(leader.node.term, leader.node.commit_index)]


def test_an_owner_that_fails_to_hear_its_fate_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    leader = group.elect("n0")

    def fail(_fate: Fate) -> None:
        raise ValueError("deaf")

    leader.node.propose_meta(b"one", fail)
    group.propose("n0")
    group.run(0.05)
    assert group.fates == [Fate.COMMITTED]
    assert leader.fatal is None
    assert "failed to hear its fate" in caplog.text


def test_followers_hear_of_a_commit_within_ten_milliseconds() -> None:
    group = Group()
    leader = group.elect("n0")
    group.run(0.02)
    group.propose("n0")
    took = group.run(1, lambda: group["n1"].node.applied_index == leader.log.last.index)
    assert took <= 0.01


def test_a_new_leader_serves_only_when_its_noop_is_applied() -> None:
    group = Group()
    group.elect("n0")
    for machine in group.machines.values():
        machine.auto_sync = False
    assert group["n0"].node.transfer("n1") is None
    group.run(0.2)
    assert group["n1"].node.role is Role.LEADER
    assert not group["n1"].node.serving
    for machine in group.machines.values():
        machine.auto_sync = True
    group.run(0.1)
    assert group["n1"].node.serving


def test_entries_of_older_terms_are_committed_by_the_noop_of_the_new_one() -> None:
    group = Group()
    group.elect("n0")
    group.drop = lambda _source, _target, message: message.kind is MessageKind.APPEND_REPLY
    group.propose("n0")
    group.run(0.01)
    group.kill("n0")
    group.drop = lambda *_: False
    leader = group.elect()
    assert leader.log.kind(leader.log.last.index) is EntryType.NOOP
    assert leader.node.commit_index == leader.log.last.index


def test_a_restarted_member_goes_on_where_it_was() -> None:
    group = Group()
    group.elect("n0")
    for _ in range(20):
        group.propose("n0")
    group.run(0.1)
    group["n2"].restart()
    group.link(["n2"])
    group.propose("n0")
    group.run(0.5)
    assert group.logs_equal()
    assert group["n2"].node.commit_index == group["n0"].node.commit_index
    assert group["n2"].log.cuts == []


def test_all_members_killed_at_once_keep_what_was_acknowledged() -> None:
    group = Group()
    group.elect("n0")
    for _ in range(10):
        group.propose("n0")
    group.run(0.05)
    rows = [row[0] for row in group["n0"].log.rows]
    group.inbox.clear()
    for machine in group.machines.values():
        machine.log.power_loss()
        machine.restart()
    group.link()
    group.elect()
    for machine in group.machines.values():
        assert [row[0] for row in machine.log.rows][: len(rows)] == rows


def test_a_long_log_reaches_a_member_that_has_little_of_it() -> None:
    group = Group(ae_bytes_max=1024, window_bytes=2048)
    group.elect("n0")
    group.cut("n2")
    for _ in range(300):
        group.propose("n0", b"m" * 100)
    group.run(0.1)
    group.heal()
    group.run(2)
    assert group.logs_equal()
    assert group["n2"].node.applied_index == group["n0"].node.applied_index


def test_lost_and_doubled_messages_change_nothing_but_time() -> None:
    group = Group(seed=3)
    group.elect("n0")
    group.drop = lambda *_: group.rng.random() < 0.2
    for _ in range(40):
        group.propose(group.leader.name if group.leader is not None else "n0")
        group.run(0.05)
        group.inbox.extend(group.seen[-3:])
    group.drop = lambda *_: False
    group.run(5)
    assert group.logs_equal()
    assert all(machine.fatal is None for machine in group.machines.values())
    assert set(group.fates) <= {Fate.COMMITTED, Fate.OVERWRITTEN}


def test_status_is_plain_and_says_how_far_everybody_is() -> None:
    group = Group()
    leader = group.elect("n0")
    group.run(0.2)
    status = json.loads(json.dumps(leader.node.status()))
    assert (status["role"], status["leader"], status["serving"], status["lease"]) == ("LEADER", "n0", True, True)
    assert status["peers"]["n1"]["lag"] == 0
    assert status["peers"]["n1"]["last_ack_ms"] < 200
    assert status["last_election"]["why"] == "elected"
    assert [member["id"] for member in status["members"]] == ["n0", "n1", "n2"]
    assert group["n1"].node.status()["last_election"]["why"] == "n0 leads"


def test_R13_a_member_behind_what_is_kept_asks_to_be_reset() -> None:
    group = Group()
    leader = group.elect("n0")
    group.cut("n2")
    for _ in range(10):
        group.propose("n0")
    group.run(0.1)
    leader.log.forget(5)
    group.heal()
    group.run(1)
    assert set(group["n2"].resets) == {"n0"}
    assert group["n2"].log.last.index < 5
    assert group.propose("n0") is None


def test_R13_an_empty_member_asks_to_be_reset_when_the_group_stands_on_other_bytes() -> None:
    group = Group(logs={"n0": MemoryLog(Mark(0, 0, 4096, 77))})
    leader = group.elect()
    group.run(1)
    assert leader.name == "n0"
    assert set(group["n1"].resets) == set(group["n2"].resets) == {"n0"}
    assert group["n1"].log.rows == []


def test_a_change_that_makes_no_sense_is_refused_in_words() -> None:
    group = Group()
    leader = group.elect("n0")
    with pytest.raises(ConfigRefused, match="transfer the lead"):
        leader.node.remove("n0", group.fates.append)
    with pytest.raises(ConfigRefused, match="no member"):
        leader.node.remove("n7", group.fates.append)
    with pytest.raises(ConfigRefused, match="votes already"):
        leader.node.promote("n1", group.fates.append)
    with pytest.raises(ConfigRefused, match="remove all members but one"):
        leader.node.leave(group.fates.append)
    assert leader.fatal is None
