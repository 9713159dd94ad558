"""The client over real sockets: connecting, answers, timeouts, losing and regaining a server, limits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager

import pytest
import uvloop

from remoting.backoff import Backoff
from remoting.client import RemotingClient
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import (
    BacklogFull,
    ConnectError,
    ConnectionLost,
    FrameError,
    InvokeTimeout,
    ResponseError,
)
from remoting.headers.registry import GetRouteInfoRequestHeader
from remoting.limits import ClientLimits, ServerLimits
from remoting.server import RemotingServer

ECHO = 34
SILENT = 11


def echo(_: Connection, request: Command) -> Reply:
    return Command.response(ResponseCode.SUCCESS, body=request.body)


def silent(_: Connection, __: Command) -> Reply:
    return None


async def serve(
    handlers: Mapping[int, Handler], port: int = 0, on_open: Callable[[Connection], None] | None = None
) -> RemotingServer:
    server = RemotingServer(handlers, name="server", limits=ServerLimits(close_seconds=0.2), on_open=on_open)
    await server.start("127.0.0.1", port)
    return server


@asynccontextmanager
async def calling(
    limits: ClientLimits = ClientLimits(close_seconds=0.2, backoff_first_seconds=0.01),  # noqa: B008 - frozen
    handlers: Mapping[int, Handler] | None = None,
    on_close: Callable[[str], None] | None = None,
    backoff: Backoff | None = None,
) -> AsyncIterator[tuple[RemotingClient, RemotingServer, str]]:
    server = await serve({ECHO: echo, SILENT: silent})
    client = RemotingClient(handlers, limits=limits, on_close=on_close, backoff=backoff)
    try:
        yield client, server, f"127.0.0.1:{server.port}"
    finally:
        await client.close()
        await server.close()


async def test_an_answer_finds_the_request_it_belongs_to() -> None:
    async with calling() as (client, server, address):
        answers = await asyncio.gather(
            *(client.invoke(address, Command.request(ECHO, body=b"%d" % number)) for number in range(100))
        )
        assert [bytes(answer.body) for answer in answers] == [b"%d" % number for number in range(100)]
        assert len(server.connections) == 1  # concurrent first calls share one connection
        connection = client.connection(address)
        assert connection is not None
        assert not connection.waiting


async def test_submit_gives_a_future_connected_or_not() -> None:
    async with calling() as (client, _, address):
        for body in (b"first", b"second"):
            assert bytes((await client.submit(address, Command.request(ECHO, body=body))).body) == body
        with pytest.raises(FrameError):
            await client.submit(address, Command.request(ECHO, body=bytes(16 * 1024 * 1024)))
        with pytest.raises(ConnectError):
            await client.submit("127.0.0.1:1", Command.request(ECHO))
        connection = client.connection(address)
        assert connection is not None
        assert not connection.waiting  # the request that was too long left nothing behind


async def test_call_raises_unless_the_code_is_success() -> None:
    async with calling() as (client, _, address):
        assert (await client.call(address, ECHO, body=b"x")).code == 0
        with pytest.raises(ResponseError, match="answered 3") as caught:
            await client.call(address, 105, GetRouteInfoRequestHeader(topic="t"))
        assert caught.value.code == 3
        assert caught.value.remark == " request type 105 not supported"
        assert caught.value.address == address
        assert (await client.invoke(address, Command.request(105))).code == 3


async def test_no_answer_in_time_is_a_timeout_and_a_late_one_is_dropped() -> None:
    parked: list[tuple[Connection, Command]] = []
    server = await serve({1: lambda connection, request: parked.append((connection, request)), ECHO: echo})
    client = RemotingClient()
    address = f"127.0.0.1:{server.port}"
    await client.invoke(address, Command.request(ECHO), 5)
    with pytest.raises(InvokeTimeout, match=r"no answer from 127.0.0.1:\d+ within"):
        await client.invoke(address, Command.request(1), 0.02)
    # It was sent over the connection that is there; the server may only come to it now.
    async with asyncio.timeout(20):
        while not parked:
            await asyncio.sleep(0)
    ((connection, request),) = parked
    connection.reply(request, Command.response(0, "late"))
    assert (await client.invoke(address, Command.request(ECHO))).remark is None
    await client.close()
    await server.close()


async def test_deadlines_are_kept_one_by_one_on_one_timer() -> None:
    async with calling() as (client, _, address):
        await client.invoke(address, Command.request(ECHO))
        long = client.submit(address, Command.request(SILENT), 60.0)
        short = [client.submit(address, Command.request(SILENT), seconds) for seconds in (0.3, 0.1, 0.2)]
        order: list[int] = []
        for number, future in enumerate(short):
            future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # default
        await asyncio.wait(short)
        assert order == [1, 2, 0]
        assert all(isinstance(future.exception(), InvokeTimeout) for future in short)
        assert not long.done()
        long.cancel()


async def test_requests_in_flight_are_limited() -> None:
    async with calling(ClientLimits(in_flight_max=2, close_seconds=0.2)) as (client, server, address):
        await client.invoke(address, Command.request(ECHO))
        waiting = [client.submit(address, Command.request(SILENT), 60.0) for _ in range(2)]
        with pytest.raises(BacklogFull) as caught:
            await client.invoke(address, Command.request(ECHO))
        assert not caught.value.sent
        await server.close()
        for future in waiting:
            with pytest.raises(ConnectionLost):
                await future


async def test_a_server_that_goes_away_and_comes_back_is_reconnected_to() -> None:
    closed: list[str] = []
    async with calling(on_close=closed.append) as (client, server, address):
        await client.invoke(address, Command.request(ECHO))
        waiting = client.submit(address, Command.request(SILENT), 60.0)
        await server.close()
        with pytest.raises(ConnectionLost, match="ended") as lost:
            await waiting
        assert lost.value.sent
        assert closed == [address]
        assert client.connection(address) is None
        with pytest.raises(ConnectError) as refused:
            await client.invoke(address, Command.request(ECHO))
        assert not refused.value.sent
        again = await serve({ECHO: echo}, server.port)
        assert (await client.invoke(address, Command.request(ECHO))).code == 0
        await client.close()
        await again.close()


def test_the_wait_before_the_next_attempt_grows_and_starts_again_after_success() -> None:
    backoff = Backoff(ClientLimits(backoff_first_seconds=0.5, backoff_max_seconds=4.0))
    assert backoff.wait_seconds("a:1", 100.0) == 0
    for step in (0.5, 1.0, 2.0, 4.0, 4.0):
        backoff.failed("a:1", 100.0)
        assert backoff.wait_seconds("a:1", 100.0) == step
        assert backoff.wait_seconds("a:1", 100.25) == step - 0.25
        assert backoff.wait_seconds("a:1", 100.0 + step) == 0
    assert backoff.wait_seconds("b:1", 100.0) == 0
    backoff.reached("a:1")
    assert backoff.wait_seconds("a:1", 100.0) == 0
    backoff.failed("a:1", 200.0)
    assert backoff.wait_seconds("a:1", 200.0) == 0.5


def test_addresses_that_fail_are_limited() -> None:
    backoff = Backoff(ClientLimits(backoff_first_seconds=0.5, connections_max=2))
    for address in ("a:1", "b:1", "c:1"):
        backoff.failed(address, 0.0)
    assert [backoff.wait_seconds(address, 0.0) for address in ("a:1", "b:1", "c:1")] == [0, 0, 0.5]


async def test_an_attempt_waits_for_the_backoff_and_an_answer_ends_it() -> None:
    loop = asyncio.get_running_loop()
    limits = ClientLimits(backoff_first_seconds=0.05, backoff_max_seconds=0.4, close_seconds=0.2)
    backoff = Backoff(limits)
    lost = asyncio.Event()
    async with calling(limits, on_close=lambda _: lost.set(), backoff=backoff) as (client, server, address):
        await server.close()
        for _ in range(4):
            with pytest.raises(ConnectError, match="no connection"):
                await client.invoke(address, Command.request(ECHO))
        backoff.failed("127.0.0.1:1", loop.time() + 60)
        with pytest.raises(ConnectError, match="within"):
            await client.invoke("127.0.0.1:1", Command.request(ECHO), 0.01)  # the wait counts towards the timeout
        again = await serve({ECHO: echo}, server.port)
        await client.invoke(address, Command.request(ECHO))
        await again.close()
        await lost.wait()
        assert backoff.wait_seconds(address, loop.time()) == 0
        with pytest.raises(ConnectError, match="no connection"):
            await client.invoke(address, Command.request(ECHO))
        assert backoff.wait_seconds(address, loop.time()) <= limits.backoff_first_seconds


@pytest.mark.parametrize(
    "address", ["nowhere", "host:", ":9876", "host:0", "host:70000", "::1:9876", "127.0.0.1:1", "a..b:9876"]
)
async def test_an_address_that_cannot_be_reached_is_a_connect_error(address: str) -> None:
    client = RemotingClient()
    with pytest.raises(ConnectError):
        await client.invoke(address, Command.request(ECHO))
    with pytest.raises(ConnectError):
        await client.oneway(address, Command.request(ECHO))
    await client.close()


@pytest.mark.parametrize("way", ["invoke", "oneway"])
async def test_a_connection_that_comes_too_late_is_used_for_nothing(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[Command] = []
    server = await serve({ECHO: lambda _, request: arrived.append(request)})
    client = RemotingClient()
    address = f"127.0.0.1:{server.port}"
    loop = asyncio.get_running_loop()
    connect = client.connect

    async def late(address: str, timeout: float) -> Connection:
        connection = await connect(address, timeout)
        over = loop.time() + timeout + 0.1
        monkeypatch.setattr(loop, "time", lambda: over)
        return connection

    monkeypatch.setattr(client, "connect", late)
    with pytest.raises(ConnectError, match=r"no connection to [\d.:]+ within 3 s"):
        await getattr(client, way)(address, Command.request(ECHO), 3.0)
    monkeypatch.undo()
    # What is sent next over that connection is the first that gets there.
    await client.oneway(address, Command.request(ECHO, body=b"next"))
    async with asyncio.timeout(10):
        while not arrived:
            await asyncio.sleep(0.001)
    assert [bytes(request.body) for request in arrived] == [b"next"]
    await client.close()
    await server.close()


async def test_addresses_are_limited() -> None:
    async with calling(ClientLimits(connections_max=1, close_seconds=0.2)) as (client, _, address):
        await client.invoke(address, Command.request(ECHO))
        with pytest.raises(ConnectError, match="1 connections"):
            await client.invoke(address.replace("127.0.0.1", "localhost"), Command.request(ECHO))


async def test_one_way_requests_arrive_and_wait_for_nothing() -> None:
    arrived: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
    server = await serve({15: lambda _, request: arrived.set_result(request)})
    client = RemotingClient()
    await client.oneway(f"127.0.0.1:{server.port}", Command.request(15, body=b"offset"))
    request = await arrived
    assert (request.is_oneway, bytes(request.body)) == (True, b"offset")
    await client.close()
    await server.close()


async def test_what_the_server_asks_is_handled_and_answered() -> None:
    connections: list[Connection] = []
    server = await serve({ECHO: echo}, on_open=connections.append)
    client = RemotingClient({307: lambda _, request: Command.response(0, "running", body=request.body)})
    await client.invoke(f"127.0.0.1:{server.port}", Command.request(ECHO))
    answer = await connections[0].invoke(Command.request(307, body=b"who"), 5.0)
    assert (answer.remark, bytes(answer.body)) == ("running", b"who")
    assert (await connections[0].invoke(Command.request(309), 5.0)).code == 3
    await client.close()
    await server.close()


async def test_a_closed_client_calls_nobody() -> None:
    async with calling() as (client, _, address):
        waiting = client.submit(address, Command.request(SILENT), 60.0)
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises((ConnectError, ConnectionLost)):
            await waiting
        with pytest.raises(ConnectError, match="closed"):
            await client.invoke(address, Command.request(ECHO))


async def test_an_asker_who_gives_up_does_not_stop_the_connecting_for_others() -> None:
    async with calling() as (client, server, address):
        first = asyncio.ensure_future(client.invoke(address, Command.request(ECHO)))
        second = asyncio.ensure_future(client.invoke(address, Command.request(ECHO)))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).code == 0
        assert len(server.connections) == 1


ON_BOTH_LOOPS = [
    test_an_answer_finds_the_request_it_belongs_to,
    test_submit_gives_a_future_connected_or_not,
    test_deadlines_are_kept_one_by_one_on_one_timer,
    test_a_server_that_goes_away_and_comes_back_is_reconnected_to,
    test_what_the_server_asks_is_handled_and_answered,
    test_a_closed_client_calls_nobody,
]


@pytest.mark.parametrize("scenario", ON_BOTH_LOOPS)
def test_all_this_holds_on_uvloop_as_well(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    uvloop.run(scenario())
