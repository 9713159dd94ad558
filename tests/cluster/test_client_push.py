import asyncio
import threading
import time
from collections import Counter

from client.consume.push import PushConsumer
from client.consume.push_queue import PullLimits
from client.message import ConsumeFrom, ConsumeResult
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster
from tests.cluster.consuming import Seen, offset_of, send, stored

FIRST = ConsumeFrom.FIRST_OFFSET
# A busy machine has its time; by the clock a consumer looks for its queues every 20 s, and a pull waits for 15 s.
SOON_S = 12.0


async def test_every_message_comes_and_the_first_one_soon(cluster: Cluster) -> None:
    await send(cluster, 50)
    seen = Seen()
    consumer = PushConsumer("group", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(seen)
    began = time.monotonic()
    async with consumer:
        await seen.reaches(1)
        assert time.monotonic() - began < SOON_S
        assert sorted(map(int, await seen.reaches(50))) == list(range(50))
        await send(cluster, 1, start=50)
        began = time.monotonic()
        await seen.reaches(51)
        assert time.monotonic() - began < SOON_S
    assert await stored(cluster, "group") == 51


async def test_what_is_sent_right_after_start_is_not_skipped(cluster: Cluster) -> None:
    await send(cluster, 3)
    for run in range(5):
        seen = Seen()
        consumer = PushConsumer(f"last-{run}", cluster.namesrv)
        consumer.subscribe("T")
        consumer.on_message(seen)
        async with consumer:
            await send(cluster, 1, start=100 + run)
            async with asyncio.timeout(60):
                while b"%d" % (100 + run) not in seen.bodies:
                    await asyncio.sleep(0.01)


async def test_where_a_group_began_is_kept_even_if_nothing_came(cluster: Cluster) -> None:
    await send(cluster, 3, one_queue=True)
    consumer = PushConsumer("idle", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T", "unknown")
    consumer.on_message(Seen())
    async with consumer:
        pass
    assert await offset_of(cluster, "idle", MessageQueue("T", "broker-a", 1)) == 0


async def test_only_the_wanted_tags_come(cluster: Cluster) -> None:
    await send(cluster, 20)
    seen = Seen()
    consumer = PushConsumer("tags", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T", "even || unknown")
    consumer.on_message(seen)
    async with consumer:
        assert sorted(map(int, await seen.reaches(10))) == list(range(0, 20, 2))
    # What was filtered out is behind the stored offsets as well: it is not fetched again.
    assert await stored(cluster, "tags") == 20


async def test_a_group_goes_on_where_it_stopped(cluster: Cluster) -> None:
    await send(cluster, 10)
    for start in (0, 10):
        seen = Seen()
        consumer = PushConsumer("goes-on", cluster.namesrv, from_where=FIRST)
        consumer.subscribe("T")
        consumer.on_message(seen)
        async with consumer:
            assert sorted(map(int, await seen.reaches(10))) == list(range(start, start + 10))
        await send(cluster, 10, start=start + 10)


async def test_members_share_the_queues_and_take_over(cluster: Cluster) -> None:
    await send(cluster, 1)
    first, second = Seen(), Seen()
    consumers = [PushConsumer("share", cluster.namesrv, from_where=FIRST) for _ in range(2)]
    for consumer, seen in zip(consumers, (first, second), strict=True):
        consumer.subscribe("T")
        consumer.on_message(seen)

    def queues() -> list[int]:
        return [sum(queue.topic == "T" for queue in consumer.assigned()) for consumer in consumers]

    async def until(expected: list[int]) -> None:
        async with asyncio.timeout(18):
            while queues() != expected:
                await asyncio.sleep(0.01)

    await consumers[0].start()
    await until([4, 0])
    await consumers[1].start()
    # Told by the broker (code 40), not by the 20 s period.
    await until([2, 2])
    await send(cluster, 40, start=1)
    async with asyncio.timeout(60):
        while len(set(first.bodies) | set(second.bodies)) < 41:
            await asyncio.sleep(0.01)
    assert first.messages
    assert second.messages
    await consumers[0].close()
    await until([0, 4])
    await consumers[1].close()


async def test_plain_callables_run_in_threads_side_by_side(cluster: Cluster) -> None:
    await send(cluster, 8)
    together = threading.Barrier(4, timeout=30)
    threads: Counter[str] = Counter()

    def consume(messages: list[MessageExt]) -> None:
        together.wait()
        threads[threading.current_thread().name] += len(messages)

    consumer = PushConsumer("threads", cluster.namesrv, from_where=FIRST, concurrency=4)
    consumer.subscribe("T")
    consumer.on_message(consume)
    async with consumer, asyncio.timeout(60):
        while threads.total() < 8:
            await asyncio.sleep(0.01)
    assert threading.current_thread().name not in threads


async def test_a_failed_message_that_cannot_be_sent_back_comes_again_and_holds_its_offset(cluster: Cluster) -> None:
    await send(cluster, 5, one_queue=True)
    assert cluster.broker is not None
    cluster.broker.live.update({"brokerPermission": "4"})
    tries: Counter[bytes] = Counter()
    times: list[int] = []
    enough, looked = asyncio.Event(), asyncio.Event()

    async def consume(messages: list[MessageExt]) -> ConsumeResult:
        (message,) = messages
        tries[message.body] += 1
        if message.body == b"2":
            times.append(message.reconsume_times)
            if tries[b"2"] == 1:
                raise RuntimeError("the first time it fails")
            if tries[b"2"] == 2:
                return ConsumeResult.RECONSUME_LATER
            # Not before its offset was looked at.
            await looked.wait()
            enough.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer("again", cluster.namesrv, from_where=FIRST, local_retry=0.2)
    consumer.subscribe("T")
    consumer.on_message(consume)
    queue = MessageQueue("T", "broker-a", 0)
    async with consumer:
        async with asyncio.timeout(60):
            while tries.total() < 5:
                await asyncio.sleep(0.01)
        await consumer.commit()
        assert await offset_of(cluster, "again", queue) == 2
        looked.set()
        async with asyncio.timeout(60):
            await enough.wait()
    assert times == [0, 1, 2]
    assert tries == Counter({b"0": 1, b"1": 1, b"2": 3, b"3": 1, b"4": 1})
    assert await offset_of(cluster, "again", queue) == 5


async def test_a_callback_that_takes_too_long_counts_as_failed(cluster: Cluster) -> None:
    await send(cluster, 1)
    tries = 0
    again = asyncio.Event()

    async def consume(_messages: list[MessageExt]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await asyncio.sleep(30)
        again.set()

    consumer = PushConsumer("slow", cluster.namesrv, from_where=FIRST, consume_timeout=0.1, local_retry=0.1)
    consumer.subscribe("T")
    consumer.on_message(consume)
    async with consumer, asyncio.timeout(60):
        await again.wait()


async def test_fetching_stops_at_the_limit_of_unfinished_messages(cluster: Cluster) -> None:
    await send(cluster, 40, one_queue=True)
    release = asyncio.Event()
    seen = Seen()

    async def consume(messages: list[MessageExt]) -> None:
        await release.wait()
        await seen(messages)

    consumer = PushConsumer(
        "limited", cluster.namesrv, from_where=FIRST, limits=PullLimits(count=4, unfinished_max=10), concurrency=2
    )
    consumer.subscribe("T")
    consumer.on_message(consume)
    async with consumer:
        queue, queues = MessageQueue("T", "broker-a", 0), consumer._assignment.queues
        async with asyncio.timeout(60):
            while queue not in queues or len(queues[queue].unfinished) < 10:
                await asyncio.sleep(0.01)
        # Whatever would be fetched beyond the limit would come now.
        await asyncio.sleep(0.3)
        assert 10 <= len(queues[queue].unfinished) < 14
        release.set()
        assert sorted(map(int, await seen.reaches(40))) == list(range(40))


async def test_a_topics_bound_is_shared_by_its_queues(cluster: Cluster) -> None:
    await send(cluster, 60)
    release = asyncio.Event()
    seen = Seen()

    async def consume(messages: list[MessageExt]) -> None:
        await release.wait()
        await seen(messages)

    limits = PullLimits(topic_unfinished_max=12)
    consumer = PushConsumer("shared-bound", cluster.namesrv, from_where=FIRST, limits=limits, concurrency=2)
    consumer.subscribe("T")
    consumer.on_message(consume)
    async with consumer:

        def unfinished() -> list[int]:
            queues = consumer._assignment.queues.items()
            return [len(assigned.unfinished) for queue, assigned in sorted(queues) if queue.topic == "T"]

        async with asyncio.timeout(60):
            while sum(unfinished()) < 12:
                await asyncio.sleep(0.01)
        # Whatever would be fetched beyond the bound would come now.
        await asyncio.sleep(0.5)
        # Four queues, 15 messages in each: three of each.
        assert unfinished() == [3] * 4
        release.set()
        assert sorted(map(int, await seen.reaches(60))) == list(range(60))


async def test_consumption_survives_the_restart_of_the_broker(cluster: Cluster) -> None:
    await send(cluster, 5)
    seen = Seen()
    consumer = PushConsumer("survivor", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(5)
        await consumer.commit()
        await cluster.stop_broker()
        await cluster.start_broker()
        await send(cluster, 5, start=5)
        assert set(map(int, await seen.reaches(10))) == set(range(10))


async def test_a_topic_that_comes_later_is_found_without_waiting_for_a_poll(cluster: Cluster) -> None:
    seen = Seen()
    consumer = PushConsumer("early", cluster.namesrv)
    consumer.subscribe("Later")
    consumer.on_message(seen)
    async with consumer:
        await send(cluster, 3, topic="Later")
        assert sorted(await seen.reaches(3, within=12)) == [b"0", b"1", b"2"]


async def test_a_changed_subscription_takes_effect(cluster: Cluster) -> None:
    await send(cluster, 2)
    await send(cluster, 2, topic="U")
    seen = Seen()
    consumer = PushConsumer("changing", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(2)
        consumer.subscribe("U")
        await seen.reaches(4)
        consumer.unsubscribe("T")
        async with asyncio.timeout(60):
            while any(queue.topic == "T" for queue in consumer.assigned()):
                await asyncio.sleep(0.01)
