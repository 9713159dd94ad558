"""What a server asks of its Raft node: who leads, who belongs to the group, and to take an entry."""

from collections.abc import Callable
from typing import Protocol

from raft.protocol.config import GroupConfig
from raft.protocol.types import OnFate, Refusal


class AgreedClocks(Protocol):
    """The members' clocks, as far as one of them knows."""

    def agreed(self, config: GroupConfig | None) -> bool:
        """Tell whether a majority is known to agree with this member's clock (R17)."""
        ...


class GroupNode(Protocol):
    """One member's node. Calls that change something return None, or why they did nothing; the rest is said later."""

    @property
    def term(self) -> int:
        """The term that it is in."""
        ...

    @property
    def serving(self) -> bool:
        """Whether it leads, with its own no-op committed and applied."""
        ...

    @property
    def leader_id(self) -> str | None:
        """The member that leads, as far as it knows."""
        ...

    @property
    def config(self) -> GroupConfig | None:
        """Who belongs to the group, committed or not; None while it is in none."""
        ...

    @property
    def config_index(self) -> int:
        """The entry that says so."""
        ...

    @property
    def applied_index(self) -> int:
        """Everything up to it is committed and applied."""
        ...

    @property
    def clocks(self) -> AgreedClocks:
        """What is known of the members' clocks."""
        ...

    def has_lease(self) -> bool:
        """Tell whether nobody else can lead at this moment (R7)."""
        ...

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        """Have `append(term, commit)` called, which appends an entry and returns its index (-1: LOG_REFUSES)."""
        ...

    def propose_meta(self, payload: bytes, on_fate: OnFate) -> Refusal | None:
        """Append a META entry."""
        ...

    def transfer(self, to: str | None) -> Refusal | None:
        """Hand the lead over, to the member that is furthest when none is named. Raises ConfigRefused."""
        ...

    def remove(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        """Take a member out. Raises ConfigRefused."""
        ...

    def leave(self, on_fate: OnFate) -> Refusal | None:
        """End the group. Raises ConfigRefused."""
        ...
