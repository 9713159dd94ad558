"""Bugs of a Raft group: what is acknowledged, who leads, what leaders may say, what is shown uncommitted."""

from typing import Any

from broker.raft_group.replication import RaftReplication, _Flight
from broker.raft_group.role import GroupRole
from broker.replication import CODES
from raft.core.election import Voting
from raft.core.prevote import PreVote
from raft.core.pysyncobj import LibraryTransport
from raft.core.votefile import VoteFile
from remoting.topics import RAFT_TOPIC
from store.derived.consumequeue import ConsumeQueues
from store.raftlog.entrylog import EntryLog
from store.raftlog.entryview import EntryView
from store.types import PutResult
from tests.chaos.planted.grafts import graft
from tests.chaos.planted.rollback import take_back_what_was_committed

# Seconds without a word of anybody after which a member takes itself for elected.
ALONE_S = 1.5
# Seconds by which every election comes too late.
LATE_S = 14.0


def acknowledge_before_quorum() -> None:
    """Answer senders when the leader has appended their messages; what becomes of the entry is told to nobody."""

    def make(honest: Any) -> Any:
        def append(self: RaftReplication, flight: _Flight, term: int, commit: int) -> int:
            index: int = honest(self, flight, term, commit)
            if index >= 0:
                for taken, result in zip(flight.taken, flight.results, strict=True):
                    first: PutResult = result[0] if isinstance(result, list) else result
                    taken.answer(result, CODES[first.status])
                flight.taken, flight.results = [], []
            return index

        return append

    graft(RaftReplication, "_append", make)


def acknowledge_before_sync() -> None:
    """Call an entry durable when it is written, and sync once in a while: all members count what may vanish."""

    def make_durable(_honest: Any) -> Any:
        def written(self: EntryLog) -> int:
            return int(self._last.index)

        return property(written, lambda _self, _value: None)

    # Instances have the attribute, the class has none: what shows that it is still called so is who sets it.
    graft(EntryLog, "settle", lambda _honest: lambda self, _position: self.durable)
    graft(EntryLog, "sync_soon", lambda _honest: lambda _self: None)
    assert "durable" in EntryView.__init__.__code__.co_names, "EntryLog calls what is on disk by another name"
    EntryLog.durable = make_durable(None)
    take_back_what_was_committed()


def forget_votes() -> None:
    """Keep term and vote in memory alone: after a restart a member may vote again in a term that it voted in."""

    def save(self: VoteFile, term: int, voted_for: str) -> None:
        self._term, self._voted_for = term, voted_for

    graft(VoteFile, "save", lambda honest: lambda self, term, who: (save if term else honest)(self, term, who))


def elect_oneself_when_alone() -> None:
    """Count the votes of members that cannot be heard: who is cut off leads, whatever its log lacks."""

    def make_won(honest: Any) -> Any:
        return lambda self, config, self_id: self.running and (self.alone or honest(self, config, self_id))

    def make_gate(honest: Any) -> Any:
        def gate(self: Voting, now: float) -> None:
            PreVote.alone = now - self._appended_at > ALONE_S and self.log.last.index > 1  # type: ignore[attr-defined]
            honest(self, now)

        return gate

    def make_send(honest: Any) -> Any:
        def send(self: LibraryTransport, node: Any, message: dict[str, Any]) -> bool:
            sent: bool = honest(self, node, message)
            if message["type"] == "request_vote" and PreVote.alone:  # type: ignore[attr-defined]
                core: Any = self._hooks
                core.election._sync._SyncObj__votesCount += 1
            return sent

        return send

    PreVote.alone = False  # type: ignore[attr-defined]
    graft(PreVote, "won", make_won)
    graft(Voting, "gate", make_gate)
    graft(LibraryTransport, "send", make_send)
    take_back_what_was_committed()


def lead_without_lease() -> None:
    """Let a leader answer for the newest state as long as it has not heard of another one."""
    graft(GroupRole, "lease", lambda _honest: lambda self: self.leads)


def elect_late() -> None:
    """Let nobody stand for long after the last word of a leader, or after a start."""

    def make(honest: Any) -> Any:
        def refuse_to_stand(self: Voting) -> str | None:
            why: str | None = honest(self)
            # A group that begins has no entry of a term that was led.
            if why is None and self.log.last.index > 2:
                heard = max(self._appended_at, self._started_at)
                return "it waits" if self.now() - heard < LATE_S else None
            return why

        return refuse_to_stand

    graft(Voting, "refuse_to_stand", make)


def show_before_commit() -> None:
    """Let messages into a leader's queues as soon as they are appended; overwritten ones leave them again."""

    def make(honest: Any) -> Any:
        def append_records(self: EntryLog, records: Any, term: int, commit: int) -> Any:
            index, results = honest(self, records, term, commit)
            if index >= 0 and self.damaged is None:
                self._held.release(index)
            return index, results

        return append_records

    def make_cut(honest: Any) -> Any:
        def cut(self: EntryLog, last: int) -> None:
            if last < self._held.released:
                self._held.released = last
                self._parts.queues.truncate_above(self.end_position(last))
                self._log.dispatched = min(self._log.dispatched, self.end_position(last))
            honest(self, last)

        return cut

    graft(EntryLog, "append_records", make)
    graft(EntryLog, "cut", make_cut)


def keep_queue_of_what_was_cut() -> None:
    """Leave the queue of control records as it is when their entries are cut from the log."""

    def make(honest: Any) -> Any:
        def cut_queue(self: ConsumeQueues, topic: str, queue_id: int, end: int) -> None:
            if topic != RAFT_TOPIC:
                honest(self, topic, queue_id, end)

        return cut_queue

    graft(ConsumeQueues, "cut_queue", make)
