"""What a connection hands to its transport, seen from the transport."""

import asyncio
import contextlib
import inspect
from collections.abc import Coroutine, Mapping
from typing import cast

import pytest

from remoting.backoff import Backoff
from remoting.client import RemotingClient
from remoting.codec import encode
from remoting.command import Body, Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import BacklogFull, ConnectError, ConnectionLost
from remoting.framing import VIEW_BYTES_MIN, FrameReader
from remoting.limits import ClientLimits, ServerLimits
from remoting.server import RemotingServer
from remoting.side import Side
from tests.parts.recorder import Recorder

ECHO = 34


def echo(_: Connection, request: Command) -> Reply:
    return Command.response(0, body=request.body)


def recorded(handlers: Mapping[int, Handler], *, server: bool = True) -> tuple[Connection, Recorder]:
    limits = ServerLimits() if server else ClientLimits()
    side: Side[Connection] = Side("test", handlers, limits, connections_max=1)
    connection = Connection(side, asyncio.get_running_loop())
    transport = Recorder()
    connection.connection_made(transport)
    return connection, transport


async def test_the_answers_of_one_turn_leave_in_one_write() -> None:
    connection, transport = recorded({ECHO: echo})
    data = b"".join(encode(Command.request(ECHO, body=b"x")) for _ in range(5))
    connection.data_received(data)
    connection.data_received(data)
    connection.write(b"")
    assert transport.written == []
    await asyncio.sleep(0)
    (written,) = transport.written
    assert len(FrameReader().feed(cast(bytes, written))) == 10


async def test_large_bodies_leave_uncopied_between_the_joined_small_ones() -> None:
    large = memoryview(bytes(VIEW_BYTES_MIN))
    pieces: list[Body] = [b"a", large, memoryview(b"b"), b"c"]

    def pull(_: Connection, __: Command) -> Reply:
        return Command.response(0, body=pieces)

    def view(_: Connection, __: Command) -> Reply:
        return Command.response(0, body=large)

    connection, transport = recorded({1: pull, 2: view})
    connection.data_received(encode(Command.request(1)) + encode(Command.request(2)))
    await asyncio.sleep(0)
    assert [written is large for written in transport.written] == [False, True, False, True]
    assert transport.calls == 1, "each by itself would wake who reads"
    stream = b"".join(bytes(cast(Body, written)) for written in transport.written)
    bodies = [bytes(command.body) for command in FrameReader().feed(stream)]
    assert bodies == [b"a" + bytes(large) + b"bc", bytes(large)]


async def test_reading_pauses_while_a_servers_output_is_above_the_high_mark() -> None:
    connection, transport = recorded({})
    assert transport.limits == (ServerLimits().output_high_bytes, ServerLimits().output_low_bytes)
    connection.pause_writing()
    assert not transport.reading
    connection.resume_writing()
    assert transport.reading


async def test_a_client_never_stops_reading_and_refuses_to_send_more_instead() -> None:
    connection, transport = recorded({}, server=False)
    connection.pause_writing()
    assert transport.reading
    connection.submit(Command.request(1), 60.0)
    transport.unsent = ServerLimits().output_bytes_max + 1
    with pytest.raises(BacklogFull, match="does not take"):
        connection.submit(Command.request(1), 60.0)
    with pytest.raises(BacklogFull):
        connection.send_oneway(Command.request(1))
    connection.connection_lost(None)


async def test_output_beyond_the_last_bound_ends_a_servers_connection() -> None:
    connection, transport = recorded({})
    connection.pause_writing()
    transport.unsent = ServerLimits().output_bytes_max + 1
    connection.write(b"one more")
    await asyncio.sleep(0)
    assert connection.closed
    assert transport.closing


async def test_closing_sends_what_has_been_written_first() -> None:
    connection, transport = recorded({})
    connection.write(b"last words")
    connection.close()
    connection.write(b"too late")
    await asyncio.sleep(0)
    assert transport.written == [b"last words"]
    connection.data_received(encode(Command.request(1)))
    await asyncio.sleep(0)
    assert transport.written == [b"last words"]


