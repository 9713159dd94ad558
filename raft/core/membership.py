"""Changes of the group, one node at a time, by CONFIG entries (R9): when one may follow, and the leader's own ones."""

import logging
from collections.abc import Callable

from raft.core.core import Core
from raft.protocol.config import ConfigRefused, GroupConfig, Member, check_step
from raft.protocol.types import EntryType, Fate, OnFate, Refusal

_log = logging.getLogger(__name__)

Propose = Callable[[EntryType, bytes, OnFate], Refusal | None]


class Membership:
    """The leader's hand on CONFIG entries."""

    def __init__(self, core: Core, propose: Propose) -> None:
        self._core = core
        self._propose = propose

    def refuse(self) -> Refusal | None:
        """Return why no change may be proposed now: the last one, or this term's no-op, is not committed yet."""
        core = self._core
        if not core.leads:
            return Refusal.NOT_LEADER
        if core.config is None or core.config.classic or core.applied < max(core.election.noop, core.config_index):
            return Refusal.CHANGE_PENDING
        return None

    def add_learner(self, member: Member, on_fate: OnFate) -> Refusal | None:
        """Add a member that receives the log and does not vote."""
        return self._change(lambda config: config.with_learner(member), on_fate)

    def promote(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        """Let a learner vote."""
        return self._change(lambda config: config.promoted(member_id), on_fate)

    def remove(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        """Take a member out, another than the leader."""
        if member_id == self._core.self_id:
            raise ConfigRefused(f"{member_id} leads: transfer the lead to another member first, then remove it")
        return self._change(lambda config: config.without(member_id), on_fate)

    def leave(self, on_fate: OnFate) -> Refusal | None:
        """End the group: this member, the only one left, becomes a single broker (R2)."""
        return self._change(lambda config: config.left(), on_fate)

    def promote_ready(self) -> None:
        """Let the first learner vote that has caught up."""
        core = self._core
        if not core.learners or self.refuse() is not None:
            return
        for learner in core.learners:
            if self.caught_up(learner):
                _log.info("%s has caught up and votes from now on", learner)
                self.promote(learner, _ignore)
                return

    def caught_up(self, member_id: str) -> bool:
        """Whether a peer is there, has this term's no-op on disk, and is close to the end of the log."""
        core = self._core
        peer = core.replication.peers.get(member_id)
        if peer is None or member_id not in core.linked or not core.trusts(member_id):
            return False
        if peer.match < core.election.noop or core.now() - peer.answered_at > core.election_s:
            return False
        return core.log.last.index - peer.match <= core.settings.catch_up_entries

    def _change(self, step: Callable[[GroupConfig], GroupConfig], on_fate: OnFate) -> Refusal | None:
        """Append the next CONFIG. Raises ConfigRefused, in words, when it makes no sense."""
        refusal = self.refuse()
        if refusal is not None:
            return refusal
        assert self._core.config is not None
        new = step(self._core.config)
        why = check_step(self._core.config, new)
        if why is not None:
            raise ConfigRefused(why)
        return self._propose(EntryType.CONFIG, new.encode(), on_fate)


def _ignore(fate: Fate) -> None:
    """Take no note: the leader made this change by itself, and looks at CONFIG."""
