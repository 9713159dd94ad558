"""SimpleConsumer against real brokers: what is acknowledged does not come again, all else does, over kill -9 too."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster, Mode
from client.consume.popped import PoppedMessage
from client.consume.simple import SimpleConsumer
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer

GROUP, TOPIC = "readers", "orders"


@pytest.fixture(params=["single", "sync", "raft"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    mode: Mode = request.param
    with LocalCluster(tmp_path, nodes=1 if mode == "single" else 3, mode=mode) as running:
        yield running


async def send(cluster: LocalCluster, count: int) -> set[str]:
    async with Producer("producers", cluster.address) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number, keys=str(number), tags="T" if number % 2 else "U"))
    return {str(number) for number in range(count)}


def consumer(cluster: LocalCluster, invisible: float = 30.0, expression: str = "*") -> SimpleConsumer:
    made = SimpleConsumer(GROUP, cluster.address, from_where=ConsumeFrom.FIRST_OFFSET, invisible=invisible)
    made.subscribe(TOPIC, expression)
    return made


def keys(messages: list[PoppedMessage]) -> set[str]:
    return {message.keys[0] for message in messages}


@pytest.mark.timeout(100)
async def test_messages_are_acknowledged_given_back_or_come_again(cluster: LocalCluster) -> None:
    sent = await send(cluster, 12)
    async with consumer(cluster) as member, consumer(cluster) as other:
        taken: list[PoppedMessage] = []
        while len(taken) < 12:
            taken += await member.receive(5, wait=10)
        assert keys(taken) == sent
        assert await other.receive(wait=0.5) == []
        later = {"0", "1", "2", "3"}
        await asyncio.gather(*(message.ack() for message in taken if message.keys[0] not in later))
        by_key = {message.keys[0]: message for message in taken}
        # One at once, one in a second, one by its changed time; the last is acknowledged by its new handle.
        await by_key["0"].nak()
        await by_key["1"].nak(delay=1.0)
        await by_key["2"].change_invisible(2.0)
        await by_key["3"].change_invisible(4.0)
        await by_key["3"].ack()
        again: list[PoppedMessage] = []
        began = time.monotonic()
        while len(again) < 3 and time.monotonic() - began < 30:
            again += await other.receive(wait=5)
        assert keys(again) == {"0", "1", "2"}
        assert {(message.topic, message.reconsume_times) for message in again} == {(TOPIC, 1)}
        await asyncio.gather(*(message.ack() for message in again))
        # Longer than the last one's changed time.
        assert await member.receive(wait=5) == []


@pytest.mark.timeout(100)
async def test_tags_and_the_time_that_is_over(cluster: LocalCluster) -> None:
    await send(cluster, 6)
    async with consumer(cluster, invisible=1.0, expression="T") as member:
        first: list[PoppedMessage] = []
        # A slow machine may be handed one twice before it has all.
        while len(keys(first)) < 3:
            first += await member.receive(wait=10)
        assert keys(first) == {"1", "3", "5"}
        again: list[PoppedMessage] = []
        while len(keys(again)) < 3:
            again += await member.receive(wait=10, invisible=30)
        assert keys(again) == {"1", "3", "5"}
        # Late ones are answered as if they were in time, and change nothing.
        await asyncio.gather(*(message.ack() for message in first))
        await asyncio.gather(*(message.ack() for message in again))
        assert await member.receive(wait=2) == []


@pytest.mark.timeout(150)
async def test_nothing_is_lost_when_the_leader_is_killed_between_pop_and_acknowledgement(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=3) as cluster:
        sent = await send(cluster, 600)
        acknowledged: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        # What was acknowledged before its time was over, and whether it came again after that.
        settled: set[str] = set()
        again: set[str] = set()
        done = asyncio.Event()

        async def work() -> None:
            async with consumer(cluster, invisible=20) as member:
                async for message in member:
                    key = message.keys[0]
                    seen[key] += 1
                    if key in settled:
                        again.add(key)
                    await message.ack(timeout=15)
                    acknowledged[key] += 1
                    if time.monotonic() < message.expires_at:
                        settled.add(key)
                    if len(acknowledged) == len(sent):
                        done.set()

        workers = [asyncio.create_task(work()) for _ in range(3)]
        while len(acknowledged) < 100:
            await asyncio.sleep(0.01)
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        leader.kill()
        async with asyncio.timeout(60):
            await done.wait()
        for worker in workers:
            worker.cancel()
        ends = await asyncio.gather(*workers, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        assert set(seen) == sent
        assert not again
