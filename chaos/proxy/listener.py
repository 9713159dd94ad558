"""One proxy: where it listens, where it leads, its connections, toxics and counters."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

from chaos.proxy.connection import ProxiedConnection, ProxySide
from chaos.proxy.journal import Counters, ProxyJournal
from chaos.proxy.toxics import STREAMS, Toxic
from runtime.listening import stop_accepting
from runtime.tasks import Tasks

# Connections of one proxy at a time; one more is closed as soon as it is accepted, and counted as refused.
CONNECTIONS_MAX = 1024
TOXICS_MAX = 64
DIAL_TIMEOUT_S = 10.0
BACKLOG = 1024


class Refused(Exception):
    """A request that is not carried out; `status` is HTTP's."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[host]:port``; no host is loopback. Raises Refused."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise Refused(400, f"address {address}: wanted is host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


class FaultProxy:
    """Accepts at `listen`, dials `upstream` for each connection, and does what its toxics say to what flows between.

    `listen` with port 0 becomes the port that it got. Methods that change something are called one after another.
    """

    def __init__(self, name: str, listen: str, upstream: str, seed: int, journal: ProxyJournal) -> None:
        """Make it, not listening yet; raises Refused where an address is none."""
        split_address(listen)
        split_address(upstream)
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.counters = Counters()
        self._seed = seed
        self._journal = journal
        self._toxics: dict[str, Toxic] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[ProxiedConnection] = set()
        self._dials = Tasks(f"proxy {name}")

    @property
    def enabled(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def toxics(self) -> list[Toxic]:
        """The toxics, upstream first, in the order in which bytes meet them."""
        return [toxic for stream in STREAMS for toxic in self._toxics.values() if toxic.stream == stream]

    def json(self) -> dict[str, Any]:
        """Return it as Toxiproxy writes it."""
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "toxics": [toxic.json() for toxic in self.toxics],
        }

    async def enable(self) -> None:
        """Listen. Raises Refused when the port cannot be had."""
        if self._server is not None:
            return
        host, port = split_address(self.listen)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        except OSError as error:
            raise Refused(500, f"listen tcp {self.listen}: {error}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self.listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._journal.note(self.name, "enabled", self.listen)

    async def disable(self) -> None:
        """Listen no more and drop all connections; what is under way in them is lost."""
        if self._server is None:
            return
        await stop_accepting(self._server)
        self._server = None
        for connection in list(self._connections):
            connection.abort()
        await self._dials.close()
        self._journal.note(self.name, "disabled")

    async def change(self, listen: str, upstream: str, enabled: bool) -> None:
        """Take other addresses, and listen or not; other addresses drop all connections. Raises Refused."""
        split_address(upstream)
        if split_address(listen) != split_address(self.listen) or upstream != self.upstream:
            await self.disable()
            self.listen, self.upstream = listen, upstream
        if enabled:
            await self.enable()
        else:
            await self.disable()

    def get(self, name: str) -> Toxic:
        """Return a toxic; raises Refused when there is none."""
        if name not in self._toxics:
            raise Refused(404, "toxic not found")
        return self._toxics[name]

    def add(self, toxic: Toxic) -> None:
        """Add a toxic behind the others; raises Refused."""
        if toxic.name in self._toxics:
            raise Refused(409, "toxic already exists")
        if len(self._toxics) >= TOXICS_MAX:
            raise Refused(400, f"proxy {self.name} has {TOXICS_MAX} toxics, more are not allowed: remove one")
        self._toxics[toxic.name] = toxic
        for connection in list(self._connections):
            connection.add(toxic, self._random(connection.number, toxic))
        self._note_toxic("added", toxic)

    def update(self, toxic: Toxic) -> None:
        """Put a changed toxic in the place of the one of its name; raises Refused."""
        self.get(toxic.name)
        self._toxics[toxic.name] = toxic
        for connection in list(self._connections):
            connection.update(toxic, self._random(connection.number, toxic))
        self._note_toxic("updated", toxic)

    def remove(self, name: str) -> None:
        """Remove a toxic; raises Refused when there is none."""
        toxic = self.get(name)
        del self._toxics[name]
        for connection in list(self._connections):
            connection.remove(toxic)
        self._note_toxic("removed", toxic)

    def _random(self, number: int, toxic: Toxic) -> Random:
        """Return the dice of one toxic in one connection: the same in each run of the same seed."""
        return Random(f"{self._seed}/{self.name}/{number}/{toxic.name}")

    def _fitted(self, number: int) -> Iterator[tuple[Toxic, Random]]:
        return ((toxic, self._random(number, toxic)) for toxic in self._toxics.values())

    def _accept(self) -> ProxySide:
        number = self.counters.accepted
        self.counters.accepted += 1

        def accepted() -> None:
            self._connections.add(connection)
            self.counters.open += 1
            if len(self._connections) > CONNECTIONS_MAX:
                self._refuse(connection, f"{CONNECTIONS_MAX} connections are open")
            else:
                self._dials.spawn(self._dial(connection), f"connection {number}")

        connection = ProxiedConnection(number, self.counters, asyncio.get_running_loop(), accepted, self._close)
        return connection.near

    async def _dial(self, connection: ProxiedConnection) -> None:
        host, port = split_address(self.upstream)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await loop.create_connection(lambda: connection.far, host, port)
        except (OSError, asyncio.CancelledError) as error:
            self._refuse(connection, f"{self.upstream} did not answer: {error or type(error).__name__}")
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        self._journal.note(self.name, "opened", f"connection {connection.number}")
        connection.join(self._fitted(connection.number))

    def _refuse(self, connection: ProxiedConnection, why: str) -> None:
        self.counters.refused += 1
        self._journal.note(self.name, "refused", f"connection {connection.number}: {why}")
        connection.abort()

    def _close(self, connection: ProxiedConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.counters.open -= 1
            self._journal.note(self.name, "closed", f"connection {connection.number}")

    def _note_toxic(self, what: str, toxic: Toxic) -> None:
        settings = ", ".join(f"{name}={value}" for name, value in toxic.attributes.items())
        detail = f"{toxic.name}: {toxic.type} {toxic.stream} {settings}".rstrip()
        self._journal.note(self.name, what, detail if toxic.toxicity == 1 else f"{detail} toxicity={toxic.toxicity:g}")
