"""Drives fault proxies, ours or Shopify's Toxiproxy, over the library toxiproxy-python (its one door).

The library keeps the server's address in a class, waits forever, does not quote names and passes over HTTP errors 5xx.
Here its calls go through a session of the one server that they are for, with timeouts, retries and all errors raised.

    with server("thread", seed=7) as toxi:
        link = toxi.create("a-to-b", upstream="127.0.0.1:9876")
        link.add("latency", latency=50, jitter=10, stream="upstream")
        ...
        link.clear()
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import tenacity
import toxiproxy.api
import toxiproxy.exceptions
import toxiproxy.proxy
import toxiproxy.server

from chaos.proxy.errors import ToxiError, ToxiExists, ToxiNotFound, ToxiRefused, ToxiUnreachable
from chaos.proxy.journal import ProxyEvent
from chaos.proxy.launch import in_process, in_thread, shopify
from chaos.proxy.server import HOST, SERVER
from chaos.proxy.toxics import OWN_TYPES, STREAMS, Stream, Toxic, parse_attributes, parse_toxic, parse_toxicity

T = TypeVar("T")

CONNECT_TIMEOUT_S = 1.0
# Shopify's server waits for each connection when it changes a toxic; ours answers within a millisecond.
READ_TIMEOUT_S = 10.0
ATTEMPTS = 4
START_TIMEOUT_S = 10.0
PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 0.5
RETRIED_STATUS = frozenset({502, 503, 504})

_http = toxiproxy.api.requests


class _Session:
    """HTTP to one server: what the library's module functions of requests are to it, one call at a time."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url = url
        self._timeout = (min(timeout_s, CONNECT_TIMEOUT_S), timeout_s)
        self._session = _http.Session()
        # A proxy for the web is none for these.
        self._session.trust_env = False
        self._busy = threading.Lock()

    def request(self, method: str, path: str, **given: Any) -> Any:
        """Return the response; raises ToxiUnreachable, and the library's exceptions for 400, 404 and 409."""
        try:
            with self._busy:
                response = self._session.request(method, self.url + quote(path), timeout=self._timeout, **given)
        except _http.RequestException as error:
            raise ToxiUnreachable(f"{method} {path}: no answer: {type(error).__name__}: {error}") from error
        if response.status_code in RETRIED_STATUS:
            raise ToxiUnreachable(f"{method} {path}: HTTP {response.status_code}")
        toxiproxy.api.validate_response(response)
        if response.status_code >= 400:
            raise ToxiError(f"{method} {path}: HTTP {response.status_code}: {_words(response.content)}")
        return response

    def close(self) -> None:
        """End the connections."""
        self._session.close()


_session: ContextVar[_Session] = ContextVar("the server that a call of the library is for")


class _Consumer:
    """In the place of the library's APIConsumer: asks which server the call is for."""

    @staticmethod
    def get(url: str, params: Mapping[str, str] | None = None) -> Any:
        return _session.get().request("GET", url, params=params)

    @staticmethod
    def post(url: str, json: object = None) -> Any:
        return _session.get().request("POST", url, json=json)

    @staticmethod
    def delete(url: str) -> Any:
        return _session.get().request("DELETE", url)


toxiproxy.server.APIConsumer = _Consumer
toxiproxy.proxy.APIConsumer = _Consumer


@contextlib.contextmanager
def server(where: str = "thread", *, seed: int = 0, log: Path | None = None) -> Iterator["Toxi"]:
    """Give a fault proxy server, and its proxies deleted at the end; raises ToxiError.

    `where` is "thread" or "process" for ours, "path" for a toxiproxy-server found on PATH, a program's path for that
    one, or the URL of one that runs. `seed` is for ours: Shopify's cannot be seeded. `log` takes what a process prints.
    """
    with contextlib.ExitStack() as stack:
        if where.startswith("http://"):
            url = where
        elif where == "thread":
            url = stack.enter_context(in_thread(seed))
        elif where == "process":
            url = stack.enter_context(in_process(seed, log))
        else:
            url = stack.enter_context(shopify(None if where == "path" else where, log))
        toxi = stack.enter_context(Toxi(url))
        toxi.wait_ready()
        stack.callback(toxi.clear)
        yield toxi


