"""A member's node and role that a test sets, without a group behind them."""

from collections.abc import Callable

from broker.raft_group.role import GroupRole
from raft.protocol.config import GroupConfig
from raft.protocol.group_node import AgreedClocks
from raft.protocol.types import OnFate, Refusal


class SetNode:
    """A GroupNode that is what the test says; it takes nothing, unless a test's own class does."""

    def __init__(self) -> None:
        self.serving = False
        self.term = 0
        self.leader_id: str | None = None
        self.lease = True
        self.config: GroupConfig | None = None

    @property
    def config_index(self) -> int:
        raise NotImplementedError

    @property
    def applied_index(self) -> int:
        raise NotImplementedError

    @property
    def clocks(self) -> AgreedClocks:
        raise NotImplementedError

    def has_lease(self) -> bool:
        return self.lease

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        raise NotImplementedError

    def propose_meta(self, payload: bytes, on_fate: OnFate) -> Refusal | None:
        raise NotImplementedError

    def transfer(self, to: str | None) -> Refusal | None:
        raise NotImplementedError

    def remove(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        raise NotImplementedError

    def leave(self, on_fate: OnFate) -> Refusal | None:
        raise NotImplementedError


class SetRole(GroupRole):
    """A GroupRole of member n1 that is told what it is."""

    def __init__(self) -> None:
        super().__init__("n1")
        self.node = SetNode()
        self.attach(self.node)

    def set(self, term: int, leader: str | None) -> None:
        self.node.term, self.node.leader_id, self.node.serving = term, leader, leader == "n1"
        self.refresh()