async def test_the_bytes_of_a_frame_go_out_as_they_are() -> None:
    frame = encode(Command.response(0, "template"))
    connection, transport = recorded({1: lambda _, __: frame})
    connection.data_received(encode(Command.request(1)))
    await asyncio.sleep(0)
    assert transport.written == [frame]


async def test_an_answer_that_cannot_be_sent_becomes_an_error() -> None:
    def huge(_: Connection, __: Command) -> Reply:
        return Command.response(0, body=bytes(16 * 1024 * 1024))

    def wrong(_: Connection, __: Command) -> Reply:
        return Command.response(0, body=cast(bytes, 5))

    connection, transport = recorded({1: huge, 2: wrong})
    for code in (1, 2):
        request = Command.request(code)
        request.opaque = code
        connection.data_received(encode(request))
    await asyncio.sleep(0)
    answers = FrameReader().feed(cast(bytes, transport.written[0]))
    assert [(answer.code, answer.opaque) for answer in answers] == [(1, 1), (1, 2)]
    assert "over the limit" in str(answers[0].remark)
    assert "TypeError" in str(answers[1].remark)


async def test_closing_cuts_off_who_does_not_take_what_is_left_for_it() -> None:
    opened: list[Connection] = []
    limits = ServerLimits(close_seconds=0.05)
    server = RemotingServer({ECHO: echo}, name="test", limits=limits, on_open=opened.append)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(encode(Command.request(ECHO)))
    await reader.readexactly(4)
    opened[0].write(bytes(32 * 1024 * 1024))  # far more than the kernel's buffers hold, and never read
    await server.close()
    assert not server.connections
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_server_that_hangs_up_at_once_counts_as_a_failure_to_connect() -> None:
    server = RemotingServer({ECHO: echo}, name="test", limits=ServerLimits(connections_max=0))
    await server.start("127.0.0.1", 0)
    # So long that no hold-up of this process outlasts it.
    limits = ClientLimits(backoff_first_seconds=600, backoff_max_seconds=600)
    backoff = Backoff(limits)
    client = RemotingClient(limits=limits, backoff=backoff)
    address = f"127.0.0.1:{server.port}"
    assert backoff.wait_seconds(address, asyncio.get_running_loop().time()) == 0
    with pytest.raises((ConnectError, ConnectionLost)):
        await client.invoke(address, Command.request(ECHO))
    assert backoff.wait_seconds(address, asyncio.get_running_loop().time()) > 0
    # The next attempt sits the wait out, and the wait is the call's own time.
    with pytest.raises(ConnectError, match="within"):
        await client.invoke(address, Command.request(ECHO), 0.01)
    await client.close()
    await server.close()


async def test_a_handler_that_is_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    made: list[Coroutine[object, object, Command]] = []

    async def slow(request: Command) -> Command:
        return Command.response(0, body=request.body)

    def handler(_: Connection, request: Command) -> Reply:
        made.append(slow(request))
        return made[-1]

    side = Side("test", {ECHO: handler}, ServerLimits(), connections_max=1)
    connection = Connection(side, asyncio.get_running_loop())
    connection.connection_made(Recorder())
    connection.data_received(encode(Command.request(ECHO)))
    # In the same turn of the loop: the task has not begun.
    await side.tasks.close()
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED


async def test_a_transport_that_failed_takes_nothing_and_holds_up_nobody() -> None:
    """Between a write that failed and connection_lost, what others are to get in the same turn still goes out."""
    side = Side("test", {ECHO: echo}, ServerLimits(), connections_max=2)

    class Failed(Recorder):
        def write(self, data: object) -> None:
            raise RuntimeError(f"{data!r}: unable to perform operation, the handler is closed")

    broken, whole = Connection(side, asyncio.get_running_loop()), Connection(side, asyncio.get_running_loop())
    gone, transport = Failed(), Recorder()
    broken.connection_made(gone)
    whole.connection_made(transport)
    gone.closing = True
    request = encode(Command.request(ECHO, body=b"x"))
    broken.data_received(request)
    whole.data_received(request)
    await asyncio.sleep(0)
    assert len(transport.written) == 1
