"""The server over real sockets: what each kind of handler's result becomes, and what each limit answers."""

import asyncio
import struct
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from remoting import per_address
from remoting.codec import encode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ROCKETMQ, Command
from remoting.connection import Connection, Reply
from remoting.errors import BacklogFull, CommandError, ConnectionLost, InvokeTimeout
from remoting.headers.registry import GetRouteInfoRequestHeader
from remoting.limits import ServerLimits
from remoting.side import SWEEPS_PER_IDLE
from tests.parts.byte_peer import ECHO, connect, echo, serving


async def test_a_command_answers_at_once_under_the_requests_number() -> None:
    async with serving({ECHO: echo}) as (_, peer):
        peer.ask(ECHO, 41, b"hello")
        answer = await peer.receive()
        assert (answer.code, answer.opaque, bytes(answer.body), answer.is_response) == (0, 41, b"hello", True)


async def test_the_answer_comes_in_the_serialize_type_of_the_request() -> None:
    async with serving({ECHO: echo}) as (_, peer):
        request = Command.request(ECHO)
        for serialize_type in (ROCKETMQ, 0):
            request.serialize_type = serialize_type
            peer.send(request)
            assert (await peer.receive()).serialize_type == serialize_type


async def test_an_unknown_code_is_not_supported() -> None:
    async with serving({}) as (_, peer):
        peer.ask(9999, 7)
        answer = await peer.receive()
        assert (answer.code, answer.remark, answer.opaque) == (3, " request type 9999 not supported", 7)


@pytest.mark.parametrize(
    ("codes", "named"),
    [
        ((200_070, 200_079), "lite topics are not available"),
        ((200_056,), "nothing to take back"),
        ((200_069, 200_080), ""),
    ],
)
async def test_what_is_missing_is_named(codes: tuple[int, ...], named: str) -> None:
    async with serving({}) as (_, peer):
        for code in codes:
            peer.ask(code, 7)
            answer = await peer.receive()
            plain = f" request type {code} not supported"
            remark = answer.remark or ""
            assert answer.code == 3
            assert remark.startswith(f"{plain}: ") if named else remark == plain
            assert named in remark


async def test_what_a_handler_raises_becomes_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: Connection, __: Command) -> Reply:
        raise CommandError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    def need(_: Connection, request: Command) -> Reply:
        request.header(GetRouteInfoRequestHeader)
        raise AssertionError("not reached")

    def fail(_: Connection, __: Command) -> Reply:
        raise ZeroDivisionError("never divide by zero")

    async def later(_: Connection, __: Command) -> Command:
        raise CommandError(ResponseCode.NO_PERMISSION, "not you")

    async with serving({1: refuse, 2: need, 3: fail, 4: later}) as (_, peer):
        answers = []
        for code in (1, 2, 3, 4):
            peer.ask(code)
            answer = await peer.receive()
            answers.append((answer.code, answer.remark))
    assert answers == [
        (17, "no such topic"),
        (1, "the custom field <topic> is null"),
        (1, "ZeroDivisionError: never divide by zero"),
        (16, "not you"),
    ]
    assert [record.message for record in caplog.records] == ["the handler of code 3 failed"]


async def test_an_awaitable_is_answered_when_it_is_done_and_others_do_not_wait_for_it() -> None:
    go = asyncio.Event()

    async def slow(_: Connection, __: Command) -> Command:
        await go.wait()
        return Command.response(0, "slow")

    async with serving({1: slow, ECHO: echo}) as (_, peer):
        peer.ask(1, 1)
        peer.ask(ECHO, 2)
        assert (await peer.receive()).opaque == 2
        go.set()
        answer = await peer.receive()
        assert (answer.opaque, answer.remark) == (1, "slow")


async def test_one_way_requests_are_never_answered() -> None:
    def fail(_: Connection, __: Command) -> Reply:
        raise CommandError(1, "no")

    async def later(_: Connection, __: Command) -> Command:
        return Command.response(0)

    def encoded(_: Connection, __: Command) -> Reply:
        return encode(Command.response(0))

    async with serving({1: echo, 2: fail, 3: later, 4: encoded, ECHO: echo}) as (_, peer):
        for code in (1, 2, 3, 4, 9999):
            peer.ask(code, 1, oneway=True)
        peer.ask(3, 5)
        peer.ask(ECHO, 6)
        assert {(await peer.receive()).opaque for _ in range(2)} == {5, 6}


