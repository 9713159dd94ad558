"""Handing over the lead (R7): stop proposing, let the other catch up, drop the lease, then tell it to stand."""

import logging

from raft.core.core import Core
from raft.core.room import SEEK_AGAIN_SECONDS, SEEK_SECONDS
from raft.protocol.types import Refusal

_log = logging.getLogger(__name__)


class Handover:
    """At most one transfer at a time, by the leader."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.target: str | None = None
        """Who is to lead next, None while nobody is."""
        self.told = False
        """Whether it was told to stand: from then on this member can only step down."""
        self._term = 0
        self._until = 0.0
        self._preferred_at = 0.0
        self._seek_at = 0.0
        self._fled: int | None = None

    @property
    def next_at(self) -> float:
        """When step() is due."""
        return self._until if self.target is not None else float("inf")

    def begin(self, to: str | None, *, odd: bool = False) -> Refusal | None:
        """Start handing over to a voter, or to the one that is furthest; BUSY when none can be reached.

        One without room on its disk only when nobody that is close has any; one that is named when nobody has. One
        whose clock is far from this member's may not stand anyway; with `odd` it is this member's that is wrong.
        """
        core = self._core
        if not core.leads or core.config is None:
            return Refusal.NOT_LEADER
        if self.target is not None:
            return Refusal.TRANSFERRING
        near = core.log.last.index - core.settings.catch_up_entries
        ready = [
            (peer.match >= near, core.room.has(voter), peer.match, voter)
            for voter, peer in core.replication.peers.items()
            if voter in core.linked
            and core.config.is_voter(voter)
            and core.trusts(voter)
            and (odd or not core.clocks.is_odd(voter))
        ]
        best = max((each for each in ready if to in {None, each[-1]}), default=None)
        if best is None:
            return Refusal.BUSY
        if to is not None and not best[1] and (core.log.refused is None or any(each[1] for each in ready)):
            # It would hand the lead on at once.
            return Refusal.BUSY
        self.target, self.told, self._term = best[-1], False, core.election.term
        self._until = core.now() + core.settings.transfer_ms / 1000
        _log.info("handing over the lead to %s", self.target)
        return None

    def step(self) -> None:
        """Tell the other once it has everything; give up when it takes too long."""
        core = self._core
        if self.target is None:
            return
        if not core.leads or core.election.term != self._term:
            self.target, self.told = None, False
        elif core.now() >= self._until:
            _log.warning("%s did not take over the lead in time", self.target)
            self._give_up()
        elif not self.told and self._has_everything(self.target):
            # In this order: no read may be answered from a lease that the other's voters do not respect.
            self.told = True
            core.lease.drop()
            core.election.hand_over(self.target)

    def flee(self, why: str) -> None:
        """Lead no more, because this member must not (R17): hand over, once; if that does not help, just stop.

        The others' clocks are all far from this one when it was set: whoever is furthest is asked.
        """
        core = self._core
        if self.target is not None:
            return
        term = core.election.term
        if self._fled == term or self.begin(None, odd=True) is not None:
            core.step_aside(why)
        self._fled = term

    def seek(self) -> None:
        """Hand over when another member should lead: one that has room, or the preferred one."""
        self._seek_room()
        self._prefer()

    def _seek_room(self) -> None:
        """Hand over to a member that has room, once this one's log has taken nothing for SEEK_SECONDS.

        It must have caught up, or nearly: a transfer is given up soon. While nobody has room the lead stays.
        """
        core = self._core
        if core.room.lacking_s < SEEK_SECONDS or self.target is not None or core.now() < self._seek_at:
            return
        peers, last = core.replication.peers, core.log.last.index
        near = [
            (peers[voter].match, voter)
            for voter in core.voters_with_room()
            if voter in peers and last - peers[voter].match <= core.settings.catch_up_entries
        ]
        if near and self.begin(max(near)[1]) is None:
            self._seek_at = core.now() + SEEK_AGAIN_SECONDS
            _log.warning("this member's log takes nothing (%s): another one is to lead", core.log.refused)

    def _prefer(self) -> None:
        """Hand over to the preferred leader whenever it has caught up, looked at every preferred_check_ms."""
        core, wanted = self._core, self._core.settings.preferred_leader
        if not wanted or wanted == core.self_id or self.target is not None or core.now() < self._preferred_at:
            return
        self._preferred_at = core.now() + core.settings.preferred_check_ms / 1000
        peer = core.replication.peers.get(wanted)
        if peer is not None and core.log.last.index - peer.match <= core.settings.catch_up_entries:
            self.begin(wanted)

    def _has_everything(self, voter: str) -> bool:
        core = self._core
        peer = core.replication.peers.get(voter)
        last = core.log.last.index
        if peer is None or min(peer.match, core.countable()) < last:
            return False
        core.election.counted(voter, last, peer.answered_at)
        return True

    def _give_up(self) -> None:
        core = self._core
        if self.told:
            # The request to stand, or votes for it, may still arrive: with them in the air there is no lease in this
            # term any more, so another term must begin.
            core.election.follow(self._term, None)
        self.target, self.told = None, False