class Toxi:
    """One fault proxy server. Its methods, and those of its links, raise ToxiError; any thread may call them."""

    def __init__(self, url: str, *, timeout_s: float = READ_TIMEOUT_S, attempts: int = ATTEMPTS) -> None:
        """Take the server at ``http://host:port``. A call waits `timeout_s`, and is tried `attempts` times."""
        self.url = url.rstrip("/")
        self._attempts = attempts
        self._wire = _Session(self.url, timeout_s)
        self._library = toxiproxy.server.Toxiproxy()
        self._about: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections to the server; the server stays as it is."""
        self._wire.close()

    def wait_ready(self) -> None:
        """Wait until the server answers; raises ToxiUnreachable after START_TIMEOUT_S."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._what()
                return
            except ToxiUnreachable:
                if time.monotonic() > deadline:
                    raise

    @property
    def version(self) -> str:
        """The version of the API."""
        return str(self._what()["version"])

    @property
    def ours(self) -> bool:
        """Whether it is the server of this package, which knows `hold`, counters and a journal."""
        return self._what().get("server") == SERVER

    def create(self, name: str, upstream: str, *, listen: str = f"{HOST}:0", enabled: bool = True) -> "ToxiproxyLink":
        """Make a proxy for `upstream` (host:port); raises ToxiExists."""
        if not name or "/" in name:
            raise ToxiRefused(f"{self.url}: a proxy's name must not be empty nor have a slash: {name!r}")
        lost = False

        def attempt() -> Any:
            nonlocal lost
            try:
                return self._library.create(upstream=upstream, name=name, listen=listen, enabled=enabled)
            except ToxiUnreachable:
                lost = True
                raise
            except toxiproxy.exceptions.ProxyExists:
                # An attempt without an answer may have made it.
                made = self._library.get_proxy(name) if lost else None
                if made is not None and made.upstream == upstream:
                    return made
                raise

        return ToxiproxyLink(self, self.call(f"create {name}", attempt))

    def get(self, name: str) -> "ToxiproxyLink":
        """Return a proxy; raises ToxiNotFound."""
        found = self.call(f"get {name}", lambda: self._library.get_proxy(name))
        if found is None:
            raise ToxiNotFound(f"{self.url}: there is no proxy {name}")
        return ToxiproxyLink(self, found)

    def links(self) -> dict[str, "ToxiproxyLink"]:
        """Return all proxies by name."""
        found = self.call("list the proxies", self._library.proxies)
        return {name: ToxiproxyLink(self, proxy) for name, proxy in found.items()}

    def reset(self) -> None:
        """Enable all proxies and remove all toxics."""
        self.call("reset", self._library.reset)

    def clear(self) -> None:
        """Delete all proxies."""
        for link in self.links().values():
            link.destroy()

    def counters(self) -> dict[str, Any]:
        """Return what went through each proxy (chaos.proxy.journal.Counters as JSON); ours alone can tell."""
        return dict(self._own_page("/v1/counters", {}))

    def journal(self, since: int = 0) -> list[ProxyEvent]:
        """Return what happened, from event number `since` on; ours alone can tell."""
        return [ProxyEvent(**event) for event in self._own_page("/v1/journal", {"since": str(since)})]

    def call(self, what: str, attempt: Callable[[], T]) -> T:
        """Have the library do something with this server; tried again while nobody answers. Raises ToxiError."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_exponential(multiplier=PAUSE_S_FIRST, max=PAUSE_S_MAX),
            retry=tenacity.retry_if_exception_type(ToxiUnreachable),
            reraise=True,
        )
        token = _session.set(self._wire)
        try:
            return retrying(attempt)
        except ToxiUnreachable as error:
            raise ToxiUnreachable(f"{self.url}: {what}: {error}; is the server running?") from error
        except ToxiError as error:
            raise ToxiError(f"{self.url}: {what}: {error}") from error
        except toxiproxy.exceptions.ProxyExists as error:
            raise ToxiExists(f"{self.url}: {what}: {_words(error.args[0])}") from error
        except toxiproxy.exceptions.NotFound as error:
            raise ToxiNotFound(f"{self.url}: {what}: {_words(error.args[0])}") from error
        except toxiproxy.exceptions.InvalidToxic as error:
            raise ToxiRefused(f"{self.url}: {what}: {_words(error.args[0])}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ToxiError(f"{self.url}: {what}: the answer is none of Toxiproxy's: {error}") from error
        finally:
            _session.reset(token)

    def request(self, method: str, path: str, **given: Any) -> Any:
        """Make a request that the library has no function for; returns the decoded answer."""
        return self.call(f"{method} {path}", lambda: self._wire.request(method, path, **given).json())

    def _what(self) -> dict[str, Any]:
        if self._about is None:
            self._about = dict(self.request("GET", "/version"))
        return self._about

    def _own_page(self, path: str, params: Mapping[str, str]) -> Any:
        if not self.ours:
            raise ToxiRefused(f"{self.url}: Shopify's server has no {path}: use the server of chaos.proxy")
        return self.request("GET", path, params=params)


class ToxiproxyLink:
    """One proxy of a server: a directed link."""

    def __init__(self, toxi: Toxi, proxy: Any) -> None:
        """`proxy` is the library's."""
        self._toxi = toxi
        self._proxy = proxy

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self._proxy.name)

    @property
    def listen(self) -> str:
        """Where it accepts: host:port."""
        return str(self._proxy.listen)

    @property
    def port(self) -> int:
        """The port of `listen`."""
        return int(self.listen.rpartition(":")[2])

    @property
    def upstream(self) -> str:
        """Where it leads: host:port."""
        return str(self._proxy.upstream)

    def toxics(self) -> dict[str, Toxic]:
        """Return the toxics by name, as the server has them now."""
        found = self._toxi.call(f"toxics of {self.name}", self._proxy.toxics)
        return {name: parse_toxic(vars(toxic)) for name, toxic in found.items()}

    def add(
        self,
        kind: str,
        *,
        stream: Stream = "downstream",
        toxicity: float = 1.0,
        name: str | None = None,
        **attributes: int,
    ) -> Toxic:
        """Add a toxic, also to the connections that are open; raises ToxiExists, ToxiRefused."""
        fields = {"type": kind, "stream": stream, "toxicity": toxicity, "name": name, "attributes": attributes}
        toxic = self._checked(lambda: parse_toxic(fields))
        if "/" in toxic.name:
            raise ToxiRefused(f"{self._toxi.url}: a toxic's name must not have a slash: {toxic.name}")
        if toxic.type in OWN_TYPES and not self._toxi.ours:
            raise ToxiRefused(f"{self._toxi.url}: Shopify's server has no {kind}: use the server of chaos.proxy")
        lost = False

        def attempt() -> None:
            nonlocal lost
            try:
                self._proxy.add_toxic(**toxic.json())
            except ToxiUnreachable:
                lost = True
                raise
            except toxiproxy.exceptions.ProxyExists:
                # An attempt without an answer may have added it.
                if not lost:
                    raise

        self._toxi.call(f"add {toxic.name} to {self.name}", attempt)
        return toxic

    def update(self, name: str, *, toxicity: float | None = None, **attributes: int) -> Toxic:
        """Change attributes or toxicity of a toxic, what is not named stays; raises ToxiNotFound, ToxiRefused."""
        toxic = self._get(name)
        known = self._checked(lambda: parse_attributes(toxic.type, {**toxic.attributes, **attributes}))
        fields: dict[str, Any] = {"attributes": known}
        if toxicity is not None:
            fields["toxicity"] = self._checked(lambda: parse_toxicity(toxicity))
        return parse_toxic(self._toxi.request("PATCH", f"/proxies/{self.name}/toxics/{name}", json=fields))

    def remove(self, name: str) -> None:
        """Remove a toxic; fine when there is none."""
        with contextlib.suppress(ToxiNotFound):
            self._toxi.call(f"remove {name} from {self.name}", lambda: self._proxy.destroy_toxic(name))

    def clear(self) -> None:
        """Remove all toxics."""
        for name in self.toxics():
            self.remove(name)

    def hold(self, *streams: Stream) -> None:
        """Keep all bytes of the given streams, both by default, until `release`; connections stay open."""
        for stream in streams or STREAMS:
            self.add("hold", stream=stream)

    def release(self) -> None:
        """Deliver what `hold` kept, and hold no more."""
        for stream in STREAMS:
            self.remove(f"hold_{stream}")

    def disable(self) -> None:
        """Take it down: refuse new connections and drop the open ones."""
        self._toxi.call(f"disable {self.name}", self._proxy.disable)

    def enable(self) -> None:
        """Accept connections again."""
        self._toxi.call(f"enable {self.name}", self._proxy.enable)

    def destroy(self) -> None:
        """Delete it; fine when it is gone."""
        with contextlib.suppress(ToxiNotFound):
            self._toxi.call(f"delete {self.name}", self._proxy.destroy)

    def _get(self, name: str) -> Toxic:
        if (toxic := self.toxics().get(name)) is None:
            raise ToxiNotFound(f"{self._toxi.url}: {self.name} has no toxic {name}")
        return toxic

    def _checked(self, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except ValueError as error:
            raise ToxiRefused(f"{self._toxi.url}: {self.name}: {error}") from error


def _words(content: object) -> str:
    """Return the error of an answer's body."""
    if not isinstance(content, bytes):
        return str(content)
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace").strip()[:200]
