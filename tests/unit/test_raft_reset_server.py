"""What the leader's side of a copy answers to odd questions, and what the copying side makes of odd answers."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from raft.network.handshake import Identity
from raft.network.link import Link
from raft.network.transport import open_link
from raft.protocol.messages import MessageKind, RaftMessage
from raft.snapshot import server as reset_server
from raft.snapshot.protocol import RANGES_OPEN_MAX, Marker, write_marker
from tests.parts.raft_copies import FILE_BYTES, Leader, Source, Target
from tests.parts.raft_links import QUICK


class Asker:
    """A member's end of a link for a copy, for questions that the client would not ask."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.answers: asyncio.Queue[RaftMessage] = asyncio.Queue()
        self.reason = ""

    def link_made(self, _: Link) -> None: ...

    def link_opened(self, _: Link) -> None:
        self.opened.set()

    def link_received(self, _: Link, message: RaftMessage) -> None:
        self.answers.put_nowait(message)

    def link_closed(self, _: Link, reason: str) -> None:
        self.reason = reason


@contextlib.asynccontextmanager
async def asking(leader: Leader) -> AsyncIterator[tuple[Asker, Link]]:
    asker = Asker()
    link = await open_link(Identity("g", "n1", (), bytes), "n0", "copy", leader.party.address, QUICK, None, asker)
    await asker.opened.wait()
    yield asker, link
    link.abort("done")
    await link.ended.wait()


def read(token: int, name: str, start: int, size: int) -> RaftMessage:
    return RaftMessage(MessageKind.RESET_READ, {"token": token, "name": name, "start": start, "size": size})


async def test_what_is_not_part_of_the_copy_is_refused() -> None:
    async with Leader(Source(FILE_BYTES + 100)) as leader, asking(leader) as (asker, link):
        link.send(RaftMessage(MessageKind.RESET_ASK, {"token": 5}))
        assert (await asker.answers.get()).fields["ok"]
        start = leader.source.start
        for name, position, size in (
            ("commitlog/", start - 1, 1),
            ("commitlog/", start + FILE_BYTES - 1, 2),
            ("commitlog/", start + FILE_BYTES + 100, 1),
            ("../../etc/passwd", 0, 1),
            ("topics.json", 0, 2001),
        ):
            link.send(read(5, name, position, size))
            answer = await asker.answers.get()
            assert not answer.fields["ok"]
            assert "not part of the copy" in answer.fields["why"]
        link.send(RaftMessage(MessageKind.RESET_ASK, {"token": 6}))
        assert "its manifest already" in (await asker.answers.get()).fields["why"]
        link.send(read(6, "topics.json", 0, 1))
        await link.ended.wait()


async def test_an_unreadable_range_is_an_answer_and_not_the_end_of_the_leader() -> None:
    source = Source(100)

    def broken(position: int) -> None:
        raise OSError(5, "Input/output error")

    source.before_read = broken
    async with Leader(source) as leader, asking(leader) as (asker, link):
        link.send(RaftMessage(MessageKind.RESET_ASK, {"token": 5}))
        await asker.answers.get()
        link.send(read(5, "commitlog/", source.start, 100))
        assert "Input/output error" in (await asker.answers.get()).fields["why"]
        assert not link.closed


async def test_a_source_without_a_manifest_is_an_answer_too() -> None:
    source = Source(0)
    async with Leader(source) as leader, asking(leader) as (asker, link):
        link.send(RaftMessage(MessageKind.RESET_ASK, {"token": 5}))
        assert "it names no log file" in (await asker.answers.get()).fields["why"]


async def test_requests_without_end_cost_the_link() -> None:
    async with Leader(Source(FILE_BYTES)) as leader, asking(leader) as (asker, link):
        link.send(RaftMessage(MessageKind.RESET_ASK, {"token": 5}))
        await asker.answers.get()
        for _ in range(RANGES_OPEN_MAX * 4):
            link.send(read(5, "commitlog/", leader.source.start, 4))
        await link.ended.wait()


async def test_a_second_copy_of_one_member_ends_the_first() -> None:
    async with Leader(Source(FILE_BYTES)) as leader, asking(leader) as (asker, link):
        link.send(RaftMessage(MessageKind.RESET_ASK, {"token": 5}))
        await asker.answers.get()
        async with asking(leader) as (other, second):
            second.send(RaftMessage(MessageKind.RESET_ASK, {"token": 6}))
            assert (await other.answers.get()).fields["ok"]
            await link.ended.wait()
            assert leader.source.pins == 1


Answer = tuple[bytes | memoryview, int]


@pytest.mark.parametrize(
    ("name", "lie", "said"),
    [
        ("commitlog/", lambda data: (data, zlib.crc32(data) ^ 1), "came with another CRC than announced"),
        ("commitlog/", lambda data: (data[:-1], zlib.crc32(data[:-1])), "is due"),
        (
            "topics.json",
            lambda data: (bytes(len(data)), zlib.crc32(bytes(len(data)))),
            "topics.json came with another CRC",
        ),
    ],
)
async def test_R13_odd_answers_are_noticed_and_the_next_attempt_is_right(
    name: str,
    lie: Callable[[bytes], Answer],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    honest = reset_server._Copy._bytes
    lies = [name]

    def odd(self: reset_server._Copy, asked: str, start: int, size: int) -> Answer:
        data, crc = honest(self, asked, start, size)
        if asked in lies:
            lies.clear()
            return lie(bytes(data))
        return data, crc

    monkeypatch.setattr(reset_server._Copy, "_bytes", odd)
    target = Target(tmp_path)
    write_marker(target.marker, Marker("n0"))
    source = Source(FILE_BYTES + 100)
    async with Leader(source) as leader:
        await leader.client(target).run()
        target.check(source)
    assert said in caplog.text


async def test_a_leader_that_stops_while_it_is_copied_leaves_the_copy_to_be_gone_on_with(tmp_path: Path) -> None:
    target = Target(tmp_path)
    write_marker(target.marker, Marker("n0"))
    source = Source(FILE_BYTES * 2)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(_: int) -> None:
        loop.call_soon_threadsafe(asked.set)

    source.before_read = tell
    async with Leader(source) as leader:
        port = leader.party.transport.port
        task = asyncio.create_task(leader.client(target).run())
        await asked.wait()
    async with Leader(source, port=port):
        await task
    target.check(source)
