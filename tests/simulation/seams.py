"""What a machine of the simulated world sees of the world, and who watches it."""

from collections.abc import Callable
from typing import Any, Protocol

from raft.protocol.messages import RaftMessage
from raft.protocol.types import Role


class Watch(Protocol):
    """Whoever looks on. Members are the simulation's machines."""

    def booted(self, member: Any) -> None:
        """A process has started and read its disk; it has done nothing yet."""
        ...

    def committed(self, member: Any, index: int) -> None:
        """A member's commit point moves to `index`; nothing of it is dispatched yet."""
        ...

    def role(self, member: Any, role: Role, term: int) -> None:
        """A member's role changes."""
        ...

    def sent(self, member: Any, target: str, message: RaftMessage) -> None:
        """A member sends a message."""
        ...

    def cut(self, member: Any, last: int) -> None:
        """A member is about to cut its log behind entry `last`."""
        ...


class Surroundings(Protocol):
    """Time, the network and the watch, as one machine has them."""

    @property
    def now(self) -> float:
        """True seconds since the world began."""
        ...

    @property
    def watch(self) -> Watch:
        """Whoever looks on."""
        ...

    def after(self, delay: float, event: Callable[[], object], *, on: Any = None) -> None:
        """Have something happen in a while; with `on` in that member's present life only."""
        ...

    def carry(self, source: str, target: str, message: RaftMessage) -> bool:
        """Send a message; False when there is no link."""
        ...

    def say(self, text: Callable[[], str]) -> None:
        """Tell whoever traces."""
        ...
