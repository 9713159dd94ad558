"""RaftNode: one member of a group, without any I/O of its own. Messages and time come in, calls of NodeEvents go out.

Everything happens in one thread, inside the call that brings it. Whatever goes wrong with log or vote file, or breaks
an invariant, ends the node: on_fatal is called once, every open proposal is UNKNOWN, and nothing is done any more.
"""

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from raft.core.bootstrapper import Founding
from raft.core.core import Core
from raft.core.entry_point import entry
from raft.core.leader_transfer import Handover
from raft.core.library_clock import entered
from raft.core.membership import Membership
from raft.core.node_view import NodeView
from raft.core.proposals import Proposals
from raft.core.repair import Repair
from raft.core.status import describe
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig, Member
from raft.protocol.events import NodeEvents
from raft.protocol.hello import Hello, HelloError
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.settings import RaftSettings
from raft.protocol.types import EntryRefused, EntryType, Log, OnFate, Refusal, Role
from runtime.clock import Clock, SteadyClock

_log = logging.getLogger(__name__)

# What comes with every entry, where a tick for each would cost more than the entry; and what no tick follows from.
_QUIET = frozenset({MessageKind.APPEND, MessageKind.APPEND_REPLY, MessageKind.CLOCK, MessageKind.CLOCK_REPLY})


