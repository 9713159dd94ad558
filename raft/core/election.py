"""Who stands, who gets a vote, whose vote counts: our rules in front of PySyncObj's election.

What arrives is judged here first (who sends, R6; whether votes may be given, R1 R4 R5 R7; whose vote counts, R9) and
then handed to the library, which keeps the timer, stands, gives one vote in a term and counts. A pre-vote that a
majority grants opens the gate to its candidate code; nothing else does but the leader's TIMEOUT_NOW.
"""

import random
from collections.abc import Callable
from typing import Protocol

from raft.core.clocks import Clocks
from raft.core.hooks import Hooks
from raft.core.prevote import Ask, PreVote, Stance, may_grant, may_stand
from raft.core.pysyncobj import Election
from raft.core.reasons import counts, reason_of
from raft.core.room import STAND_BACK_TIMEOUTS, Room
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig
from raft.protocol.hello import Hello
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.settings import RaftSettings
from raft.protocol.types import Log, Role
from runtime.clock import SteadyClock

# Of followers that lost their leader: when the first one stands, so that the others are past the time in which they
# refuse pre-votes (R7), which began with an append that reached them a moment later; and how long each next one waits.
FIRST_TURN_BEATS, TURN_BEATS = 0.1, 0.5


class Outside(Protocol):
    """What a member has of the world, handed in by whoever owns it."""

    steady: SteadyClock
    """The clock that stamps what is written here."""

    def monotonic(self) -> float:
        """Return seconds on a clock that counts suspension (R7)."""
        ...

    def send(self, peer: str, message: RaftMessage) -> bool:
        """Carry a message; False when there is no link or no room. Never calls back."""
        ...

    def push_in(self, seconds: float) -> None:
        """Have replication.pushed() called after so long, with the commit index. Never calls back."""
        ...

    def apply(self, index: int) -> None:
        """Everything up to `index` is committed, and not yet applied."""
        ...


