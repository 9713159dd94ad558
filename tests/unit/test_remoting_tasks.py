"""Requests that are worked on as tasks: so many of one connection, and so many bytes of all."""

import asyncio

from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.limits import ServerLimits
from tests.parts.byte_peer import ECHO, connect, echo, serving


async def test_too_many_tasks_of_one_connection_are_told_to_wait() -> None:
    go = asyncio.Event()

    async def slow(_: Connection, __: Command) -> Command:
        await go.wait()
        return Command.response(0)

    async with serving({1: slow}, ServerLimits(tasks_max=2)) as (_, peer):
        for opaque in (1, 2, 3):
            peer.ask(1, opaque)
        busy = await peer.receive()
        assert (busy.opaque, busy.code) == (3, ResponseCode.SYSTEM_BUSY)
        assert busy.remark == "[OVERLOAD]system busy, start flow control for a while"
        go.set()
        assert {(await peer.receive()).code for _ in range(2)} == {0}


async def test_what_all_tasks_hold_is_bounded_in_bytes() -> None:
    go = asyncio.Event()

    async def slow(_: Connection, __: Command) -> Command:
        await go.wait()
        return Command.response(0)

    body, two = bytes(1000), 2 * (1000 + 100)
    async with serving({1: slow, ECHO: echo}, ServerLimits(task_bytes_max=two)) as (server, peer):
        other = await connect(server)
        for asked, opaque in ((peer, 1), (other, 2)):
            asked.ask(1, opaque, body)
            asked.ask(ECHO, opaque + 10)
            assert (await asked.receive()).opaque == opaque + 10
        other.ask(1, 3, body)
        busy = await other.receive()
        assert (busy.opaque, busy.code) == (3, ResponseCode.SYSTEM_BUSY)
        go.set()
        assert [(await each.receive()).code for each in (peer, other)] == [0, 0]
        other.ask(1, 4, body)
        assert (await other.receive()).code == 0
        await other.close()
