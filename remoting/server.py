"""The listening side: accepts connections and gives each request to the handler of its code."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.limits import ServerLimits
from remoting.runs import RUNS
from remoting.side import REFUSALS, Side, unfinished_frames
from remoting.turns import Turns
from remoting.unfinished import UnfinishedFrames
from runtime.busypoll import BusyPoll
from runtime.figures import Figure, by, counter, gauge, histogram
from runtime.listening import stop_accepting
from runtime.timings import Timings
from runtime.tls import ServerTls
from runtime.tls_door import DOOR_KINDS, TlsDoor, listen, refused_at

__all__ = ["Connection", "Handler", "RemotingServer", "Reply", "ServerLimits", "port_figures"]

_log = logging.getLogger(__name__)

# Connections that the kernel may hold before they are accepted, as RocketMQ's server sets it.
_BACKLOG = 1024
_LIMITS = ServerLimits()
# Plain connections at a time, where TLS is enforced; each is closed after its first request.
_PLAIN_MAX = 64


class RemotingServer:
    """Serves one table of request code -> handler on one port; see `Reply` for what a handler may return.

    A code without a handler is answered with 3, or with what `on_unsupported` returns. `on_open` and `on_close` are
    called in the loop, once each per connection. Must be made inside a running loop.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        name: str,
        limits: ServerLimits = _LIMITS,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        on_unsupported: Callable[[Connection, Command], Command | None] | None = None,
        congested: Callable[[], bool] = lambda: False,
        tls: ServerTls | None = None,
        signed: bool = False,
        unfinished: UnfinishedFrames[Connection] | None = None,
        polling: BusyPoll | None = None,
    ) -> None:
        """`congested` tells whether more has been taken than can be done just now: see remoting/turns.py.

        `tls`: how TLS is taken on the port, None for plain connections only. `signed`: handlers look at signatures.
        `unfinished`: what the ports of a process keep of frames that are not whole; None: this one has its own.
        `polling`: what the loop busy polls with; None: it sleeps when it has nothing to do.
        """
        shared = unfinished_frames(limits, asyncio.get_running_loop()) if unfinished is None else unfinished
        self._tls = tls
        self._side = Side(
            name,
            handlers,
            limits,
            connections_max=limits.connections_max,
            on_open=on_open,
            on_close=on_close,
            on_unsupported=on_unsupported,
            congested=congested,
            signed=signed,
            unfinished=shared,
            polling=polling,
        )
        # Of plain connections where TLS is enforced: they are told so, whatever they ask.
        self._plain = Side(f"{name} without TLS", _TlsOnly(), limits, connections_max=_PLAIN_MAX, unfinished=shared)
        self._server: asyncio.Server | TlsDoor | None = None
        self.host = ""
        self.port = 0

    @property
    def connections(self) -> set[Connection]:
        """The open connections; not to be changed."""
        return self._side.connections

    @property
    def refused(self) -> Mapping[str, int]:
        """How often something of a client's was refused unheard, by reason: one of REFUSALS or DOOR_KINDS."""
        return {**self._side.refused, **refused_at(self._server)}

    @property
    def turns(self) -> Turns[Connection]:
        """Who waits for being served."""
        assert self._side.turns is not None, "a server serves in turns"
        return self._side.turns

    @property
    def polling(self) -> BusyPoll | None:
        """What the loop busy polls with."""
        return self._side.polling

    def sweep(self) -> None:
        """Look for idle connections; called by a timer eight times per idle span."""
        self._side.sweep()

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one, which `port` then tells. OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        name, made = self._side.name, lambda: Connection(self._side, loop)
        refused = lambda: Connection(self._plain, loop)  # noqa: E731
        self._server = await listen(name, made, host, port, backlog=_BACKLOG, tls=self._tls, refused=refused)
        bound = self._server.sockets[0].getsockname()
        self.host, self.port = str(bound[0]), int(bound[1])
        self._side.start_sweeping()
        self._plain.start_sweeping()
        how = "" if self._tls is None else ", TLS only" if self._tls.enforcing else ", TLS or plain"
        _log.info("%s listens on %s:%d%s", name, host, self.port, how)

    async def close(self) -> None:
        """Accept no more, end all connections and tasks."""
        server = self._server
        if server is None:
            return
        self._server = None
        await stop_accepting(server)
        await self._side.close()
        await self._plain.close()
        await server.wait_closed()


class _TlsOnly(Mapping[int, Handler]):
    """The handlers of a plain connection where TLS is enforced: every code is refused, and the connection closed."""

    def __getitem__(self, _code: int) -> Handler:
        return _refuse_plain

    def __contains__(self, code: object) -> bool:
        return code not in RUNS

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _refuse_plain(connection: Connection, request: Command) -> None:
    why = "this port takes TLS only (tls.server.mode=enforcing): connect with TLS"
    connection.reply(request, Command.response(ResponseCode.SYSTEM_ERROR, why))
    connection.close()


def port_figures(servers: Iterable[RemotingServer]) -> list[Figure]:
    """Return what is told of a process's ports, all together."""
    connections = waiting = unserved = 0
    polls: set[BusyPoll] = set()
    refused, waited = Counter(dict.fromkeys((*REFUSALS, *DOOR_KINDS), 0)), Timings()
    for server in servers:
        turns = server.turns
        connections += len(server.connections)
        waiting += len(turns)
        unserved += turns.unserved_bytes
        refused.update(server.refused)
        waited.join(turns.times)
        if server.polling is not None:
            polls.add(server.polling)
    text = "Connections and frames that were refused before a handler saw them, by reason"
    return [
        gauge("raftmq_connections", "Connections of clients and other servers that are open", connections),
        by("reason", "counter", "raftmq_frames_refused_total", text, refused.items()),
        gauge("raftmq_connections_waiting", "Connections that sent much and wait for their turn", waiting),
        gauge("raftmq_unserved_bytes", "Bytes that were read, and of which no command is served yet", unserved),
        histogram("raftmq_turn_seconds", "What commands of connections that sent much waited for their turn", waited),
        counter(
            "raftmq_busy_poll_turns_total",
            "Turns of the event loop that looked at its sockets rather than sleep",
            sum(poll.turns for poll in polls),
        ),
    ]
