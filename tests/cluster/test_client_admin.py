import asyncio

import pytest

from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.errors import ClientClosed, RouteError
from client.message import ConsumeFrom, Message, SendResult
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue, SubscriptionGroupConfig
from remoting.errors import ResponseError
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster


async def send(cluster: Cluster, *messages: Message) -> list[SendResult]:
    async with Producer("producers", cluster.namesrv) as producer:
        return [await producer.send(message) for message in messages]


async def consume(cluster: Cluster, group: str, count: int) -> PushConsumer:
    """Return a started consumer that has consumed so many messages of topic T."""
    consumer = PushConsumer(group, cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
    enough = asyncio.Event()
    seen: list[MessageExt] = []

    async def callback(messages: list[MessageExt]) -> None:
        seen.extend(messages)
        if len(seen) >= count:
            enough.set()

    consumer.subscribe("T")
    consumer.on_message(callback)
    await consumer.start()
    async with asyncio.timeout(20):
        await enough.wait()
    await consumer.commit()
    return consumer


async def test_the_cluster_is_listed(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        (broker,) = await admin.brokers()
        assert (broker.cluster, broker.name, broker.broker_id) == ("DefaultCluster", "broker-a", 0)
        assert broker.address == cluster.broker_address
        assert await admin.masters("DefaultCluster") == [broker.address]
        with pytest.raises(RouteError, match=r"no cluster Other .*DefaultCluster"):
            await admin.brokers("Other")
        assert "putTps" in await admin.runtime_info(broker.address)


async def test_a_topic_is_created_changed_and_deleted(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        assert await admin.create_topic("T", read_queues=3, write_queues=2) == [cluster.broker_address]
        assert "T" in await admin.topics()
        assert "T" in await admin.topics("DefaultCluster")
        config = await admin.topic_config("T", cluster.broker_address)
        assert config is not None
        assert (config.readQueueNums, config.writeQueueNums, config.perm) == (3, 2, 6)
        assert "T" in await admin.topic_configs(cluster.broker_address)
        await admin.create_topic("T", perm=4, address=cluster.broker_address)
        route = await admin.route("T")
        assert route is not None
        assert (route.queueDatas[0].perm, route.queueDatas[0].writeQueueNums) == (4, 8)
        await admin.delete_topic("T")
        assert await admin.route("T") is None
        assert await admin.topic_config("T", cluster.broker_address) is None
        with pytest.raises(ValueError, match="illegal characters"):
            await admin.create_topic("no blanks")
        with pytest.raises(RouteError, match=r"raftmq topic list"):
            await admin.topic_stats("T")
        assert "TBW102" in await admin.system_topics()


async def test_topic_figures_follow_the_messages(cluster: Cluster) -> None:
    await send(cluster, *(Message("T", b"x") for _ in range(8)))
    async with AdminClient(cluster.namesrv) as admin:
        stats = await admin.topic_stats("T")
    assert len(stats.offsetTable) == 4
    assert sum(offset.maxOffset - offset.minOffset for offset in stats.offsetTable.values()) == 8


async def test_messages_are_found_in_every_way(cluster: Cluster) -> None:
    first, second = await send(cluster, Message("T", b"one", keys="k1 common"), Message("T", b"two", keys="common"))
    async with AdminClient(cluster.namesrv) as admin, asyncio.timeout(20):
        while len(await admin.messages_by_key("T", "common")) < 2:
            await asyncio.sleep(0.01)
        assert [found.body for found in await admin.messages_by_key("T", "common")] == [b"one", b"two"]
        assert [found.body for found in await admin.messages_by_key("T", "k1")] == [b"one"]
        assert await admin.messages_by_key("T", "nothing") == []
        (unique,) = await admin.messages_by_unique_key("T", first.msg_id)
        assert unique.body == b"one"
        by_id = await admin.message_by_id(second.offset_msg_id)
        assert by_id is not None
        assert by_id.body == b"two"
        by_key = await admin.message_by_id(first.msg_id, "T")
        assert by_key is not None
        assert by_key.body == b"one"
        at_place = await admin.message_by_offset(second.queue, second.queue_offset)
        assert at_place is not None
        assert (at_place.body, at_place.broker_name) == (b"two", "broker-a")
        assert await admin.message_by_offset(second.queue, 99) is None
        missing = second.offset_msg_id[:-16] + f"{2**40:016X}"
        assert await admin.message_by_id(missing) is None
        with pytest.raises(ValueError, match="no message id"):
            await admin.message_by_id("what")


async def test_a_group_is_created_listed_and_deleted(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_group(SubscriptionGroupConfig(groupName="g1", retryMaxTimes=3))
        await admin.create_group("g2")
        groups = await admin.groups()
        assert (groups["g1"].retryMaxTimes, groups["g2"].retryMaxTimes) == (3, 16)
        await admin.delete_group("g1", clean_offsets=True)
        assert "g1" not in await admin.groups(address=cluster.broker_address)
        with pytest.raises(ValueError, match="illegal characters"):
            await admin.create_group("no blanks")


async def test_progress_members_and_reset(cluster: Cluster) -> None:
    await send(cluster, *(Message("T", b"x") for _ in range(8)))
    consumer = await consume(cluster, "g", 8)
    try:
        async with AdminClient(cluster.namesrv) as admin:
            progress = await admin.consume_progress("g", "T")
            assert (len(progress.queues), progress.lag) == (4, 0)
            assert sum(queue.consumer_offset for queue in progress.queues) == 8
            assert await admin.group_topics("g") == ["T"]
            assert await admin.topic_groups("T") == ["g"]
            connection = await admin.consumer_connection("g")
            assert connection is not None
            (member,) = connection.connectionSet
            assert member.clientId == consumer.instance.client_id
            assert set(connection.subscriptionTable) == {"T", "%RETRY%g"}
            info = await admin.consumer_running_info("g", member.clientId)
            assert {queue.topic for queue in info.mqTable} >= {"T"}
            with pytest.raises(ResponseError):
                await admin.consumer_running_info("g", "nobody")
    finally:
        await consumer.close()
    async with AdminClient(cluster.namesrv) as admin:
        assert await admin.consumer_connection("g") is None
        assert set((await admin.reset_offset("g", "T", timestamp_ms=0)).values()) == {0}
        assert (await admin.consume_progress("g", "T")).lag == 8
        queue = MessageQueue("T", "broker-a", 1)
        assert await admin.reset_queue_offset("g", queue, 2) == {queue: 2}
        assert (await admin.consume_progress("g", "T")).lag == 6
        await admin.reset_offset("g", "T")
        assert (await admin.consume_progress("g", "T")).lag == 0


async def test_a_member_consumes_one_message_on_request(cluster: Cluster) -> None:
    (sent,) = await send(cluster, Message("T", b"x"))
    consumer = await consume(cluster, "direct", 1)
    try:
        async with AdminClient(cluster.namesrv) as admin:
            message = await admin.message_by_offset(sent.queue, sent.queue_offset)
            assert message is not None
            result = await admin.consume_directly("direct", consumer.instance.client_id, message)
            assert result.consumeResult == "CR_SUCCESS"
    finally:
        await consumer.close()


async def test_producers_are_listed(cluster: Cluster) -> None:
    async with Producer("listed", cluster.namesrv) as producer, AdminClient(cluster.namesrv) as admin:
        await producer.send(Message("T", b"x"))
        async with asyncio.timeout(20):
            while not (found := (await admin.producer_connection("listed", "T")).connectionSet):
                await asyncio.sleep(0.01)
        assert [connection.clientId for connection in found] == [producer.instance.client_id]
        assert (await admin.producer_connection("unknown", "T")).connectionSet == []
        assert "listed" in (await admin.producers(cluster.broker_address)).data


async def test_settings_are_shown_and_changed(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        assert (await admin.broker_config(cluster.broker_address))["brokerName"] == "broker-a"
        await admin.update_broker_config({"autoCreateTopicEnable": False})
        assert (await admin.broker_config(cluster.broker_address))["autoCreateTopicEnable"] == "false"
        assert await admin.kv_get("SPACE", "key") is None
        assert await admin.kv_list("SPACE") == {}
        await admin.kv_put("SPACE", "key", "value")
        assert await admin.kv_get("SPACE", "key") == "value"
        assert await admin.kv_list("SPACE") == {"key": "value"}
        await admin.kv_delete("SPACE", "key")
        assert await admin.kv_get("SPACE", "key") is None
        (config,) = (await admin.namesrv_config()).values()
        assert "orderMessageEnable" in config
        await admin.update_namesrv_config({"orderMessageEnable": "true"})
        (config,) = (await admin.namesrv_config()).values()
        assert config["orderMessageEnable"] == "true"


async def test_write_permission_is_taken_and_given(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_topic("T")
        assert await admin.wipe_write_perm("broker-a") > 0
        route = await admin.route("T")
        assert route is not None
        assert route.queueDatas[0].perm == 4
        assert await admin.add_write_perm("broker-a") > 0
        route = await admin.route("T")
        assert route is not None
        assert route.queueDatas[0].perm == 6


async def test_cleaning_is_asked_for_everywhere(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        assert await admin.clean_expired_queues() == [cluster.broker_address]
        assert await admin.clean_unused_topics() == [cluster.broker_address]
        assert await admin.delete_expired_commitlog(address=cluster.broker_address) == [cluster.broker_address]


async def test_a_closed_client_says_so(cluster: Cluster) -> None:
    admin = AdminClient(cluster.namesrv)
    with pytest.raises(ClientClosed):
        await admin.topics()


async def test_what_one_broker_stored_within_a_millisecond_is_listed_as_it_stored_it(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv) as producer, AdminClient(cluster.namesrv) as admin:
        await admin.create_topic("Moments", read_queues=2, write_queues=2)
        zero, one = await producer.queues("Moments")
        # One write of the client, so one turn of the broker.
        await asyncio.gather(*[
            producer.send(Message("Moments", b"%d" % number, keys="k"), queue=zero if number % 2 else one)
            for number in range(40)
        ])  # fmt: skip
        listed = await admin.messages_by_time("Moments")
        async with asyncio.timeout(20):
            while len(by_key := await admin.messages_by_key("Moments", "k")) < 40:
                await asyncio.sleep(0.01)
    assert [int(message.body) for message in listed] == list(range(40))
    assert [int(message.body) for message in by_key] == list(range(40))
