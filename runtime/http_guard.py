"""Connections of an HTTP face: how many there are, how long each may take, and which one makes room at the limit."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

_log = logging.getLogger(__name__)

# Seconds between two looks for connections that have taken too long.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of an HTTP face."""

    # Open connections, a quarter of the descriptors that are kept for what is no client of Remoting. Beyond it the
    # idlest one is closed, of the address that has most of them, so that a health check always finds room; while every
    # one of them is having its request worked on, the new one is closed at once.
    connections_max: int = 256
    # Seconds for a request's head to become whole, from its first byte or the connection's beginning. Then: closed.
    head_seconds: float = 10.0
    # Seconds for a body to come. Then: 408.
    body_seconds: float = 10.0
    # Seconds without a request on an open connection, or for taking an answer. Then: closed.
    idle_seconds: float = 75.0
    # Bytes of the request line and of one header field, and how many fields. Beyond it: 400, and closed.
    line_bytes_max: int = 8190
    field_bytes_max: int = 8190
    fields_max: int = 64
    # Seconds that a stop waits for answers to be taken.
    close_seconds: float = 1.0


class GuardedConnection(asyncio.Protocol):
    """One HTTP connection: hands all on to the protocol behind it, and knows how long it has been at what."""

    def __init__(self, connections: "HttpConnections", behind: asyncio.Protocol) -> None:
        self._connections = connections
        self._behind = behind
        self._admitted = False
        self.transport: asyncio.Transport | None = None
        self.address = ""
        # A request of it is being worked on, and nothing ends it.
        self.working = False
        # When it was opened, or its last request was over.
        self.since = 0.0
        # When the first byte came of a head that is not whole; a new connection owes one.
        self.head_since: float | None = None
        self._more = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in, or not."""
        self.transport = made = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self.since = self.head_since = self._connections.now()
        self._admitted = self._connections.admit(self)
        if self._admitted:
            self._behind.connection_made(made)
        else:
            made.abort()

    def data_received(self, data: bytes) -> None:
        """Note when a head begins."""
        if not self._admitted:
            return
        if self.working:
            # The rest of its body, or the next head: which one is not told here. A head that begins in the packet of
            # the request before it is not seen, and has the time of an idle connection.
            self._more = True
        elif self.head_since is None:
            self.head_since = self._connections.now()
        self._behind.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand it on."""
        return self._behind.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        """Hand it on."""
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        self._behind.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out."""
        if self._admitted:
            self._connections.lost(self)
            self._behind.connection_lost(exc)

    def begins(self) -> None:
        """Note that a head is whole and its request is worked on."""
        self.working = True
        self.head_since = None
        self._more = False

    def ends(self) -> None:
        """Note that there is an answer, which is still to be taken."""
        self.working = False
        self.since = self._connections.now()
        self.head_since = self.since if self._more else None

    def abort(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()


class HttpConnections:
    """All connections of one HTTP face."""

    def __init__(self, limits: HttpLimits, connections_max: int, now: Callable[[], float]) -> None:
        """`connections_max` is the bound in force; `now` is monotonic, in seconds."""
        self.limits = limits
        self.now = now
        self._max = connections_max
        self._open: dict[asyncio.BaseTransport, GuardedConnection] = {}
        self._of_address: Counter[str] = Counter()
        self.refused = {"connections": 0, "late": 0}
        """How many were closed: at the limit, and for a head that was not whole in its time."""

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def of(self, transport: asyncio.BaseTransport | None) -> GuardedConnection | None:
        """Return the connection of a transport, None when it has ended."""
        return None if transport is None else self._open.get(transport)

    def admit(self, connection: GuardedConnection) -> bool:
        """Count a new one in, at the limit in the place of another; False when none can go."""
        if len(self._open) >= self._max:
            self.refused["connections"] += 1
            if not self._make_room():
                return False
        self._open[_transport_of(connection)] = connection
        self._of_address[connection.address] += 1
        return True

    def lost(self, connection: GuardedConnection) -> None:
        """Count one out."""
        if self._open.pop(_transport_of(connection), None) is None:
            return
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def close_overdue(self) -> None:
        """Close the connections that have taken too long."""
        now = self.now()
        for connection in list(self._open.values()):
            if connection.working:
                continue
            head = connection.head_since
            if head is not None and now - head >= self.limits.head_seconds:
                _log.debug("http: %s closed: its request's head is not whole", connection.address)
                self.refused["late"] += 1
                connection.abort()
            elif now - connection.since >= self.limits.idle_seconds:
                connection.abort()

    def _make_room(self) -> bool:
        idle = [connection for connection in self._open.values() if not connection.working]
        if not idle:
            return False
        victim = min(idle, key=lambda one: (-self._of_address[one.address], one.since))
        _log.debug("http: %s makes room, %d connections are open", victim.address, len(self._open))
        victim.abort()
        self.lost(victim)
        return True


def _transport_of(connection: GuardedConnection) -> asyncio.BaseTransport:
    transport = connection.transport
    if transport is None:
        raise ValueError("a connection that was never made")
    return transport
