"""Fair turns: who sends much is served in slices, who sends little at once, and nobody while there is no room."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from remoting.codec import encode
from remoting.command import COMMAND_BYTES, Command
from remoting.connection import READ_BYTES, Connection, Handler, Reply
from remoting.framing import FrameReader
from remoting.limits import ClientLimits, ServerLimits
from remoting.side import Side
from remoting.turns import (
    ALONE_COMMANDS,
    ANSWER_BYTES,
    BESIDE_COMMANDS,
    CONGESTED_SECONDS,
    LOOK_COMMANDS,
    READ_SECONDS,
    SLICE_COMMANDS,
    TURN_SECONDS,
    UNSERVED_BYTES_MAX,
    Turns,
)
from tests.parts.byte_peer import ECHO, connect, echo, serving
from tests.parts.recorder import Recorder

QUIET = 77


class Loop:
    """What Turns need of a loop: the test goes from turn to turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.congested = False

    def turns(self) -> "Turns[Flood]":
        return Turns(
            self.soon.append,
            lambda seconds, call: self.later.append((seconds, call)),
            lambda: self.now,
            lambda: self.congested,
        )

    def turn(self) -> None:
        calls = list(self.soon)
        self.soon.clear()
        for call in calls:
            call()


class Flood:
    """A connection that has so many commands left, of a byte each, and needs so long for a slice."""

    def __init__(self, loop: Loop, left: int, seconds: float = 0.0) -> None:
        self._loop = loop
        self._seconds = seconds
        self.unserved = left
        self.spent = 0
        self.served: list[int] = []

    def serve_more(self, most: int) -> bool:
        taken = min(most, self.unserved)
        self.unserved -= taken
        self.served.append(taken)
        self._loop.now += self._seconds
        return self.unserved > 0


def test_all_who_wait_get_slices_one_after_another() -> None:
    loop = Loop()
    turns = loop.turns()
    first, second = Flood(loop, 3 * SLICE_COMMANDS), Flood(loop, SLICE_COMMANDS + 1)
    turns.add(first)
    turns.add(second)
    turns.add(first)
    assert len(turns) == 2
    loop.turn()
    assert first.served == [SLICE_COMMANDS] * 3
    assert second.served == [SLICE_COMMANDS, 1]
    assert (len(turns), loop.soon) == (0, [])


def test_a_turn_is_over_after_its_time_and_goes_on_where_it_was() -> None:
    loop = Loop()
    turns = loop.turns()
    floods = [Flood(loop, 2 * SLICE_COMMANDS, TURN_SECONDS / 2) for _ in range(3)]
    for flood in floods:
        turns.add(flood)
    order = []
    for _ in range(3):
        before = [len(flood.served) for flood in floods]
        loop.turn()
        order.append([len(flood.served) - was for flood, was in zip(floods, before, strict=True)])
    assert order == [[1, 1, 0], [1, 0, 1], [0, 1, 1]]
    assert loop.soon == []


def test_a_read_is_served_at_once_as_far_as_its_share_goes() -> None:
    loop = Loop()
    turns = loop.turns()
    assert turns.at_once == ALONE_COMMANDS
    turns.add(Flood(loop, 1))
    assert turns.at_once == BESIDE_COMMANDS
    turns.add(Flood(loop, UNSERVED_BYTES_MAX, TURN_SECONDS))
    assert turns.at_once > UNSERVED_BYTES_MAX, "time is lost then, not memory"
    loop.turn()
    assert turns.at_once == BESIDE_COMMANDS, "what was served counts no more"


def test_after_a_long_answer_the_turn_is_over() -> None:
    loop = Loop()
    turns = loop.turns()
    reader, other = Flood(loop, 2 * SLICE_COMMANDS), Flood(loop, SLICE_COMMANDS)
    reader.spent = ANSWER_BYTES + 1
    turns.add(reader)
    turns.add(other)
    loop.turn()
    assert (len(reader.served), len(other.served)) == (1, 0)
    loop.turn()
    assert (len(reader.served), len(other.served)) == (2, 1)


def test_nobody_who_waits_is_served_while_there_is_no_room() -> None:
    loop = Loop()
    turns = loop.turns()
    flood = Flood(loop, SLICE_COMMANDS + 1)
    turns.add(flood)
    loop.congested = True
    loop.turn()
    assert (flood.served, loop.soon) == ([], [])
    ((seconds, again),) = loop.later
    assert seconds == CONGESTED_SECONDS
    loop.congested = False
    again()
    assert flood.served == [SLICE_COMMANDS, 1]


# ---- connections


