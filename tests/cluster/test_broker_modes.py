"""What every way to replicate promises alike: the same bodies against real processes in each of them."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, ConsumeResult, Message, SendStatus
from client.produce.producer import Producer
from raftmq.bench.group import until_done
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.consuming import Seen
from tests.cluster.modes import BROKER, SETUPS, Group, Setup, send_numbers

FIRST = ConsumeFrom.FIRST_OFFSET


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: setup.mode)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    setup: Setup = request.param
    made = Group(tmp_path_factory.mktemp(setup.mode), setup)
    made.cluster.start()
    try:
        yield made
    finally:
        made.cluster.kill()


@pytest.fixture
async def producer(group: Group) -> AsyncIterator[Producer]:
    async with Producer("producers", group.namesrv, send_timeout=10.0) as made:
        yield made


async def test_every_kind_of_send_is_stored_as_it_was_meant(group: Group, producer: Producer) -> None:
    one = await producer.send(Message("Kinds", b"one", tags="t", keys=["k"], properties={"from": "Zürich"}))
    batch = await producer.send([Message("Kinds", b"batch %d" % number) for number in range(3)])
    long = await producer.send(Message("Kinds", b"long " * 2000))
    chosen = await producer.send(Message("Kinds", b"chosen"), queue=MessageQueue("Kinds", BROKER, 2))
    await producer.send_oneway(Message("Kinds", b"one way"))
    assert {sent.status for sent in (one, batch, long, chosen)} == {SendStatus.SEND_OK}
    found = {message.body: message for message in await group.read("Kinds", 7)}
    assert found.keys() == {b"one", b"batch 0", b"batch 1", b"batch 2", b"long " * 2000, b"chosen", b"one way"}
    assert (found[b"one"].tags, found[b"one"].keys, found[b"one"].properties["from"]) == ("t", ["k"], "Zürich")
    assert found[b"one"].offset_msg_id == one.offset_msg_id
    assert found[b"chosen"].queue_id == 2
    assert (found[b"long " * 2000].queue_id, found[b"long " * 2000].queue_offset) == (
        long.queue.queueId,
        long.queue_offset,
    )


async def test_a_group_takes_each_message_once_and_goes_on_where_it_stopped(group: Group, producer: Producer) -> None:
    for start in (0, 20):
        await send_numbers(producer, "Once", range(start, start + 20))
        seen = Seen()
        consumer = PushConsumer("once", group.namesrv, from_where=FIRST)
        consumer.subscribe("Once")
        consumer.on_message(seen)
        async with consumer:
            assert sorted(map(int, await seen.reaches(20))) == list(range(start, start + 20))


async def test_what_was_sent_in_order_comes_in_order(group: Group, producer: Producer) -> None:
    for number in range(30):
        await producer.send(
            Message("Ordered", b"%d" % number), selector=lambda queues, _m, n: queues[n % 2], arg=number
        )
    seen = Seen()
    consumer = PushConsumer("ordered", group.namesrv, from_where=FIRST, orderly=True)
    consumer.subscribe("Ordered")
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(30)
    for rest in (0, 1):
        numbers = [int(message.body) for message in seen.messages if message.queue_id % 2 == rest]
        assert numbers == sorted(numbers)


async def test_delayed_messages_come_late_and_failed_ones_again(group: Group, producer: Producer) -> None:
    came: dict[bytes, list[tuple[float, int]]] = {}
    done = asyncio.Event()

    def take(messages: list[MessageExt]) -> ConsumeResult:
        (message,) = messages
        came.setdefault(message.body, []).append((time.monotonic(), message.reconsume_times))
        if sum(map(len, came.values())) == 3:
            loop.call_soon_threadsafe(done.set)
        failed = message.body == b"failed" and not message.reconsume_times
        return ConsumeResult.RECONSUME_LATER if failed else ConsumeResult.SUCCESS

    loop = asyncio.get_running_loop()
    consumer = PushConsumer("late", group.namesrv, from_where=FIRST)
    consumer.subscribe("Late")
    consumer.on_message(take)
    began = time.monotonic()
    await producer.send(Message("Late", b"delayed", delay_level=1))
    await producer.send(Message("Late", b"failed"))
    async with consumer, asyncio.timeout(20):
        await done.wait()
    ((delayed_at, _),) = came[b"delayed"]
    assert delayed_at - began >= 0.99
    assert [times for _, times in came[b"failed"]] == [0, 1]
    assert came[b"failed"][1][0] - came[b"failed"][0][0] >= 0.9


async def test_what_a_delay_level_delivered_before_a_kill_does_not_come_again(group: Group, producer: Producer) -> None:
    """All levels of this cluster are a second; progress is written, or agreed upon, later than that."""
    for number in range(60):
        await producer.send(Message("Delays", b"%d" % number, delay_level=1 + number % 3))
    # Some have come by then.
    before = await group.read("Delays", 10)
    await group.kill_leader()
    found = await group.read("Delays", 60)
    # What comes twice comes at once, and before this.
    await producer.send(Message("Delays", b"last", delay_level=1))
    found = await group.read("Delays", 61)
    count = Counter(bytes(message.body) for message in found)
    assert len(before) >= 10
    assert count == Counter([b"last", *(b"%d" % number for number in range(60))])


async def test_topics_and_groups_are_administered(group: Group, producer: Producer) -> None:
    async with AdminClient(group.namesrv) as admin:
        (address,) = await admin.create_topic("Made", read_queues=3, write_queues=3)
        config = await admin.topic_config("Made", address)
        assert config is not None
        assert (config.readQueueNums, config.writeQueueNums) == (3, 3)
        await admin.create_group("made")
        assert "made" in await admin.groups()
        await send_numbers(producer, "Made", range(6))
        async with LitePullConsumer("made", group.namesrv, auto_commit=False) as consumer:
            queues = await consumer.queues("Made")
            await consumer.assign(queues)
            for queue in queues:
                consumer.seek(queue, 2)
            await consumer.commit()
        progress = await admin.consume_progress("made", "Made")
        assert [queue.consumer_offset for queue in progress.queues] == [2, 2, 2]
        await admin.reset_queue_offset("made", queues[1], 1)
        progress = await admin.consume_progress("made", "Made")
        assert [queue.consumer_offset for queue in progress.queues] == [2, 1, 2]
        await admin.delete_topic("Made")
        await admin.delete_group("made")
        assert await admin.topic_config("Made", address) is None
        assert "made" not in await admin.groups()


async def test_what_was_stored_is_found_by_id_key_and_time(group: Group, producer: Producer) -> None:
    first = await producer.send(Message("Found", b"first", keys="early"), queue=MessageQueue("Found", BROKER, 0))
    await asyncio.sleep(0.02)
    between_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.02)
    await producer.send(Message("Found", b"second"), queue=MessageQueue("Found", BROKER, 0))
    await group.read("Found", 2)
    async with AdminClient(group.namesrv) as admin:
        by_id = await admin.message_by_id(first.offset_msg_id)
        assert by_id is not None
        assert by_id.body == b"first"
        assert [message.body for message in await admin.messages_by_key("Found", "early")] == [b"first"]
    async with LitePullConsumer("finder", group.namesrv) as consumer:
        assert await consumer.offset_for_time(MessageQueue("Found", BROKER, 0), between_ms) == 1


async def test_kill_of_who_takes_messages_costs_nothing_that_was_acknowledged(group: Group, producer: Producer) -> None:
    seen = Seen()
    consumer = PushConsumer("killed", group.namesrv, from_where=FIRST)
    consumer.subscribe("Killed")
    consumer.on_message(seen)
    told = await send_numbers(producer, "Killed", range(50))
    async with consumer:
        sending = asyncio.create_task(send_numbers(producer, "Killed", range(50, 150)))
        await seen.reaches(60)
        await group.kill_leader()
        told += await sending
        told += await send_numbers(producer, "Killed", range(150, 160))
        async with asyncio.timeout(40):
            while not set(told) <= {int(body) for body in seen.bodies}:
                await asyncio.sleep(0.02)
    assert set(range(50)) <= set(told)
    assert set(range(150, 160)) <= set(told)


async def test_all_is_there_after_a_restart_of_everybody_and_all_logs_are_equal(group: Group) -> None:
    async with Producer("producers", group.namesrv) as producer:
        await send_numbers(producer, "Kept", range(40))
    async with LitePullConsumer("kept", group.namesrv, auto_commit=False) as consumer:
        # A topic that a send makes is told to the NameServers a little later.
        await until_done(lambda: consumer.queues("Kept"))
        queues = await consumer.queues("Kept")
        await consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 5)
        await consumer.commit()
    await group.stop_equal()
    await group.start()
    assert sorted(int(message.body) for message in await group.read("Kept", 40)) == list(range(40))
    async with LitePullConsumer("kept", group.namesrv, auto_commit=False) as consumer:
        assert [await consumer.committed(queue) for queue in queues] == [5, 5, 5, 5]
    async with Producer("producers", group.namesrv) as producer:
        assert await send_numbers(producer, "Kept", range(40, 44)) == [40, 41, 42, 43]
    assert len(await group.read("Kept", 44)) == 44