async def test_a_parked_request_is_answered_through_the_connection() -> None:
    parked: list[tuple[Connection, Command]] = []

    def park(connection: Connection, request: Command) -> Reply:
        parked.append((connection, request))
        return None

    async with serving({1: park, ECHO: echo}) as (_, peer):
        peer.ask(1, 11)
        peer.ask(1, 12, oneway=True)
        peer.ask(ECHO, 13)
        assert (await peer.receive()).opaque == 13
        for connection, request in parked:
            connection.reply(request, Command.response(ResponseCode.PULL_NOT_FOUND))
        peer.ask(ECHO, 14)
        assert [(await peer.receive()).opaque for _ in range(2)] == [11, 14]


async def test_the_server_asks_and_the_client_answers() -> None:
    asked: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    async def ask(connection: Connection, _: Command) -> Command:
        connection.send_oneway(Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))
        asked.set_result(await connection.invoke(Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO), 5.0))
        return Command.response(0)

    async with serving({1: ask}) as (_, peer):
        peer.ask(1, 500)
        notice = await peer.receive()
        assert (notice.code, notice.is_oneway) == (40, True)
        question = await peer.receive()
        assert (question.code, question.is_oneway, question.is_response) == (307, False, False)
        late = Command.response(0, "nobody asked")
        late.opaque = question.opaque + 1000
        answer = Command.response(0, "running")
        answer.opaque = question.opaque
        peer.send(late, answer)
        assert (await peer.receive()).opaque == 500
        assert asked.result().remark == "running"


async def test_a_client_that_does_not_answer_costs_its_asker_a_timeout_or_a_lost_connection() -> None:
    connections: list[Connection] = []
    async with serving({ECHO: echo}, ServerLimits(in_flight_max=2), on_open=connections.append) as (_, peer):
        peer.ask(ECHO)
        await peer.receive()
        (connection,) = connections
        with pytest.raises(InvokeTimeout, match=r"within 0\.01 s"):
            await connection.invoke(Command.request(307), 0.01)
        waiting = [connection.submit(Command.request(307), 60.0) for _ in range(2)]
        with pytest.raises(BacklogFull, match="2 requests"):
            connection.submit(Command.request(307), 60.0)
        await peer.close()
        for future in waiting:
            with pytest.raises(ConnectionLost):
                await future
        with pytest.raises(ConnectionLost):
            connection.send_oneway(Command.request(40))


