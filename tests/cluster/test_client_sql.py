"""Consumers that filter by SQL92: push, lite pull and the blocking face, retries, a parked pull, refusals, failover."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.errors import ConsumeError
from client.message import ConsumeFrom, ConsumeResult, Message
from client.produce.producer import Producer
from raftmq import sync
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster
from tests.cluster.consuming import Seen, stored
from tests.cluster.modes import SMALL
from tests.cluster.raft_cluster import CALM, RaftCluster

FIRST = ConsumeFrom.FIRST_OFFSET
SQL = "price > 10 AND region = 'eu'"


async def send(namesrv: str, numbers: range) -> None:
    """Send messages of which SQL wants each fourth: priced by their number, half of them from eu."""
    async with Producer("producers", namesrv) as producer:
        for number in numbers:
            properties = {"price": str(number), "region": "eu" if number % 4 == 0 else "us"}
            await producer.send(Message("T", b"%d" % number, properties=properties))


def wanted(numbers: range) -> list[int]:
    return [number for number in numbers if number > 10 and number % 4 == 0]


async def test_push_gets_what_the_filter_takes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody looks at parked pulls but who stores what they may want.
    await cluster.stop_broker()
    monkeypatch.setattr("broker.housekeeping.SWEEP_SECONDS", 3600.0)
    await cluster.start_broker()
    await send(cluster.namesrv, range(40))
    seen = Seen()
    consumer = PushConsumer("sql", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T", sql=SQL)
    consumer.on_message(seen)
    async with consumer:
        assert sorted(map(int, await seen.reaches(7))) == wanted(range(40))
        # Its pulls are parked now, and what comes is looked at as it comes.
        began = time.monotonic()
        await send(cluster.namesrv, range(41, 45))
        assert int((await seen.reaches(8))[-1]) == 44
        assert time.monotonic() - began < 10, "well before their end, of 15 s"
    assert len(seen.messages) == 8
    # All that the filter passed over is behind the stored offsets, but for what came while pulls were parked.
    assert 40 <= await stored(cluster, "sql") <= 44


async def test_what_is_tried_again_comes_without_the_filter(cluster: Cluster) -> None:
    await send(cluster.namesrv, range(12, 17))
    tries: list[int] = []
    again = asyncio.Event()

    async def once_more(messages: list[MessageExt]) -> ConsumeResult:
        tries.extend(message.reconsume_times for message in messages)
        if tries[-1] == 0:
            return ConsumeResult.RECONSUME_LATER
        again.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer("again", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T", sql="price = 13")
    consumer.on_message(once_more)
    async with consumer, asyncio.timeout(20):
        await again.wait()
    assert tries == [0, 1]


async def test_lite_pull_by_group_and_by_hand(cluster: Cluster) -> None:
    await send(cluster.namesrv, range(40))
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]

    async def read(consumer: LitePullConsumer, count: int) -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                found += [int(message.body) for message in await consumer.poll(0.5)]
        return sorted(found)

    grouped = LitePullConsumer("lite", cluster.namesrv, from_where=FIRST)
    grouped.subscribe("T", sql=SQL)
    async with grouped:
        assert await read(grouped, 7) == wanted(range(40))
    async with LitePullConsumer("hand", cluster.namesrv, from_where=FIRST) as by_hand:
        await by_hand.assign(queues, sql=SQL)
        assert await read(by_hand, 7) == wanted(range(40))
        # The same queues with another filter go on behind what was taken.
        await by_hand.assign(queues, sql="price <> 1000")
        await send(cluster.namesrv, range(100, 103))
        assert (await read(by_hand, 3))[-3:] == [100, 101, 102]
        with pytest.raises(ConsumeError, match=r"broker broker-a .* topic T: unexpected '>' at line 1, column 9"):
            await by_hand.assign(queues, sql="price > > 1")


async def test_the_blocking_face(cluster: Cluster) -> None:
    await send(cluster.namesrv, range(40))

    def work() -> list[int]:
        found: list[int] = []
        consumer = sync.LitePullConsumer("blocking", cluster.namesrv, from_where=FIRST)
        consumer.subscribe("T", sql=SQL)
        deadline = time.monotonic() + 20
        with consumer:
            while len(found) < 7 and time.monotonic() < deadline:
                found += [int(message.body) for message in consumer.poll(0.5)]
        return sorted(found)

    assert await asyncio.to_thread(work) == wanted(range(40))


async def test_a_filter_that_is_refused_fails_at_the_start(cluster: Cluster) -> None:
    await send(cluster.namesrv, range(1))
    broken, off = PushConsumer("broken", cluster.namesrv), LitePullConsumer("off", cluster.namesrv)
    broken.subscribe("T", sql="a > > 3")
    broken.on_message(Seen())
    with pytest.raises(ConsumeError, match="line 1, column 5"):
        await broken.start()
    assert cluster.broker is not None
    cluster.broker.live.update({"enablePropertyFilter": "false"})
    off.subscribe("T", sql="a > 3")
    with pytest.raises(ConsumeError, match=r"does not support .* SQL92 \(see its key enablePropertyFilter\)"):
        await off.start()
    await broken.close()
    await off.close()


async def test_a_consumer_goes_on_when_its_broker_is_started_again(cluster: Cluster) -> None:
    await send(cluster.namesrv, range(20))
    seen = Seen()
    consumer = PushConsumer("again", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T", sql=SQL)
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(len(wanted(range(20))))
        await cluster.stop_broker()
        await cluster.start_broker()
        await send(cluster.namesrv, range(20, 40))
        await seen.reaches(len(wanted(range(40))), within=30)
    assert sorted({int(body) for body in seen.bodies}) == wanted(range(40))


async def test_a_slave_filters_when_its_master_is_killed(tmp_path: Path) -> None:
    settings = {**SMALL, "enablePropertyFilter": True}
    with LocalCluster(tmp_path, nodes=2, mode="async", broker_settings=settings) as pair:
        await send(pair.address, range(20))
        seen = Seen()
        consumer = PushConsumer("slave", pair.address, from_where=FIRST)
        consumer.subscribe("T", sql=SQL)
        consumer.on_message(seen)
        async with consumer:
            await seen.reaches(len(wanted(range(20))), within=20)
            await send(pair.address, range(20, 40))
            await asyncio.to_thread(pair.wait_caught_up)
            pair.brokers[0].kill()
            await seen.reaches(len(wanted(range(40))), within=30)
    assert sorted({int(body) for body in seen.bodies}) == wanted(range(40))


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    running = RaftCluster(tmp_path, values={**CALM, "enablePropertyFilter": "true"})
    try:
        await running.start()
        await running.leader()
        yield running
    finally:
        await running.close()


async def test_in_a_raft_group_over_a_change_of_the_leader(group: RaftCluster) -> None:
    await send(group.namesrv, range(20))
    seen = Seen()
    consumer = PushConsumer("sql", group.namesrv, from_where=FIRST)
    consumer.subscribe("T", sql=SQL)
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(len(wanted(range(20))), within=20)
        first = await group.leader()
        await group.stop_broker(first)
        assert await group.leader() != first
        await send(group.namesrv, range(20, 40))
        await seen.reaches(len(wanted(range(40))), within=30)
    # A change of the leader may bring a message twice, and brings none that is not wanted.
    assert sorted({int(body) for body in seen.bodies}) == wanted(range(40))
