"""remoting/unfinished.py: who is closed when too much is kept of frames that are not whole, and when."""

import asyncio
import struct

import pytest

from remoting import side
from remoting.codec import encode
from remoting.command import Command
from remoting.limits import ServerLimits
from remoting.server import RemotingServer
from remoting.unfinished import UnfinishedFrames
from tests.parts.byte_peer import ECHO, connect, echo, serving


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_has_most_is_closed_and_of_equals_who_has_had_it_longest() -> None:
    clock = Clock()
    frames = UnfinishedFrames[str](100, 30.0, clock)
    for owner, size in (("a", 30), ("b", 40), ("c", 30)):
        clock.now += 1
        assert frames.note(owner, size, anew=True) is None
    assert frames.note("a", 40, anew=False) == "a", "as much as b, and longer"
    assert frames.note("a", 0, anew=True) is None
    assert frames.total == 70
    assert frames.note("d", 31, anew=True) == "b"
    assert frames.note("d", 71, anew=False) == "d"


def test_what_is_whole_counts_no_more() -> None:
    frames = UnfinishedFrames[str](100, 30.0, Clock())
    for _ in range(50):
        assert frames.note("a", 90, anew=True) is None
        assert frames.note("a", 0, anew=True) is None
    frames.note("nobody", 0, anew=True)
    assert (frames.total, frames.overdue()) == (0, [])


def test_a_frame_has_its_time_from_its_first_byte() -> None:
    clock = Clock()
    frames = UnfinishedFrames[str](100, 30.0, clock)
    frames.note("slow", 1, anew=True)
    frames.note("busy", 1, anew=True)
    for size in range(2, 20):
        clock.now += 2
        frames.note("slow", size, anew=False)
        frames.note("busy", size, anew=True)
    assert frames.overdue() == ["slow"]


async def test_who_keeps_most_of_half_frames_is_closed_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async with serving({ECHO: echo}, ServerLimits(unfinished_bytes_max=100_000)) as (server, peer):
        frames = server._side._unfinished
        assert frames is not None
        greedy = await connect(server)
        greedy.writer.write(struct.pack(">I", 90_000) + bytes(70_000))
        async with asyncio.timeout(20):
            while frames.total < 70_000:
                await asyncio.sleep(0.001)
        request = Command.request(ECHO, body=b"x" * 50_000)
        request.opaque = 3
        data = encode(request)
        peer.writer.write(data[:40_000])
        assert await greedy.ended()
        peer.writer.write(data[40_000:])
        assert (await peer.receive()).opaque == 3
        assert frames.total == 0
        await greedy.close()
    (record,) = caplog.records
    assert record.message.endswith("bytes are kept of frames that are not whole, it has most")


async def test_the_ports_of_a_process_share_one_budget(caplog: pytest.LogCaptureFixture) -> None:
    limits = ServerLimits(unfinished_bytes_max=100_000)
    shared = side.unfinished_frames(limits, asyncio.get_running_loop())
    servers = [RemotingServer({ECHO: echo}, name=name, limits=limits, unfinished=shared) for name in ("one", "other")]
    peers = []
    for server in servers:
        await server.start("127.0.0.1", 0)
        peers.append(await connect(server))
    greedy, modest = peers
    for peer, size in ((greedy, 70_000), (modest, 40_000)):
        peer.writer.write(struct.pack(">I", 90_000) + bytes(size))
        async with asyncio.timeout(20):
            while shared.total < size:
                await asyncio.sleep(0.001)
    # The one that has most is of the other port than the one that came last.
    assert await greedy.ended()
    assert [server.refused["unfinished"] for server in servers] == [1, 0]
    for peer, server in zip(peers, servers, strict=True):
        await peer.close()
        await server.close()
    (record,) = caplog.records
    assert record.message.startswith("one: ")


async def test_a_frame_that_does_not_become_whole_in_its_time_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with serving({ECHO: echo}, ServerLimits(unfinished_seconds=0.0)) as (server, peer):
        slow = await connect(server)
        slow.writer.write(b"\0\0\0")
        async with asyncio.timeout(20):
            while not caplog.records:
                server._side.cut_off_overdue()
                await asyncio.sleep(0)
        assert await slow.ended()
        await slow.close()
        peer.ask(ECHO, 7)
        assert (await peer.receive()).opaque == 7
        server._side.cut_off_overdue()
        assert len(server.connections) == 1
    assert "a frame is not whole after 0 s" in caplog.text


async def test_frames_have_their_time_whatever_the_idle_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side, "OVERDUE_LOOKS_S", 0.01)
    async with serving({ECHO: echo}, ServerLimits(unfinished_seconds=0.0, idle_seconds=36_000.0)) as (server, _):
        slow = await connect(server)
        slow.writer.write(b"\0\0\0")
        async with asyncio.timeout(20):
            assert await slow.ended()
        await slow.close()
