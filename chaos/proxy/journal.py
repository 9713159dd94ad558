"""What happened to the proxies and when, and what went through them."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# The oldest events go first; `first` tells what is still there.
EVENTS_MAX = 20_000


class ProxyEvent(NamedTuple):
    """One thing that happened."""

    number: int
    """From 0, without gaps."""
    at: int
    """CLOCK_MONOTONIC nanoseconds, comparable with those of a history from the same machine."""
    proxy: str
    what: str
    """created, deleted, enabled, disabled, added, updated, removed, opened, closed, refused, reset."""
    detail: str


class ProxyJournal:
    """The last EVENTS_MAX events."""

    def __init__(self) -> None:
        self._events: deque[ProxyEvent] = deque(maxlen=EVENTS_MAX)
        self._next = 0

    def note(self, proxy: str, what: str, detail: str = "") -> None:
        """Add an event that happens now."""
        self._events.append(ProxyEvent(self._next, time.monotonic_ns(), proxy, what, detail))
        self._next += 1

    def since(self, number: int) -> Iterator[ProxyEvent]:
        """Return the events from `number` on that are still there."""
        return (event for event in self._events if event.number >= number)

    def __len__(self) -> int:
        return len(self._events)


@dataclass
class StreamCounters:
    """Bytes of one direction, over all connections of a proxy."""

    received: int = 0
    sent: int = 0
    """Given to the socket."""
    lost: int = 0
    """Thrown away by a toxic, or because nobody was there to take them."""
    kept: int = 0
    """In stages now."""


@dataclass
class Counters:
    """What went through a proxy since it was created."""

    accepted: int = 0
    open: int = 0
    refused: int = 0
    """Accepted and closed at once: nobody answered upstream, or there were too many."""
    reset: int = 0
    upstream: StreamCounters = field(default_factory=StreamCounters)
    downstream: StreamCounters = field(default_factory=StreamCounters)

    def json(self) -> dict[str, Any]:
        """Return it as the server writes it."""
        return {**vars(self), "upstream": vars(self.upstream), "downstream": vars(self.downstream)}
