"""The readers bench's own parts: the cold reader's laps and news, its row, and when it refuses a disk."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.host.processes import ProcessError
from raftmq.bench import readers
from raftmq.bench.backlog import ALLOTTED_BYTES, NoRoomForBacklog
from raftmq.bench.coldreader import ColdReader, give_back
from raftmq.bench.frames import QUEUES
from raftmq.bench.load import Result
from raftmq.bench.readers import Reading, check_readers_room, row
from remoting.codec import encode
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.framing import FrameReader
from remoting.headers.registry import PullMessageRequestHeader, PullMessageResponseHeader

END = 64


def test_a_log_needs_room_on_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 100 * 1024**2 + ALLOTTED_BYTES
    usage = SimpleNamespace(total=10 * needed, used=0, free=needed)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage)
    check_readers_room(100, tmp_path)
    with pytest.raises(NoRoomForBacklog, match=r"a log of 101 MiB needs about 2\.3 GB"):
        check_readers_room(101, tmp_path)


def test_a_row_keeps_acknowledgements_and_arrivals_apart() -> None:
    def latencies(what: str, base: float) -> Result:
        return Result(what, 1, 1, 100, 1.0, 7, 7, 7, base, base + 1, base + 2)

    found = row("somebody", (latencies("send", 1.0), latencies("arrival", 10.0)), 50.04, (1.26, 2.0), 3)
    assert list(found.as_dict().values()) == ["somebody", 7, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 50.0, 1.3, 2.0, 3]


def test_what_is_given_back_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"kept")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for write_first in (True, False):
        give_back(tmp_path, write_first=write_first)
    assert (tmp_path / "folder" / "file").read_bytes() == b"kept"


async def test_a_cold_reader_goes_on_from_each_answer_and_begins_again_at_the_end(tmp_path: Path) -> None:
    asked: dict[int, list[int]] = {}

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        while data := await reader.read(65536):
            for request in frames.feed(data):
                header = request.header(PullMessageRequestHeader)
                offsets = asked.setdefault(header.queueId, [])
                offsets.append(header.queueOffset)
                if len(offsets) == 4:
                    continue
                at_end = header.queueOffset >= END
                code = ResponseCode.PULL_NOT_FOUND if at_end else ResponseCode.SUCCESS
                fields = PullMessageResponseHeader(
                    suggestWhichBrokerId=0, nextBeginOffset=header.queueOffset + 32, minOffset=0, maxOffset=END
                )
                answer = Command.response(code, "", fields, b"" if at_end else b"x" * 100)
                answer.opaque = request.opaque
                answer.flag |= 1
                writer.write(encode(answer))
            if sum(map(len, asked.values())) == 4 * QUEUES:
                break
        writer.close()

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    reader = ColdReader("T", tmp_path)
    async with asyncio.timeout(20), server:
        await reader.read(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert asked == {queue: [0, 32, 64, 0] for queue in range(QUEUES)}
    assert reader.laps == QUEUES
    assert reader.got > 2 * QUEUES * 100


async def test_news_is_that_it_got_more() -> None:
    """It may say the same twice: then a rate of 0 would be told, of a reader that waits for the broker."""
    reading = Reading(got_bytes=10, said=asyncio.Event())
    assert reading.said is not None
    news = asyncio.create_task(reading.news())
    for got in (10, 10, 30):
        await asyncio.sleep(0)
        assert not news.done()
        reading.got_bytes = got
        reading.said.set()
        await asyncio.sleep(0)
    await news


async def test_a_reader_without_news_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READER_FIRST_S", 0.01)
    with pytest.raises(ProcessError, match="got nothing"):
        await Reading(said=asyncio.Event()).news()
