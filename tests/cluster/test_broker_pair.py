"""A master and its slave in this process: bytes, reads, refusals, and what is left when the master is gone."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.server import Broker
from broker.settings import decision
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.bodies.registry import HARuntimeInfo
from remoting.client import RemotingClient
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import CreateTopicRequestHeader, UpdateConsumerOffsetRequestHeader
from tests.cluster.broker_peer import ask, messages, pull_header, running, send, v2

SENDS = 2000
SETTINGS = {"haListenPort": "0", "haSendHeartbeatInterval": "200", "slaveMetadataMs": "300"}


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    kv = str(tmp_path / "kvConfig.json")
    made = NameServer(NamesrvConfig(listenPort=0, bindAddress="127.0.0.1", httpEnable=False, kvConfigPath=kv))
    await made.start()
    yield f"127.0.0.1:{made.port}"
    await made.close()


@contextlib.asynccontextmanager
async def pair(
    client: RemotingClient, folder: Path, namesrv: str, values: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Start a master and a slave that follows it, and has its tables."""
    shared = {**SETTINGS, "namesrvAddr": namesrv, **(values or {})}
    slave_values = {**shared, "brokerRole": "SLAVE", "brokerId": "1"}
    async with (
        running(folder / "master", shared) as master,
        running(folder / "slave", slave_values) as slave,
    ):
        await until(lambda: follows(client, slave))
        yield master, slave


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.01)


async def status(client: RemotingClient, broker: Broker) -> dict[str, Any]:
    answer = await ask(client, broker, ClassicCode.STATUS)
    found: dict[str, Any] = orjson.loads(bytes(answer.body))
    return found


async def follows(client: RemotingClient, slave: Broker) -> bool:
    said = await status(client, slave)
    return bool(said["master"]["state"] == "following" and said["metadata"]["synced"])


async def level(client: RemotingClient, master: Broker, slave: Broker) -> bool:
    """Tell whether the slave has everything, in its queues too, and its topics."""
    ours, theirs = await status(client, master), await status(client, slave)
    topics = [broker._parts.topics.get("T") for broker in (master, slave)]
    return bool(ours["max"] == theirs["max"] == theirs["dispatched"] and topics[0] == topics[1])


async def fill(client: RemotingClient, master: Broker, count: int = SENDS) -> None:
    for begin in range(0, count, 100):
        await asyncio.gather(*(send(client, master, b"%d" % number) for number in range(begin, begin + 100)))


def log_digest(broker: Broker) -> str:
    begin, end = broker.store.log_range()
    return hashlib.sha256(
        b"".join(bytes(broker.store.read_piece_cold(at, 1 << 20)) for at in range(begin, end, 1 << 20))
    ).hexdigest()


