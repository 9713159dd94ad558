"""What tests of pairs do and wait for beside sending: an operator's commands, offsets of a group, what brokers say."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from typer.testing import CliRunner

from chaos.host.processes import ServerProcess
from raftmq.cli.main import app
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError, ConnectionLost
from remoting.headers.registry import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from tests.cluster.classic_pair import PATIENCE_S, status, until
from tests.cluster.classic_senders import GROUP, QUEUES, TOPIC


async def command(*typed: str) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, app, ["cluster", *typed])
    assert done.exit_code == 0, done.output
    return done.output


async def said(process: ServerProcess, words: str) -> None:
    await until(lambda: words in process.log.read_text(errors="replace"), f"{process.name} did not say: {words}")


async def is_master(process: ServerProcess) -> None:
    def leads() -> bool:
        found = status(process)
        return found is not None and found["brokerId"] == 0 and not found["fenced"] and process.ready()

    await until(leads, f"{process.name} did not become the master")


async def follows(slave: ServerProcess, master: ServerProcess) -> None:
    def equal() -> bool:
        found, other = status(slave), status(master)
        return bool(found and other and found["brokerId"] and other["slaves"] and found["dispatched"] == other["max"])

    await until(equal, f"{slave.name} does not follow {master.name}")


async def commit(address: str, offset: int, *, group: str = GROUP) -> None:
    """Commit one offset in all queues, as a consumer does that was just assigned them."""
    async with _client() as client:
        for queue in range(QUEUES):
            header = UpdateConsumerOffsetRequestHeader(
                consumerGroup=group, topic=TOPIC, queueId=queue, commitOffset=offset
            )
            answer = await client.invoke(
                address, Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header), PATIENCE_S
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark


async def offsets(address: str, *, group: str = GROUP) -> list[int]:
    """Return a group's offset in each queue; -1 for none."""
    found = []
    async with _client() as client:
        for queue in range(QUEUES):
            header = QueryConsumerOffsetRequestHeader(
                consumerGroup=group, topic=TOPIC, queueId=queue, setZeroIfNotFound=False
            )
            answer = await client.invoke(address, Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header))
            found.append(int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else -1)
    return found


async def offsets_are(process: ServerProcess, expected: list[int]) -> None:
    """Return when a broker, which may still be starting, tells these offsets."""
    found: list[int] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while found != expected:
                await asyncio.sleep(0.02)
                with contextlib.suppress(ConnectError, ConnectionLost):
                    found = await offsets(process.address)
    except TimeoutError:
        raise AssertionError(f"{process.name} tells {found} instead of {expected}") from None


def log_digest(store: Path) -> str:
    """Return the SHA-256 of the CommitLog."""
    paths = sorted((store / "commitlog").iterdir(), key=lambda path: path.name)
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@asynccontextmanager
async def _client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    try:
        yield client
    finally:
        await client.close()
