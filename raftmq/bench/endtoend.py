"""Figures through RaftMQ's own client: what an application in Python sees."""

import asyncio
import time
import uuid
from array import array
from collections.abc import Sequence

from client.consume.push import PushConsumer
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from raftmq.bench.load import Result, percentile
from remoting.message import MessageExt

FILL_IN_FLIGHT = 1024
ARRIVAL_TIMEOUT_S = 10.0


async def consume_load(namesrv: str, *, topic: str, messages: int, size: int, timeout_s: float) -> Result:
    """Send `messages` first, then measure how fast a push consumer of a new group takes them all."""
    await _fill(namesrv, topic, messages, size)
    taken = 0
    first = last = 0.0
    done = asyncio.Event()

    async def on_message(batch: list[MessageExt]) -> None:
        nonlocal taken, first, last
        last = time.perf_counter()
        first = first or last
        taken += len(batch)
        if taken >= messages:
            done.set()

    consumer = PushConsumer(_new_group(), namesrv, from_where=ConsumeFrom.FIRST_OFFSET, batch=32)
    consumer.subscribe(topic)
    consumer.on_message(on_message)
    await consumer.start()
    try:
        await asyncio.wait_for(done.wait(), timeout_s)
    finally:
        await consumer.close()
    seconds = max(last - first, 1e-6)
    return Result(
        what="consume",
        connections=1,
        in_flight=0,
        body_bytes=size,
        seconds=round(seconds, 3),
        requests=0,
        messages=taken,
        messages_per_s=round(taken / seconds),
        p50_ms=0.0,
        p99_ms=0.0,
        max_ms=0.0,
    )


async def latency_load(namesrv: str, *, topic: str, messages: int, size: int) -> tuple[Result, Result]:
    """Send one message at a time; returns the time to its acknowledgement and the time to its arrival at a consumer."""
    arrivals: dict[str, float] = {}
    arrived = asyncio.Event()

    async def on_message(batch: list[MessageExt]) -> None:
        now = time.perf_counter()
        for message in batch:
            arrivals[message.properties["number"]] = now
        arrived.set()

    acknowledged, delivered = array("I"), array("I")
    async with Producer("bench_producer", namesrv) as producer:
        # The topic exists and has its route before the consumer asks for it.
        await producer.send(_message(topic, size, "warm-up"))
        consumer = PushConsumer(_new_group(), namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe(topic)
        consumer.on_message(on_message)
        await consumer.start()
        try:
            await _arrival("warm-up", arrivals, arrived)
            began = time.perf_counter()
            for number in range(messages):
                left = time.perf_counter()
                await producer.send(_message(topic, size, str(number)))
                acknowledged.append(int((time.perf_counter() - left) * 1e6))
                delivered.append(max(0, int((await _arrival(str(number), arrivals, arrived) - left) * 1e6)))
            took = time.perf_counter() - began
        finally:
            await consumer.close()
    return _latency("send", acknowledged, took, size), _latency("send to consumer", delivered, took, size)


async def _fill(namesrv: str, topic: str, messages: int, size: int) -> None:
    async with Producer("bench_producer", namesrv) as producer:
        await producer.send(_message(topic, size, "0"))
        numbers = iter(range(1, messages))

        async def send() -> None:
            for number in numbers:
                await producer.send(_message(topic, size, str(number)))

        senders = [asyncio.create_task(send()) for _ in range(min(FILL_IN_FLIGHT, messages))]
        try:
            await asyncio.gather(*senders)
        finally:
            for sender in senders:
                sender.cancel()
            await asyncio.wait(senders)


async def _arrival(number: str, arrivals: dict[str, float], arrived: asyncio.Event) -> float:
    async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
        while number not in arrivals:
            arrived.clear()
            await arrived.wait()
    return arrivals.pop(number)


def _message(topic: str, size: int, number: str) -> Message:
    return Message(topic, b"x" * size, properties={"number": number})


def _new_group() -> str:
    return f"bench_{uuid.uuid4().hex[:12]}"


def _latency(what: str, sample_us: Sequence[int], took: float, size: int) -> Result:
    ordered = sorted(sample_us)
    return Result(
        what=what,
        connections=1,
        in_flight=1,
        body_bytes=size,
        seconds=round(took, 3),
        requests=len(ordered),
        messages=len(ordered),
        messages_per_s=round(len(ordered) / took),
        p50_ms=percentile(ordered, 0.50),
        p99_ms=percentile(ordered, 0.99),
        max_ms=percentile(ordered, 1.0),
    )
