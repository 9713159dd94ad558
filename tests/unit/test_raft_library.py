"""The door to PySyncObj: each private name that is used, by what it does in the version that is pinned."""

import random
import re
from pathlib import Path
from typing import Any

import pysyncobj.syncobj as stock
import pytest

from raft.core import pysyncobj as library
from raft.core.journal_view import JournalView
from raft.core.library_clock import entered
from raft.core.pysyncobj import APPLY_ENTRIES_MAX, Election
from raft.protocol.types import EntryType, Role
from tests.parts.raft_memory_log import MemoryLog


class Votes:
    def __init__(self) -> None:
        self.term = 0
        self.voted_for = ""

    def save(self, term: int, voted_for: str) -> None:
        self.term, self.voted_for = term, voted_for


class Told:
    """Hooks that write down what the library asks."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.calls: list[str] = []
        self.carried: list[tuple[str, dict[str, Any]]] = []
        self.applied: list[int] = []
        self.countable_index: int | None = None

    def election_timeout(self) -> float:
        return 0.75

    def countable(self) -> int:
        return self.log.last.index if self.countable_index is None else self.countable_index

    def append_noop(self, term: int) -> int:
        return self.log.append(EntryType.NOOP, term, b"", 0)

    def beat(self) -> None:
        self.calls.append("beat")

    def apply_until(self, applied: int, upto: int) -> int:  # noqa: ARG002
        return upto

    def applying(self, index: int) -> None:
        self.applied.append(index)

    def leading(self) -> None:
        self.calls.append("leading")

    def carry(self, peer: str, message: dict[str, Any]) -> None:
        self.carried.append((peer, message))


class Rig:
    """An Election of n0 with voters n1 and n2, and a clock by hand."""

    def __init__(self, *, voters: tuple[str, ...] = ("n1", "n2"), log: MemoryLog | None = None) -> None:
        self.now = 100.0
        self.log = log or MemoryLog()
        self.votes = Votes()
        self.told = Told(self.log)
        with entered(self.clock):
            self.election = Election(
                "n0", self.log, self.votes, self.told, beat_s=0.1, timeouts_s=(0.5, 1.0), quorum_s=1.5
            )
            self.election.set_voters(voters, self.now)
            for voter in voters:
                self.election.joined(voter, connected=True)

    def clock(self) -> float:
        return self.now

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        with entered(self.clock):
            self.election.tick()

    def receive(self, peer: str, **message: Any) -> None:
        with entered(self.clock):
            self.election.receive(peer, message)

    def lead(self) -> None:
        self.tick(0.8)
        self.receive("n1", type="response_vote", term=self.election.term)
        assert self.election.role is Role.LEADER

    @property
    def sync(self) -> Any:
        return self.election._sync


def test_every_private_name_that_is_listed_is_there() -> None:
    assert library.missing_names() == []


@pytest.mark.parametrize("name", [*library.PRIVATE_METHODS, *library.PRIVATE_STATE, *library.MODULE_GLOBALS])
def test_a_name_that_is_gone_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in library.PRIVATE_METHODS:
        monkeypatch.delattr(stock.SyncObj, name)
    elif name in library.MODULE_GLOBALS:
        monkeypatch.delattr(stock, name)
    else:
        monkeypatch.setattr(stock.SyncObj, "__init__", lambda _self: None)
    assert name in library.missing_names()


def test_no_private_name_is_used_that_is_not_listed() -> None:
    text = Path(library.__file__).read_text(encoding="utf-8")
    private = set(re.findall(r"_SyncObj__[A-Za-z]+", text))
    assert private - library.PRIVATE_METHODS.keys() - library.PRIVATE_STATE.keys() == set()


def test_createJournal_takes_a_journal() -> None:
    rig = Rig()
    assert isinstance(rig.sync._SyncObj__raftLog, JournalView)


def test_createJournal_still_makes_the_librarys_own() -> None:
    assert type(stock.createJournal(None)).__name__ == "MemoryJournal"


def test_monotonicTime_is_the_entered_nodes_clock() -> None:
    with entered(lambda: 5.0):
        assert stock.monotonicTime() == 5.0
        with entered(lambda: 7.0):
            assert stock.monotonicTime() == 7.0
        assert stock.monotonicTime() == 5.0


def test_the_clock_is_given_back_when_a_node_fails() -> None:
    with pytest.raises(OSError), entered(lambda: 5.0):
        raise OSError
    assert stock.monotonicTime() != 5.0


def test_generateRaftTimeout_is_ours() -> None:
    assert Rig().election.deadline == 100.75


def test_raftElectionDeadline_starts_the_candidate_code_once_it_has_passed() -> None:
    rig = Rig()
    rig.tick(0.7)
    assert (rig.election.role, rig.told.carried) == (Role.FOLLOWER, [])
    rig.tick(0.1)
    assert rig.election.role is Role.CANDIDATE
    wanted = {"type": "request_vote", "term": 1, "last_log_index": 0, "last_log_term": 0}
    assert sorted(rig.told.carried) == [("n1", wanted), ("n2", wanted)]


def test_raftElectionDeadline_can_be_set() -> None:
    rig = Rig()
    rig.election.deadline = float("-inf")
    rig.tick()
    assert rig.election.role is Role.CANDIDATE


def test_setCurrentTerm_and_votedForNodeId_go_to_the_vote_file_before_votes_are_asked() -> None:
    rig = Rig()
    rig.tick(0.8)
    assert (rig.votes.term, rig.votes.voted_for, rig.sync._SyncObj__votedForNodeId) == (1, "n0", "n0")


def test_onNodeConnected_nobody_stands_who_reaches_nobody() -> None:
    rig = Rig()
    with entered(rig.clock):
        for voter in ("n1", "n2"):
            rig.election.joined(voter, connected=False)
    rig.tick(0.8)
    assert rig.election.role is Role.FOLLOWER


def test_onMessageReceived_gives_one_vote_in_a_term() -> None:
    rig = Rig()
    for peer in ("n1", "n2"):
        rig.receive(peer, type="request_vote", term=3, last_log_index=0, last_log_term=0)
    assert rig.told.carried == [("n1", {"type": "response_vote", "term": 3})]
    assert (rig.votes.term, rig.votes.voted_for) == (3, "n1")


def test_onMessageReceived_gives_no_vote_to_a_shorter_log() -> None:
    rig = Rig()
    rig.log.append(EntryType.NOOP, 1, b"", 0)
    rig.receive("n1", type="request_vote", term=3, last_log_index=0, last_log_term=0)
    assert rig.told.carried == []
    assert (rig.votes.term, rig.votes.voted_for) == (3, "")


def test_onBecomeLeader_tells_us_then_appends_the_noop_and_beats() -> None:
    rig = Rig()
    rig.lead()
    assert rig.told.calls[0] == "leading"
    assert "beat" in rig.told.calls
    assert (rig.election.noop, rig.log.kind(1), rig.log.term(1)) == (1, EntryType.NOOP, 1)
    assert rig.election.leader == "n0"


def test_noopIDx_is_nothing_before_it_led() -> None:
    assert Rig().election.noop == 0


def test_sendAppendEntries_is_ours_at_each_newAppendEntriesTime() -> None:
    rig = Rig()
    rig.lead()
    assert rig.election.next_beat == pytest.approx(rig.now + 0.1)
    rig.told.calls.clear()
    rig.tick(0.05)
    assert rig.told.calls == []
    rig.tick(0.06)
    assert rig.told.calls == ["beat"]


def test_raftMatchIndex_and_otherNodes_make_the_commit() -> None:
    rig = Rig()
    rig.lead()
    rig.tick()
    assert rig.election.commit == 0
    with entered(rig.clock):
        rig.election.counted("n2", 1, rig.now)
    rig.tick()
    assert rig.election.commit == 1


def test_otherNodes_is_exactly_the_voters() -> None:
    rig = Rig()
    with entered(rig.clock):
        rig.election.set_voters(["n0", "n2", "n3"], rig.now)
    assert {node.id for node in rig.sync._SyncObj__otherNodes} == {"n2", "n3"}
    assert {node.id for node in rig.sync._SyncObj__raftMatchIndex} == {"n2", "n3"}
    assert {node.id for node in rig.sync._SyncObj__lastResponseTime} == {"n2", "n3"}


def test_getEntries_commits_nothing_above_what_is_durable_in_a_group_of_one_too() -> None:
    rig = Rig(voters=())
    rig.told.countable_index = 0
    rig.tick(0.8)
    rig.tick()
    assert (rig.election.role, rig.election.commit, rig.told.applied) == (Role.LEADER, 0, [])
    rig.told.countable_index = 1
    rig.tick()
    assert (rig.election.commit, rig.told.applied) == (1, [1])


def test_the_commit_rule_counts_no_entries_of_older_terms() -> None:
    log = MemoryLog()
    log.append(EntryType.MESSAGES, 1, b"old", 0)
    rig = Rig(log=log)
    rig.lead()
    assert rig.election.term == 2
    with entered(rig.clock):
        rig.election.counted("n1", 1, rig.now)
    rig.tick()
    assert rig.election.commit == 0
    with entered(rig.clock):
        rig.election.counted("n1", 2, rig.now)
    rig.tick()
    assert rig.election.commit == 2


def test_lastResponseTime_a_leader_without_answers_steps_down() -> None:
    rig = Rig()
    rig.lead()
    rig.tick(1.4)
    assert rig.election.role is Role.LEADER
    rig.tick(0.2)
    assert (rig.election.role, rig.election.leader) == (Role.FOLLOWER, None)


def test_applyLogEntries_applies_before_it_answers_and_in_bounded_batches() -> None:
    log = MemoryLog()
    for _ in range(APPLY_ENTRIES_MAX + 10):
        log.append(EntryType.MESSAGES, 1, b"", 0)
    rig = Rig(log=log)
    order: list[object] = []
    rig.told.applying = order.append  # type: ignore[assignment,method-assign]  # to see the order
    rig.election.await_fate(3, 1, lambda *, committed: order.append(committed))
    rig.election.commit = log.last.index
    rig.tick()
    assert order == [APPLY_ENTRIES_MAX, True]
    assert rig.election.applied == APPLY_ENTRIES_MAX
    rig.tick()
    assert order[2:] == [log.last.index]


def test_commandsWaitingCommit_tells_another_terms_entry_from_ones_own() -> None:
    rig = Rig()
    rig.log.append(EntryType.MESSAGES, 2, b"", 0)
    fates: list[bool] = []
    for term in (1, 2):
        rig.election.await_fate(1, term, lambda *, committed: fates.append(committed))
    rig.election.commit = 1
    rig.tick()
    assert fates == [False, True]


def test_raftLastApplied_begins_at_what_the_log_knows_as_committed() -> None:
    log = MemoryLog()
    for _ in range(5):
        log.append(EntryType.MESSAGES, 1, b"", 0)
    log.commit = 4
    rig = Rig(log=log)
    rig.tick()
    assert (rig.election.commit, rig.election.applied, rig.told.applied) == (4, 4, [])


def test_raftCommitIndex_never_goes_back() -> None:
    rig = Rig()
    rig.log.append(EntryType.MESSAGES, 1, b"", 0)
    rig.election.commit = 1
    with pytest.raises(AssertionError, match="would go back"):
        rig.election.commit = 0


def test_transferInProgress_timeout_now_of_the_leader_alone_opens_the_election() -> None:
    rig = Rig()
    with entered(rig.clock):
        rig.election.follow(1, "n1")
    rig.receive("n2", type="timeout_now", term=1)
    assert not rig.election.asked_to_stand
    rig.receive("n1", type="timeout_now", term=1)
    assert rig.election.asked_to_stand
    with entered(rig.clock):
        rig.election.follow(1, "n1")  # a heartbeat does not put it off
    rig.tick()
    assert (rig.election.role, rig.election.asked_to_stand) == (Role.CANDIDATE, False)


def test_transferLeadership_tells_only_who_has_everything() -> None:
    rig = Rig()
    rig.lead()
    rig.told.carried.clear()
    with entered(rig.clock):
        assert not rig.election.hand_over("n1")
        rig.election.counted("n1", 1, rig.now)
        assert rig.election.hand_over("n1")
    assert rig.told.carried == [("n1", {"type": "timeout_now", "term": 1})]


def test_setState_and_raftLeader_follow() -> None:
    rig = Rig()
    rig.lead()
    with entered(rig.clock):
        rig.election.follow(4, "n2")
    assert (rig.election.role, rig.election.term, rig.election.leader) == (Role.FOLLOWER, 4, "n2")
    assert (rig.votes.term, rig.votes.voted_for) == (4, "")


def test_the_library_never_cuts_nor_clears_the_log() -> None:
    rig = Rig()
    journal = rig.sync._SyncObj__raftLog
    for method in (journal.clear, journal.deleteEntriesFrom, journal.deleteEntriesTo):
        with pytest.raises(AssertionError, match="may not"):
            method(1)


def test_the_journal_shows_a_virtual_entry_at_the_base() -> None:
    log = MemoryLog()
    for term in (1, 1, 2):
        log.append(EntryType.MESSAGES, term, b"abc", 0)
    log.forget(2)
    journal = JournalView(log, Votes(), Told(log))
    assert len(journal) == 2
    assert [journal[0], journal[-1], journal[1]] == [(b"", 2, 1), (b"", 3, 2), (b"", 3, 2)]
    assert journal[0:5] == [(b"", 2, 1), (b"", 3, 2)]
    assert journal.between(2, 9) == [(b"", 2, 1), (b"", 3, 2)]
    assert journal.between(3, 3) == [(b"", 3, 2)]
    assert journal.between(1, 3) == journal.between(4, 9) == []


def test_R9_nothing_is_written_to_a_log_at_the_start() -> None:
    rig = Rig()
    assert rig.log.rows == []
    assert rig.votes.term == 0


def test_tryLogCompaction_poller_and_checkCommandsToApply_do_nothing() -> None:
    rig = Rig()
    rig.lead()
    rows = len(rig.log.rows)
    rig.sync.forceLogCompaction()
    rig.sync._applyCommand(b"\x00abc", None)
    rig.tick(0.05)
    assert len(rig.log.rows) == rows


def test_the_librarys_own_random_numbers_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: pytest.fail("the library drew a number"))
    rig = Rig()
    rig.tick(0.8)
    assert rig.election.role is Role.CANDIDATE
