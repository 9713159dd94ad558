"""A listening socket that takes TLS and plain connections on one port: the first byte tells which it is.

A TLS handshake begins with 0x16, which no frame of RocketMQ's, no HA greeting and no HTTP request begins with. Who has
connected waits here until that byte is there, without a transport or a protocol yet; then the socket is handed to the
loop, with or without TLS. What waits, and what shakes hands, is bounded: in number, in time, and per address.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

from runtime.listening import origin
from runtime.quiet import EVERY_S, QuietLog
from runtime.refusals import DoorRefusals
from runtime.tasks import Tasks
from runtime.tls import HANDSHAKE_SECONDS, ServerTls, tls_words

_log = logging.getLogger(__name__)

Made = Callable[[], asyncio.BaseProtocol]
# What a door refuses.
DOOR_KINDS = ("plain", "tls")
HANDSHAKE = 0x16
# Connections that wait for their first byte or for a handshake; beyond it the one that came first is closed.
WAITING_MAX = 2048
# Handshakes at a time, and those of one address: each is some milliseconds of work, and one that stalls lasts
# HANDSHAKE_SECONDS.
SHAKING_MAX, SHAKING_PER_ADDRESS_MAX = 64, 48
# After the kernel has refused to accept (no descriptors left) nothing is accepted for so many seconds.
PAUSE_SECONDS = 0.5


class TlsDoor:
    """Accepts connections, and hands each to its protocol; what of asyncio.Server is used of a plain port."""

    def __init__(self, name: str, listening: list[socket.socket], tls: ServerTls, made: Made, refused: Made) -> None:
        """`made` makes the protocol of a connection, `refused` that of a plain one where TLS is enforced."""
        self.sockets = tuple(listening)
        self._name = name
        self._tls = tls
        self._made, self._refused = made, refused
        self._loop = asyncio.get_running_loop()
        self._quiet = QuietLog(_log)
        self._refusals = DoorRefusals(name)
        self._tasks = Tasks(f"{name}: TLS")
        # By connection, in the order of their coming: where from, and what ends the wait.
        self._waiting: dict[socket.socket, tuple[str, asyncio.TimerHandle]] = {}
        # Of these the ones whose handshake may begin.
        self._next: dict[socket.socket, None] = {}
        self._shaking: Counter[str] = Counter()
        self._closed = False
        self._tasks.every(EVERY_S, self._quiet.tell, "warnings left out")
        for each in listening:
            self._loop.add_reader(each, self._accept, each)

    @property
    def refused(self) -> Mapping[str, int]:
        """How many were refused: `plain` ones where TLS is enforced, and handshakes that failed (`tls`)."""
        return {kind: self._refusals.counts[kind] for kind in DOOR_KINDS}

    def close(self) -> None:
        """Accept no more; what waits is closed."""
        if self._closed:
            return
        self._closed = True
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        for connection in list(self._waiting):
            self._drop(connection)

    async def wait_closed(self) -> None:
        """Give up the handshakes that are not over."""
        await self._tasks.close()

    # -- inside

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(WAITING_MAX):
            try:
                connection, _peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._quiet.warning("accept", self._name, "%s: accepts nothing for a moment: %s", self._name, error)
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_SECONDS, self._again, listening)
                return
            self._wait_for(connection)

    def _again(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)

    def _wait_for(self, connection: socket.socket) -> None:
        try:
            host = str(connection.getpeername()[0])
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            connection.close()
            return
        if len(self._waiting) >= WAITING_MAX:
            self._quiet.warning(
                "tls-waiting", host, "%s: %d connections have said nothing yet", self._name, WAITING_MAX
            )
            self._drop(next(iter(self._waiting)))
        timer = self._loop.call_later(HANDSHAKE_SECONDS, self._drop, connection)
        self._waiting[connection] = (host, timer)
        self._loop.add_reader(connection, self._peek, connection)

    def _drop(self, connection: socket.socket) -> None:
        """Close a connection that waits."""
        self._taken(connection)
        connection.close()

    def _taken(self, connection: socket.socket) -> str:
        """Have a connection wait no more; returns where it comes from."""
        host, timer = self._waiting.pop(connection)
        self._next.pop(connection, None)
        timer.cancel()
        self._loop.remove_reader(connection)
        return host

    def _peek(self, connection: socket.socket) -> None:
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(connection)
        elif first[0] == HANDSHAKE:
            # Its time goes on; what it has sent waits in the kernel.
            self._loop.remove_reader(connection)
            self._next[connection] = None
            self._begin()
        else:
            host = self._taken(connection)
            if self._tls.enforcing:
                self._quiet.warning("plain", host, "%s: %s speaks no TLS, which is enforced here", self._name, host)
                self._refusals.tell(host, "plain", "it speaks no TLS, which is enforced here")
            made = self._refused if self._tls.enforcing else self._made
            self._tasks.spawn(self._hand_over(connection, made, None, host), f"connection of {host}")

    def _begin(self) -> None:
        """Begin the handshakes for which there is room."""
        for connection in list(self._next):
            if self._shaking.total() >= SHAKING_MAX:
                return
            counted = origin(self._waiting[connection][0])
            if self._shaking[counted] < SHAKING_PER_ADDRESS_MAX:
                host = self._taken(connection)
                self._shaking[counted] += 1
                self._tasks.spawn(self._shake(connection, host, counted), f"TLS handshake of {host}")

    async def _shake(self, connection: socket.socket, host: str, counted: str) -> None:
        try:
            await self._hand_over(connection, self._made, self._tls.contexts.current(), host)
        finally:
            self._shaking[counted] -= 1
            if not self._shaking[counted]:
                del self._shaking[counted]
            if not self._closed:
                self._begin()

    async def _hand_over(
        self, connection: socket.socket, made: Made, context: ssl.SSLContext | None, host: str
    ) -> None:
        options: dict[str, Any] = {}
        if context is not None:
            options = {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_SECONDS}
        try:
            await self._loop.connect_accepted_socket(made, connection, **options)
        except OSError as error:
            why = tls_words(error)
            self._quiet.warning("tls", host, "%s: %s is refused: %s", self._name, host, why)
            if isinstance(error, ssl.SSLError):
                self._refusals.tell(host, "tls", why)
            connection.close()


class PlainRefused(asyncio.Protocol):
    """A plain connection where TLS is enforced: it is told so once it has said something, and closed."""

    def __init__(self, words: bytes = b"") -> None:
        self._words = words

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for what has come already: a close before it is read would take the words back."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, _data: bytes) -> None:
        """Say why, once, and close."""
        self._transport.write(self._words)
        self._transport.close()


async def listen(
    name: str,
    made: Made,
    host: str,
    port: int,
    *,
    backlog: int,
    tls: ServerTls | None = None,
    refused: Made = PlainRefused,
) -> "asyncio.Server | TlsDoor":
    """Open a port, with or without TLS; OSError when the address cannot be had. `refused`: see TlsDoor."""
    loop = asyncio.get_running_loop()
    if tls is None:
        return await loop.create_server(made, host, port, backlog=backlog)
    listening: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in await _addresses(host, port):
            one = socket.socket(family, kind, protocol)
            listening.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(backlog)
            one.setblocking(False)
    except OSError:
        for one in listening:
            one.close()
        raise
    return TlsDoor(name, listening, tls, made, refused)


async def _addresses(host: str, port: int) -> list[Any]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # With port 0 each address would take another one.
    return list(dict.fromkeys(found))[: 1 if port == 0 else None]


def refused_at(server: "asyncio.Server | TlsDoor | None") -> Mapping[str, int]:
    """Return how many a port's door has refused, by kind; a port without TLS has none."""
    return server.refused if isinstance(server, TlsDoor) else dict.fromkeys(DOOR_KINDS, 0)
