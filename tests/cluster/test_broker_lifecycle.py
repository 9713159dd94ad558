"""A real broker that starts, stops and starts again: what it keeps, whom it tells, where it listens."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from broker.settings.ports import reserved_port
from chaos.host.processes import free_ports
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.bodies.registry import (
    TopicRouteData,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError, ConnectionLost
from remoting.headers.registry import (
    GetRouteInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from store.errors import StoreLocked
from tests.cluster.broker_peer import SMALL, ask, messages, pull_header, running, send, v2


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def test_offsets_are_queried_committed_and_kept(tmp_path: Path, client: RemotingClient) -> None:
    query = QueryConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0)
    empty = QueryConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=1)
    absent = QueryConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=9)
    strict = QueryConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0, setZeroIfNotFound=False)
    async with running(tmp_path) as broker:
        for _ in range(3):
            await send(client, broker)
        assert (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, query)).ext == {"offset": "0"}
        assert (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, empty)).ext == {"offset": "0"}
        assert (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, absent)).code == 22
        assert (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, strict)).code == 22
        for offset, code in ((-1, 0), (2, 0), (99, 0)):
            update = UpdateConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0, commitOffset=offset)
            assert (await ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, update)).code == code
        assert (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, query)).ext == {"offset": "3"}
        for topic, queue_id, code in (("None", 0, 17), ("T", -1, 29), ("T", 4, 29)):
            update = UpdateConsumerOffsetRequestHeader(consumerGroup="G", topic=topic, queueId=queue_id, commitOffset=0)
            assert (await ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, update)).code == code
    assert orjson.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())["offsetTable"] == {"T@G": {"0": 3}}
    async with running(tmp_path) as broker:
        assert (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, query)).ext == {"offset": "3"}


async def test_messages_survive_a_restart(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        for number in range(50):
            await send(client, broker, b"%d" % number)
    async with running(tmp_path) as broker:
        answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(40))
        assert [message.body for message in messages(answer)] == [b"%d" % number for number in range(40, 50)]
        assert (await send(client, broker)).ext["queueOffset"] == "50"


async def test_sync_flush_answers_when_the_disk_has_it(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as broker:
        answers = await asyncio.gather(*(send(client, broker) for _ in range(20)))
        assert sorted(int(answer.ext["queueOffset"]) for answer in answers) == list(range(20))
        await send(client, broker, properties="WAIT\x01false\x02")


async def test_a_stop_answers_who_waits(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        await send(client, broker)
        parked = client.submit(
            broker.address, Command.request(RequestCode.PULL_MESSAGE, pull_header(1, suspend_ms=20_000)), 10.0
        )
        while not broker._parts.backlog().parked_pulls:
            await asyncio.sleep(0.01)
    assert (await parked).code == ResponseCode.PULL_NOT_FOUND


async def test_the_vip_port_serves_all_but_pulls(tmp_path: Path, client: RemotingClient) -> None:
    (port,) = free_ports(1)
    async with running(tmp_path / "store", {"listenPort": str(port), "httpEnable": "false"}) as broker:
        assert broker.vip_port == port - 2
        vip = f"127.0.0.1:{broker.vip_port}"
        sent = await client.invoke(vip, Command.request(RequestCode.SEND_MESSAGE_V2, v2(), b"x"), 5.0)
        assert sent.code == ResponseCode.SUCCESS
        # Together they come in one read.
        pulls = [Command.request(RequestCode.PULL_MESSAGE, pull_header()) for _ in range(5)]
        refused = await asyncio.gather(*[client.invoke(vip, pull, 5.0) for pull in pulls])
        assert {each.code for each in refused} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


def name_server(folder: Path, port: int = 0) -> NameServer:
    return NameServer(
        NamesrvConfig(
            listenPort=port, bindAddress="127.0.0.1", httpEnable=False, kvConfigPath=str(folder / "kvConfig.json")
        )
    )


async def route(client: RemotingClient, address: str, topic: str = "T") -> TopicRouteData | None:
    header = GetRouteInfoRequestHeader(topic=topic)
    answer = await client.invoke(address, Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
    return TopicRouteData.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None


async def appears(client: RemotingClient, address: str) -> TopicRouteData:
    async with asyncio.timeout(30):
        while (found := await route(client, address)) is None:
            await asyncio.sleep(0.02)
        return found


async def test_every_name_server_knows_the_broker_and_its_topics(tmp_path: Path, client: RemotingClient) -> None:
    servers = [name_server(tmp_path / "n1"), name_server(tmp_path / "n2")]
    for server in servers:
        await server.start()
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    try:
        async with running(tmp_path / "b", {"namesrvAddr": ";".join(addresses)}) as broker:
            await send(client, broker)
            for address in addresses:
                found = await appears(client, address)
                assert found.brokerDatas[0].brokerAddrs == {0: broker.address}
                assert found.queueDatas[0].writeQueueNums == 4
        for address in addresses:
            assert await route(client, address) is None
    finally:
        for server in servers:
            await server.close()


async def test_a_name_server_that_restarts_is_told_within_moments(tmp_path: Path, client: RemotingClient) -> None:
    # Not one of those that the system gives away: it is used again.
    (port,) = free_ports(1)
    before = name_server(tmp_path / "n", port)
    await before.start()
    async with running(tmp_path / "b", {"namesrvAddr": f"127.0.0.1:{port}"}) as broker:
        await send(client, broker)
        await appears(client, f"127.0.0.1:{port}")
        await before.close()
        after = name_server(tmp_path / "n", port)
        await after.start()
        other = RemotingClient()
        try:
            assert (await appears(other, f"127.0.0.1:{port}")).brokerDatas[0].brokerName == "b"
        finally:
            await other.close()
    await after.close()


async def test_a_change_of_the_brokers_permission_reaches_the_route(tmp_path: Path, client: RemotingClient) -> None:
    server = name_server(tmp_path / "n")
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with running(tmp_path / "b", {"namesrvAddr": address}) as broker:
        await send(client, broker)
        await appears(client, address)
        answer = await ask(client, broker, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        assert answer.code == ResponseCode.SUCCESS, answer
        async with asyncio.timeout(30):
            while (await appears(client, address)).queueDatas[0].perm != 4:
                await asyncio.sleep(0.02)
    await server.close()


async def test_a_second_broker_on_the_folder_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(StoreLocked):
            async with running(tmp_path):
                pass


async def test_a_port_that_is_taken_is_an_error_and_leaves_the_store_usable(tmp_path: Path) -> None:
    async with running(tmp_path / "a") as broker:
        with pytest.raises(OSError, match="in use"):
            async with running(tmp_path / "b", {"listenPort": str(broker.port)}):
                pass
    async with running(tmp_path / "b"):
        pass


async def test_a_disk_that_fails_stops_the_broker_without_a_clean_end(tmp_path: Path, client: RemotingClient) -> None:
    values = {**SMALL, "storePathRootDir": str(tmp_path)}
    config, store_config, _ = load_broker_config(values)
    broker = Broker(config, store_config)
    await broker.start()
    await send(client, broker)
    store = broker.store
    store.flusher.fail(OSError(5, "Input/output error"))
    await asyncio.wait_for(broker.stopped.wait(), 20)
    assert isinstance(broker.failure, OSError)
    assert "failed" in (broker._ready() or "")
    await broker.close()
    assert (tmp_path / "abort").exists()
    store.close()


FAILING_DISK = """
import errno, os, sys
from broker.settings.config import load_broker_config
from broker.main import run_broker
from store.files.kernelsync import KernelSyncs

