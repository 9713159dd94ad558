"""The listening side: accepts connections and gives each request to the handler of its code."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.limits import ServerLimits
from remoting.side import Side
from runtime.listening import stop_accepting

__all__ = ["Connection", "Handler", "RemotingServer", "Reply", "ServerLimits"]

_log = logging.getLogger(__name__)

# Connections that the kernel may hold before they are accepted, as RocketMQ's server sets it.
_BACKLOG = 1024
_LIMITS = ServerLimits()


class RemotingServer:
    """Serves one table of request code -> handler on one port; see `Reply` for what a handler may return.

    A code without a handler is answered with 3, and `on_unsupported` told. `on_open` and `on_close` are called in the
    loop, once each per connection. Must be made inside a running loop.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        name: str,
        limits: ServerLimits = _LIMITS,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        on_unsupported: Callable[[Connection, Command], None] | None = None,
        congested: Callable[[], bool] = lambda: False,
    ) -> None:
        """`congested` tells whether more has been taken than can be done just now: see remoting/turns.py."""
        self._side = Side(
            name,
            handlers,
            limits,
            connections_max=limits.connections_max,
            on_open=on_open,
            on_close=on_close,
            on_unsupported=on_unsupported,
            congested=congested,
        )
        self._server: asyncio.Server | None = None
        self.host = ""
        self.port = 0

    @property
    def connections(self) -> set[Connection]:
        """The open connections; not to be changed."""
        return self._side.connections

    def sweep(self) -> None:
        """Look for idle connections; called by a timer eight times per idle span."""
        self._side.sweep()

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one, which `port` then tells. OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._side, loop), host, port, backlog=_BACKLOG)
        bound = self._server.sockets[0].getsockname()
        self.host, self.port = str(bound[0]), int(bound[1])
        self._side.start_sweeping()
        _log.info("%s listens on %s:%d", self._side.name, host, self.port)

    async def close(self) -> None:
        """Accept no more, end all connections and tasks."""
        server = self._server
        if server is None:
            return
        self._server = None
        await stop_accepting(server)
        await self._side.close()
        await server.wait_closed()