class Voting:
    """A member's part in elections. Core makes a Hooks of it, and everything runs inside `entered`."""

    clocks_class = Clocks

    def __init__(
        self, settings: RaftSettings, log: Log, votes: VoteFile, outside: Outside, rng: random.Random, hooks: Hooks
    ) -> None:
        self.settings = settings
        self.log = log
        self.votes = votes
        self.now: Callable[[], float] = outside.monotonic
        self.send: Callable[[str, RaftMessage], bool] = outside.send
        self._rng = rng
        self.self_id = settings.self_id
        self.election_s = settings.election_ms_min / 1000
        self.beat_s = settings.heartbeat_ms / 1000
        self.config: GroupConfig | None = None
        self.config_index = 0
        """Index of the CONFIG entry in force: the last one appended, committed or not (R9)."""
        self.linked: set[str] = set()
        self.hellos: dict[str, Hello] = {}
        self._trusted: dict[str, bool] = {}
        self.clocks = self.clocks_class(outside.steady, settings.self_id)
        self.room = Room(self.now, log)
        # When somebody led last, this member or another, as far as it knows.
        self._led_at = self.now()
        self.prevote = PreVote()
        self._by_transfer = False
        self._voted_for_us: tuple[int, set[str]] = (0, set())
        self._appended_at = float("-inf")
        self._started_at = self.now()
        # What was read back at the start may be in the page cache only (R5).
        self._sync_due = log.last.index
        self._durable_seen = (log.durable, self.now())
        self.stood: tuple[float, int, str] | None = None
        """The last time it stood, was elected or found a leader: when, term, why."""
        self.counts = counts()
        self.held_back = ""
        """Why it does not stand, "" if nothing is against it."""
        if log.last.term > votes.term:
            # A log that was copied (R13) may be of a later term than this member ever saw: it gives no vote in that.
            votes.save(log.last.term, self.self_id)
        self.election = Election(
            self.self_id, log, votes, hooks,
            beat_s=self.beat_s,
            timeouts_s=(self.election_s, settings.election_ms_max / 1000),
            quorum_s=settings.quorum_s,
        )  # fmt: skip

    @property
    def leads(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.election.leads

    def election_timeout(self) -> float:
        """Return seconds to wait for a leader."""
        low, high = self.settings.election_ms_min, self.settings.election_ms_max
        return self._rng.uniform(low, high) / 1000

    def sync_first(self) -> None:
        """Neither stand nor vote before everything that the log has now is on disk (R5)."""
        self._sync_due = self.log.last.index
        self.log.sync_soon()

    def promised_nothing(self) -> None:
        """Note that no lease can rest on this member's word: it had no group before this very moment (R7)."""
        self._started_at = float("-inf")

    def _unsynced(self) -> bool:
        """Whether something that was read at the start, and was not cut since, may be in the page cache only (R5)."""
        return self.log.durable < min(self._sync_due, self.log.last.index)

    def stance(self) -> Stance:
        """Return what it knows of itself when somebody asks for a vote."""
        now, last = self.now(), self.log.last
        return Stance(
            self.election.term, last.index, last.term, self.log.floor, self.log.whole, now - self._appended_at,
            now - self._started_at, self.leads, self.config_index,
        )  # fmt: skip

    def joined(self, peer: str, hello: Hello) -> None:
        """Note that a peer can be reached, and who it says it is."""
        self.linked.add(peer)
        self.hellos[peer] = hello
        self._trusted.clear()
        self.clocks.met(peer, hello)
        self.room.heard(peer, hello)
        self.election.joined(peer, connected=True)

    def left(self, peer: str) -> None:
        """Note that a link broke. If it was the leader's, stand as soon as no promise is broken by it."""
        self.linked.discard(peer)
        self.clocks.left(peer)
        self.election.joined(peer, connected=False)
        if peer == self.election.leader and not self.leads:
            soon = max(self.now(), self._appended_at + self.election_s) + self._turn_to_stand(peer)
            self.election.deadline = min(self.election.deadline, soon)

    def _turn_to_stand(self, gone: str) -> float:
        """Return seconds to wait behind a leader's end, so that its followers stand one after the other.

        All of them see it at once, and two that stand at once may each get half of the votes: an election for nothing.
        Who cannot win is refused, and the next one's turn comes long before it would be by chance.
        """
        voters = self.config.voters if self.config is not None else ()
        before = sum(voter < self.self_id and voter != gone for voter in voters)
        return (FIRST_TURN_BEATS + before * TURN_BEATS) * self.beat_s

    def trusts(self, peer: str) -> bool:
        """Whether a peer is who the CONFIG says, by the id of its disk (R6), and of this group (R1)."""
        known = self._trusted.get(peer)
        if known is None:
            known = self._trusted[peer] = self.judge_sender(peer)
        return known

    def judge_sender(self, peer: str) -> bool:
        """Decide what trusts() remembers. One that CONFIG does not name may be newer than this member's CONFIG."""
        hello = self.hellos.get(peer)
        if hello is None:
            return False
        if self.config is None:
            return True
        if hello.group_id and hello.group_id != self.config.group_id:
            return False
        member = self.config.member(peer)
        return member is None or member.store_id == hello.store_id or hello.config_index > self.config_index

    def gate(self, now: float) -> None:
        """Let the library's candidate code run at `now` only when a pre-vote was won, or the leader asked (R7)."""
        election = self.election
        if election.deadline >= now:
            return
        # A leader that asks knows who has room.
        self.held_back = self.refuse_to_stand() or (not election.asked_to_stand and self.stand_back()) or ""
        if self.held_back:
            election.decline_to_stand()
            election.deadline = self.now() + self.election_timeout()
            return
        self._by_transfer = election.asked_to_stand
        if not self._by_transfer and not self._prevote_won():
            self._ask_prevotes()
            if not self._prevote_won():
                election.deadline = self.now() + self.beat_s * (1 + self._rng.random())
                return
            election.deadline = float("-inf")
        self.prevote.cancel()
        self.note("the leader handed over" if self._by_transfer else "nobody led")

    def disk_stuck(self) -> bool:
        """Whether the disk has taken nothing for so long that another should lead, if there is one."""
        seen, since = self._durable_seen
        durable, now = self.log.durable, self.now()
        if seen != durable or durable >= self.log.last.index:
            self._durable_seen = (durable, now)
            return False
        return now - since > self.settings.quorum_s and self.config is not None and len(self.config.voters) > 1

    def close_gate(self, now: float) -> None:
        """Close the gate behind a candidate code that did not run at `now`, because nobody can be reached."""
        if not self.leads and self.election.deadline < now:
            self.prevote.cancel()
            self.election.decline_to_stand()
            self.election.deadline = self.now() + self.election_timeout()

    def step_down(self, term: int) -> None:
        """Wait for a leader of a higher term that somebody spoke of."""
        self.prevote.cancel()
        self.election.follow(term, None, wait=self.leads)

    def _other_disk(self) -> bool:
        own = self.config.member(self.self_id) if self.config is not None else None
        return own is not None and own.store_id != self.votes.store_id

    def note(self, why: str) -> None:
        """Keep for the status when and why it stood, or was elected."""
        self.stood = (self.now(), self.election.term, why)
        self.counts[reason_of(why)] += 1

    def refuse_to_stand(self) -> str | None:
        """Return why this member must not stand, None when it may."""
        why = may_stand(self.stance(), self.config, self.self_id)
        if why is not None:
            return why
        if self._unsynced():
            return "what it read at the start is not synced yet"
        if self._other_disk():
            return "CONFIG names another disk for this member (R6)"
        if self.disk_stuck():
            return "its disk takes nothing"
        self.clocks.look(self.config, now=True)
        return self.clocks.apart or None

    def stand_back(self) -> str | None:
        """Return why this member leaves it to others to stand, for a while; None when it does not.

        It has room for a no-op, but whoever has room for messages should lead.
        """
        why = self.log.refused
        others = self.voters_with_room() if why is not None else []
        if not others:
            return None
        waited = self.now() - max(self._appended_at, self._led_at)
        if waited >= STAND_BACK_TIMEOUTS * self.settings.election_ms_max / 1000:
            return None
        return f"its log takes nothing ({why}); with room: {', '.join(others)}"

    def voters_with_room(self) -> list[str]:
        """Return the other voters that can be reached, and whose logs take messages as far as is known."""
        voters = self.config.voters if self.config is not None else ()
        return [voter for voter in voters if voter in self.linked and self.trusts(voter) and self.room.has(voter)]

    def refuse_vote(self, peer: str, ask: Ask) -> str | None:
        """Return why a peer gets neither vote nor pre-vote, None when nothing is against it."""
        if not self.trusts(peer):
            return f"{peer} is not the member of that name in this group"
        if self._unsynced():
            return "what this member read at the start is not synced yet"
        if self._other_disk():
            return "CONFIG names another disk for this member (R6)"
        return may_grant(self.stance(), self.config, self.self_id, ask, self.election_s)

    def vote_counts(self, peer: str) -> bool:
        """Whether a vote is one of this term's: from a voter in CONFIG, with its own disk, for the first time (R9)."""
        assert self.config is not None
        if self._voted_for_us[0] != self.election.term:
            self._voted_for_us = (self.election.term, set())
        return self.config.is_voter(peer) and self.trusts(peer) and peer not in self._voted_for_us[1]

    def _prevote_won(self) -> bool:
        assert self.config is not None
        return self.prevote.term == self.election.term + 1 and self.prevote.won(self.config, self.self_id)

    def _ask_prevotes(self) -> None:
        assert self.config is not None
        term, last = self.election.term + 1, self.log.last
        fields = {"term": term, "round": self.prevote.begin(term), "last_index": last.index, "last_term": last.term}
        for voter in self.config.voters:
            if voter != self.self_id:
                self.send(voter, RaftMessage(MessageKind.PRE_VOTE, {**fields, "config": self.config_index}))

    def pre_vote(self, peer: str, message: RaftMessage) -> None:
        """Answer whether a peer would get this member's vote."""
        fields = message.fields
        ask = Ask(fields["term"], fields["last_index"], fields["last_term"], fields["config"])
        why = self.refuse_vote(peer, ask)
        if why is None and ask.term <= self.election.term:
            why = f"this member is in term {self.election.term}"
        if why is None and not (self.prevote.running and self.self_id < peer):
            # It stands next; to stand at the same moment would split the votes. Of two that ask at once, one goes on.
            self.prevote.cancel()
            self.election.deadline = max(self.election.deadline, self.now() + self.beat_s)
        answer = {"term": self.election.term, "round": fields["round"], "granted": why is None, "why": why or ""}
        self.send(peer, RaftMessage(MessageKind.PRE_VOTE_REPLY, answer))

    def pre_vote_reply(self, peer: str, message: RaftMessage) -> None:
        """Count an answer; with a majority, stand at the next tick."""
        fields = message.fields
        if fields["term"] > self.election.term and self.trusts(peer):
            self.step_down(fields["term"])
        elif (
            fields["granted"]
            and self.config is not None
            and not self.leads
            and self.trusts(peer)
            and self.prevote.granted(peer, fields["round"])
            and self._prevote_won()
        ):
            self.election.deadline = float("-inf")

    def vote(self, peer: str, message: RaftMessage) -> None:
        """Let the library give its vote, if nothing is against it."""
        fields = message.fields
        ask = Ask(fields["term"], fields["last_index"], fields["last_term"], fields["config"], fields["transfer"])
        if self.refuse_vote(peer, ask) is None:
            self.prevote.cancel()
            if ask.term > self.election.term:
                # The leader of a term that is over asked: in the next one nobody dropped its lease for this member.
                self.election.decline_to_stand()
            said = {"type": "request_vote", "term": ask.term}
            said |= {"last_log_index": ask.last_index, "last_log_term": ask.last_term}
            self.election.receive(peer, said)
        if ask.term < self.election.term:
            self.send(peer, RaftMessage(MessageKind.VOTE_REPLY, {"term": self.election.term, "granted": False}))

    def vote_reply(self, peer: str, message: RaftMessage) -> None:
        """Let the library count a vote that counts."""
        term = message.fields["term"]
        if term > self.election.term:
            if self.trusts(peer):
                self.step_down(term)
        elif (
            message.fields["granted"]
            and term == self.election.term
            and self.election.role is Role.CANDIDATE
            and self.vote_counts(peer)
        ):
            self._voted_for_us[1].add(peer)
            self.election.receive(peer, {"type": "response_vote", "term": term})

    def timeout_now(self, peer: str, message: RaftMessage) -> None:
        """Stand at the next tick, if it is this term's leader that asks."""
        if self.trusts(peer) and not self.leads and peer == self.election.leader:
            self.election.receive(peer, {"type": "timeout_now", "term": message.fields["term"]})
