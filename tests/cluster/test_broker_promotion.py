"""A slave is promoted, a deposed master is fenced and follows: real processes, by the commands that people type."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chaos.host.processes import ServerProcess, classic_processes, namesrv_process
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.errors import ClientError
from client.message import Message, SendStatus
from client.produce.producer import Producer
from raftmq.cli.main import app
from remoting.bodies.registry import ConsumerOffsetTable, MessageQueue
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers.registry import SendMessageRequestHeader
from remoting.message import MessageExt
from tests.cluster.modes import SMALL
from tests.cluster.process_group import told
from tests.cluster.raft_site import log_of, said, stop
from tests.cluster.test_client_producer import everything

NAME = "broker-a"
TOPIC = "T"
GROUP = "readers"
QUEUES = [MessageQueue(TOPIC, NAME, queue) for queue in range(2)]
# It ends what hangs. Below the 30 s after which brokers register anew and clients look at routes, whatever happened.
PATIENCE_S = 28.0
SENDERS = 8
SETTINGS = {
    **SMALL,
    "autoCreateTopicEnable": False,
    "haSendHeartbeatInterval": 200,
    # A slave to whom a busy machine gives no time for a second has no send answered without it.
    "slaveTimeout": 3000,
    "slaveMetadataMs": 500,
}


class Site:
    """A NameServer, a master and its slaves. `acknowledged` holds the bodies of all that was answered with SEND_OK."""

    def __init__(
        self,
        folder: Path,
        *,
        role: str = "ASYNC_MASTER",
        slaves: int = 1,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.namesrv = namesrv_process(folder / "namesrv")
        self.namesrv.start()
        keys = {**SETTINGS, **settings}
        made = classic_processes(folder, slaves, role=role, namesrv=self.namesrv.address, settings=keys)
        self.master, self.slaves = made[0], made[1:]
        self.acknowledged: set[bytes] = set()
        self.sent = 0

    @property
    def slave(self) -> ServerProcess:
        return self.slaves[0]

    def close(self) -> None:
        for process in (self.master, *self.slaves, self.namesrv):
            process.kill()

    async def start(self) -> None:
        """Start everything; topic and group exist, and the slaves follow."""
        for process in (self.master, *self.slaves):
            process.launch()
        for process in (self.master, *self.slaves):
            await asyncio.to_thread(process.wait_ready)
        await self.caught_up(self.master, *self.slaves)
        async with AdminClient(self.namesrv.address) as admin:
            await admin.create_topic(TOPIC, read_queues=len(QUEUES), write_queues=len(QUEUES))
            await admin.create_group(GROUP)

    async def caught_up(self, master: ServerProcess, *slaves: ServerProcess) -> None:
        """Wait until the slaves follow a master and have the same log."""

        def equal() -> bool:
            leading, following = state(master), [state(slave) for slave in slaves]
            return (
                leading.get("fenced") is None
                and len(leading.get("slaves", ())) == len(slaves)
                and all((one.get("master") or {}).get("state") == "following" for one in following)
                and all(one.get("max") == leading.get("max") for one in following)
            )

        await until(equal, lambda: f"{state(master)} {[state(slave) for slave in slaves]}")

    async def send(self, count: int = 40) -> None:
        """Send so many messages that must all be acknowledged, by whoever leads."""
        await self.routed()
        async with Producer("producers", self.namesrv.address) as producer:
            for _ in range(count):
                assert await self._send_one(producer) is SendStatus.SEND_OK

    async def send_while(self, act: Callable[[], object], *, before: int = 200) -> None:
        """Send from many at a time, do something in the midst of it, and stop when nobody answers any more."""
        async with Producer("producers", self.namesrv.address, retries=0, send_timeout=5.0) as producer:
            goal, reached = len(self.acknowledged) + before, asyncio.Event()

            async def sender() -> None:
                while True:
                    try:
                        await self._send_one(producer)
                    except (ClientError, RemotingError):
                        return
                    if len(self.acknowledged) >= goal:
                        reached.set()

            tasks = [asyncio.create_task(sender()) for _ in range(SENDERS)]
            async with asyncio.timeout(PATIENCE_S):
                await reached.wait()
                act()
                await asyncio.gather(*tasks)

    async def _send_one(self, producer: Producer) -> SendStatus:
        number, self.sent = self.sent, self.sent + 1
        body = b"%d" % number
        result = await producer.send(Message(TOPIC, body), queue=QUEUES[number % len(QUEUES)])
        if result.status is SendStatus.SEND_OK:
            self.acknowledged.add(body)
        return result.status

    async def routed(self) -> None:
        async with AdminClient(self.namesrv.address) as admin, asyncio.timeout(PATIENCE_S):
            while True:
                route = await admin.route(TOPIC)
                if route is not None and any(0 in broker.brokerAddrs for broker in route.brokerDatas):
                    return
                await asyncio.sleep(0.05)

    async def commit(self, offset: int) -> None:
        async with LitePullConsumer(GROUP, self.namesrv.address, auto_commit=False) as consumer:
            await consumer.assign(QUEUES)
            for queue in QUEUES:
                consumer.seek(queue, offset)
                assert await consumer.position(queue) == offset
            await consumer.commit()

    async def committed(self) -> list[int]:
        async with AdminClient(self.namesrv.address) as admin:
            progress = await admin.consume_progress(GROUP, TOPIC)
        return [queue.consumer_offset for queue in progress.queues]

    async def copied(self, offset: int) -> None:
        """Wait until the slave knows how far the group is in both queues: it asks for that now and then."""
        client = RemotingClient()
        expected = dict.fromkeys(range(len(QUEUES)), offset)
        request = Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    told = await client.invoke(self.slave.address, request)
                    if ConsumerOffsetTable.decode(told.body).offsetTable.get(f"{TOPIC}@{GROUP}") == expected:
                        return
                    await asyncio.sleep(0.05)
        finally:
            await client.close()

    async def read(self) -> list[MessageExt]:
        """Return what consumers find; everything acknowledged is among it, and nothing twice."""
        await self.routed()
        async with AdminClient(self.namesrv.address) as admin:
            count = sum(offset.maxOffset for offset in (await admin.topic_stats(TOPIC)).offsetTable.values())
        found = await everything(self.namesrv.address, TOPIC, count)
        places = [(message.queue_id, message.queue_offset) for message in found]
        assert len(found) == len(set(places)) == count
        return found

    async def cli(self, *arguments: str) -> Result:
        typed = ["cluster", *arguments, "-n", self.namesrv.address]
        return await asyncio.to_thread(CliRunner().invoke, app, typed)

    async def done(self, *arguments: str) -> str:
        result = await self.cli(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    async def refused(self, *arguments: str) -> str:
        result = await self.cli(*arguments)
        assert result.exit_code == 1, result.output
        (line,) = result.stderr.strip().splitlines()
        return line

    async def promote(self, process: ServerProcess, *arguments: str) -> dict[str, Any]:
        """Promote a slave, and wait until it serves as the master; returns what it says of itself then."""
        output = await self.done("promote", NAME, "--yes", *arguments)
        assert process.address in output
        await until(lambda: state(process).get("brokerId") == 0, process.last_words)
        await asyncio.to_thread(process.wait_ready)
        return state(process)


def state(process: ServerProcess) -> dict[str, Any]:
    """Return what a broker tells at /v1/ha, {} while it tells nothing."""
    return told(process, "/v1/ha") or {}


async def until(what: Callable[[], object], words: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(what):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(words()) from None


async def send_to(address: str) -> Command:
    """Send a message to a certain broker, as a client with an old route does."""
    header = SendMessageRequestHeader(
        producerGroup="p", topic=TOPIC, defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, sysFlag=0,
        bornTimestamp=0, flag=0,
    )  # fmt: skip
    client = RemotingClient()
    try:
        return await client.invoke(address, Command.request(RequestCode.SEND_MESSAGE, header, b"late"))
    finally:
        await client.close()


@pytest.fixture
def sites() -> Iterator[list[Site]]:
    made: list[Site] = []
    yield made
    for site in made:
        site.close()


async def loaded(folder: Path, sites: list[Site], **how: Any) -> Site:
    """Return a running site whose slaves have all that was sent; `how`: see Site."""
    site = Site(folder, **how)
    sites.append(site)
    await site.start()
    await site.send()
    await site.caught_up(site.master, *site.slaves)
    return site


@pytest.mark.timeout(120)
async def test_a_slave_of_a_dead_sync_master_is_promoted_and_nothing_acknowledged_is_lost(
    tmp_path: Path, sites: list[Site]
) -> None:
    site = Site(tmp_path, role="SYNC_MASTER")
    sites.append(site)
    await site.start()
    await site.send()
    await site.commit(15)
    line = await site.refused("promote", NAME, "--yes")
    assert f"not promoted: the master at {site.master.address} lives; stop it first" in line

    await site.copied(15)
    await site.send_while(site.master.kill)
    before = set(site.acknowledged)
    asked = await site.cli("promote", NAME, "--role", "ASYNC_MASTER")
    assert asked.exit_code == 1
    assert "what it acknowledged with SEND_OK is on a slave" in asked.output
    assert state(site.slave)["role"] == "SLAVE"

    now = await site.promote(site.slave, "--role", "ASYNC_MASTER")
    assert (now["role"], now["epoch"]) == ("ASYNC_MASTER", 1)
    assert before <= {message.body for message in await site.read()}
    await site.send()
    assert await site.committed() == [15, 15]

    # What was decided outlives a restart, and is said at each.
    site.slave.kill()
    await asyncio.to_thread(site.slave.start)
    assert (state(site.slave)["role"], state(site.slave)["epoch"]) == ("ASYNC_MASTER", 1)
    await said(site.slave, "in force: brokerId=0 instead of 1, brokerRole=ASYNC_MASTER instead of SLAVE")
    await site.send()
    assert site.acknowledged <= {message.body for message in await site.read()}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_R15_R16_an_old_master_is_fenced_and_follows_without_its_surplus(
    tmp_path: Path, sites: list[Site], role: str
) -> None:
    site = await loaded(tmp_path, sites, role=role)
    # The master alone gets more, and dies with it.
    site.slave.kill()
    async with Producer("producers", site.namesrv.address) as producer:
        result = await producer.send(Message(TOPIC, b"surplus"), queue=QUEUES[0])
    assert result.status is (SendStatus.SEND_OK if role == "ASYNC_MASTER" else SendStatus.SLAVE_NOT_AVAILABLE)
    site.master.kill()
    await asyncio.to_thread(site.slave.start)
    assert (await site.promote(site.slave, "--role", "ASYNC_MASTER"))["epoch"] == 1
    await site.send()

    site.master.launch()
    await until(lambda: state(site.master).get("fenced"), site.master.last_words)
    assert f"{site.slave.address} was promoted" in state(site.master)["fenced"]
    assert not site.master.ready()
    answer = await send_to(site.master.address)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark is not None
    assert f"raftmq cluster follow {site.master.address}" in answer.remark
    async with AdminClient(site.namesrv.address) as admin:
        assert [(broker.broker_id, broker.address) for broker in await admin.brokers()] == [(0, site.slave.address)]
    assert "nobody was promoted in its place" in await site.refused("follow", site.slave.address)
    # It does not forget that, with nobody there to tell it.
    site.master.kill()
    site.slave.kill()
    site.master.launch()
    await until(lambda: state(site.master).get("fenced"), site.master.last_words)
    await asyncio.to_thread(site.slave.start)

    assert "brokerId 1" in await site.done("follow", site.master.address)
    if role == "SYNC_MASTER":
        await until(
            lambda: (state(site.master).get("master") or {}).get("state") == "waiting for a person",
            lambda: str(state(site.master)),
        )
        assert "bytes leave its log" in await site.done("accept-master", site.master.address)
    await site.caught_up(site.slave, site.master)
    assert list((tmp_path / "master" / "store" / "cut").rglob("*"))
    await site.send()
    await site.caught_up(site.slave, site.master)
    # The slave has all; that it has, it tells a moment later.
    async with asyncio.timeout(PATIENCE_S):
        while "1 slaves, 1 in sync" not in (table := await site.done("ha-status")):
            await asyncio.sleep(0.05)
    assert "following" in table
    found = {message.body for message in await site.read()}
    assert b"surplus" not in found
    assert site.acknowledged <= found
    stop([site.master, site.slave])
    assert log_of(tmp_path / "master" / "store") == log_of(tmp_path / "slave1" / "store")


@pytest.mark.timeout(120)
async def test_of_two_slaves_the_longer_one_is_promoted_and_the_other_follows_it(
    tmp_path: Path, sites: list[Site]
) -> None:
    site = await loaded(tmp_path, sites, slaves=2)
    first, second = site.slaves
    first.kill()
    await site.caught_up(site.master, second)
    await site.send()
    await site.caught_up(site.master, second)
    site.master.kill()
    await asyncio.to_thread(first.start)
    line = await site.refused("promote", NAME, "--slave", "1", "--yes")
    assert f"slave 2 at {second.address} has" in line
    assert "bytes more than this one: promote that one (--slave 2), or give them up with --force" in line
    # The longer one is away, and nobody has forgotten it.
    second.kill()
    asked = await site.cli("promote", NAME)
    assert f"slave 2 at {second.address} does not tell how far it is" in asked.output
    assert asked.exit_code == 1
    await asyncio.to_thread(second.start)
    now = await site.promote(second)
    assert (now["role"], now["epoch"]) == ("ASYNC_MASTER", 1)
    await site.caught_up(second, first)
    await site.send()
    await site.caught_up(second, first)
    assert site.acknowledged == {message.body for message in await site.read()}
    assert f"the master at {second.address} lives" in await site.refused("promote", NAME, "--yes")
    stop([first, second])
    assert log_of(tmp_path / "slave1" / "store") == log_of(tmp_path / "slave2" / "store")


@pytest.mark.timeout(60)
async def test_a_persons_edit_of_broker_conf_wins_over_a_promotion(tmp_path: Path, sites: list[Site]) -> None:
    site = Site(tmp_path, slaves=1)
    sites.append(site)
    # It has never had a master's log, so it is not ready: but it is there.
    site.slave.launch()
    await until(lambda: bool(state(site.slave)), site.slave.last_words)
    asked = await site.cli("promote", NAME)
    assert "how far the master's goes is not known" in asked.output
    await site.promote(site.slave)
    stop([site.slave])
    config = tmp_path / "slave1" / "broker.conf"
    config.write_text(config.read_text().replace("brokerId=1\n", "brokerId=2\n"))
    site.slave.launch()
    await said(site.slave, "broker.conf says brokerId=2, which was changed after a command had decided otherwise")
    await until(lambda: state(site.slave), site.slave.last_words)
    assert (state(site.slave)["role"], state(site.slave)["brokerId"]) == ("SLAVE", 2)
    assert not (tmp_path / "slave1" / "store" / "config" / "mode.json").exists()
