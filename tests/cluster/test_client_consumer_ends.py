"""Consumers that are closed, cancelled or unsubscribed at awkward moments: nothing of them lives on."""

import asyncio
import threading
import time
from typing import Any

import pytest

from client.consume.push import PushConsumer
from client.consume.push_queue import AssignedQueue
from client.errors import ClientError
from client.message import ConsumeFrom
from raftmq import sync
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster
from tests.cluster.consuming import Seen, send, stored

FIRST = ConsumeFrom.FIRST_OFFSET


def tasks_of_clients() -> list[str]:
    """Name the tasks that fetch, consume or share queues now."""
    begins = ("pull ", "consume", "hand over", "fetch ", "start consumer", "close consumer", "consumer ", "client:")
    return sorted(task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(begins))


def consumer_of(cluster: Cluster, group: str, callback: Any, **options: Any) -> PushConsumer:
    consumer = PushConsumer(group, cluster.namesrv, from_where=FIRST, **options)
    consumer.subscribe("T")
    consumer.on_message(callback)
    return consumer


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_callback_may_close_its_own_consumer(cluster: Cluster, orderly: bool) -> None:
    await send(cluster, 1)
    closed = asyncio.Event()

    async def callback(_messages: list[MessageExt]) -> None:
        await consumer.close()
        closed.set()

    consumer = consumer_of(cluster, "closing", callback, orderly=orderly)
    async with asyncio.timeout(30):
        await consumer.start()
        await closed.wait()
        await consumer.close()
    assert tasks_of_clients() == []
    # The message that it was called with counts as consumed.
    assert await stored(cluster, "closing") == 1


async def test_a_plain_callback_may_close_its_own_blocking_consumer(cluster: Cluster) -> None:
    await send(cluster, 1)
    took: list[float] = []

    def work() -> None:
        done = threading.Event()

        def callback(_messages: list[MessageExt]) -> None:
            began = time.monotonic()
            consumer.close()
            took.append(time.monotonic() - began)
            done.set()

        # So long would it wait for its own end.
        consumer = sync.PushConsumer("closing", cluster.namesrv, from_where=FIRST, grace=20)
        consumer.subscribe("T")
        consumer.on_message(callback)
        consumer.start()
        assert done.wait(30)
        deadline = time.monotonic() + 30
        while any(thread.name in {"raftmq", "raftmq close"} for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    await asyncio.to_thread(work)
    assert took[0] < 10, "it did not wait for its own end"
    # The message that it was called with counts as consumed.
    assert await stored(cluster, "closing") == 1


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.02, 0.05, 0.1, 0.3])
async def test_a_cancelled_start_leaves_no_ghost(cluster: Cluster, after_s: float) -> None:
    await send(cluster, 4)
    seen = Seen()
    consumer = consumer_of(cluster, "ghost", seen)
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(after_s)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    if not starting.cancelled():
        # It had started before; else nobody but the start itself may end what it had begun.
        await consumer.close()
    assert tasks_of_clients() == []
    # Another one gets all queues at once.
    other = Seen()
    async with consumer_of(cluster, "ghost", other) as member:
        await other.reaches(4 - len(seen.messages))
        assert len([queue for queue in member.assigned() if queue.topic == "T"]) == 4


async def test_a_close_that_is_cancelled_goes_on(cluster: Cluster) -> None:
    await send(cluster, 4)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def callback(_messages: list[MessageExt]) -> None:
        begun.set()
        await may_end.wait()

    consumer = consumer_of(cluster, "slow", callback)
    await consumer.start()
    await begun.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await consumer.close()
    may_end.set()
    await consumer.close()
    assert tasks_of_clients() == []


async def test_a_second_start_is_refused(cluster: Cluster) -> None:
    async with consumer_of(cluster, "twice", Seen()) as consumer:
        before = tasks_of_clients()
        with pytest.raises(ClientError, match="this consumer is started already"):
            await consumer.start()
        assert len(tasks_of_clients()) == len(before)


