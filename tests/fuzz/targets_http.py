"""The HTTP face: whole requests over a transport in memory, to the routes that take something."""

import asyncio
import gzip
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from aiohttp import web

from runtime.http import BODY_BYTES_MAX, HttpCall, HttpFace, Reply
from runtime.http_guard import GuardedConnection, HttpConnections, HttpLimits
from runtime.metrics import Metrics
from tests.fuzz.bounds import KIB, MIB, Target

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
# Answers that say whose fault it is, or that all is well.
_CLEAR = frozenset({200, 201, 204, 100, 400, 404, 405, 408, 413, 415, 417, 421})


class NoClearAnswer(Exception):
    """A request was answered with what no request may be answered with."""


class _Wire(asyncio.Transport):
    """A transport that takes everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.sent = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _take(call: HttpCall) -> Reply:
    """Read all that a route may."""
    return Reply(200, {"names": dict(call.names), "query": dict(call.query), "bytes": len(call.body), "by": call.agent})


@cache
def _served() -> tuple[asyncio.AbstractEventLoop, web.AppRunner]:
    """Return a face that listens nowhere, and its loop; made once, as in a process."""
    loop = asyncio.new_event_loop()
    routes = {("POST", "/v1/{name}/x"): _take, ("GET", "/v1/{name}/x"): _take}
    face = HttpFace(Metrics(), lambda: None, {"/v1/status": lambda: {"a": 1}}, routes=routes)
    loop.run_until_complete(face._runner.setup())
    return loop, face._runner


def close() -> None:
    """End what was made for the first request."""
    if _served.cache_info().currsize:
        loop, runner = _served()
        loop.run_until_complete(runner.cleanup())
        loop.close()
        _served.cache_clear()


def _request(data: bytes) -> None:
    """Send bytes as a connection's, end it, and look at the answers."""
    loop, runner = _served()
    loop.run_until_complete(_exchange(runner, data))


def _guarded(data: bytes) -> None:
    """Do the same behind the guard of a face's connections, of which one has come and gone before."""
    loop, runner = _served()
    connections = HttpConnections(HttpLimits(), 1, loop.time)

    def guard(behind: asyncio.Protocol) -> asyncio.Protocol:
        return GuardedConnection(connections, behind)

    loop.run_until_complete(_exchange(runner, b"GET /healthz HTTP/1.1\r\n", guard))
    loop.run_until_complete(_exchange(runner, data, guard))
    connections.close_overdue()
    if len(connections):
        raise NoClearAnswer("a connection that has ended is counted still")


async def _exchange(
    runner: web.AppRunner, data: bytes, guard: Callable[[asyncio.Protocol], asyncio.Protocol] = lambda behind: behind
) -> None:
    assert runner.server is not None
    protocol, wire = guard(runner.server()), _Wire()
    protocol.connection_made(wire)
    for at in range(0, len(data), 64 * KIB):
        protocol.data_received(data[at : at + 64 * KIB])
        for _ in range(4):
            await asyncio.sleep(0)
    for _ in range(8):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    wrong = {int(status) for status in _STATUS.findall(wire.sent)} - _CLEAR
    if wrong:
        raise NoClearAnswer(f"answered with {sorted(wrong)}")


def _bodied(line: bytes, body: bytes, more: bytes = b"") -> bytes:
    return line + b" HTTP/1.1\r\nHost: localhost\r\n" + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def targets() -> list[Target]:
    """Return them all."""
    get = b"GET /v1/a%20b/x?since=3&x=%C3%A9 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: me\r\n\r\n"
    chunked = b"POST /v1/a/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    seeds = (get, _bodied(b"POST /v1/n/x", b'{"a":1}'), chunked, b"GET /healthz HTTP/1.0\r\n\r\n",
             b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")  # fmt: skip
    heavy: tuple[Callable[[], bytes], ...] = (
        lambda: b"GET /" + b"a" * 300 * KIB,
        lambda: b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 50_000,
        lambda: b"GET / HTTP/1.1\r\nA: " + b"b" * 300 * KIB,
        lambda: _bodied(b"POST /v1/n/x", bytes(BODY_BYTES_MAX)),
        lambda: _bodied(b"POST /v1/n/x", bytes(4 * BODY_BYTES_MAX)),
        lambda: (
            b"POST /v1/n/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 20_000
        ),
        lambda: _bodied(b"POST /v1/n/x", b"\x1f\x8b" + bytes(1000), b"Content-Encoding: gzip\r\n"),
        *(
            lambda size=size, chunk=chunk: _bodied(
                b"POST /v1/n/x", gzip.compress(chunk * size), b"Content-Encoding: gzip\r\n"
            )
            for size in (1, 60, 64)
            for chunk in (bytes(1024), bytes(MIB))
        ),
        lambda: (
            b"GET /v1/a/x?"
            + b"&".join(b"a%d=1" % number for number in range(800))
            + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ),
        lambda: get * 200,
    )
    words = (
        b"\r\n", b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 9\r\n", b"%", b"%00", b"%ff",
        b"HTTP/1.1", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n", b"Content-Encoding: deflate\r\n",
        b"?", b"&", b"POST ",
    )  # fmt: skip
    return [
        Target("http", _request, (), seeds, heavy, bytes_max=300 * KIB, weight=8, tokens=words),
        Target("http.guarded", _guarded, (), seeds, heavy, bytes_max=64 * KIB, weight=2, tokens=words),
    ]
