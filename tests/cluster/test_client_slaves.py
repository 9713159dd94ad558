"""Clients of a master and its slave, real processes, while the master is away and when it is back."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from chaos.host.processes import broker_process
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.consume.poll_queue import FetchLimits
from client.consume.push import PushConsumer
from client.errors import ConsumeError
from client.instance import ClientInstance
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from tests.cluster.consuming import Seen
from tests.cluster.modes import SMALL, send_numbers

FIRST = ConsumeFrom.FIRST_OFFSET
QUEUES = 4


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, nodes=2, mode="async", broker_settings=SMALL) as running:
        yield running


async def stored(pair: LocalCluster, address: str, group: str, topic: str) -> int:
    """Return the sum of a group's offsets at one broker."""
    instance = ClientInstance(pair.address)
    await instance.enter()
    try:
        queues = [MessageQueue(topic, "broker-a", number) for number in range(QUEUES)]
        return sum([await instance.api.committed(address, group, queue) or 0 for queue in queues])
    finally:
        await instance.leave()


async def until_stored(pair: LocalCluster, address: str, count: int, consumer: PushConsumer | LitePullConsumer) -> None:
    """Have a consumer commit until a broker has it."""
    async with asyncio.timeout(40):
        while await stored(pair, address, "G", "T") < count:
            # Who cannot be reached yet gets it the next time.
            with contextlib.suppress(ConsumeError):
                await consumer.commit()
            await asyncio.sleep(0.05)


async def send(pair: LocalCluster, start: int, end: int) -> None:
    async with Producer("P", pair.address) as producer:
        assert await send_numbers(producer, "T", range(start, end)) == list(range(start, end))


async def copied(pair: LocalCluster) -> None:
    """Wait until the slave has all messages, and knows their topic."""
    await asyncio.to_thread(pair.wait_caught_up)
    async with AdminClient(pair.address) as admin, asyncio.timeout(30):
        while await admin.topic_config("T", pair.brokers[1].address) is None:
            await asyncio.sleep(0.02)


async def test_a_consumer_moves_to_the_slave_and_back_and_so_do_its_offsets(pair: LocalCluster) -> None:
    master, slave = pair.brokers
    await send(pair, 0, 40)
    await copied(pair)
    seen = Seen()
    consumer = PushConsumer("G", pair.address, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(40)
        await send(pair, 40, 60)
        await copied(pair)
        master.kill()
        # Some of it may have come from the master still.
        assert sorted(set(map(int, await seen.reaches(60)))) == list(range(60))
        await until_stored(pair, slave.address, 60, consumer)
        await asyncio.to_thread(master.start)
        await send(pair, 60, 80)
        async with asyncio.timeout(40):
            while set(map(int, seen.bodies)) != set(range(80)):
                await asyncio.sleep(0.02)
        await until_stored(pair, master.address, 80, consumer)
    # No message came twice: no offset was lost on the way, and none went back.
    assert len(seen.bodies) == 80


async def test_a_group_that_begins_while_there_is_no_master_reads_from_the_slave(pair: LocalCluster) -> None:
    master, slave = pair.brokers
    await send(pair, 0, 40)
    await copied(pair)
    async with LitePullConsumer(
        "G", pair.address, auto_commit=False, limits=FetchLimits(count=2, buffered_max=2)
    ) as some:
        queues = await some.queues("T")
        await some.assign(queues)
        for queue in queues:
            await some.seek_to_begin(queue)
        found = await some.poll(20)
        assert found
        master.kill()
        async with asyncio.timeout(40):
            while len(found) < 40:
                found += await some.poll(1)
        await until_stored(pair, slave.address, 40, some)
        assert sorted(int(message.body) for message in found) == list(range(40))
        await asyncio.to_thread(master.start)
        # Nothing is consumed meanwhile: what the slave was told, the master is told too.
        await until_stored(pair, master.address, 40, some)
        await send(pair, 40, 44)
        async with asyncio.timeout(40):
            while len(found) < 44:
                found += await some.poll(1)
    assert sorted(int(message.body) for message in found) == list(range(44))


async def test_producers_go_to_another_group_at_once(pair: LocalCluster) -> None:
    other = broker_process(
        pair.folder / "other", namesrv=pair.address, settings={**SMALL, "brokerName": "broker-b"}, name="other"
    )
    await asyncio.to_thread(other.start)
    try:
        async with Producer("P", pair.address, send_timeout=10.0) as producer:
            async with asyncio.timeout(30):
                while len({queue.brokerName for queue in await producer.queues("T")}) < 2:
                    await producer.send(Message("T", b"x"))
            pair.broker.kill()
            took = []
            for number in range(40):
                began = time.monotonic()
                result = await producer.send(Message("T", b"%d" % number))
                took.append(time.monotonic() - began)
                assert result.queue.brokerName == "broker-b"
            # But for two that a machine may have kept waiting which let nobody run.
            assert sorted(took)[-3] < 2.5
            # With the slave's refusals or the dead master's port, each second one would have waited.
            assert sorted(took)[len(took) // 2] < 0.5
    finally:
        other.kill()