async def test_unsubscribing_during_a_round_holds(cluster: Cluster) -> None:
    await send(cluster, 4)
    await send(cluster, 4, topic="U")
    seen = Seen()
    consumer = consumer_of(cluster, "rounds", seen)
    async with consumer:
        for _time in range(10):
            consumer.subscribe("U")
            # A round is under way that has asked who the members are.
            asking = asyncio.Event()
            original = consumer.instance.api.consumer_ids

            async def ids(
                address: str, group: str, asking: asyncio.Event = asking, original: Any = original
            ) -> list[str]:
                found: list[str] = await original(address, group)
                asking.set()
                await asyncio.sleep(0.01)
                return found

            consumer.instance.api.consumer_ids = ids  # type: ignore[method-assign]
            consumer.rebalance_soon()
            await asyncio.wait_for(asking.wait(), 10)
            consumer.unsubscribe("U")
            consumer.instance.api.consumer_ids = original  # type: ignore[method-assign]
            await asyncio.sleep(0.05)
            assert [queue for queue in consumer.assigned() if queue.topic == "U"] == []


async def test_a_reset_that_meets_a_rebalance_brings_no_queue_back(cluster: Cluster) -> None:
    await send(cluster, 4)
    seen = Seen()
    consumer = consumer_of(cluster, "reset", seen)
    async with consumer:
        await seen.reaches(4)
        queue = MessageQueue("T", "broker-a", 0)
        assigned = consumer._assignment.queues[queue]
        resetting = asyncio.create_task(consumer.reset_offsets({queue: 0}))
        await asyncio.sleep(0)
        consumer.unsubscribe("T")
        await resetting
        await asyncio.sleep(0.1)
        assert assigned._task is None, "it fetches from a queue that is not this consumer's"
    assert tasks_of_clients() == []


async def test_a_lost_lock_that_meets_a_rebalance_brings_no_queue_back(cluster: Cluster) -> None:
    await send(cluster, 4)
    seen = Seen()
    consumer = consumer_of(cluster, "robbed", seen, orderly=True)
    async with consumer:
        await seen.reaches(4)
        queue = MessageQueue("T", "broker-a", 0)
        assigned = consumer._assignment.queues[queue]
        fetching = assigned._task
        assert fetching is not None
        losing = asyncio.create_task(consumer._lock_lost(queue))
        await asyncio.sleep(0)
        consumer.unsubscribe("T")
        async with asyncio.timeout(20):
            await losing
            await asyncio.gather(fetching, return_exceptions=True)
            while consumer._locks.held(queue):
                await asyncio.sleep(0.01)
        assert assigned._task is None, "it fetches from a queue that is not this consumer's"
        assert f"pull {queue}" not in tasks_of_clients()
    assert tasks_of_clients() == []


async def test_a_lock_is_given_back_when_the_callback_has_ended(cluster: Cluster) -> None:
    await send(cluster, 8)
    begun, may_end = threading.Event(), threading.Event()
    beside: list[str] = []
    running = 0
    lock = threading.Lock()

    def callback(messages: list[MessageExt]) -> None:
        nonlocal running
        with lock:
            running += 1
            if running > 1 and messages[0].queue_id == 0:
                beside.append("two at once")
        if messages[0].queue_id == 0:
            begun.set()
            may_end.wait(20)
        with lock:
            running -= 1

    first = consumer_of(cluster, "locked", callback, orderly=True, consume_timeout=0.2)
    await first.start()
    assert await asyncio.to_thread(begun.wait, 30)
    held = [queue for queue in first.assigned() if queue == MessageQueue("T", "broker-a", 0)]
    assert held
    first.unsubscribe("T")
    await asyncio.sleep(0.5)
    # Past consume_timeout, and given up; but it is still at work.
    assert first._locks.held(held[0])
    may_end.set()
    async with asyncio.timeout(30):
        while first._locks.held(held[0]):
            await asyncio.sleep(0.01)
    await first.close()
    assert not beside


def test_what_is_retired_does_not_start_again() -> None:
    async def run() -> None:
        queue: Any = None
        assigned = AssignedQueue(queue, MessageQueue("T", "b", 0), queue)
        assigned.retired = True
        assigned.start()
        assert assigned._task is None
        await assigned.restart(5)
        assert assigned._task is None

    asyncio.run(run())
