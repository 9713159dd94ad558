import asyncio
import time

import pytest

from client.compression import Codec
from client.consume.litepull import LitePullConsumer
from client.errors import ClientClosed, MessageRefused, RouteError, SendBacklogFull, SendFailed
from client.instance import ClientInstance
from client.message import Message, SendStatus
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster


async def everything(namesrv: str, topic: str, count: int, *, within_s: float = 120) -> list[MessageExt]:
    """Read a topic from its start, until there are so many or the time is over."""
    async with LitePullConsumer("reader", namesrv, auto_commit=False) as consumer:
        # A topic that a send has made is registered a moment later.
        async with asyncio.timeout(30):
            while (queues := await queues_of(consumer, topic)) is None:
                await asyncio.sleep(0.02)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        found: list[MessageExt] = []
        deadline = time.monotonic() + within_s
        while len(found) < count and time.monotonic() < deadline:
            found += await consumer.poll(0.5)
        return found


async def queues_of(consumer: LitePullConsumer, topic: str) -> list[MessageQueue] | None:
    try:
        return await consumer.queues(topic)
    except RouteError:
        return None


async def test_a_message_arrives_as_it_was_sent(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        message = Message("T", "Grüße".encode(), tags="late", keys=["k1", "k2"], flag=9, properties={"from": "Zürich"})
        result = await producer.send(message)
    assert result.status is SendStatus.SEND_OK
    (found,) = await everything(cluster.namesrv, "T", 1)
    assert (found.body, found.tags, found.keys, found.flag) == (message.body, "late", ["k1", "k2"], 9)
    assert found.properties["from"] == "Zürich"
    assert (found.msg_id, found.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (found.queue_id, found.queue_offset) == (result.queue.queueId, result.queue_offset)
    assert found.broker_name == result.queue.brokerName == "broker-a"


async def test_sends_go_round_all_queues_of_a_new_topic(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        results = [await producer.send(Message("New", b"x")) for _ in range(8)]
        assert [result.queue.queueId for result in results[:4]] != [results[0].queue.queueId] * 4
        assert sorted(result.queue.queueId for result in results) == sorted(list(range(4)) * 2)
        assert len(await producer.queues("New")) == 4


@pytest.mark.parametrize("codec", list(Codec))
async def test_long_bodies_travel_compressed_and_arrive_whole(cluster: Cluster, codec: Codec) -> None:
    body = b"flight AA1 from JFK to LAX " * 1000
    async with Producer("producers", cluster.namesrv, codec=codec) as producer:
        await producer.send(Message("Big", body))
    (found,) = await everything(cluster.namesrv, "Big", 1)
    assert found.body == body
    assert found.size < len(body) // 4


async def test_a_batch_is_stored_as_single_messages_in_order(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        result = await producer.send([Message("Batch", b"%d" % n, keys=f"k{n}", tags="t") for n in range(5)])
    found = await everything(cluster.namesrv, "Batch", 5)
    assert [message.body for message in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert ",".join(message.msg_id for message in found) == result.msg_id
    assert ",".join(message.offset_msg_id for message in found) == result.offset_msg_id
    assert {message.queue_id for message in found} == {result.queue.queueId}


async def test_queue_and_selector_decide_where_a_message_goes(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        await producer.send(Message("S", b"first"))
        result = await producer.send(Message("S", b"x"), queue=MessageQueue("S", "broker-a", 2))
        assert result.queue.queueId == 2
        chosen = [
            (await producer.send(Message("S", b"x"), selector=lambda queues, _m, arg: queues[arg % len(queues)], arg=n))
            for n in (1, 5, 9)
        ]
        assert {result.queue.queueId for result in chosen} == {1}
        with pytest.raises(MessageRefused, match="selector failed: IndexError"):
            await producer.send(Message("S", b"x"), selector=lambda queues, _m, _arg: queues[99])


async def test_futures_and_oneway(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        done: list[str] = []
        futures = [producer.send_async(Message("F", b"%d" % n)) for n in range(100)]
        futures[0].add_done_callback(lambda future: done.append(future.result().msg_id))
        results = await asyncio.gather(*futures)
        assert done == [results[0].msg_id]
        assert len({result.offset_msg_id for result in results}) == 100
        await producer.send_oneway(Message("F", b"oneway"))
    found = await everything(cluster.namesrv, "F", 101)
    assert sorted(message.body for message in found) == sorted([b"%d" % n for n in range(100)] + [b"oneway"])


async def test_close_waits_for_what_is_on_its_way(cluster: Cluster) -> None:
    producer = Producer("producers", cluster.namesrv)
    await producer.start()
    futures = [producer.send_async(Message("C", b"x")) for _ in range(50)]
    await producer.close()
    assert all(future.result().status is SendStatus.SEND_OK for future in futures)
    with pytest.raises(ClientClosed):
        await producer.send(Message("C", b"late"))


async def test_sends_in_flight_are_bounded(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv, in_flight_max=10) as producer:
        futures = [producer.send_async(Message("B", b"x")) for _ in range(11)]
        with pytest.raises(SendBacklogFull, match=r"await producer.room\(\)"):
            await futures[10]
        # send waits for its turn instead.
        results = await asyncio.gather(*(producer.send(Message("B", b"x")) for _ in range(50)))
        assert len(results) == 50
        await asyncio.gather(*futures[:10])
        await producer.room()


async def test_no_route_names_the_nameservers(cluster: Cluster) -> None:
    await cluster.stop_broker()
    async with Producer("producers", cluster.namesrv, send_timeout=30) as producer:
        began = time.monotonic()
        with pytest.raises(RouteError, match=rf"No topic route info for topic T .*{cluster.namesrv}"):
            await producer.send(Message("T", b"x"))
        assert time.monotonic() - began < 15, "it did not wait for its deadline"


async def test_no_nameserver_is_said_with_its_address() -> None:
    async with Producer("producers", "127.0.0.1:1", send_timeout=3) as producer:
        with pytest.raises(RouteError, match=r"no NameServer answered .*127\.0\.0\.1:1"):
            await producer.send(Message("T", b"x"))


async def test_another_nameserver_is_asked_when_one_is_gone(cluster: Cluster) -> None:
    async with Producer("producers", f"127.0.0.1:1;{cluster.namesrv};127.0.0.1:2") as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_a_send_outlives_the_restart_of_its_broker(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv, send_timeout=30) as producer:
        await producer.send(Message("R", b"before"))
        await cluster.stop_broker()
        sending = producer.send_async(Message("R", b"meanwhile"))
        await asyncio.sleep(0.2)
        assert not sending.done()
        await cluster.start_broker()
        assert (await sending).status is SendStatus.SEND_OK
    found = await everything(cluster.namesrv, "R", 2)
    assert sorted(message.body for message in found) == [b"before", b"meanwhile"]


async def test_a_dead_broker_is_said_with_its_address(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv, send_timeout=3) as producer:
        await producer.send(Message("D", b"x"), timeout=10)
        address = cluster.broker_address
        await cluster.stop_broker()
        with pytest.raises(SendFailed, match=rf"send to topic D failed .*{address}.*was not stored") as caught:
            await producer.send(Message("D", b"x"))
        assert not caught.value.sent


async def test_a_refusal_says_what_the_broker_said(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        with pytest.raises(SendFailed, match=r"answered 16 .*forbidden"):
            await producer.send(Message("SELF_TEST_TOPIC", b"x"))


async def test_producers_may_share_an_instance(cluster: Cluster) -> None:
    instance = ClientInstance(cluster.namesrv)
    async with Producer("one", instance=instance) as first:
        async with Producer("two", instance=instance) as second:
            await second.send(Message("T", b"x"))
        await first.send(Message("T", b"x"))
    with pytest.raises(ClientClosed):
        await Producer("three", instance=instance).start()
