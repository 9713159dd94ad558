"""Sockets at both ends of a fault proxy, and plain HTTP to its server, as the tests of the proxies need them."""

import contextlib
import http.client
import json
import select
import socket
from typing import Any

from chaos.proxy.toxics import Stream
from chaos.site.toxiproxy import ToxiproxyLink

WAIT_S = 20.0
# Shorter than this nothing is measured: two cores are shared with other tests.
SILENCE_S = 0.15


class Far:
    """The server behind a proxy: accepts connections and leaves them to the test."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT_S)
        self._open: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def pair(self, link: ToxiproxyLink) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a new connection through a proxy."""
        near = socket.create_connection(("127.0.0.1", link.port), timeout=WAIT_S)
        far, _ = self._listener.accept()
        far.settimeout(WAIT_S)
        self._open += [near, far]
        return near, far

    def close(self) -> None:
        for one in (*self._open, self._listener):
            one.close()


def receive(wire: socket.socket, count: int) -> bytes:
    """Return `count` bytes, or what came before the end."""
    found = bytearray()
    while len(found) < count and (piece := wire.recv(count - len(found))):
        found += piece
    return bytes(found)


def silent(wire: socket.socket) -> bool:
    """Tell whether nothing comes, not even the end, for a while."""
    return not select.select([wire], [], [], SILENCE_S)[0]


def ended(wire: socket.socket) -> bool:
    """Tell whether the connection ends without another byte, in whatever way."""
    try:
        return wire.recv(1) == b""
    except ConnectionResetError:
        return True


def ends(stream: Stream, pair: tuple[socket.socket, socket.socket]) -> tuple[socket.socket, socket.socket]:
    """Return who sends and who receives in a stream."""
    near, away = pair
    return (near, away) if stream == "upstream" else (away, near)


class Ask:
    """Plain HTTP to a server, past the library and its adapter."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")

    def __call__(self, method: str, path: str, body: str | None = None, agent: str = "test") -> tuple[int, Any]:
        with contextlib.closing(http.client.HTTPConnection(self._address, timeout=WAIT_S)) as connection:
            connection.request(method, path, body, {"User-Agent": agent})
            answer = connection.getresponse()
            text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, None