class RaftNode(NodeView):
    """One member. `core_class` may be another one, with other decisions.

    A SteadyClock that is handed in is told what the majority agrees with: what is proposed is to be stamped by it.
    """

    core_class = Core

    def __init__(
        self,
        settings: RaftSettings,
        log: Log,
        votes: VoteFile,
        *,
        hello: Callable[[], Hello],
        clock: Clock,
        rng: random.Random,
        send: Callable[[str, RaftMessage], bool],
        events: NodeEvents,
    ) -> None:
        self.settings = settings
        self.steady = clock if isinstance(clock, SteadyClock) else SteadyClock(clock)
        self.monotonic = clock.monotonic
        self.send = send
        self.ended, self._started = True, False
        self._log = log
        self._hello = hello
        self._events = events
        self._open = Proposals()
        self._woken = False
        # Role, term and leader as the owner was told; and whether proposals of earlier terms are open still.
        self._told_seat: tuple[Any, ...] | None = None
        self._buries = False
        self._told_role: tuple[Role, int] | None = None
        self._told_leader: str | None = None
        self._told_config: GroupConfig | None = None
        self._reset_asked = float("-inf")
        with entered(self.monotonic):
            self._core = self.core_class(settings, log, votes, self, rng)
            self._founding = Founding(self._core, hello, rng, self._ask_reset)
            self._membership = Membership(self._core, self._propose_entry)
            self._handover = Handover(self._core)
            self._repair = Repair(self._core, self._ask_reset)
        core, founding, repair = self._core, self._founding, self._repair
        self.append_times, self.starved = core.replication.times, core.starved
        self._handlers: dict[MessageKind, Callable[[str, RaftMessage], object]] = {
            MessageKind.HELLO: self._hello_again,
            MessageKind.APPEND: self._append_or_reset,
            MessageKind.APPEND_REPLY: core.append_reply,
            MessageKind.PRE_VOTE: core.pre_vote,
            MessageKind.PRE_VOTE_REPLY: core.pre_vote_reply,
            MessageKind.VOTE: core.vote,
            MessageKind.VOTE_REPLY: core.vote_reply,
            MessageKind.TIMEOUT_NOW: core.timeout_now,
            MessageKind.BEHIND: self._behind,
            MessageKind.ADOPT: founding.adopt,
            MessageKind.ADOPT_REPLY: founding.adopted,
            MessageKind.REPAIR: repair.asked,
            MessageKind.CLOCK: core.clock_asked,
            MessageKind.CLOCK_REPLY: core.clock_told,
            MessageKind.REPAIR_READ: repair.asked_bytes,
            MessageKind.REPAIR_BYTES: repair.answered,
        }

    # -- what the core asks of the world (voting.Outside); monotonic and send are attributes --

    def apply(self, index: int) -> None:
        """Let the owner apply what was committed."""
        self._events.on_commit(index)

    def push_in(self, seconds: float) -> None:
        """Let push() be called after so long."""
        self._events.push_in(seconds)

    # -- life --

    def start(self) -> None:
        """Begin: from now on tick() does what is due."""
        assert not self._started, "a node starts once"
        self._started, self.ended = True, False
        self._wake()

    def stop(self) -> None:
        """End: open proposals are UNKNOWN, and every later call does nothing."""
        self.end(None)

    def end(self, error: BaseException | None) -> None:
        """Do nothing any more, because the owner stops it or because `error` happened."""
        if self.ended:
            return
        self.ended = True
        self._open.end()
        if error is not None:
            _log.error("member %s ends", self.settings.self_id, exc_info=error)
            self._events.on_fatal(error)

    def tick(self) -> float:
        """Do what is due; return the seconds until it wants to be called again."""
        self._woken = False
        wait = self._tick()
        return 3600.0 if wait is None else wait

    @entry
    def _tick(self) -> float:
        core = self._core
        self._founding.step()
        self._repair.step()
        core.clocks.look(core.config)
        if core.room.look():
            self._say_hello()
        if core.leads:
            if core.clocks.apart:
                self._handover.flee(core.clocks.apart)
            else:
                self._membership.promote_ready()
                self._handover.seek()
        self._handover.step()
        core.tick()
        self._handover.step()
        due = min(core.next_at(), self._handover.next_at, self._repair.next_at, core.room.say_at)
        if core.config is None or core.linked:
            due = min(due, max(self._founding.next_at, core.now()))
        return max(0.0, due - core.now())

    @entry
    def push(self) -> None:
        """Tell the others what is committed, if no entry has done so: what was asked for by push_in."""
        self._core.replication.pushed(self._core.election.commit)

    # -- links and messages --

    @entry
    def connected(self, peer: str, hello: Hello) -> None:
        """Note a link to `peer`, which said `hello` and was not refused by hello.judge()."""
        assert hello.self_id == peer, f"{peer} calls itself {hello.self_id}"
        self._core.linked_to(peer, hello)
        self._greeted()

    def _greeted(self) -> None:
        self._founding.next_at = min(self._founding.next_at, self._core.now())
        self._wake()

    @entry
    def disconnected(self, peer: str) -> None:
        """Note that there is no link to `peer` any more."""
        self._core.unlinked(peer)
        self._wake()

    @entry
    def receive(self, peer: str, message: RaftMessage) -> None:
        """Take a message; who sent it was proved by the handshake."""
        handler = self._handlers.get(message.kind)
        if handler is None:
            _log.warning("%s sent %s, which is not for a running member", peer, message.kind.name)
            return
        try:
            handler(peer, message)
        except HelloError as error:
            _log.warning("%s: %s", peer, error)
        if message.kind not in _QUIET or self._core.wants_tick() or self._handover.target is not None:
            self._wake()

    def _append_or_reset(self, peer: str, message: RaftMessage) -> None:
        if self._core.lacks_base(peer, message):
            self._ask_reset(peer)
        else:
            self._core.append(peer, message)

    def _behind(self, peer: str, message: RaftMessage) -> None:
        if self._core.behind(peer, message):
            self._ask_reset(peer)

    @entry
    def durable(self, index: int) -> None:
        """Note that the log is on disk up to `index`: acknowledge it, or count it."""
        assert index <= self._log.durable, f"durable up to {index}, the log says {self._log.durable}"
        self._core.durable()
        if self._core.wants_tick() or self._handover.target is not None:
            self._wake()

    # -- proposals --

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        """Let `append(term, commit)` append one MESSAGES entry and return its index, -1 for none.

        None: appended, and `on_fate` is called once. LOG_REFUSES: nothing was appended, for want of room too. A failing
        disk ends the node, and on_fate says UNKNOWN.
        """
        refusal = self._refuse()
        return self._append(append, on_fate) if refusal is None else refusal

    def propose_meta(self, payload: bytes, on_fate: OnFate) -> Refusal | None:
        """Append a META entry."""
        return self._propose_entry(EntryType.META, payload, on_fate)

    def _propose_entry(self, kind: EntryType, payload: bytes, on_fate: OnFate) -> Refusal | None:
        return self.propose(lambda term, commit: self._log.append(kind, term, payload, commit), on_fate)

    def _refuse(self) -> Refusal | None:
        if self.ended or not self._core.election.leads:
            return Refusal.NOT_LEADER
        if self._handover.target is not None:
            return Refusal.TRANSFERRING
        if self._core.config is None or self._core.config.classic:
            return Refusal.CHANGE_PENDING
        return Refusal.BUSY if len(self._open.open) >= self.settings.proposals_max else None

    @entry
    def _append(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        core, election = self._core, self._core.election
        term, commit = election.term, election.commit
        key = self._open.begin(term, on_fate)
        try:
            index, why = append(term, commit), ""
        except EntryRefused as error:
            index, why = -1, str(error)
        if index < 0:
            self._open.refused(key, why)
            return Refusal.LOG_REFUSES
        assert index == self._log.last.index, f"entry {index} was appended, the log ends at {self._log.last.index}"
        self._open.placed(key, index)
        election.await_fate(index, term, partial(self._open.settle, key))
        if core.refresh_config() or not core.hand_out(commit):
            self._wake()
        self._log.sync_soon()
        return None

    # -- membership and transfer: ConfigRefused, in words, when a change makes no sense --

    def add_learner(self, member: Member, on_fate: OnFate) -> Refusal | None:
        """Add a member that receives the log; the leader lets it vote when it has caught up."""
        return self._change(lambda: self._membership.add_learner(member, on_fate))

    def promote(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        """Let a learner vote now."""
        return self._change(lambda: self._membership.promote(member_id, on_fate))

    def remove(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        """Take a member out, another than the leader."""
        return self._change(lambda: self._membership.remove(member_id, on_fate))

    def leave(self, on_fate: OnFate) -> Refusal | None:
        """End a group of one: CONFIG "classic from here" (R2)."""
        return self._change(lambda: self._membership.leave(on_fate))

    def _change(self, change: Callable[[], Refusal | None]) -> Refusal | None:
        if self.ended:
            return Refusal.NOT_LEADER
        with entered(self.monotonic):
            return self._refuse() or change()

    def transfer(self, to: str | None = None) -> Refusal | None:
        """Hand the lead over to a voter, or to the one that is furthest; BUSY when none can be reached.

        None means that it began. Proposals are TRANSFERRING until it succeeded or was given up.
        """
        return Refusal.NOT_LEADER if self.ended else self._transfer(to)

    @entry
    def _transfer(self, to: str | None) -> Refusal | None:
        refusal = self._handover.begin(to)
        self._wake()
        return refusal

    # -- what it is: see NodeView --

    def status(self) -> dict[str, Any]:
        """Return the state for people and machines: plain values, times in milliseconds."""
        return describe(self._core) | {
            "ended": self.ended,
            "serving": self.serving,
            "lease": self.has_lease(),
            "transferring_to": self._handover.target,
            "open_proposals": len(self._open.open),
            **self._repair.describe(),
            "founding": self._founding.decision.why if self._founding.decision is not None else None,
        }

    # -- inside --

    def settle(self) -> None:
        """Tell the owner what changed; called at the end of every way in."""
        core, seat = self._core, self._core.election.seat()
        if seat != self._told_seat or self._buries:
            self._told_seat = seat
            self._tell()
        if core.config is not None and core.config is not self._told_config:
            self._told_config = core.config
            self._say_hello()
            self._events.on_config(core.config)

    def _tell(self) -> None:
        core, election = self._core, self._core.election
        core.settle()
        self._buries = self._open.has_older(election.term)
        if self._buries:
            self._open.bury(core.applied, self._log.term(core.applied) or 0)
        role = (election.role, election.term)
        if role != self._told_role:
            self._told_role = role
            self._wake()
            self._events.on_role(*role)
        leader = election.leader
        if leader != self._told_leader:
            self._told_leader = leader
            self._events.on_leader(leader)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._events.wake()

    def _ask_reset(self, leader: str) -> None:
        if self.monotonic() - self._reset_asked > self._core.election_s:
            self._reset_asked = self.monotonic()
            self._events.reset_wanted(leader)

    def _say_hello(self) -> None:
        """Let the peers know of this member's group and CONFIG, which their trust depends on, and of its room."""
        hello = self._core.room.marked(self._hello()).encode()
        for peer in sorted(self._core.linked):
            self.send(peer, RaftMessage(MessageKind.HELLO, {"hello": hello}))

    def _hello_again(self, peer: str, message: RaftMessage) -> None:
        hello = Hello.decode(message.fields["hello"])
        if peer in self._core.linked and hello.self_id == peer:
            self._core.joined(peer, hello)
            self._greeted()