async def test_the_slave_has_the_masters_bytes_serves_reads_and_refuses_writes(
    tmp_path: Path, namesrv: str, client: RemotingClient
) -> None:
    async with pair(client, tmp_path, namesrv) as (master, slave):
        await fill(client, master)
        await until(lambda: level(client, master, slave))
        assert log_digest(master) == log_digest(slave)
        for topic, queue_ids in master.store.topics().items():
            for queue_id in queue_ids:
                end = master.store.max_offset(topic, queue_id)
                entries = [broker.store.queue_entries(topic, queue_id, 0, end) for broker in (master, slave)]
                assert entries[0] == entries[1]

        turned_away = await ask(client, slave, RequestCode.PULL_MESSAGE, pull_header(5))
        assert (turned_away.code, turned_away.ext["nextBeginOffset"], turned_away.ext["suggestWhichBrokerId"]) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "5",
            "0",
        )
        refused = await ask(client, slave, RequestCode.SEND_MESSAGE_V2, v2(), b"x")
        assert (refused.code, master.address in (refused.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        header = CreateTopicRequestHeader(
            topic="New", defaultTopic="TBW102", readQueueNums=1, writeQueueNums=1, perm=6, topicFilterType="SINGLE_TAG"
        )
        refused = await ask(client, slave, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert (refused.code, "slave" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)

        await master.close()
        await until(lambda: left(client, slave))
        read = [message.body for message in await read_all(client, slave)]
        assert sorted(read) == sorted(b"%d" % number for number in range(SENDS))
        beyond = await ask(client, slave, RequestCode.PULL_MESSAGE, pull_header(SENDS + 7))
        assert (beyond.code, beyond.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(SENDS + 7))
        commit = UpdateConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0, commitOffset=9)
        assert (await ask(client, slave, RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == ResponseCode.SUCCESS
        refused = await ask(client, slave, RequestCode.SEND_MESSAGE_V2, v2(), b"x")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert slave._ready() is None


async def left(client: RemotingClient, slave: Broker) -> bool:
    return not (await status(client, slave))["master"]["alive"]


async def read_all(client: RemotingClient, broker: Broker) -> list[Any]:
    found: list[Any] = []
    while len(found) < SENDS:
        answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(len(found)))
        assert answer.code == ResponseCode.SUCCESS, answer
        found += messages(answer)
    return found


async def test_slave_reads_are_served_when_they_are_allowed(
    tmp_path: Path, namesrv: str, client: RemotingClient
) -> None:
    async with pair(client, tmp_path, namesrv, {"slaveReadEnable": "true"}) as (master, slave):
        await fill(client, master, 100)
        await until(lambda: level(client, master, slave))
        answer = await ask(client, slave, RequestCode.PULL_MESSAGE, pull_header(90))
        assert len(messages(answer)) == 10
        parked = client.submit(
            slave.address, Command.request(RequestCode.PULL_MESSAGE, pull_header(100, suspend_ms=10_000)), 15.0
        )
        await until(lambda: parks(slave))
        await send(client, master, b"woken")
        assert [message.body for message in messages(await parked)] == [b"woken"]
        # What lies beyond its end the master knows: the consumer stays where it is and asks there.
        beyond = await ask(client, slave, RequestCode.PULL_MESSAGE, pull_header(5000, suspend_ms=10_000))
        assert (beyond.code, beyond.ext["suggestWhichBrokerId"]) == (ResponseCode.PULL_NOT_FOUND, "0")


async def parks(broker: Broker) -> bool:
    return broker._parts.backlog().parked_pulls > 0


async def test_a_sync_master_answers_when_its_slave_has_it(
    tmp_path: Path, namesrv: str, client: RemotingClient
) -> None:
    async with pair(client, tmp_path, namesrv, {"brokerRole": "SYNC_MASTER", "slaveTimeout": "30000"}) as (
        master,
        slave,
    ):
        await fill(client, master, 300)
        said = await status(client, master)
        end = (await status(client, slave))["max"]
        assert (said["inSyncReplicas"], said["inSync"], said["acknowledgedBySlaves"] <= end) == (2, 2, True)
        assert said["acknowledgedBySlaves"] == said["max"]
        info = HARuntimeInfo.decode((await ask(client, master, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (info.master, info.inSyncSlaveNums, info.haConnectionInfo[0].diff) == (True, 1, 0)
        info = HARuntimeInfo.decode((await ask(client, slave, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (info.master, info.haClientRuntimeInfo.activated, info.haClientRuntimeInfo.maxOffset) == (
            False,
            True,
            end,
        )
        await slave.close()
        alone = await ask(client, master, RequestCode.SEND_MESSAGE_V2, v2(), b"alone")
        assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (await status(client, master))["warnings"]


async def test_the_slave_catches_up_when_it_was_away(tmp_path: Path, namesrv: str, client: RemotingClient) -> None:
    async with running(tmp_path / "master", {**SETTINGS, "namesrvAddr": namesrv}) as master:
        await fill(client, master, 200)
        slave_values = {**SETTINGS, "namesrvAddr": namesrv, "brokerRole": "SLAVE", "brokerId": "1"}
        for more in (200, 300):
            async with running(tmp_path / "slave", slave_values) as slave:
                await until(lambda slave=slave: level(client, master, slave))  # type: ignore[misc] # its own slave
                assert log_digest(master) == log_digest(slave)
            await fill(client, master, more)


async def test_an_ha_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "first", SETTINGS) as first:
        port = first._mode.ha_address.rpartition(":")[2]
        with pytest.raises(OSError, match=f"HA port {port} .haListenPort={port}.*haListenPort=-1"):
            async with running(tmp_path / "second", {"haListenPort": port}):
                pass


async def test_where_others_reach_it_the_ha_port_is_open_to_who_proves_something_or_is_expected(tmp_path: Path) -> None:
    far = {"haListenPort": "0", "bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1"}
    async with running(tmp_path / "b", far) as broker:
        assert broker._mode.ha_address == ""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    async with running(tmp_path / "b", {**far, "haSecretFile": str(secret)}) as broker:
        assert broker._mode.ha_address.startswith("127.0.0.1:")
    # Promoted: there are other slaves.
    keys = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
    decision.write(tmp_path / "b", decision.Override(keys, {"brokerRole": "SLAVE", "brokerId": "1"}, "promoted"))
    async with running(tmp_path / "b", far) as broker:
        assert broker._mode.ha_address.startswith("127.0.0.1:")
