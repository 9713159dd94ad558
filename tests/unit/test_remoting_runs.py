"""Runs of sends on a connection: whoever takes none, or fails, still answers each send by itself."""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from random import Random
from typing import cast

import pytest

from remoting.codes import RequestCode, ResponseCode
from remoting.command import Body, Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import CommandError
from remoting.framing import FrameReader
from remoting.limits import ServerLimits
from remoting.runs import PULL_RUN, SEND_RUN, PullRun, SendRun
from remoting.server import _TlsOnly
from remoting.side import Side
from remoting.turns import ALONE_COMMANDS, LOOK_COMMANDS, READ_SECONDS
from tests.parts import odd_pulls
from tests.parts.recorder import Recorder
from tests.parts.send_runs import CUTS, WAYS, needs_hotpath, send_frame


@pytest.fixture(params=CUTS, autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """What cuts runs."""
    with WAYS[request.param]():
        yield request.param


def connected(handlers: Mapping[int, Handler]) -> tuple[Connection, Recorder]:
    side: Side[Connection] = Side("test", handlers, ServerLimits(), connections_max=1)
    connection, transport = Connection(side, asyncio.get_running_loop()), Recorder()
    connection.connection_made(transport)
    return connection, transport


async def answers(transport: Recorder, turns: int = 40) -> list[Command]:
    for _ in range(turns):
        await asyncio.sleep(0)
    return FrameReader().feed(b"".join(bytes(cast(Body, piece)) for piece in transport.written))


def single(_: Connection, request: Command) -> Reply:
    return Command.response(0, request.ext["b"])


def run_refused(_: Connection, run: Command) -> Reply:
    assert isinstance(run, SendRun)
    raise CommandError(ResponseCode.NO_PERMISSION, "not today")


def slowly() -> tuple[list[int], Handler]:
    """Return the opaques of what was served, and who serves so slowly that few take a turn's time."""
    served = list[int]()

    def slow(_connection: Connection, request: Command) -> Reply:
        served.append(request.opaque)
        time.sleep(READ_SECONDS / LOOK_COMMANDS)
        return Command.response(0)

    return served, slow


def sends(count: int) -> bytes:
    return b"".join(map(send_frame, range(count)))


def test_a_run_has_its_sends_as_commands_with_what_was_noted_of_it(way: str) -> None:
    reader = FrameReader()
    reader.cuts = CUTS[way]
    [run] = reader.feed(sends(3))
    assert isinstance(run, SendRun)
    assert len(run) == 3
    run.until, run.read_at, run.waited = 3.0, 2.0, 1.0
    plain = FrameReader().feed(sends(3))
    for command, wanted in zip(run.commands(), plain, strict=True):
        assert (command.until, command.read_at, command.waited) == (3.0, 2.0, 1.0)
        assert (command.opaque, command.body, command.ext) == (wanted.opaque, wanted.body, wanted.ext)


async def test_a_failure_of_who_takes_runs_is_told_of_each_send() -> None:
    connection, transport = connected({SEND_RUN: run_refused, RequestCode.SEND_MESSAGE_V2: single})
    connection.data_received(sends(3))
    found = await answers(transport)
    assert [(each.opaque, each.code, each.remark) for each in found] == [
        (number, ResponseCode.NO_PERMISSION, "not today") for number in range(3)
    ]


@pytest.mark.parametrize("served", [{RequestCode.SEND_MESSAGE_V2: single}, {}])
async def test_sends_that_wait_when_runs_are_taken_no_more_are_served_each(served: dict[int, Handler]) -> None:
    table: dict[int, Handler] = {
        SEND_RUN: lambda _connection, run: cast(SendRun, run),
        RequestCode.SEND_MESSAGE_V2: single,
    }
    connection, transport = connected(table)
    count = ALONE_COMMANDS + 100
    connection.data_received(sends(count))
    table.clear()
    table.update(served)
    found = await answers(transport)
    assert [each.opaque for each in found] == [*range(count)]
    wanted = 0 if served else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert {each.code for each in found[ALONE_COMMANDS:]} == {wanted}


async def test_the_sends_of_a_run_that_are_served_each_take_no_more_of_a_turn_than_others() -> None:
    served, slow = slowly()
    connection, transport = connected({SEND_RUN: lambda _connection, run: run, RequestCode.SEND_MESSAGE_V2: slow})
    count = 4 * LOOK_COMMANDS
    connection.data_received(sends(count))
    # The run itself counts as one. At the first look the time is over already where sleeps took longer than was asked.
    assert len(served) in {LOOK_COMMANDS - 1, 2 * LOOK_COMMANDS - 1}
    assert [each.opaque for each in await answers(transport)] == [*range(count)]


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
@needs_hotpath
async def test_pulls_of_a_run_that_are_served_each_take_no_more_of_a_turn_than_others() -> None:
    served, slow = slowly()

    def none_is_usual(_connection: Connection, run: Command) -> Reply:
        assert isinstance(run, PullRun)
        return run.stopped(run.at, apart=True)

    connection, transport = connected({PULL_RUN: none_is_usual, RequestCode.PULL_MESSAGE: slow})
    count, dice = 8 * LOOK_COMMANDS, Random(1)
    connection.data_received(b"".join(odd_pulls.usual(dice, number) for number in range(count)))
    # Of two commands one is what is left of the run.
    assert len(served) <= LOOK_COMMANDS
    assert [each.opaque for each in await answers(transport, 200)] == [*range(count)]


async def test_a_plain_connection_where_tls_is_enforced_is_told_so_whatever_it_sends() -> None:
    connection, transport = connected(_TlsOnly())
    connection.data_received(sends(3))
    [answer] = await answers(transport)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "TLS only" in (answer.remark or "")
    assert connection.closed


def test_runs_keep_no_more_of_a_read_than_their_own_sends(way: str) -> None:
    """Each between two unusual ones, they held the whole read each: a megabyte for a kilobyte sent."""
    other = send_frame(1, queue_id=-1)
    data = (send_frame(0) + other) * 300
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [CUTS[way](data, at, 10, 1 << 20) for at in range(0, len(data), len(data) // 300)]
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert all(run is not None and len(run) == 1 for run in kept)
    assert held < 20 * len(data)
