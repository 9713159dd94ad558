"""LitePullConsumer.position() gets out: by the position, by its timeout, and when its queue goes."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from client.consume.litepull import LitePullConsumer
from client.consume.poll_queue import FetchContext, FetchedQueue, FetchLimits
from client.consume.subscription import subscribe_by_tags
from client.errors import ConsumeError
from client.instance import ClientInstance
from remoting.bodies.registry import MessageQueue

QUEUE = MessageQueue("T", "b", 0)
WITHIN_S = 10.0


class Silent:
    """A queue whose brokers do not tell where to begin."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.fetched = FetchedQueue(QUEUE, subscribe_by_tags("T", "*", 0), None)
        instance = cast("ClientInstance", SimpleNamespace())
        self.fetched.start(FetchContext("G", instance, FetchLimits(), self._begin, lambda: None))

    async def _begin(self, _queue: MessageQueue) -> int:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    def consumer(self) -> LitePullConsumer:
        """Return a started consumer that has this queue."""
        made = LitePullConsumer("G", auto_commit=False)
        made._queues[QUEUE] = self.fetched
        made._started, made._home = True, asyncio.get_running_loop()
        made._offsets = cast("object", SimpleNamespace(forget=lambda _queue: None))  # type: ignore[assignment]
        return made


async def test_a_position_that_nobody_tells_is_waited_for_as_long_as_was_said() -> None:
    queue = Silent()
    consumer = queue.consumer()
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(ConsumeError, match=r"position of .* is not known after 0\.05 s: no broker answers"):
            await consumer.position(QUEUE, timeout=0.05)
        # Nothing of the queue has ended by that.
        waiting = asyncio.create_task(consumer.position(QUEUE, timeout=WITHIN_S))
        await queue.asked.wait()
        consumer.seek(QUEUE, 7)
        assert await waiting == 7
    await queue.fetched.stop()


async def test_who_waits_for_the_position_of_a_queue_that_goes_is_told() -> None:
    queue = Silent()
    consumer = queue.consumer()
    async with asyncio.timeout(WITHIN_S):
        waiting = asyncio.create_task(consumer.position(QUEUE, timeout=3600))
        await queue.asked.wait()
        await consumer.assign([])
        with pytest.raises(ConsumeError, match="no longer this consumer's"):
            await waiting
