"""The HTTP face of a process (aiohttp's one door): health, readiness, metrics and JSON state.

Bound to loopback unless configured. Each state page is a plain function that returns a JSON-able value.
"""

from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from runtime.metrics import CONTENT_TYPE, Metrics

BODY_BYTES_MAX = 64 * 1024


class HttpFace:
    """Serves GET /healthz, /readyz, /metrics and the given JSON pages (path → function)."""

    def __init__(
        self,
        metrics: Metrics,
        ready: Callable[[], str | None],
        pages: Mapping[str, Callable[[], object]],
        refresh: Callable[[], None] | None = None,
    ) -> None:
        """`ready` returns None when the process serves, else why not; `refresh` sets gauges before a scrape."""
        self._metrics = metrics
        self._ready = ready
        self._refresh = refresh
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._scrape)
        for path, page in pages.items():
            application.router.add_get(path, self._json_page(page))
        self._runner = web.AppRunner(application, access_log=None)
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
        if self._refresh is not None:
            self._refresh()
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    @staticmethod
    def _json_page(page: Callable[[], object]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_request: web.Request) -> web.Response:
            body = orjson.dumps(page(), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2)
            return web.Response(body=body, content_type="application/json")

        return answer
