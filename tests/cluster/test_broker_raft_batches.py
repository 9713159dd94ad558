"""Batches over failovers: leaders are killed while batches are on their way, and every batch is there whole, or not."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, namesrv_process, raft_processes
from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.errors import ClientError
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.process_group import leader_of
from tests.cluster.small_files import SMALL_FILES

TOPIC = "batches"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
PARTS = 20
SENDERS = 4
KILLS = 3
# So many are acknowledged before each kill, and after the last one.
BETWEEN = 15


class Senders:
    """They send batches until they are told to stop; each message says which batch it is of, and which part."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._number = 0
        self._stopped = False
        self._changed = asyncio.Condition()
        self.acknowledged: list[int] = []

    async def run(self) -> None:
        while not self._stopped:
            self._number += 1
            number = self._number
            batch = [Message(TOPIC, b"%d.%d " % (number, part) + bytes(200)) for part in range(PARTS)]
            try:
                await self._producer.send(batch, queue=QUEUE, timeout=5)
            except ClientError:
                continue
            async with self._changed:
                self.acknowledged.append(number)
                self._changed.notify_all()

    async def more(self, count: int) -> None:
        until = len(self.acknowledged) + count
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: len(self.acknowledged) >= until)

    def stop(self) -> None:
        self._stopped = True


def whole(bodies: list[bytes]) -> dict[int, int]:
    """Return how often each batch is there; every copy of it must be whole, its parts in order and side by side."""
    found: Counter[int] = Counter()
    places = [tuple(map(int, body.split(b" ", 1)[0].split(b"."))) for body in bodies]
    assert len(places) % PARTS == 0
    for at in range(0, len(places), PARTS):
        numbers, parts = zip(*places[at : at + PARTS], strict=True)
        assert set(numbers) == {numbers[0]}, f"batch {numbers[0]} is torn at offset {at}: {places[at : at + PARTS]}"
        assert parts == tuple(range(PARTS))
        found[numbers[0]] += 1
    return dict(found)


async def test_batches_are_whole_though_leaders_are_killed(tmp_path: Path) -> None:
    namesrv = namesrv_process(tmp_path / "namesrv")
    namesrv.start()
    # Files of which each takes some batches: they roll on the way.
    settings = {**SMALL_FILES, "mappedFileSizeCommitLog": 64 * 1024}
    members = raft_processes(tmp_path, 3, namesrv=namesrv.address, settings=settings)
    try:
        for member in members:
            member.launch()
        for member in members:
            member.wait_ready()
        acknowledged, offsets = await _send_while_killing(namesrv, members)
    finally:
        for process in (*members, namesrv):
            process.kill()
    end = max(offsets) + 1
    assert sorted(offsets) == list(range(end))
    found = whole([offsets[at] for at in range(end)])
    assert set(acknowledged) <= set(found)


async def _send_while_killing(
    namesrv: ServerProcess, members: list[ServerProcess]
) -> tuple[list[int], dict[int, bytes]]:
    """Return the batches that were acknowledged, and what a consumer saw all the while, by offset."""
    async with AdminClient(namesrv.address) as admin, asyncio.timeout(30):
        while not any(broker.broker_id == 0 for broker in await admin.brokers()):
            await asyncio.sleep(0.05)
        await admin.create_topic(TOPIC, read_queues=1, write_queues=1)
        await admin.create_group("readers")
    offsets: dict[int, bytes] = {}

    async def note(messages: list[MessageExt]) -> None:
        for message in messages:
            seen = offsets.setdefault(message.queue_offset, bytes(message.body))
            assert seen == bytes(message.body), "an offset has one message"

    consumer = PushConsumer("readers", namesrv.address, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.on_message(note)
    async with Producer("senders", namesrv.address) as producer, consumer:
        senders = Senders(producer)
        tasks = [asyncio.create_task(senders.run()) for _ in range(SENDERS)]
        try:
            for _ in range(KILLS):
                await senders.more(BETWEEN)
                leading = await leader_of(members)
                leading.kill()
                await senders.more(BETWEEN)
                await asyncio.to_thread(leading.start)
            await senders.more(BETWEEN)
        finally:
            # A closed producer refuses at once: they would try again for ever, and nobody else would run.
            senders.stop()
        await asyncio.gather(*tasks)
        async with AdminClient(namesrv.address) as admin, asyncio.timeout(60):
            while True:
                (queue,) = (await admin.consume_progress("readers", TOPIC)).queues
                if len(offsets) >= queue.broker_offset:
                    break
                await asyncio.sleep(0.05)
    return senders.acknowledged, offsets


@pytest.mark.parametrize("torn", [slice(5, 6), slice(0, 20), slice(19, 21), slice(30, 40)])
def test_a_torn_batch_would_be_seen(torn: slice) -> None:
    bodies = [b"%d.%d " % (number, part) for number in range(3) for part in range(PARTS)]
    assert whole(bodies) == {0: 1, 1: 1, 2: 1}
    del bodies[torn]
    if torn == slice(0, 20):
        assert whole(bodies) == {1: 1, 2: 1}
        return
    with pytest.raises(AssertionError):
        whole(bodies)
