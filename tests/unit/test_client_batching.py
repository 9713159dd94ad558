"""Automatic batching and the bounds of what is on its way: who waits in a batch counts, until it is answered."""

import asyncio

import pytest

from client.errors import SendBacklogFull
from client.message import Message, SendResult
from client.produce.batching import Batching
from client.produce.producer import Producer
from tests.parts.pair_of_masters import Pair


def freeze(pair: Pair) -> None:
    pair.frozen = set(pair.codes)


async def test_a_frozen_broker_fills_the_bounds_of_batched_sends_too(pair: Pair) -> None:
    freeze(pair)
    waiting: list[asyncio.Future[SendResult]] = []
    options = Batching(linger_ms=1, batch_bytes=500)
    async with Producer("p", pair.namesrv, batching=options, in_flight_max=40, send_timeout=2.0) as producer:
        async with asyncio.timeout(20):
            while len(waiting) < 100:
                future = producer.send_async(Message("T", bytes(100)))
                if future.done():
                    with pytest.raises(SendBacklogFull, match="40 sends with 4000 bytes have no answer yet"):
                        future.result()
                    break
                waiting.append(future)
                # A batch is full, and leaves.
                if len(waiting) % 5 == 0:
                    await asyncio.sleep(0)
        assert len(waiting) == 40
        # `send` waits for room, and here for nothing.
        with pytest.raises(SendBacklogFull):
            await producer.send(Message("T", b"x"), timeout=0.05)
        await asyncio.wait(waiting)
        assert all(future.exception() is not None for future in waiting)
        # What has ended counts no more, and others get their turn.
        pair.frozen.clear()
        results = [await producer.send(Message("T", b"x"), timeout=20) for _ in range(3)]
        assert len(results) == 3
        assert producer._flight.count == producer._flight.bytes == 0


async def test_the_bytes_of_all_batches_are_held_until_the_answer(pair: Pair) -> None:
    freeze(pair)
    options = Batching(linger_ms=1, batch_bytes=500, total_bytes=1000)
    async with Producer("p", pair.namesrv, batching=options, send_timeout=2.0, retries=0) as producer:
        batcher = producer._extras.batcher
        assert batcher is not None
        one = Message("T", bytes(100))
        waiting = [producer.send_async(one) for _ in range(10)]
        # They have left, and no broker has answered: what follows does not wait for others.
        async with asyncio.timeout(20):
            while not pair.sent:
                await asyncio.sleep(0.001)
        assert not batcher.takes(one, None)
        await asyncio.gather(*waiting, return_exceptions=True)
        assert batcher.takes(one, None)


async def test_a_producer_with_little_room_does_not_wait_for_what_cannot_come(pair: Pair) -> None:
    options = Batching(linger_ms=30_000)
    async with Producer("p", pair.namesrv, batching=options, in_flight_max=3) as producer, asyncio.timeout(20):
        results = await asyncio.gather(*(producer.send(Message("T", b"x"), timeout=20) for _ in range(9)))
        assert len(results) == 9
        # Three by three.
        assert len(pair.sent) == 3
        assert producer._flight.count == 0


async def test_who_gives_up_leaves_its_place(pair: Pair) -> None:
    options = Batching(linger_ms=1)
    async with Producer("p", pair.namesrv, batching=options, in_flight_max=1) as producer, asyncio.timeout(20):
        producer.send_async(Message("T", b"unwanted")).cancel()
        await producer.send(Message("T", b"wanted"), timeout=20)
        assert len(pair.sent) == 1
