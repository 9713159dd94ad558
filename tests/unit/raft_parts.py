"""A member's role that a test sets, without a group behind it."""

from broker.raft_role import GroupRole


class SetNode:
    """What a GroupRole asks of a node."""

    def __init__(self) -> None:
        self.serving = False
        self.term = 0
        self.leader_id: str | None = None
        self.lease = True

    def has_lease(self) -> bool:
        return self.lease


class SetRole(GroupRole):
    """A GroupRole of member n1 that is told what it is."""

    def __init__(self) -> None:
        super().__init__("n1")
        self.node = SetNode()
        self.attach(self.node)

    def set(self, term: int, leader: str | None) -> None:
        self.node.term, self.node.leader_id, self.node.serving = term, leader, leader == "n1"
        self.refresh()
