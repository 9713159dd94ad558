"""How this member comes to have the group's first entry: it writes it, or is given it, or waits (R1).

Entry 1 is CONFIG. The member that bootstrap.decide() names writes it, makes it durable, and offers the very bytes to
every member listed in it whose log is empty, until each has it; whoever has it offers it on. A receiver takes it only
when its log is empty and the entry lists its own disk.
"""

import logging
import random
from collections.abc import Callable

from raft.bootstrap import Decision, Move, decide
from raft.core import Core
from raft.group import ID_BYTES, ConfigRefused, GroupConfig, Member, member_number
from raft.hello import Hello
from raft.messages import Kind, Message, entries_of, rows_of
from raft.settings import Peer
from raft.types import Entry, EntryRefused, EntryType

_log = logging.getLogger(__name__)

# Seconds that a founder gives the others to sync entry 1 before it asks for their votes.
ADOPT_SYNC_S = 0.02
# Seconds between two looks whether entry 1, just written, is on disk.
DURABLE_POLL_S = 0.002
# Heartbeats between two offers to one member, and between two looks at who is there.
OFFER_BEATS = 3


class Founding:
    """Drives a member from an empty log to the first entry of its group."""

    def __init__(self, core: Core, hello: Callable[[], Hello], rng: random.Random) -> None:
        self._core = core
        self._hello = hello
        self._rng = rng
        self.next_at = core.now()
        self.decision: Decision | None = None
        # Who took entry 1 from this member.
        self._adopters: set[str] = set()

    def step(self) -> None:
        """Decide, or offer entry 1, if that is due."""
        core = self._core
        if core.now() < self.next_at:
            return
        self.next_at = core.now() + OFFER_BEATS * core.beat_s
        if core.config is None and core.log.whole:
            # One whose CONFIG cannot be read has a group, and is told of it when it is repaired (R4).
            self._decide()
        if core.log.last.index == 1 and core.log.durable < 1:
            self.next_at = core.now() + DURABLE_POLL_S
        self._offer()

    def _decide(self) -> None:
        core = self._core
        others = {
            peer.id: core.hellos[peer.id] if peer.id in core.linked else None
            for peer in core.settings.peers
            if peer.id != core.self_id
        }
        decision = decide(self._hello(), others, core.self_id)
        if decision != self.decision:
            _log.log(logging.ERROR if decision.kind is Move.REFUSE else logging.INFO, "group: %s", decision.why)
        self.decision = decision
        if decision.kind in {Move.FORM, Move.ALONE}:
            self.found(alone=decision.kind is Move.ALONE)

    def found(self, *, alone: bool) -> None:
        """Write entry 1: with all peers as voters, or with this member as the one voter and the others as learners."""
        core, last = self._core, self._core.log.last
        members = [self._founder(peer, alone=alone) for peer in core.settings.peers]
        members.sort(key=lambda member: member_number(member.id))
        config = GroupConfig(
            self._rng.randbytes(ID_BYTES), tuple(members), last.end, last.index, last.term, core.log.digest()
        )
        term = max(core.election.term, last.term) + 1
        core.step_down(term)
        core.log.append(EntryType.CONFIG, term, config.encode(), core.election.commit)
        core.sync_first()
        core.refresh_config()
        core.promised_nothing()

    def _founder(self, peer: Peer, *, alone: bool) -> Member:
        if peer.id == self._core.self_id:
            return Member(peer.id, peer.address, self._core.votes.store_id)
        return Member(peer.id, peer.address, self._core.hellos[peer.id].store_id, voter=not alone)

    def _offer(self) -> None:
        """Send entry 1 to those listed in it whose log is empty. One behind other bytes is copied, not offered."""
        core, first = self._core, 1
        if core.config is None or core.config.base_position or core.config.base_index or core.log.base.index:
            return
        if core.log.durable < first or core.log.term(first) is None:
            return
        lacking = [peer for peer in sorted(core.linked) if self._lacks(peer)]
        if not lacking or core.log.kind(first) != EntryType.CONFIG:
            return
        entry = core.log.read(first, 1)[:1]
        listed = GroupConfig.decode(core.log.payload(first))
        for peer in lacking:
            member = listed.member(peer)
            if member is not None and member.store_id == core.hellos[peer].store_id:
                fields = {"group_id": listed.group_id, "entries": rows_of(entry)}
                core.send(peer, Message(Kind.ADOPT, fields, tuple(e.data for e in entry)))

    def _lacks(self, peer: str) -> bool:
        hello = self._core.hellos[peer]
        return hello.empty and not hello.group_id

    def adopt(self, peer: str, message: Message) -> None:
        """Take the group's first entry if this log is empty, and answer."""
        group_id = message.fields["group_id"]
        why = self.refuse_to_adopt(group_id) if self._core.config is not None or not self._hello().empty else None
        if why is None and self._core.config is None:
            why = self._take(entries_of(message), group_id)
        if why:
            _log.warning("the first entry of a group, offered by %s, is refused: %s", peer, why)
        answer = {"group_id": group_id, "ok": not why, "why": (why or "")[:1000]}
        self._core.send(peer, Message(Kind.ADOPT_REPLY, answer))

    def refuse_to_adopt(self, group_id: bytes) -> str | None:
        """Return why a member that has something does not take another's first entry, None if it has that one."""
        config = self._core.config
        if config is None:
            return "this member's store holds messages"
        return None if config.group_id == group_id else "this member is in another group"

    def _take(self, entries: list[Entry], group_id: bytes) -> str | None:
        core = self._core
        if len(entries) != 1 or entries[0].index != 1 or entries[0].position != 0:
            return "it is not the first entry of a log"
        try:
            core.log.accept(entries)
        except EntryRefused as error:
            return str(error)
        why = self._unfit(group_id)
        if why is not None:
            core.log.cut(0)
            return why
        core.step_down(max(entries[0].term, core.election.term))
        core.sync_first()
        core.refresh_config()
        core.promised_nothing()
        return None

    def _unfit(self, group_id: bytes) -> str | None:
        core = self._core
        if core.log.kind(1) != EntryType.CONFIG:
            return "it is no CONFIG entry"
        try:
            config = GroupConfig.decode(core.log.payload(1))
        except ConfigRefused as error:
            return str(error)
        own = config.member(core.self_id)
        if config.group_id != group_id or own is None or own.store_id != core.votes.store_id:
            return "it does not list this member with its disk"
        return None

    def adopted(self, peer: str, message: Message) -> None:
        """Note that a member has the first entry."""
        core = self._core
        hello = core.hellos.get(peer)
        if hello is not None and message.fields["ok"] and core.config is not None and not hello.group_id:
            core.hellos[peer] = hello._replace(group_id=message.fields["group_id"], empty=False, has_log=True)
            self._adopters.add(peer)
            if core.log.last.index == 1 and core.config.majority([*self._adopters, core.self_id]):
                # Enough can vote at once, and nobody leads: there is nothing more to wait for.
                core.election.deadline = core.now() + ADOPT_SYNC_S
