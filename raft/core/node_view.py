"""What a node says of itself to whoever asks."""

from raft.core.clocks import Clocks
from raft.core.core import Core
from raft.core.leader_transfer import Handover
from raft.protocol.config import GroupConfig
from raft.protocol.types import Role


class NodeView:
    """Role, term, leader, how far it is, and whether it may answer; asking changes nothing."""

    ended: bool
    _core: Core
    _handover: Handover

    @property
    def role(self) -> Role:
        """What this member is."""
        return Role.FOLLOWER if self.ended else self._core.election.role

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.election.term

    @property
    def leader_id(self) -> str | None:
        """The leader of this term, None while none is known."""
        return None if self.ended else self._core.election.leader

    @property
    def commit_index(self) -> int:
        """Everything up to it is committed."""
        return min(self._core.election.commit, self._core.countable())

    @property
    def applied_index(self) -> int:
        """Everything up to it was given to on_commit, which returned."""
        return self._core.applied

    @property
    def config(self) -> GroupConfig | None:
        """The members in force, None while this one is in no group."""
        return self._core.config

    @property
    def config_index(self) -> int:
        """The index of that CONFIG entry."""
        return self._core.config_index

    @property
    def serving(self) -> bool:
        """Whether it leads, and everything up to its own no-op is committed and applied."""
        return self.role is Role.LEADER and self._core.may_serve()

    @property
    def has_quorum(self) -> bool:
        """Whether it leads and a majority answers, or follows a leader."""
        return not self.ended and self._core.has_quorum()

    def has_lease(self) -> bool:
        """Whether a read may be answered from what is committed here, at this very moment (R7)."""
        return self.serving and self._handover.target is None and self._core.has_lease()

    @property
    def clocks(self) -> Clocks:
        """What is known of the members' wall clocks (R17)."""
        return self._core.clocks
