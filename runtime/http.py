"""The HTTP face of a process (aiohttp's one door): health, readiness, metrics, JSON state, and routes that change it.

Bound to loopback unless configured. Each state page is a plain function that returns a JSON-able value; a route is an
async function from an HttpCall to a Reply.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import orjson
from aiohttp import web

from runtime.metrics import CONTENT_TYPE, Metrics

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


Act = Callable[[HttpCall], Awaitable[Reply]]
# (method, path with {name}s) → what answers it.
Routes = Mapping[tuple[str, str], Act]


class HttpFace:
    """Serves GET /healthz, /readyz, /metrics, the given JSON pages (path → function) and routes."""

    def __init__(
        self,
        metrics: Metrics,
        ready: Callable[[], str | None],
        pages: Mapping[str, Callable[[], object]],
        routes: Routes | None = None,
    ) -> None:
        """`ready` returns None when the process serves, else why not.

        A body of more than BODY_BYTES_MAX is answered with 413, a compressed one (of a KiB, a MiB might come) with 415,
        before the route sees it.
        """
        self._metrics = metrics
        self._ready = ready
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._scrape)
        for path, page in pages.items():
            application.router.add_get(path, self._json_page(page))
        for (method, path), act in (routes or {}).items():
            application.router.add_route(method, path, self._json_route(act))
        self._runner = web.AppRunner(application, access_log=None, auto_decompress=False)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one, which `port` then tells. Raises OSError when the port is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening and end the connections."""
        await self._runner.cleanup()

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

    @staticmethod
    def _json_route(act: Act) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            # Bytes that are no UTF-8 come as what no answer can hold.
            agent = request.headers.get("User-Agent", "").encode("utf-8", "replace").decode()
            if "Content-Encoding" in request.headers:
                raise web.HTTPUnsupportedMediaType(text="a body is taken as it is, without Content-Encoding")
            reply = await act(HttpCall(request.match_info, request.query, await request.read(), agent))
            if reply.value is None:
                return web.Response(status=reply.status)
            body = orjson.dumps(reply.value, option=orjson.OPT_NON_STR_KEYS)
            return web.Response(status=reply.status, body=body, content_type="application/json")

        return answer
