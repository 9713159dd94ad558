"""The HTTP face of a process (aiohttp's one door): health, readiness, metrics, JSON state, and routes that change it.

Bound to loopback unless configured. Each state page is a plain function that returns a JSON-able value; a route is an
async function from an HttpCall to a Reply. A page of a browser that asks under a name of its own (DNS rebinding) gets
421: answered are addresses, localhost, the machine's name and the names that the configuration gives. From an address
that may not ask, everything but health and readiness gets 403.
"""

import asyncio
import contextlib
import ipaddress
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from runtime.figures import Figure, by
from runtime.http_guard import LOOK_S, GuardedConnection, HttpConnections, HttpLimits
from runtime.listening import stop_accepting
from runtime.metrics import CONTENT_TYPE, Metrics
from runtime.quiet import QuietLog
from runtime.refusals import DoorRefusals
from runtime.tasks import Tasks
from runtime.tls import ServerTls
from runtime.tls_door import PlainRefused, TlsDoor, listen, refused_at

BODY_BYTES_MAX = 64 * 1024


class HttpCall(NamedTuple):
    """A request, as a route gets it."""

    names: Mapping[str, str]
    """What stands in the path in the place of each ``{name}``, unquoted."""
    query: Mapping[str, str]
    body: bytes
    agent: str
    """User-Agent: who says to be asking."""


class Reply(NamedTuple):
    """The answer of a route; without a value it has no body."""

    status: int
    value: object = None


Judge = Callable[[str, str], str | None]
"""Tells why an address that asks another one, which is this machine's, is refused; None when it is not."""
Act = Callable[[HttpCall], Awaitable[Reply]]
# (method, path with {name}s) → what answers it.
Routes = Mapping[tuple[str, str], Act]

_log = logging.getLogger(__name__)
_LIMITS = HttpLimits()
# Where few files may be open at all, HTTP takes no more than this part of them, and some connections at least.
_DESCRIPTORS_PART = 8
_CONNECTIONS_MIN = 16
# What load balancers ask, from wherever they are.
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
# Connections that the kernel may hold before they are accepted: asyncio's own number.
_BACKLOG = 100
# To who speaks no TLS where it is enforced.
_PLAIN_ANSWER = (
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2, HTTP/1.1\r\nConnection: Upgrade, close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 53\r\n\r\nthis port takes TLS only (tls.server.mode=enforcing)\n"
)
# Of what cannot be read, in the log.
_SHOWN_CHARS_MAX = 200


def _everybody(_host: str, _own: str) -> str | None:
    return None


