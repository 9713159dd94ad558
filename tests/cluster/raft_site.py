"""Folders that real processes use by turns, as a single broker's or as those of a Raft group, and what is in them."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from chaos.host.processes import ServerProcess, broker_process, namesrv_process, raft_processes
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.message import Message
from client.produce.producer import Producer
from client.routes import MASTER_ID
from raftmq.cli.main import app
from remoting.bodies.registry import MessageQueue
from store.log.logscan import LogScan, Span
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

LOG_FILE_BYTES = 64 * 1024
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    "shutdownForwardMs": 100,
    "autoCreateTopicEnable": False,
}
NAME = "broker-a"
TOPIC = "moved"
GROUP = "readers"
QUEUES = [MessageQueue(TOPIC, NAME, queue) for queue in range(2)]
ROUND = 60
BODY_BYTES = 2000
# It ends what hangs. Below the 30 s after which brokers register anew and clients look at routes, whatever happened.
PATIENCE_S = 28.0


class Site:
    """A NameServer, and folders n0, n1, n2 whose stores are a single broker's or a group's by turns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namesrv = namesrv_process(folder / "namesrv")
        self.namesrv.start()
        self.sent = 0
        self._started: list[ServerProcess] = [self.namesrv]

    def single(self, member: str, *, start: bool = True, force: bool = False) -> ServerProcess:
        """Run a member's folder as a single broker."""
        made = broker_process(
            self.folder / f"{member}-single",
            namesrv=self.namesrv.address,
            settings={**SETTINGS, "storePathRootDir": self.store(member)},
            name=member,
            force=force,
        )
        self._started.append(made)
        if start:
            made.start()
        return made

    def group(self, *, nodes: int = 3, wait: bool = True, launch: bool = True) -> list[ServerProcess]:
        """Run the folders as a group; without `launch` its members only."""
        made = raft_processes(self.folder, nodes, namesrv=self.namesrv.address, settings=SETTINGS)
        self._started += made
        for member in made if launch else ():
            member.launch()
        for member in made if wait and launch else ():
            member.wait_ready()
        return made

    def store(self, member: str) -> Path:
        return self.folder / member / "store"

    def set_aside(self, member: str) -> None:
        """Move a member's store away: the next one begins empty."""
        self.store(member).rename(self.folder / member / "store.old")

    async def cli(self, *arguments: str) -> str:
        """Type a `raftmq cluster` command that must succeed."""
        typed = ["cluster", *arguments, "-n", self.namesrv.address]
        done = await asyncio.to_thread(CliRunner().invoke, app, typed)
        assert done.exit_code == 0, done.output
        return done.stdout

    async def create(self) -> None:
        """Create topic and group, once somebody leads and has registered: a member that serves need not."""
        async with AdminClient(self.namesrv.address) as admin:
            async with asyncio.timeout(PATIENCE_S):
                while not any(broker.broker_id == MASTER_ID for broker in await admin.brokers()):
                    await asyncio.sleep(0.05)
            await admin.create_topic(TOPIC, read_queues=len(QUEUES), write_queues=len(QUEUES))
            await admin.create_group(GROUP)

    async def routed(self) -> None:
        """Wait until the NameServer knows who takes the messages: RocketMQ registers after it says it serves."""
        async with AdminClient(self.namesrv.address) as admin, asyncio.timeout(PATIENCE_S):
            while True:
                route = await admin.route(TOPIC)
                if route is not None and any(0 in broker.brokerAddrs for broker in route.brokerDatas):
                    return
                await asyncio.sleep(0.05)

    async def send(self, count: int = ROUND) -> None:
        async with Producer("producers", self.namesrv.address) as producer:
            for number in range(self.sent, self.sent + count):
                await producer.send(Message(TOPIC, body(number), keys=f"k{number}"), queue=QUEUES[number % 2])
        self.sent += count

    async def consume(self, count: int) -> None:
        """Take messages of the group's and commit the positions behind them."""
        async with LitePullConsumer(GROUP, self.namesrv.address, auto_commit=False) as consumer:
            await consumer.assign(QUEUES)
            for queue in QUEUES:
                consumer.seek(queue, count)
                assert await consumer.position(queue) == count
            await consumer.commit()

    async def check(self, *, offsets: int) -> None:
        """All messages are there, each once, at dense offsets; and topic, group, and how far the group has come."""
        await self.routed()
        found = await everything(self.namesrv.address, TOPIC, self.sent)
        places = sorted((message.queue_id, message.queue_offset, message.body) for message in found)
        assert places == sorted((number % 2, number // 2, body(number)) for number in range(self.sent))
        async with AdminClient(self.namesrv.address) as admin:
            assert TOPIC in await admin.topics()
            assert GROUP in await admin.groups()
            progress = await admin.consume_progress(GROUP, TOPIC)
            assert [queue.consumer_offset for queue in progress.queues] == [offsets, offsets]
            assert await admin.messages_by_key(TOPIC, "k3")

    async def until_voting(self, members: list[ServerProcess]) -> dict[str, Any]:
        """Wait until all members vote and know one leader; returns the leader's state."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                states = [await asyncio.to_thread(member.state, "/v1/raft") for member in members]
                if all(state is not None for state in states):
                    voters = [{m["id"] for m in state["members"] if m["voter"]} for state in states if state]
                    leading: list[dict[str, Any]] = [state for state in states if state and state["leads"]]
                    if len(leading) == 1 and all(len(known) == len(members) for known in voters):
                        return leading[0]
                await asyncio.sleep(0.05)

    def close(self) -> None:
        for process in self._started:
            process.kill()


def body(number: int) -> bytes:
    return b"%d " % number + hashlib.sha256(b"%d" % number).digest() * (BODY_BYTES // 32)


def log_of(store: Path, end: int = 0) -> bytes:
    """Return a digest of what a log holds before a position, 0 for all of it, and check that it is whole."""
    spans = [Span(path, int(path.name), path.stat().st_size) for path in sorted((store / "commitlog").iterdir())]
    scan = LogScan(spans, spans[0].start, check_crc=True)
    for _ in scan:
        pass
    assert scan.end >= end
    return hashlib.sha256(b"".join(span.path.read_bytes() for span in spans)[: end or scan.end]).digest()


def stop(members: list[ServerProcess]) -> None:
    for member in members:
        assert member.stop() == 0, member.last_words()


async def shrink(
    site: Site, members: list[ServerProcess], *, last: Callable[[], Awaitable[None]] | None = None
) -> ServerProcess:
    """Take members out until n0 is alone, do something, and end the group; returns n0, which still runs."""
    leader = await site.until_voting(members)
    if leader["self"] != "n0":
        await site.cli("transfer-leader", NAME, "n0")
    for number, member in enumerate(members):
        if number:
            await until_settled(members[0])
            await site.cli("remove-peer", NAME, f"n{number}")
            stop([member])
    await until_settled(members[0])
    if last is not None:
        await last()
    await site.cli("leave-raft", NAME)
    return members[0]


async def stop_equal(site: Site, members: list[ServerProcess]) -> None:
    """Stop a group whose members have come to the same end, and compare their logs byte for byte."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            states = [await asyncio.to_thread(member.state, "/v1/raft") for member in members]
            ends = {state["end"] for state in states if state is not None}
            if len(ends) == 1 and all(state and state["applied"] == state["last"] for state in states):
                break
            await asyncio.sleep(0.02)
    stop(members)
    (end,) = ends
    assert len({log_of(site.store(f"n{number}"), end) for number in range(len(members))}) == 1


async def until_settled(leader: ServerProcess) -> None:
    """Wait until the last change of membership is over, and the leader serves."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            state = await asyncio.to_thread(leader.state, "/v1/raft")
            if state is not None and state["leads"] and state["applied"] >= state["config_index"]:
                return
            await asyncio.sleep(0.02)


async def said(process: ServerProcess, words: str) -> None:
    """Wait until a process has logged something."""
    async with asyncio.timeout(PATIENCE_S):
        while words not in process.log.read_text(errors="replace"):
            await asyncio.sleep(0.05)


async def ended(process: ServerProcess) -> int | None:
    """Wait until a process has ended; returns its exit code."""
    async with asyncio.timeout(PATIENCE_S):
        while process.running:
            await asyncio.sleep(0.05)
    return process.exit_code