def connected(
    served: list[Command], side: "Side[Connection] | None" = None
) -> tuple[Connection, Recorder, "Side[Connection]"]:
    def take(_: Connection, request: Command) -> Reply:
        served.append(request)
        return None

    if side is None:
        side = Side("test", {ECHO: take}, ServerLimits(), connections_max=9)
        # Time has tests of its own: here a machine that is busy within a read would have fewer served at once.
        cast(Any, side.turns).until = lambda: float("inf")
    connection, transport = Connection(side, asyncio.get_running_loop()), Recorder()
    connection.connection_made(transport)
    return connection, transport, side


def requests(count: int, body: bytes = b"") -> bytes:
    frames = []
    for number in range(count):
        request = Command.request(ECHO, body=body)
        request.opaque = number
        frames.append(encode(request))
    return b"".join(frames)


async def test_what_is_over_the_share_waits_unread_and_keeps_its_order() -> None:
    served: list[Command] = []
    connection, transport, _ = connected(served)
    count = ALONE_COMMANDS + 2 * SLICE_COMMANDS + 1
    connection.data_received(requests(count) + requests(1)[:9])
    assert (len(served), transport.reading) == (ALONE_COMMANDS, False)
    assert connection.unserved > 0
    while not transport.reading:
        await asyncio.sleep(0)
    assert [request.opaque for request in served] == list(range(count))
    assert {request.waited > 0 for request in served[:ALONE_COMMANDS]} == {False}
    assert all(request.waited > 0 for request in served[ALONE_COMMANDS:])
    assert connection.unserved == 0
    connection.data_received(requests(1)[9:])
    assert len(served) == count + 1, "the half frame behind them is whole now"


def long_answers(served: list[Command], *, parts: bool = True) -> "Side[Connection]":
    """A server whose every answer is as long as a turn may have."""

    def answer(_: Connection, request: Command) -> Reply:
        served.append(request)
        body = bytes(ANSWER_BYTES + 1)
        return Command.response(0, body=[body] if parts else body)

    return Side("test", {ECHO: answer}, ServerLimits(), connections_max=9)


async def test_what_takes_long_leaves_the_rest_of_the_read_for_its_turn() -> None:
    served: list[Command] = []

    def look_through(_: Connection, request: Command) -> Reply:
        served.append(request)
        time.sleep(1.25 * READ_SECONDS / LOOK_COMMANDS)
        return None

    connection, transport, side = connected([], Side("test", {ECHO: look_through}, ServerLimits(), connections_max=9))
    connection.data_received(requests(3 * LOOK_COMMANDS))
    assert (len(served), transport.reading) == (LOOK_COMMANDS, False)
    assert side.turns is not None
    assert len(side.turns) == 1
    while not transport.reading:
        before = len(served)
        await asyncio.sleep(0)
        assert len(served) - before <= LOOK_COMMANDS
    assert [request.opaque for request in served] == list(range(3 * LOOK_COMMANDS))


async def test_a_few_commands_are_served_however_long_they_take() -> None:
    served: list[Command] = []

    def look_through(_: Connection, request: Command) -> Reply:
        served.append(request)
        time.sleep(READ_SECONDS)
        return None

    connection, transport, _ = connected([], Side("test", {ECHO: look_through}, ServerLimits(), connections_max=9))
    connection.data_received(requests(3))
    assert (len(served), transport.reading) == (3, True)


@pytest.mark.parametrize("parts", [True, False])
async def test_long_answers_leave_one_a_turn_in_their_order(parts: bool) -> None:
    served: list[Command] = []
    connection, transport, _ = connected([], long_answers(served, parts=parts))
    connection.data_received(requests(5, b"four"))
    assert (len(served), transport.reading) == (1, False)
    assert connection.unserved == 4 * (len(b"four") + COMMAND_BYTES)
    turns = 0
    while not transport.reading:
        before = len(served)
        await asyncio.sleep(0)
        assert len(served) - before <= 1
        turns += 1
    assert [request.opaque for request in served] == list(range(5))
    assert all(request.waited > 0 for request in served[1:])
    assert turns >= 4
    await asyncio.sleep(0)
    connection.data_received(requests(1))
    assert len(served) == 6


async def test_a_bad_frame_behind_long_answers_ends_the_connection_after_them() -> None:
    served: list[Command] = []
    connection, transport, _ = connected([], long_answers(served))
    connection.data_received(requests(3) + b"\xff" * 8)
    assert not connection.closed
    for _ in range(8):
        await asyncio.sleep(0)
    assert (len(served), connection.closed) == (3, True)
    assert len(transport.written) >= 3


async def test_of_an_aborted_connection_nothing_behind_a_long_answer_is_served() -> None:
    served: list[Command] = []
    connection, _, side = connected([], long_answers(served))
    connection.data_received(requests(3))
    connection.abort()
    for _ in range(4):
        await asyncio.sleep(0)
    assert (len(served), connection.unserved) == (1, 0)
    assert side.turns is not None
    assert len(side.turns) == 0