async def test_half_frames_and_many_frames_are_the_same_requests() -> None:
    async with serving({ECHO: echo}) as (_, peer):
        data = b""
        for opaque in range(1, 4):
            request = Command.request(ECHO, body=b"x" * 50)
            request.opaque = opaque
            data += encode(request)
        for position in range(0, len(data), 7):
            peer.writer.write(data[position : position + 7])
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert [(await peer.receive()).opaque for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    "garbage", [struct.pack(">I", 5000), b"\x16\x03\x01\x02\x00", struct.pack(">II", 8, 4) + b"nope"]
)
async def test_what_is_no_frame_closes_only_its_own_connection(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving({ECHO: echo}, ServerLimits(frame_bytes_max=4096)) as (server, peer):
        bad = await connect(server)
        bad.ask(ECHO, 1)
        bad.writer.write(garbage)
        assert (await bad.receive()).opaque == 1  # what came before the bad frame is answered
        assert await bad.ended()
        await bad.close()
        peer.ask(ECHO, 2)
        assert (await peer.receive()).opaque == 2
    assert len(caplog.records) == 1
    assert "closed, it sent" in caplog.records[0].message


async def test_connections_beyond_the_limit_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[Connection] = []
    async with serving({ECHO: echo}, ServerLimits(connections_max=1), on_close=closed.append) as (server, peer):
        peer.ask(ECHO)
        await peer.receive()
        second = await connect(server)
        assert await second.ended()
        await second.close()
        peer.ask(ECHO)
        await peer.receive()
        assert len(server.connections) == 1
        assert closed == []
    assert "refused, 1 connections are open" in caplog.text


async def test_a_flood_of_refused_frames_and_connections_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with serving({ECHO: echo}, ServerLimits(connections_max=2)) as (server, _peer):
        for _ in range(30):
            other = await connect(server)
            other.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await other.ended()
            await other.close()
            while len(server.connections) > 1:
                await asyncio.sleep(0)
        other = await connect(server)
        other.ask(ECHO)
        await other.receive()
        for _ in range(30):
            refused = await connect(server)
            assert await refused.ended()
            await refused.close()
        await other.close()
    kinds = [record.getMessage().partition(" ")[2].partition(" ")[2] for record in caplog.records]
    assert kinds == [
        "closed, it sent no frame but HTTP; the HTTP port is another one",
        "refused, 2 connections are open",
    ]


async def test_connections_of_one_address_are_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # All that a test can come from is loopback, which is not limited.
    monkeypatch.setattr(per_address, "is_loopback", lambda _: False)
    async with serving({ECHO: echo}, ServerLimits(connections_per_address_max=2)) as (server, peer):
        second, third = await connect(server), await connect(server)
        assert await third.ended()
        await third.close()
        for allowed in (peer, second):
            allowed.ask(ECHO)
            await allowed.receive()
        assert "refused, its address has 2 connections" in caplog.text
        await second.close()
        while len(server.connections) > 1:
            await asyncio.sleep(0)
        fourth = await connect(server)
        fourth.ask(ECHO)
        await fourth.receive()
        await fourth.close()


async def test_opening_and_closing_are_told_once_each() -> None:
    opened: list[Connection] = []
    closed: list[Connection] = []
    async with serving({ECHO: echo}, on_open=opened.append, on_close=closed.append) as (server, peer):
        peer.ask(ECHO)
        await peer.receive()
        assert (len(opened), closed, server.connections) == (1, [], set(opened))
        host, port = peer.writer.get_extra_info("sockname")
        assert opened[0].peer == (host, port)
        assert opened[0].peer_host == bytes([127, 0, 0, 1]) + struct.pack(">i", port)
        assert opened[0].address == f"127.0.0.1:{port}"
    assert closed == opened
    assert opened[0].closed
    opened[0].write(b"to nobody")


async def test_a_failing_close_handler_is_logged_and_nothing_else_suffers(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Connection) -> None:
        raise ValueError("bad")

    async with serving({ECHO: echo}, on_close=fail) as (server, peer):
        peer.ask(ECHO)
        await peer.receive()
    assert not server.connections
    assert "was not handled" in caplog.text


async def test_idle_connections_are_closed_by_the_sweep() -> None:
    async with serving({ECHO: echo}) as (server, peer):
        busy = await connect(server)
        for _ in range(SWEEPS_PER_IDLE):
            server.sweep()
            busy.ask(ECHO)
            await busy.receive()
        server.sweep()
        assert await peer.ended()
        busy.ask(ECHO)
        await busy.receive()
        await busy.close()


async def test_who_does_not_read_its_answers_may_ask_for_no_more_until_it_does() -> None:
    handled = 0

    def large(_: Connection, __: Command) -> Reply:
        nonlocal handled
        handled += 1
        return Command.response(0, body=bytes(256 * 1024))

    limits = ServerLimits(output_high_bytes=64 * 1024, output_low_bytes=1024)
    async with serving({ECHO: echo, 1: large}, limits) as (server, peer):
        other = await connect(server)
        for _ in range(100):  # 25 MiB of answers, far more than the kernel's buffers hold
            peer.ask(1)
            other.ask(ECHO)
            await other.receive()
        assert handled < 100
        for _ in range(100):
            assert len((await peer.receive()).body) == 256 * 1024
        assert handled == 100
        await other.close()


async def test_closing_the_server_ends_connections_and_tasks() -> None:
    cancelled = asyncio.Event()

    async def endless(_: Connection, __: Command) -> Command:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Command.response(0)

    async with serving({1: endless, ECHO: echo}) as (server, peer):
        peer.ask(1)
        peer.ask(ECHO)
        await peer.receive()
        await server.close()
        assert cancelled.is_set()
        assert await peer.ended()
        assert not server.connections
        with pytest.raises(OSError):
            await connect(server)


ON_BOTH_LOOPS = [
    test_a_command_answers_at_once_under_the_requests_number,
    test_an_awaitable_is_answered_when_it_is_done_and_others_do_not_wait_for_it,
    test_a_parked_request_is_answered_through_the_connection,
    test_the_server_asks_and_the_client_answers,
    test_a_client_that_does_not_answer_costs_its_asker_a_timeout_or_a_lost_connection,
    test_half_frames_and_many_frames_are_the_same_requests,
    test_opening_and_closing_are_told_once_each,
    test_idle_connections_are_closed_by_the_sweep,
    test_who_does_not_read_its_answers_may_ask_for_no_more_until_it_does,
    test_closing_the_server_ends_connections_and_tasks,
]


@pytest.mark.parametrize("scenario", ON_BOTH_LOOPS)
def test_all_this_holds_on_uvloop_as_well(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    uvloop.run(scenario())
