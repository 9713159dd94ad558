"""Clients whose connection ended without a word, and who waits until they are back: a reply may be for one of them."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from runtime.clock import Clock

# Seconds for which a client counts as lost. Ours are back at once; and how many of them are remembered.
LOST_SECONDS = 3.0
LOST_MAX = 10_000


class Reaches(Protocol):
    """What is needed of the clients' table."""

    def reach(self, client_id: str) -> object | None:
        """Return the newest connection of a producer's client."""
        ...


class LostClients:
    """For the broker's loop."""

    def __init__(self, table: Reaches, clock: Clock, later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later` runs a call in so many seconds."""
        self.reach = table.reach
        self._clock = clock
        self._later = later
        self._lost: dict[str, float] = {}
        self._awaited: dict[str, dict[Callable[[], None], None]] = {}

    def noted(self, client_id: str, *, here: bool) -> None:
        """Take note that a client has a connection, or that its last one ended by itself."""
        self._lost.pop(client_id, None)
        if here:
            for call in self._awaited.pop(client_id, ()):
                self._later(0, call)
            return
        now = self._clock.monotonic()
        while self._lost:
            eldest = next(iter(self._lost))
            if len(self._lost) < LOST_MAX and now - self._lost[eldest] <= LOST_SECONDS:
                break
            del self._lost[eldest]
        self._lost[client_id] = now

    def lost(self, client_id: str) -> bool:
        """Whether it lost its connection a moment ago, and is not back."""
        at = self._lost.get(client_id)
        return at is not None and self._clock.monotonic() - at <= LOST_SECONDS

    def when_back(self, client_id: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call, once, when a lost client is back; returns what forgets that."""
        self._awaited.setdefault(client_id, {})[call] = None
        return partial(self._forget, client_id, call)

    def _forget(self, client_id: str, call: Callable[[], None]) -> None:
        calls = self._awaited.get(client_id, {})
        calls.pop(call, None)
        if not calls:
            self._awaited.pop(client_id, None)
