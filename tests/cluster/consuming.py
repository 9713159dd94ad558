"""What tests of consumers share: sending numbered messages, a callback that keeps them, looking at stored offsets."""

import asyncio

from client.instance import ClientInstance
from client.message import ConsumeResult, Message
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster


class Seen:
    """A callback that keeps what it was given; `reaches` waits until it is enough."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self._changed = asyncio.Event()

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.messages += messages
        self._changed.set()
        return ConsumeResult.SUCCESS

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def reaches(self, count: int, within: float = 30) -> list[bytes]:
        async with asyncio.timeout(within):
            while len(self.messages) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.bodies


async def send(cluster: Cluster, count: int, *, start: int = 0, topic: str = "T", one_queue: bool = False) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        for number in range(start, start + count):
            await producer.send(
                Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd"),
                selector=(lambda queues, _message, _arg: queues[0]) if one_queue else None,
            )


async def offset_of(cluster: Cluster, group: str, queue: MessageQueue) -> int | None:
    """Return a group's stored offset in one queue."""
    instance = ClientInstance(cluster.namesrv)
    await instance.enter()
    try:
        return await instance.api.committed(cluster.broker_address, group, queue)
    finally:
        await instance.leave()


async def stored(cluster: Cluster, group: str, topic: str = "T", queues: int = 4) -> int:
    """Return the sum of a group's stored offsets in a topic."""
    offsets = [await offset_of(cluster, group, MessageQueue(topic, "broker-a", n)) for n in range(queues)]
    return sum(offset or 0 for offset in offsets)
