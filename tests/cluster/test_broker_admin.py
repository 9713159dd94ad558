"""Administration of a real broker over sockets: what an administrator changes is what clients then meet."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.bodies.registry import (
    ConsumerConnection,
    ConsumerData,
    ConsumeStats,
    HeartbeatData,
    KVTable,
    MessageQueue,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfigTable,
    TopicRouteData,
    TopicStatsTable,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ResponseError
from remoting.headers.registry import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.msgid import parse_offset_msg_id
from remoting.record import decode_records
from runtime.clock import ManualClock
from runtime.config import parse_properties
from tests.cluster.conftest import Cluster

FOREVER = 2**62


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def create(client: RemotingClient, address: str, topic: str, queues: int = 2) -> None:
    header = CreateTopicRequestHeader(
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
    )
    await client.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def send(client: RemotingClient, address: str, topic: str, body: bytes, keys: str = "") -> str:
    header = SendMessageRequestHeader(
        producerGroup="P",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1,
        flag=0,
        properties=f"KEYS\x01{keys}\x02UNIQ_KEY\x01{'0B' * 16}\x02",
    )
    answer = await client.call(address, RequestCode.SEND_MESSAGE, header, body)
    return answer.header(SendMessageResponseHeader).msgId


async def route(client: RemotingClient, cluster: Cluster, topic: str) -> TopicRouteData:
    header = GetRouteInfoRequestHeader(topic=topic)
    answer = await client.call(cluster.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    return TopicRouteData.decode(answer.body)


async def test_a_created_topic_can_be_routed_at_once(cluster: Cluster, client: RemotingClient) -> None:
    await create(client, cluster.broker_address, "Made", 3)
    (queues,) = (await route(client, cluster, "Made")).queueDatas
    assert (queues.brokerName, queues.readQueueNums, queues.writeQueueNums, queues.perm) == ("broker-a", 3, 3, 6)


async def test_topics_and_groups_outlive_the_broker(cluster: Cluster, client: RemotingClient) -> None:
    await create(client, cluster.broker_address, "Kept")
    group = SubscriptionGroupConfig("kept-group", retryMaxTimes=2)
    await client.call(cluster.broker_address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
    await send(client, cluster.broker_address, "AutoCreated", b"x")
    await cluster.stop_broker()
    await cluster.start_broker()
    answer = await client.call(cluster.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG)
    assert {"Kept", "AutoCreated"} <= set(TopicConfigTable.decode(answer.body).topicConfigTable)
    assert cluster.broker is not None
    answer = await client.call(cluster.broker_address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert b'"kept-group"' in bytes(answer.body)


async def test_messages_are_found_in_every_way(cluster: Cluster, client: RemotingClient) -> None:
    address = cluster.broker_address
    await create(client, address, "T")
    msg_id = await send(client, address, "T", b"hello", keys="order-7")
    key = QueryMessageRequestHeader(topic="T", key="order-7", maxNum=8, beginTimestamp=0, endTimestamp=FOREVER)
    answer = await client.call(address, RequestCode.QUERY_MESSAGE, key)
    assert [message.body for message in decode_records(answer.body)] == [b"hello"]
    unique = QueryMessageRequestHeader(
        topic="T", key="0B" * 16, maxNum=8, beginTimestamp=0, endTimestamp=FOREVER, uniqueKeyQuery=True
    )
    answer = await client.call(address, RequestCode.QUERY_MESSAGE, unique)
    assert [message.offset_msg_id for message in decode_records(answer.body)] == [msg_id]
    (host, port), offset = parse_offset_msg_id(msg_id)
    assert f"{host}:{port}" == address
    answer = await client.call(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
    assert [message.body for message in decode_records(answer.body)] == [b"hello"]
    answer = await client.call(address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="T"))
    table = TopicStatsTable.decode(answer.body).offsetTable
    assert table[MessageQueue("T", "broker-a", 0)].maxOffset == 1
    assert table[MessageQueue("T", "broker-a", 1)].maxOffset == 0


async def test_progress_and_reset(cluster: Cluster, client: RemotingClient) -> None:
    address = cluster.broker_address
    await create(client, address, "T", 1)
    for number in range(3):
        await send(client, address, "T", b"%d" % number)
    commit = UpdateConsumerOffsetRequestHeader(consumerGroup="g", topic="T", queueId=0, commitOffset=2)
    await client.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    header = GetConsumeStatsRequestHeader(consumerGroup="g")
    stats = ConsumeStats.decode((await client.call(address, RequestCode.GET_CONSUME_STATS, header)).body)
    assert stats.total_diff() == 1
    reset = ResetOffsetRequestHeader(group="g", topic="T", timestamp=0, isForce=True)
    answer = await client.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert ResetOffsetBody.decode(answer.body).offsetTable == {MessageQueue("T", "broker-a", 0): 0}
    stats = ConsumeStats.decode((await client.call(address, RequestCode.GET_CONSUME_STATS, header)).body)
    assert stats.total_diff() == 3


async def test_a_deleted_topic_is_gone(cluster: Cluster, client: RemotingClient) -> None:
    address = cluster.broker_address
    await create(client, address, "Doomed")
    await send(client, address, "Doomed", b"x")
    await client.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Doomed"))
    with pytest.raises(ResponseError) as refused:
        await client.call(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="Doomed"))
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    header = GetMaxOffsetRequestHeader(topic="Doomed", queueId=0)
    assert (await client.call(address, RequestCode.GET_MAX_OFFSET, header)).ext["offset"] == "0"


async def test_a_consumer_is_listed_and_asked(cluster: Cluster, client: RemotingClient) -> None:
    def tell(_connection: object, request: Command) -> Command:
        assert request.ext["clientId"] == "10.0.0.1@me"
        return Command.response(ResponseCode.SUCCESS, body=b'{"properties":{"PROP_CLIENT_VERSION":"V5"}}')

    consumer = RemotingClient({RequestCode.GET_CONSUMER_RUNNING_INFO: tell})
    address = cluster.broker_address
    try:
        data = HeartbeatData(
            clientID="10.0.0.1@me",
            consumerDataSet=[ConsumerData(groupName="g", subscriptionDataSet=[SubscriptionData(topic="T")])],
        )
        await consumer.call(address, RequestCode.HEART_BEAT, body=data.encode())
        listed = GetConsumerConnectionListRequestHeader(consumerGroup="g")
        answer = await client.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, listed)
        assert [one.clientId for one in ConsumerConnection.decode(answer.body).connectionSet] == ["10.0.0.1@me"]
        header = GetConsumerRunningInfoRequestHeader(consumerGroup="g", clientId="10.0.0.1@me")
        answer = await client.call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.body == b'{"properties":{"PROP_CLIENT_VERSION":"V5"}}'
    finally:
        await consumer.close()


async def test_a_new_permission_reaches_the_route(cluster: Cluster, client: RemotingClient) -> None:
    address = cluster.broker_address
    await create(client, address, "T")
    await client.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
    answer = await client.call(address, RequestCode.GET_BROKER_CONFIG)
    assert parse_properties(bytes(answer.body).decode())["brokerPermission"] == "4"
    async with asyncio.timeout(30):
        while (await route(client, cluster, "T")).queueDatas[0].perm != 4:
            await asyncio.sleep(0.02)


async def test_runtime_information_follows_the_traffic(cluster: Cluster, client: RemotingClient) -> None:
    address = cluster.broker_address
    for _ in range(3):
        await send(client, address, "T", b"x")
    answer = await client.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = KVTable.decode(answer.body).table
    assert table["putMessageTimesTotal"] == "3"
    assert int(table["commitLogMaxOffset"]) > 0
    assert table["brokerActive"] == "true"


async def test_a_shorter_retention_takes_effect_at_once(tmp_path: Path, client: RemotingClient) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# small\n")
    values = {
        "brokerName": "b",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "brokerConfigPath": str(conf),
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": str(1024 * 1024),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
        "diskMaxUsedSpaceRatio": "99",
        "diskSpaceCleanForciblyRatio": "99",
    }
    config, store_config, _ = load_broker_config(values)
    clock = ManualClock(time.time_ns() // 1_000_000)
    broker = Broker(config, store_config, clock)
    await broker.start()

    async def first_offset() -> int:
        await client.call(broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG)
        header = GetMinOffsetRequestHeader(topic="T", queueId=0)
        return int((await client.call(broker.address, RequestCode.GET_MIN_OFFSET, header)).ext["offset"])

    try:
        for _ in range(6):
            await send(client, broker.address, "T", b"x" * 400_000)
        assert await first_offset() == 0
        await client.call(broker.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=0\nforce=true\n")
        assert conf.read_text() == "# small\nfileReservedTime=0\n"
        async with asyncio.timeout(20):
            # Files go once a checkpoint covers them; the clock that is turned makes one due.
            while await first_offset() == 0:
                clock.advance(10)
                await asyncio.sleep(0.05)
    finally:
        await broker.close()


async def test_the_http_face_of_a_running_broker(tmp_path: Path, client: RemotingClient) -> None:
    values = {
        "brokerName": "b",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": str(1024 * 1024),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
    }
    config, store_config, _ = load_broker_config(values)
    broker = Broker(config, store_config)
    await broker.start()
    try:
        await send(client, broker.address, "T", b"x")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{broker.http_port}") as session:
            async with session.get("/readyz") as response:
                assert response.status == 200
            async with session.get("/v1/status") as response:
                status = await response.json()
            async with session.get("/metrics") as response:
                metrics = await response.text()
        assert status["addresses"]["broker"] == broker.address
        assert status["store"]["queues"] == 1
        assert 'topic="T"} 1.0' in metrics
    finally:
        await broker.close()
