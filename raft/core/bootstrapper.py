"""How this member comes to have the group's first entry: it writes it, or is given it, or waits (R1).

Entry 1 is CONFIG. The member that bootstrap.decide() names writes it, makes it durable, and offers the very bytes to
every member listed in it whose log is empty, until each has it; whoever has it offers it on. A receiver takes it only
when its log is empty and the entry lists its own disk.

One that a person told to come to the group with the messages that it has (R16) says in its hello where they end and
their digest. It is offered the first entry once the CONFIG in force lists its disk and these are the group's base, and
takes it when the entry continues its log, CRC chain included. Until then it takes nothing and says nothing of entries:
an answer to an append would be counted as if it had what the answer names. If its log is another one, it is copied.
"""

import logging
import random
from collections.abc import Callable, Mapping

from raft.core.bootstrap import BootstrapDecision, Move, decide, decide_to_found, decide_to_join
from raft.core.core import Core
from raft.protocol.config import ID_BYTES, ConfigRefused, GroupConfig, Member, member_number
from raft.protocol.hello import Hello
from raft.protocol.messages import MessageKind, RaftMessage, entries_of, rows_of
from raft.protocol.settings import Peer
from raft.protocol.types import Entry, EntryRefused, EntryType, Mark

_log = logging.getLogger(__name__)

# Seconds that a founder gives the others to sync entry 1 before it asks for their votes.
ADOPT_SYNC_S = 0.02
# Seconds between two looks whether entry 1, just written, is on disk.
DURABLE_POLL_S = 0.002
# Heartbeats between two offers to one member, and between two looks at who is there.
OFFER_BEATS = 3


