"""All proxies of a process, and the HTTP routes of Toxiproxy 2.x that drive them; /v1/ pages are our own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from chaos.proxy.journal import ProxyJournal
from chaos.proxy.listener import FaultProxy, Refused
from chaos.proxy.toxics import ToxicError, changed_toxic, parse_toxic
from runtime.figures import Figure, gauge
from runtime.http import Act, HttpCall, HttpFace, Reply, Routes
from runtime.metrics import Metrics

HOST = "127.0.0.1"
PORT = 8474  # Toxiproxy's own
# The API that is spoken; `server` in the answer tells ours from Shopify's.
API_VERSION = "2.12.0"
SERVER = "raftmq"
PROXIES_MAX = 1024
NAME_CHARS_MAX = 200
# A page of another site must not command this one through the user's browser (as Toxiproxy does).
BROWSER = "Mozilla/"

Handler = Callable[[HttpCall], Awaitable[Reply]]


class FaultProxyServer:
    """Proxies by name. Everything lives in the event loop in which `start` was called."""

    def __init__(self, seed: int = 0) -> None:
        """`seed` is where all chance of all proxies comes from."""
        self._seed = seed
        self._proxies: dict[str, FaultProxy] = {}
        self._journal = ProxyJournal()
        # Changes wait for sockets: one after another, so that each finds the state that the one before left.
        self._changes = asyncio.Lock()
        metrics = Metrics()
        metrics.show(self._figures)
        pages: Mapping[str, Callable[[], object]] = {
            "/v1/counters": lambda: {name: proxy.counters.json() for name, proxy in self._proxies.items()},
        }
        self._http = HttpFace(metrics, lambda: None, pages, self._routes())

    @property
    def port(self) -> int:
        """Where the HTTP routes are."""
        return self._http.port

    async def start(self, host: str = HOST, port: int = PORT) -> None:
        """Listen for HTTP; port 0 takes a free one. Raises OSError when the port is taken."""
        await self._http.start(host, port)

    async def close(self) -> None:
        """Drop everything."""
        await self._http.close()
        for proxy in self._proxies.values():
            await proxy.disable()
        self._proxies.clear()

    def _figures(self) -> list[Figure]:
        connections = sum(proxy.counters.open for proxy in self._proxies.values())
        return [
            gauge("raftmq_fault_proxies", "Fault proxies", len(self._proxies)),
            gauge("raftmq_fault_proxy_connections", "Connections through all fault proxies", connections),
        ]

    def _routes(self) -> Routes:
        changing: dict[tuple[str, str], Handler] = {
            ("POST", "/reset"): self._reset,
            ("POST", "/proxies"): self._create,
            ("POST", "/populate"): self._populate,
            ("POST", "/proxies/{proxy}"): self._change,
            ("PATCH", "/proxies/{proxy}"): self._change,
            ("DELETE", "/proxies/{proxy}"): self._delete,
            ("POST", "/proxies/{proxy}/toxics"): self._add,
            ("POST", "/proxies/{proxy}/toxics/{toxic}"): self._update,
            ("PATCH", "/proxies/{proxy}/toxics/{toxic}"): self._update,
            ("DELETE", "/proxies/{proxy}/toxics/{toxic}"): self._remove,
        }
        reading: dict[tuple[str, str], Handler] = {
            ("GET", "/version"): self._version,
            ("GET", "/proxies"): self._index,
            ("GET", "/proxies/{proxy}"): self._show,
            ("GET", "/proxies/{proxy}/toxics"): self._toxics,
            ("GET", "/proxies/{proxy}/toxics/{toxic}"): self._toxic,
            ("GET", "/v1/journal"): self._events,
        }
        return {route: self._guarded(handler) for route, handler in {**changing, **reading}.items()}

    def _guarded(self, handler: Handler) -> Act:
        """Answer errors as Toxiproxy does, and let one request at a time through."""

        async def act(call: HttpCall) -> Reply:
            if call.agent.startswith(BROWSER):
                return _error(403, "User agent not allowed")
            try:
                async with self._changes:
                    return await handler(call)
            except Refused as refused:
                return _error(refused.status, str(refused))
            except ToxicError as error:
                return _error(400, str(error))

        return act

    async def _version(self, _call: HttpCall) -> Reply:
        return Reply(200, {"version": API_VERSION, "server": SERVER})

    async def _index(self, _call: HttpCall) -> Reply:
        return Reply(200, {name: proxy.json() for name, proxy in self._proxies.items()})

    async def _show(self, call: HttpCall) -> Reply:
        return Reply(200, self._proxy(call).json())

    async def _toxics(self, call: HttpCall) -> Reply:
        return Reply(200, [toxic.json() for toxic in self._proxy(call).toxics])

    async def _toxic(self, call: HttpCall) -> Reply:
        return Reply(200, self._proxy(call).get(call.names["toxic"]).json())

    async def _events(self, call: HttpCall) -> Reply:
        since = call.query.get("since", "0")
        if not since.isdecimal():
            raise Refused(400, f"since={since}: wanted is the number of an event")
        return Reply(200, [event._asdict() for event in self._journal.since(int(since))])

    async def _create(self, call: HttpCall) -> Reply:
        fields = _object(call.body)
        proxy = self._make(fields)
        if proxy.name in self._proxies:
            raise Refused(409, "proxy already exists")
        await self._install(proxy, enabled=_flag(fields, default=True))
        return Reply(201, proxy.json())

    async def _populate(self, call: HttpCall) -> Reply:
        """Create many; one that is there with the same addresses stays as it is, with other ones it is replaced."""
        asked = [
            (self._make(fields, f" at proxy {number}"), _flag(fields, default=True))
            for number, fields in enumerate(_objects(call.body), 1)
        ]
        found = []
        for proxy, enabled in asked:
            there = self._proxies.get(proxy.name)
            if there is not None and (there.listen, there.upstream) == (proxy.listen, proxy.upstream):
                found.append(there)
                continue
            if there is not None:
                await self._discard(there)
            await self._install(proxy, enabled)
            found.append(proxy)
        return Reply(201, {"proxies": [proxy.json() for proxy in found]})

    async def _change(self, call: HttpCall) -> Reply:
        proxy, fields = self._proxy(call), _object(call.body)
        listen, upstream = _text(fields, "listen", proxy.listen), _text(fields, "upstream", proxy.upstream)
        await proxy.change(listen, upstream, _flag(fields, default=proxy.enabled))
        return Reply(200, proxy.json())

    async def _delete(self, call: HttpCall) -> Reply:
        await self._discard(self._proxy(call))
        return Reply(204)

    async def _reset(self, _call: HttpCall) -> Reply:
        """Enable all proxies and remove all toxics."""
        for proxy in self._proxies.values():
            await proxy.enable()
            for toxic in proxy.toxics:
                proxy.remove(toxic.name)
        return Reply(204)

    async def _add(self, call: HttpCall) -> Reply:
        toxic = parse_toxic(_object(call.body))
        self._proxy(call).add(toxic)
        return Reply(200, toxic.json())

    async def _update(self, call: HttpCall) -> Reply:
        proxy = self._proxy(call)
        toxic = changed_toxic(proxy.get(call.names["toxic"]), _object(call.body))
        proxy.update(toxic)
        return Reply(200, toxic.json())

    async def _remove(self, call: HttpCall) -> Reply:
        self._proxy(call).remove(call.names["toxic"])
        return Reply(204)

    def _proxy(self, call: HttpCall) -> FaultProxy:
        name = call.names["proxy"]
        if name not in self._proxies:
            raise Refused(404, "proxy not found")
        return self._proxies[name]

    def _make(self, fields: Mapping[str, Any], where: str = "") -> FaultProxy:
        name, upstream = _text(fields, "name", ""), _text(fields, "upstream", "")
        if not name or not upstream:
            raise Refused(400, f"missing required field: {'upstream' if name else 'name'}{where}")
        if len(name) > NAME_CHARS_MAX or "/" in name:
            raise Refused(400, f"a proxy's name has no slash and at most {NAME_CHARS_MAX} characters")
        return FaultProxy(name, _text(fields, "listen", "") or f"{HOST}:0", upstream, self._seed, self._journal)

    async def _install(self, proxy: FaultProxy, enabled: bool) -> None:
        if len(self._proxies) >= PROXIES_MAX:
            raise Refused(400, f"there are {PROXIES_MAX} proxies, more are not allowed: delete one")
        if enabled:
            await proxy.enable()
        self._proxies[proxy.name] = proxy
        self._journal.note(proxy.name, "created", f"{proxy.listen} → {proxy.upstream}")

    async def _discard(self, proxy: FaultProxy) -> None:
        await proxy.disable()
        del self._proxies[proxy.name]
        self._journal.note(proxy.name, "deleted")


def _error(status: int, why: str) -> Reply:
    return Reply(status, {"error": why, "status": status})


def _decoded(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"bad request body: {error}") from error


def _object(body: bytes) -> Mapping[str, Any]:
    value = _decoded(body)
    if not isinstance(value, dict):
        raise Refused(400, "bad request body: wanted is a JSON object")
    return value


def _objects(body: bytes) -> list[Mapping[str, Any]]:
    value = _decoded(body)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise Refused(400, "bad request body: wanted is an array of JSON objects")
    return value


def _text(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, f"bad request body: {name} must be a string, not {value!r}")
    return value


def _flag(fields: Mapping[str, Any], default: bool) -> bool:
    value = fields.get("enabled", default)
    if not isinstance(value, bool):
        raise Refused(400, f"bad request body: enabled must be true or false, not {value!r}")
    return value
