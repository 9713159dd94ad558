"""runtime/http_guard.py and Host: what a stranger at an HTTP port may cost, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from runtime.http import HttpCall, HttpFace, Reply, answers_to
from runtime.http_guard import GuardedConnection, HttpConnections, HttpLimits
from runtime.metrics import Metrics

ASKING = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SHORT = 0.6


@asynccontextmanager
async def serving(limits: HttpLimits, **options: object) -> AsyncIterator[HttpFace]:
    async def act(call: HttpCall) -> Reply:
        return Reply(200, len(call.body))

    names = options.get("names", ())
    assert isinstance(names, tuple)
    face = HttpFace(Metrics(), lambda: None, {}, {("POST", "/body"): act}, names=names, limits=limits)
    await face.start("127.0.0.1", 0)
    try:
        yield face
    finally:
        await face.close()


@asynccontextmanager
async def connected(face: HttpFace) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", face.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answer_to(face: HttpFace, request: bytes) -> bytes:
    """The beginning of what is answered to these bytes; nothing when the connection is closed instead."""
    async with connected(face) as (reader, writer):
        writer.write(request)
        try:
            return await reader.read(4096)
        except ConnectionResetError:
            return b""


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection, which brings nothing more."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127"], ids=["nothing", "half"])
async def test_half_a_head_and_silence_are_closed(sent: bytes) -> None:
    async with serving(HttpLimits(head_seconds=SHORT)) as face, asyncio.timeout(10):
        assert await answer_to(face, sent) == b""


async def test_the_second_head_has_its_time_too() -> None:
    async with serving(HttpLimits(head_seconds=SHORT)) as face, connected(face) as (reader, writer):
        writer.write(ASKING)
        assert (await reader.read(4096)).startswith(b"HTTP/1.1 200 ")
        writer.write(ASKING[:10])
        async with asyncio.timeout(10):
            assert await closed(reader)


async def test_a_connection_that_asks_nothing_more_is_closed() -> None:
    async with serving(HttpLimits(idle_seconds=SHORT)) as face, connected(face) as (reader, writer):
        writer.write(ASKING)
        assert (await reader.read(4096)).startswith(b"HTTP/1.1 200 ")
        async with asyncio.timeout(10):
            assert await closed(reader)


async def test_a_body_that_does_not_come_is_answered() -> None:
    async with serving(HttpLimits(body_seconds=SHORT)) as face:
        head = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345"
        assert (await answer_to(face, head)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 9000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: a\r\n" * 100 + b"\r\n",
    ],
    ids=["line", "field", "fields"],
)
async def test_a_head_has_limits(request_: bytes) -> None:
    async with serving(HttpLimits()) as face:
        assert b" 400 " in (await answer_to(face, request_)).split(b"\r\n")[0]


async def test_what_is_no_request_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(HttpLimits()) as face:
        for _ in range(20):
            assert b" 400 " in (await answer_to(face, b"GET / HTTP/1.1\r\nno field\r\n\r\n")).split(b"\r\n")[0]
    (record,) = caplog.records
    assert record.getMessage().startswith("http: 127.0.0.1 sent what is no request: ")
    assert record.exc_info is None


async def test_at_the_limit_the_idlest_makes_room() -> None:
    async with AsyncExitStack() as stack:
        face = await stack.enter_async_context(serving(HttpLimits(connections_max=16)))
        idle = [await stack.enter_async_context(connected(face)) for _ in range(40)]
        assert (await answer_to(face, ASKING)).startswith(b"HTTP/1.1 200 ")
        # The oldest are gone: 41 came, 16 stay.
        for reader, _writer in idle[:24]:
            assert await closed(reader)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3:9976", True),
        ("[::1]:80", True),
        ("::1", True),
        ("localhost:80", True),
        ("LOCALHOST.", True),
        ("x.localhost", True),
        ("mq.example:1", True),
        ("evil.example", False),
        ("evil.example:9976", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("", False),
    ],
)
def test_which_names_are_answered(host: str, own: bool) -> None:
    assert answers_to(host, {"localhost", "mq.example"}) is own


async def test_a_foreign_name_is_told_so() -> None:
    async with serving(HttpLimits(), names=("MQ.example",)) as face:
        refused = await answer_to(face, b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 421 ")
        assert b"httpHostNames" in refused
        assert b'raftmq_http_refused_total{reason="name"} 1.0' in face._metrics.render()
        for own in (b"Host: mq.example:8080\r\n", b"Host: localhost\r\n", b""):
            version = b"1.1" if own else b"1.0"
            got = await answer_to(face, b"GET /healthz HTTP/" + version + b"\r\n" + own + b"\r\n")
            assert b" 200 " in got.split(b"\r\n")[0]


class Wire(asyncio.Transport):
    """A transport of somebody at an address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def made(connections: HttpConnections, address: str) -> tuple[GuardedConnection, Wire]:
    connection, wire = GuardedConnection(connections, asyncio.Protocol()), Wire(address)
    connection.connection_made(wire)
    return connection, wire


def at(times: list[float]) -> Callable[[], float]:
    return lambda: times[0]


def test_whose_connection_makes_room() -> None:
    times = [0.0]
    connections = HttpConnections(HttpLimits(), 4, at(times))
    _quiet, quiet_wire = made(connections, "10.0.0.1")
    crowd = []
    for _ in range(3):
        times[0] += 1
        crowd.append(made(connections, "10.0.0.2"))
    crowd[0][0].begins()
    _new, new_wire = made(connections, "10.0.0.3")
    # Not the oldest, who is alone, and not the one that is worked on.
    assert [wire.aborted for wire in (quiet_wire, crowd[0][1], crowd[1][1], crowd[2][1])] == [False, False, True, False]
    assert not new_wire.aborted
    assert len(connections) == 4


def test_nobody_makes_room_while_all_are_worked_on() -> None:
    connections = HttpConnections(HttpLimits(), 2, at([0.0]))
    for address in ("10.0.0.1", "10.0.0.2"):
        made(connections, address)[0].begins()
    _late, wire = made(connections, "10.0.0.3")
    assert wire.aborted
    assert len(connections) == 2


def test_what_is_worked_on_is_never_overdue() -> None:
    times = [0.0]
    connections = HttpConnections(HttpLimits(head_seconds=10, idle_seconds=75), 4, at(times))
    connection, wire = made(connections, "10.0.0.1")
    connection.begins()
    times[0] = 100.0
    connections.close_overdue()
    assert not wire.aborted
    connection.ends()
    times[0] = 174.0
    connections.close_overdue()
    assert not wire.aborted
    times[0] = 175.0
    connections.close_overdue()
    assert wire.aborted