class Founding:
    """Drives a member from an empty log to the first entry of its group."""

    def __init__(
        self, core: Core, hello: Callable[[], Hello], rng: random.Random, reset: Callable[[str], None]
    ) -> None:
        """`reset` is told of whom this member's log must be copied from."""
        self._core = core
        self._reset = reset
        self._hello = hello
        self._rng = rng
        self.next_at = core.now()
        self.decision: BootstrapDecision | None = None
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
        decision = self._decided(others)
        if decision != self.decision:
            _log.log(logging.ERROR if decision.kind is Move.REFUSE else logging.INFO, "group: %s", decision.why)
        self.decision = decision
        if decision.kind in {Move.FORM, Move.ALONE}:
            self.found(alone=decision.kind is Move.ALONE)
        elif decision.kind is Move.COPY:
            grouped = (peer for peer in sorted(core.linked) if core.hellos[peer].group_id == core.settings.joins)
            self._reset(next(grouped))

    def _decided(self, others: Mapping[str, Hello | None]) -> BootstrapDecision:
        settings = self._core.settings
        if settings.founds:
            return decide_to_found(others)
        if settings.joins:
            return decide_to_join(self._hello(), others, settings.joins)
        return decide(self._hello(), others, self._core.self_id)

    def found(self, *, alone: bool) -> None:
        """Write entry 1: with all peers as voters, or with this member as the one voter and the others as learners.

        When a person said so the others are left out: they are told, and added, one by one.
        """
        core, last = self._core, self._core.log.last
        peers = (core.settings.own,) if core.settings.founds else core.settings.peers
        members = [self._founder(peer, alone=alone) for peer in peers]
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
        """Send the first entry to members whose log is empty, or is exactly what stands before it and was sent for.

        A log that is empty when others begin with bytes is copied, not offered anything.
        """
        core, config = self._core, self._core.config
        lacking = [] if config is None else [peer for peer in sorted(core.linked) if self._lacks(peer, config)]
        if not lacking or config is None:
            return
        first = config.base_index + 1
        if core.log.base.index >= first:
            self._tell_behind(lacking)
            return
        if core.log.durable < first or core.log.term(first) is None or core.log.kind(first) != EntryType.CONFIG:
            return
        entry = core.log.read(first, 1)[:1]
        listed = GroupConfig.decode(core.log.payload(first))
        for peer in lacking:
            # One that comes with messages was added later.
            member = (listed if core.hellos[peer].empty else config).member(peer)
            if member is not None and member.store_id == core.hellos[peer].store_id:
                fields = {"group_id": listed.group_id, "entries": rows_of(entry)}
                core.send(peer, RaftMessage(MessageKind.ADOPT, fields, tuple(e.data for e in entry)))

    def _lacks(self, peer: str, config: GroupConfig) -> bool:
        hello = self._core.hellos[peer]
        if hello.group_id:
            return False
        if hello.base_position:
            return hello.base == config.base
        return hello.empty and not (config.base_position or config.base_index)

    def _tell_behind(self, lacking: list[str]) -> None:
        """Tell members whose messages end where the group began that what followed is kept no longer (R13)."""
        core = self._core
        fields = {"term": core.election.term, "base_index": core.log.base.index, "base_term": core.log.base.term}
        for peer in lacking if core.leads else ():
            if not core.hellos[peer].empty:
                core.send(peer, RaftMessage(MessageKind.BEHIND, fields))

    def adopt(self, peer: str, message: RaftMessage) -> None:
        """Take the group's first entry if this log is empty, and answer."""
        group_id = message.fields["group_id"]
        core = self._core
        free = self._hello().empty or core.settings.joins == group_id
        why = self.refuse_to_adopt(group_id) if core.config is not None or not free else None
        if why is None and core.config is None:
            why = self._take(entries_of(message), group_id)
        if why:
            _log.warning("the first entry of a group, offered by %s, is refused: %s", peer, why)
        answer = {"group_id": group_id, "ok": not why, "why": (why or "")[:1000]}
        core.send(peer, RaftMessage(MessageKind.ADOPT_REPLY, answer))

    def refuse_to_adopt(self, group_id: bytes) -> str | None:
        """Return why a member that has something does not take another's first entry, None if it has that one."""
        config = self._core.config
        if config is None:
            return "this member's store holds messages"
        return None if config.group_id == group_id else "this member is in another group"

    def _take(self, entries: list[Entry], group_id: bytes) -> str | None:
        core, base = self._core, self._core.log.last
        if len(entries) != 1 or entries[0].index != base.index + 1:
            return f"it does not come next behind entry {base.index}, the last one here"
        # Where it may stand the log knows: at its end, or in the next file where it does not fit into this one (R11).
        try:
            core.log.accept(entries)
        except EntryRefused as error:
            return str(error)
        why = self._unfit(group_id, base)
        if why is not None:
            core.log.cut(base.index)
            return why
        core.step_down(max(entries[0].term, core.election.term))
        core.sync_first()
        core.refresh_config()
        core.promised_nothing()
        return None

    def _unfit(self, group_id: bytes, base: Mark) -> str | None:
        core, first = self._core, base.index + 1
        if core.log.kind(first) != EntryType.CONFIG:
            return "it is no CONFIG entry"
        try:
            config = GroupConfig.decode(core.log.payload(first))
        except ConfigRefused as error:
            return str(error)
        if config.group_id != group_id:
            return "it is of another group"
        own = config.member(core.self_id)
        if own is None and core.settings.joins == group_id:
            # Its CRC chain says so too: this is a second look at what a wrong answer to could not be mended.
            same = config.base == (base.index, base.end, core.log.digest())
            return None if same else "the group's log begins behind other bytes than are here"
        if own is None or own.store_id != core.votes.store_id:
            return "it does not list this member with its disk"
        return None

    def adopted(self, peer: str, message: RaftMessage) -> None:
        """Note that a member has the first entry."""
        core = self._core
        hello = core.hellos.get(peer)
        if hello is not None and message.fields["ok"] and core.config is not None and not hello.group_id:
            core.hellos[peer] = hello._replace(group_id=message.fields["group_id"], empty=False, has_log=True)
            self._adopters.add(peer)
            if core.log.last.index == 1 and core.config.majority([*self._adopters, core.self_id]):
                # Enough can vote at once, and nobody leads: there is nothing more to wait for.
                core.election.deadline = core.now() + ADOPT_SYNC_S
