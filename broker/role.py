"""What this broker is to its clients at the moment: the one that takes messages, or one that follows.

Every part that differs between the two asks a `BrokerRole`, handed to it by the composition root, and learns of a
change by subscribing. A broker without a group is `Standalone`: it always leads.
"""

from collections.abc import Callable
from typing import Protocol

# What the leader is in the route, and a broker without a group (RocketMQ: MixAll.MASTER_ID).
MASTER_ID = 0


class BrokerRole(Protocol):
    """Read at every request that only a leader may answer: attributes, not calls, except for the lease."""

    @property
    def leads(self) -> bool:
        """Whether this broker serves as leader: its term's no-op is committed, and everything before it dispatched."""
        ...

    @property
    def term(self) -> int:
        """The term of the group as this member knows it; 0 without a group. Never falls."""
        ...

    @property
    def broker_id(self) -> int:
        """What it is in the route: 0 while it leads, else the number of the member + 1."""
        ...

    @property
    def leader_address(self) -> str | None:
        """Where the leader takes clients' requests, "host:port"; None when no leader is known, or this is it."""
        ...

    def lease(self) -> bool:
        """Tell whether no other member can lead at this very moment; asked at each answer that depends on it."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in the loop after each change of leads, term, broker_id or leader_address."""
        ...


class MasterWatch(Protocol):
    """What a slave knows of its master."""

    @property
    def master_alive(self) -> bool:
        """Whether it can serve, as far as can be seen from here."""
        ...


class Standalone:
    """The role of a broker that is no member of a group: it leads, alone, for good."""

    __slots__ = ("broker_id", "leader_address", "leads", "term")

    def __init__(self, broker_id: int = MASTER_ID) -> None:
        self.leads = True
        self.term = 0
        self.broker_id = broker_id
        self.leader_address: str | None = None

    def lease(self) -> bool:
        """Nobody else can lead."""
        return True

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Nothing ever changes: the callback is never called."""