async def test_a_client_takes_long_answers_and_questions_alike() -> None:
    """Turns are a server's."""
    served: list[Command] = []
    side = long_answers(served)
    side.turns = None
    connection, transport, _ = connected([], side)
    connection.data_received(requests(5))
    assert (len(served), transport.reading) == (5, True)


async def test_after_a_full_read_others_come_before_the_next_one() -> None:
    served: list[Command] = []
    connection, transport, _ = connected(served)
    data = requests(1, bytes(READ_BYTES))
    connection.data_received(data[:READ_BYTES])
    assert not transport.reading
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.reading
    connection.data_received(data[READ_BYTES:])
    assert (len(served), transport.reading) == (1, True)


async def test_who_does_not_read_his_answers_is_not_served_on_either() -> None:
    served: list[Command] = []
    connection, transport, _ = connected(served)
    connection.data_received(requests(ALONE_COMMANDS + 1))
    connection.pause_writing()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (len(served), transport.reading) == (ALONE_COMMANDS, False)
    connection.resume_writing()
    assert not transport.reading, "what waits comes before what is still to be read"
    for _ in range(3):
        await asyncio.sleep(0)
    assert (len(served), transport.reading) == (ALONE_COMMANDS + 1, True)


async def test_of_a_connection_that_has_ended_nothing_more_is_served() -> None:
    served: list[Command] = []
    connection, transport, side = connected(served)
    connection.data_received(requests(ALONE_COMMANDS + 1))
    connection.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(served) == ALONE_COMMANDS
    assert not transport.reading
    assert side.turns is not None
    assert len(side.turns) == 0


async def test_a_bad_frame_behind_what_waits_ends_the_connection_after_it() -> None:
    served: list[Command] = []
    connection, transport, _ = connected(served)
    connection.data_received(requests(ALONE_COMMANDS + 1) + b"\xff" * 8)
    assert not connection.closed
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(served) == ALONE_COMMANDS + 1
    assert connection.closed
    assert transport.closing


async def test_beside_a_flood_who_sends_little_is_served_at_once() -> None:
    served: list[Command] = []
    flood, _, side = connected(served)
    flood.data_received(requests(ALONE_COMMANDS + 10 * SLICE_COMMANDS))
    quiet, transport, _ = connected(served, side)
    quiet.data_received(requests(1, b"quiet"))
    assert bytes(served[-1].body) == b"quiet"
    assert transport.reading


async def test_a_client_takes_all_its_answers_at_once() -> None:
    served: list[Command] = []
    take: Handler = lambda _, request: served.append(request)  # noqa: E731 # it has one use
    side: Side[Connection] = Side("test", {ECHO: take}, ClientLimits(), connections_max=1)
    connection, transport, _ = connected(served, side)
    connection.data_received(requests(2 * ALONE_COMMANDS, b"x" * 600))
    assert (len(served), transport.reading) == (2 * ALONE_COMMANDS, True)


@pytest.mark.parametrize("congested", [False, True])
async def test_over_sockets_a_quiet_peer_does_not_wait_for_the_flood(*, congested: bool) -> None:
    """20,000 commands in one write: all of them were served before anybody else's."""
    flooded, full = 0, congested
    seen: list[int] = []

    def count(_: Connection, __: Command) -> Reply:
        nonlocal flooded
        flooded += 1
        return None

    def note(connection: Connection, request: Command) -> Reply:
        seen.append(flooded)
        return echo(connection, request)

    async with serving({ECHO: count, QUIET: note}, congested=lambda: full) as (server, flood):
        quiet = await connect(server)
        flood.writer.write(requests(20_000))
        while not flooded:
            await asyncio.sleep(0)
        quiet.ask(QUIET)
        await quiet.receive()
        full = False
        while flooded < 20_000:
            await asyncio.sleep(0)
        await quiet.close()
    assert seen[0] < 20_000
    if congested:
        assert seen[0] <= ALONE_COMMANDS + BESIDE_COMMANDS


def test_a_frame_reader_hands_out_as_many_as_are_wanted() -> None:
    reader = FrameReader()
    stream = requests(10)
    assert [command.opaque for command in reader.feed(stream[:-1], 4)] == [0, 1, 2, 3]
    assert reader.unread > 0
    assert [command.opaque for command in reader.more(4)] == [4, 5, 6, 7]
    assert [command.opaque for command in reader.feed(stream[-1:] + requests(2), 3)] == [8, 9, 0]
    assert [command.opaque for command in reader.more()] == [1]
    assert (reader.unread, reader.buffered, reader.more()) == (0, 0, [])