def fail(*_):
    raise OSError(errno.EIO, "Input/output error")

values = dict(pair.split("=", 1) for pair in sys.argv[1:])
failing = lambda: os.path.exists(values["storePathRootDir"] + "/fail")
os.fdatasync = lambda fd: fail() if failing() else None
collect = KernelSyncs.collect
KernelSyncs.collect = lambda syncs: [OSError(errno.EIO, "broken") if failing() else told for told in collect(syncs)]
config, store_config, _ = load_broker_config(values)
run_broker(config, store_config)
"""


@pytest.mark.parametrize("kernel", ["true", "false"])
async def test_a_process_whose_disk_fails_ends_with_code_1_and_acknowledges_nothing(
    tmp_path: Path, client: RemotingClient, kernel: str
) -> None:
    with reserved_port("127.0.0.1", 0) as port:
        pass
    values = {**SMALL, "storePathRootDir": str(tmp_path), "listenPort": str(port), "flushDiskType": "SYNC_FLUSH"}
    values |= {"vipPortEnable": "false", "httpEnable": "false", "kernelSyncEnable": kernel}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FAILING_DISK, *(f"{key}={value}" for key, value in values.items()), stderr=PIPE
    )
    address = f"127.0.0.1:{port}"
    request = Command.request(RequestCode.SEND_MESSAGE_V2, v2(), b"x")
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await client.invoke(address, request, 10.0)
                    break
                except ConnectError:
                    await asyncio.sleep(0.05)
        assert answer.code == ResponseCode.SUCCESS
        (tmp_path / "fail").touch()
        with pytest.raises(ConnectionLost):
            await client.invoke(address, Command.request(RequestCode.SEND_MESSAGE_V2, v2(), b"y"), 10.0)
        _, errors = await asyncio.wait_for(child.communicate(), 60)
    finally:
        if child.returncode is None:
            child.kill()
            await child.communicate()
    assert child.returncode == 1
    assert b"the store failed" in errors
    assert (tmp_path / "abort").exists()


async def test_what_is_loaded_is_told_before_anybody_is_talked_to(tmp_path: Path, client: RemotingClient) -> None:
    """Garbage is collected then, which takes a tenth of a second and more of large tables."""
    async with running(tmp_path) as broker:
        await send(client, broker)
    config, store_config, _ = load_broker_config({**SMALL, "storePathRootDir": str(tmp_path)})
    seen: list[tuple[int, int, int]] = []

    def loaded() -> None:
        seen.append((again.store.max_offset("T", 0), len(again._servers), again.http_port))

    again = Broker(config, store_config, on_loaded=loaded)
    await again.start()
    assert seen == [(1, 0, 0)]
    assert again._servers
    await again.close()
