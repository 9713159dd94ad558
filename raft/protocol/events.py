"""What a node tells its owner."""

from typing import Protocol

from raft.protocol.config import GroupConfig
from raft.protocol.types import Role


class NodeEvents(Protocol):
    """What happens in a node, told from inside the call in which it happened.

    on_commit may look at the node but call none of its methods, and may fail, which ends the node; the others come at
    the end of that call, and may propose.
    """

    def on_commit(self, index: int) -> None:
        """Apply everything up to `index`, which covers all entries since the last call; fates are told after it."""
        ...

    def on_role(self, role: Role, term: int) -> None:
        """Role or term changed."""
        ...

    def on_leader(self, member_id: str | None) -> None:
        """Another leader is followed, or none is known."""
        ...

    def on_config(self, config: GroupConfig) -> None:
        """Another CONFIG entry is in force, committed or not."""
        ...

    def on_fatal(self, error: BaseException) -> None:
        """Stop the process: this member can do nothing any more."""
        ...

    def wake(self) -> None:
        """Call tick() soon, at the end of this turn of the loop."""
        ...

    def push_in(self, seconds: float) -> None:
        """Call push() after so many seconds; asked for again only when that has been done."""
        ...

    def reset_wanted(self, member_id: str) -> None:
        """Copy the log from this leader: it no longer keeps what this member lacks (R13)."""
        ...
