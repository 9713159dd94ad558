"""One member's Raft: its part in elections (Voting), our replication, and what is committed, each a method of its own.

Nothing here knows proposals, membership changes or transfers: those are RaftNode's.
"""

import random
from typing import Any

from raft.core.election import Outside, Voting
from raft.core.follower import Follower
from raft.core.lease import Lease
from raft.core.library_clock import entered
from raft.core.progress import PeerReplication
from raft.core.pysyncobj import APPLY_FEW
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig
from raft.protocol.hello import Hello
from raft.protocol.messages import EXTRA_FIELDS, MessageKind, RaftMessage
from raft.protocol.settings import RaftSettings
from raft.protocol.types import EntryType, Log

# Bytes of entries, and entries, applied in one turn of the loop: some ms of either. One larger entry is applied alone.
APPLY_BYTES = 512 * 1024
APPLY_ENTRIES = 256
# With more bytes of committed entries than this to apply still a member stands back: a leader serves only when all is
# applied, and nothing is served meanwhile. What others do in a second or two is left over after a large repair.
APPLY_BEHIND_BYTES_MAX = 16 * 1024 * 1024


class Core(Voting):
    """Election, votes, replication and commit of one member. Every method is called inside `entered`.

    OSError from log or vote file passes through: the member must then stop.
    """

    follower_class = Follower
    replication_class = PeerReplication
    lease_class = Lease

    def __init__(self, settings: RaftSettings, log: Log, votes: VoteFile, outside: Outside, rng: random.Random) -> None:
        self._outside = outside
        self.lease = self.lease_class(outside.monotonic, settings.lease_s)
        send, push_in = self._send_timed, outside.push_in
        self.replication = self.replication_class(settings, log, self.lease, outside.monotonic, send, push_in)
        self.follower = self.follower_class(log)
        super().__init__(settings, log, votes, outside, rng, self)
        self.send = self._send_timed
        self.applied = self.election.applied
        self.voters: tuple[str, ...] = ()
        self.learners: tuple[str, ...] = ()
        self._majority = 0
        self._config_cuts = 0
        self.refresh_config()
        if log.durable < log.last.index:
            log.sync_soon()

    # -- what the library asks (library.Hooks) --

    def countable(self) -> int:
        """Return the index up to which this member counts itself: what is on its own disk and can be read, no more."""
        return min(self.log.durable, self.log.readable)

    def append_noop(self, term: int) -> int:
        """Append the no-op that begins this member's term as leader."""
        index = self.log.append(EntryType.NOOP, term, b"", self.election.commit)
        self.log.sync_soon()
        return index

    def beat(self) -> None:
        """Send the heartbeat, with what is new."""
        self.replication.beat(self.election.commit)

    def apply_until(self, applied: int, upto: int) -> int:
        """Return how far one turn of the loop applies what waits: a member that catches up serves meanwhile."""
        at = applied
        try:
            begin = self.log.end_position(applied)
            upto = min(upto, applied + APPLY_ENTRIES)
            while at < upto:
                at += 1
                if self.log.end_position(at) - begin >= APPLY_BYTES:
                    break
        except LookupError:
            at -= 1
        return max(at, applied)

    def applying(self, index: int) -> None:
        """Let the broker apply everything up to `index`; callbacks of proposals follow."""
        self._outside.apply(index)
        self.applied = index

    def apply_again(self) -> None:
        """Let the broker apply what it could not read when it was told to."""
        self._outside.apply(self.applied)

    def leading(self) -> None:
        """Begin a term as its leader."""
        self.note("elected")
        self.lease.begin()
        self.replication.begin(self.election.term, self._others())

    def carry(self, peer: str, message: dict[str, Any]) -> None:
        """Send what the library says to a peer."""
        fields: dict[str, Any] = {"term": message["term"]}
        if message["type"] == "request_vote":
            fields |= {"last_index": message["last_log_index"], "last_term": message["last_log_term"]}
            fields |= {"config": self.config_index, "transfer": self._by_transfer}
            self.send(peer, RaftMessage(MessageKind.VOTE, fields))
        elif message["type"] == "response_vote":
            self.send(peer, RaftMessage(MessageKind.VOTE_REPLY, {**fields, "granted": True}))
        else:
            assert message["type"] == "timeout_now", f"the library sends {message['type']}"
            self.send(peer, RaftMessage(MessageKind.TIMEOUT_NOW, fields))

    def refuse_to_stand(self) -> str | None:
        """Return why this member must not, or had better not, stand; None when it may.

        Applying needs no leader, so where all members are as far behind one of them stands soon.
        """
        return super().refuse_to_stand() or self._applies_still()

    def _applies_still(self) -> str | None:
        try:
            end = self.log.end_position(min(self.election.commit, self.countable()))
            left = end - self.log.end_position(self.applied)
        except LookupError:
            # Between the two something cannot be read: then it is not whole, and does not stand for that.
            return None
        if left <= APPLY_BEHIND_BYTES_MAX:
            return None
        return f"{left} bytes of what is committed are to be applied still, before it could serve"

    # -- what it may say --

    def may_serve(self) -> bool:
        """Whether it leads, and its own no-op, so everything before it, is committed and applied."""
        return self.leads and self.log.readable >= self.applied >= self.election.noop > 0

    def has_lease(self) -> bool:
        """Whether no other can have been elected up to this moment (R7)."""
        return self.leads and self.config is not None and self.lease.valid(self.config, self.self_id)

    def has_quorum(self) -> bool:
        """Whether a majority answers this leader, or a leader is followed."""
        if not self.leads or self.config is None:
            return self.election.leader is not None
        since = self.now() - self.settings.quorum_s
        answering = [peer.member for peer in self.replication.peers.values() if peer.answered_at > since]
        return self.config.majority([*answering, self.self_id])

    def starved(self) -> str | None:
        """Return why messages would not be committed though they were appended here: most voters have no room."""
        if not self.room.without or self.config is None:
            return None
        roomy = [voter for voter in self.voters if voter == self.self_id or self.room.has(voter)]
        if self.config.majority(roomy):
            return None
        without = ", ".join(voter for voter in self.voters if voter not in roomy)
        return f"no majority of the group has room on its disks: {without} have none"

    # -- links and time --

    def linked_to(self, peer: str, hello: Hello) -> None:
        """Note that a link came: what was under way may not have arrived, and what had may be gone."""
        self.replication.linked(peer, hello.last_index)
        self.joined(peer, hello)
        self.room.met()

    def unlinked(self, peer: str) -> None:
        """Note that a link went: what was under way may not have arrived."""
        self.left(peer)
        self.replication.lost(peer)

    def settle(self) -> None:
        """Forget what only a leader has, once this member leads no more."""
        if not self.leads and self.replication.term:
            self.lease.drop()
            self.replication.end()

    def tick(self) -> None:
        """Stand if it is time; commit, apply, beat and send what is new."""
        now = self.now()
        leads = self.leads
        if not leads:
            self.ask_clocks()
        if self.disk_stuck() and leads:
            self.step_aside("its disk takes nothing")
            leads = self.leads
        if leads:
            self._led_at = now
            self._count()
        else:
            self.gate(now)
        # The very moment that the gate judged: a deadline that passes in between would open it for everybody.
        with entered(lambda: now):
            self.election.tick()
        if self.leads:
            self.replication.pump(self.election.commit)
        else:
            self.close_gate(now)

    def next_at(self) -> float:
        """Return when tick() is due, in monotonic seconds."""
        if self.applied < min(self.election.commit, self.countable()) or self.replication.more:
            return self.now()
        if self.leads:
            return self.election.next_beat
        return self.election.deadline if self.config is None else min(self.election.deadline, self.clocks.ask_at)

    def _count(self) -> None:
        """Show the commit rule what voters have on disk, never more than this member has itself."""
        own = self.countable()
        for voter in self.voters:
            peer = self.replication.peers.get(voter)
            if peer is not None:
                self.election.counted(voter, min(peer.match, own), peer.answered_at)

    # -- clocks (R17) --

    def _send_timed(self, peer: str, message: RaftMessage) -> bool:
        """Send a message; now and then an append, or its answer, tells what the time is here."""
        if message.kind in EXTRA_FIELDS and (clock := self.clocks.tell(peer)) is not None:
            message = message._replace(fields={**message.fields, "clock": clock})
        return self._outside.send(peer, message)

    def ask_clocks(self) -> None:
        """Ask the others what their clocks say, now and then, as only a leader hears it anyway."""
        if self.config is None:
            return
        for peer, number in self.clocks.ask(self.linked):
            self.send(peer, RaftMessage(MessageKind.CLOCK, {"asked": number}))

    def clock_asked(self, peer: str, message: RaftMessage) -> None:
        """Answer what this clock says."""
        said = {"asked": message.fields["asked"], "clock": self.clocks.says()}
        self.send(peer, RaftMessage(MessageKind.CLOCK_REPLY, said))

    def clock_told(self, peer: str, message: RaftMessage) -> None:
        """Take such an answer."""
        self.clocks.answered(peer, message.fields["asked"], message.fields["clock"])

    def step_aside(self, why: str) -> None:
        """Lead no more, and let another be elected."""
        self.note(why)
        self.election.follow(self.election.term, None)

    # -- replication --

    def append(self, peer: str, message: RaftMessage) -> None:
        """Take a leader's APPEND, and answer."""
        fields = message.fields
        if not self.trusts(peer):
            return
        if fields["term"] < self.election.term:
            self.send(peer, self.follower.refusal(self.election.term, fields["seq"]))
            return
        if self.config is None and self.log.whole and self.log.last.end > 0:
            # Its store holds messages and no entry: only a person can say whose log counts (R1). With a hole in place
            # of its CONFIG it must know who leads: what the leader does not keep any more nobody brings back (R13).
            return
        followed = self._heard(peer, fields["term"])
        if "clock" in fields:
            self.clocks.note(peer, fields["clock"], None)
        if self.log.full:  # to stay silent would have all of it sent again at every beat
            self.follower.hear(fields["commit"])
            self.advance()
        if self.log.cutting or self.log.full:
            self.send(peer, self.follower.unready(fields["seq"]))
            return
        if not self.log.whole:
            self.send(peer, self.follower.append_damaged(message, self.election.commit))
            self.refresh_config()
            self.advance()
            return
        answer = self.follower.append(message, self.election.commit)
        self.refresh_config()
        if self.log.durable < self.log.last.index:
            self.log.sync_soon()
        self.advance()
        if answer is None and self.log.full and not self.follower.owes:
            answer = self.follower.unready(fields["seq"])  # of the room that it lacks the leader hears at once
        if answer is not None:
            self.send(peer, answer)
        if followed:  # else the owner, who may have led, is told first, and then a tick comes
            self._apply(self.election.commit)

    def wants_tick(self) -> bool:
        """Whether an APPEND, its reply or a sync left something to do before time has passed."""
        if self.election.leads:
            return self.replication.news
        return self.applied < self.election.commit and self.applied < self.countable()

    def behind(self, peer: str, message: RaftMessage) -> bool:
        """Take a leader's word that it no longer keeps what this member needs; whether that is so (R13)."""
        fields = message.fields
        if not self.trusts(peer) or fields["term"] < self.election.term:
            return False
        self._heard(peer, fields["term"])
        base_index: int = fields["base_index"]
        return self.log.base.index < base_index and self.log.term(base_index) != fields["base_term"]

    def append_reply(self, peer: str, message: RaftMessage) -> None:
        """Take a peer's answer, if it is of this member's term as leader."""
        fields = message.fields
        if not self.trusts(peer):
            return
        election = self.election
        term: int = election.term
        if fields["term"] > term:
            self.step_down(fields["term"])
        elif fields["term"] == term and election.leads:
            asked_at = self.replication.reply(peer, fields)
            if fields["durable"] > election.commit:
                self.move_commit()
            if peer in self.learners:  # it may have caught up, and vote
                self.replication.news = True
            if asked_at is not None and "clock" in fields:
                self.clocks.note(peer, fields["clock"], self.now() - asked_at)

    def durable(self) -> None:
        """More is on disk: say so to the leader; a leader counts itself."""
        if self.election.leads:
            self.move_commit()
            return
        self.advance()
        answer = self.follower.acknowledge() if self.election.leader == self.follower.leader else None
        if answer is not None and self.follower.leader is not None:
            self.send(self.follower.leader, answer)
        self._apply(self.election.commit)

    def move_commit(self) -> None:
        """Commit what a majority has on disk, and apply it; up to a term's no-op that is the library's part alone."""
        election, replication = self.election, self.replication
        if (index := self.held_by_majority()) <= election.commit:
            return
        if self.applied < election.noop or self.log.term(index) != election.term:
            replication.news = True
            return
        election.commit = index
        self._apply(index)
        replication.tell(index)
        replication.news |= self.applied < index

    def held_by_majority(self) -> int:
        """Return the last entry that a majority of the voters has on disk, as far as this one has."""
        return self.replication.held_by(self.voters, self._majority, self.self_id, self.countable())

    def _apply(self, commit: int) -> None:
        """Apply what was committed just now, if it is little: a member that catches up does so in ticks."""
        few = self.applied + APPLY_FEW
        if commit > self.applied and (commit <= few or self.countable() <= few):
            self.election.apply()

    def lacks_base(self, peer: str, message: RaftMessage) -> bool:
        """Whether a leader's entries stand behind bytes that this member, whose log is empty, does not have (R13)."""
        if self.log.last.index or not self.trusts(peer) or message.fields["term"] < self.election.term:
            return False
        return self.follower.lacks_base(message)

    def advance(self) -> None:
        """Move a follower's commit index to what it may believe."""
        self.election.commit = max(self.election.commit, self.follower.committed())

    def refresh_config(self) -> bool:
        """Put the last CONFIG entry of the log in force: after an append, and after a cut (R9); tell if it is new."""
        index = self.log.last_config()
        if (index, self.follower.cuts) == (self.config_index, self._config_cuts):
            return False  # after a cut another CONFIG may stand at the same index
        self.config_index, self._config_cuts = index, self.follower.cuts
        self._trusted.clear()
        config = self.config = GroupConfig.decode(self.log.payload(index)) if index else None
        self.voters, self.learners = (config.voters, config.learners) if config is not None else ((), ())
        self._majority = config.majority_size if config is not None else 0
        self.election.set_voters(self.voters, self.now())
        if self.leads:
            self.replication.set_members(self._others())
        return True

    def hand_out(self, commit: int) -> bool:
        """Send what was appended just now; whether that is all: the rest waits for disks, answers and the timer."""
        self.replication.pump(commit)
        return not self.replication.more

    def _others(self) -> list[str]:
        members = self.config.members if self.config is not None else ()
        return [member.id for member in members if member.id != self.self_id]

    def _heard(self, leader: str, term: int) -> bool:
        """Note that a leader of this term, or a higher one, spoke; whether it is the one that is followed already."""
        election, self._appended_at = self.election, self.now()
        followed = term == election.term and leader == election.leader
        self.prevote.cancel()
        if followed:
            election.follow_on()
        else:
            assert term != election.term or election.leader is None, f"{leader} and {election.leader} lead term {term}"
            self.stood = (self._appended_at, term, f"{leader} leads")
            election.follow(term, leader)
        self.follower.follow(leader, term)
        return followed
