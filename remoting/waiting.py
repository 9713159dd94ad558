"""Requests that wait for their answers, by opaque, on one connection."""

import asyncio

from remoting.command import Command
from remoting.errors import BacklogFull, InvokeError, InvokeTimeout

_OPAQUE_MAX = 0x7FFFFFFF
# The timer looks at all that waits; it does so no more often than this.
_LOOK_SECONDS_MIN = 0.005


class Waiting:
    """Numbers requests and finds the future that an answer belongs to.

    One timer per connection instead of one per request: it is set to the earliest deadline, and since answers usually
    come long before it, it fires about once per timeout span whatever the traffic.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: str, limit: int) -> None:
        self._loop = loop
        self._peer = peer
        self._limit = limit
        self._waiting: dict[int, tuple[asyncio.Future[Command], float, float]] = {}
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next_look = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """Return the number of the next request."""
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        return self._opaque

    def add(self, opaque: int, timeout: float) -> "asyncio.Future[Command]":
        """Return the future answer of a request; BacklogFull when too many wait already."""
        if len(self._waiting) >= self._limit:
            raise BacklogFull(f"{self._limit} requests to {self._peer} wait for answers already")
        future: asyncio.Future[Command] = self._loop.create_future()
        deadline = self._loop.time() + timeout
        self._waiting[opaque] = (future, deadline, timeout)
        if self._timer is None or deadline < self._next_look:
            self._look_at(deadline)
        return future

    def forget(self, opaque: int) -> None:
        """Wait no longer: the request could not be sent."""
        self._waiting.pop(opaque)[0].cancel()

    def answer(self, response: Command) -> None:
        """Hand an answer to who waits for it; one that nobody waits for (any more) is dropped."""
        entry = self._waiting.pop(response.opaque, None)
        if entry is not None and not entry[0].done():
            entry[0].set_result(response)

    def fail(self, error: InvokeError) -> None:
        """Give everybody that error: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entries = list(self._waiting.values())
        self._waiting.clear()
        for future, _, _ in entries:
            if not future.done():
                future.set_exception(type(error)(*error.args))

    def _look_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_look = deadline
        self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        over = [(opaque, entry) for opaque, entry in self._waiting.items() if entry[1] <= now or entry[0].done()]
        for opaque, (future, _, timeout) in over:
            del self._waiting[opaque]
            if not future.done():
                future.set_exception(InvokeTimeout(f"no answer from {self._peer} within {timeout:g} s"))
        if self._waiting:
            earliest = min(entry[1] for entry in self._waiting.values())
            self._look_at(max(earliest, now + _LOOK_SECONDS_MIN))