class HttpFace:
    """Serves GET /healthz, /readyz, /metrics, the given JSON pages (path → function) and routes."""

    def __init__(
        self,
        metrics: Metrics,
        ready: Callable[[], str | None],
        pages: Mapping[str, Callable[[], object]],
        routes: Routes | None = None,
        *,
        names: Iterable[str] = (),
        limits: HttpLimits = _LIMITS,
        judge: Judge = _everybody,
    ) -> None:
        """`ready` returns None when the process serves, else why not; `judge` tells who is answered.

        `names` are those by which it may be asked besides its addresses. A body of more than BODY_BYTES_MAX is answered
        with 413, a compressed one (of a KiB, a MiB might come) with 415, before the route sees it.
        """
        self._limits = limits
        self._names = {"localhost", socket.gethostname().lower(), *(name.lower().rstrip(".") for name in names)}
        self._connections: HttpConnections | None = None
        self._server: asyncio.Server | TlsDoor | None = None
        self._tasks = Tasks("http")
        self._metrics = metrics
        self._ready = ready
        self._judge = judge
        self._refusals = DoorRefusals("HTTP")
        metrics.show(self._figures)
        application = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._around])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._scrape)
        for path, page in pages.items():
            application.router.add_get(path, self._json_page(page))
        for (method, path), act in (routes or {}).items():
            application.router.add_route(method, path, self._json_route(act))
        self._runner = web.AppRunner(
            application,
            access_log=None,
            auto_decompress=False,
            logger=_ServerLog(_log),
            shutdown_timeout=limits.close_seconds,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=limits.body_seconds,
            max_line_size=limits.line_bytes_max,
            max_field_size=limits.field_bytes_max,
            max_headers=limits.fields_max,
        )
        self.port = 0

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> None:
        """Listen; port 0 takes a free one, which `port` then tells. Raises OSError when the port is taken.

        `tls`: how TLS is taken on it, None for plain connections only.
        """
        await self._runner.setup()
        behind = self._runner.server
        if behind is None:
            raise RuntimeError("aiohttp has made no server")
        loop = asyncio.get_running_loop()
        connections = HttpConnections(self._limits, _connections_max(self._limits), loop.time)
        server = await listen(
            "HTTP", lambda: GuardedConnection(connections, behind()), host, port,
            backlog=_BACKLOG, tls=tls, refused=lambda: PlainRefused(_PLAIN_ANSWER),
        )  # fmt: skip
        self._connections, self._server = connections, server
        often = min(LOOK_S, self._limits.head_seconds, self._limits.idle_seconds)
        self._tasks.every(often, connections.close_overdue, "overdue HTTP connections")
        self.port = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end the connections."""
        await self._tasks.close()
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)
        await self._runner.cleanup()
        if server is not None:
            await server.wait_closed()

    @web.middleware
    async def _around(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse names that are not ours and who may not ask, and tell the connection when its request is worked on."""
        for host in request.headers.getall("Host", []):
            if not answers_to(host, self._names):
                why = "asked by a name that is not this server's: take its address, or set httpHostNames=NAME"
                return self._refused(request, 421, why)
        if request.path not in _OPEN_PATHS and (why_not := self._judge(*_ends(request))) is not None:
            return self._refused(request, 403, why_not)
        connection = None if self._connections is None else self._connections.of(request.transport)
        if connection is None:
            return await handler(request)
        connection.begins()
        try:
            return await handler(request)
        finally:
            connection.ends()

    def _figures(self) -> Iterable[Figure]:
        told = self._refusals.counts
        closed = {"connections": 0, "late": 0} if self._connections is None else self._connections.refused
        values = {"address": told["403"], "name": told["421"], **closed, **refused_at(self._server)}
        text = "Connections and requests that the HTTP port refused, by reason"
        yield by("reason", "counter", "raftmq_http_refused_total", text, values.items())

    def _refused(self, request: web.Request, status: int, why: str) -> web.Response:
        asked = f"{request.method} {request.path}"
        self._refusals.tell(_ends(request)[0], str(status), why, asked=asked, code=status)
        return web.Response(status=status, text=f"{why}\n")

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "UP"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._ready()
        if reason is None:
            return web.json_response({"status": "READY"})
        return web.json_response({"status": "NOT_READY", "reason": reason}, status=503)

    async def _scrape(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    @staticmethod
    def _json_page(page: Callable[[], object]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_request: web.Request) -> web.Response:
            body = orjson.dumps(page(), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2)
            return web.Response(body=body, content_type="application/json")

        return answer

    def _json_route(self, act: Act) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            # Bytes that are no UTF-8 come as what no answer can hold.
            agent = request.headers.get("User-Agent", "").encode("utf-8", "replace").decode()
            if "Content-Encoding" in request.headers:
                return web.Response(status=415, text="a body is taken as it is, without Content-Encoding\n")
            try:
                async with asyncio.timeout(self._limits.body_seconds):
                    body = await request.read()
            except TimeoutError:
                return web.Response(status=408, text=f"the body has not come in {self._limits.body_seconds:g} s\n")
            reply = await act(HttpCall(request.match_info, request.query, body, agent))
            if reply.value is None:
                return web.Response(status=reply.status)
            value = orjson.dumps(reply.value, option=orjson.OPT_NON_STR_KEYS)
            return web.Response(status=reply.status, body=value, content_type="application/json")

        return answer


class _ServerLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log: what cannot be read is one line, now and then, in the place of a stack trace for each request."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__(log)
        self._quiet = QuietLog(log)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        if isinstance(exc_info, HttpProcessingError):
            host, why = str(args[0]) if args else "", exc_info.message.partition("\n")[0]
            self._quiet.warning("request", host, "http: %s sent what is no request: %s", host, why[:_SHOWN_CHARS_MAX])
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)


def answers_to(host: str, names: Iterable[str]) -> bool:
    """Tell whether a Host header names this server: an address, with or without a port, localhost, or one of `names`.

    No page of somebody else's can have a browser ask by an address that it was not loaded from.
    """
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.rstrip(".")
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return name in names or name.endswith(".localhost")


def _ends(request: web.Request) -> tuple[str, str]:
    """Return the address that asks, and the one of this machine that was asked; "" for what cannot be told any more."""
    transport = request.transport
    if transport is None:
        return "", ""
    ends = (transport.get_extra_info(name) for name in ("peername", "sockname"))
    asking, own = (str(end[0]) if end else "" for end in ends)
    return asking, own


def _connections_max(limits: HttpLimits) -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits.connections_max
    return min(limits.connections_max, max(soft // _DESCRIPTORS_PART, _CONNECTIONS_MIN))
