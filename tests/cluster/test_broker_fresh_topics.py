"""A topic that a send makes is on disk before the send is answered, and a disk that refuses it costs no answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.table_file import ConfigFile
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from tests.cluster.broker_peer import running, v2
from tests.parts.idempotent_sends import batch_once


class Disk:
    """Has what is written of topics wait until it is let go, or fail then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.free = asyncio.Event(), asyncio.Event()
        self.error: OSError | None = None
        write = ConfigFile._write  # the thread that writes is behind it

        async def slow(file: ConfigFile) -> None:
            if file.path.name == "topics.json":
                self.asked.set()
                await self.free.wait()
                if self.error is not None:
                    file._writing, error = None, self.error
                    raise error
            await write(file)

        monkeypatch.setattr(ConfigFile, "_write", slow)


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


def _sends() -> list[Command]:
    single = Command.request(RequestCode.SEND_MESSAGE_V2, v2("New", "UNIQ_KEY\x01A\x02"), b"one")
    another = Command.request(RequestCode.SEND_MESSAGE_V2, v2("New", "UNIQ_KEY\x01B\x02"), b"two")
    return [single, another, batch_once(["C", "D"], topic="New")]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_send_to_a_new_topic_is_answered_when_the_topic_is_on_disk(
    tmp_path: Path, client: RemotingClient, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async with running(tmp_path) as broker, contextlib.AsyncExitStack() as exits:
        await client.invoke(broker.address, Command.request(RequestCode.SEND_MESSAGE_V2, v2("Old"), b"first"), 5.0)
        disk = Disk(monkeypatch)
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(client.invoke(broker.address, request, 10.0)) for request in _sends()
        ]
        exits.callback(disk.free.set)
        async with asyncio.timeout(10.0):
            await disk.asked.wait()
            # What is sent to a topic that is there is answered meanwhile, and so often that the others had their turn.
            for _ in range(20):
                known = Command.request(RequestCode.SEND_MESSAGE_V2, v2("Old"), b"meanwhile")
                assert (await client.invoke(broker.address, known, 5.0)).code == 0
            assert not any(task.done() for task in waiting)
            if fails:
                disk.error = OSError("the disk is out of order")
            disk.free.set()
            answers = await asyncio.gather(*waiting)
        assert [answer.code for answer in answers] == [0, 0, 0]
        assert [int(answer.ext["queueOffset"]) for answer in answers] == [0, 1, 2]
        # From now on nothing waits.
        disk.free.clear()
        disk.error = None
        [single, *_] = _sends()
        assert (await client.invoke(broker.address, single, 5.0)).code == 0
