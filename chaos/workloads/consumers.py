"""Consumers of a group that come, go and die: each has connections of its own, and tells all brokers that it is there.

A workload says in a subclass how its consumers consume.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from chaos.load.clients import LoadClient, connections
from chaos.load.workload import Load, Plain, consuming, opened, pause, start_senders
from remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData

# How long a consumer lives, and how long its place stays empty, in seconds.
LIFE_S = (3.0, 9.0)
EMPTY_S = (0.2, 1.5)
# Of the consumers so many leave without a goodbye.
KILLED_SHARE = 0.5
CALL_S = 2.0


class Consumer:
    """One consumer of one topic."""

    group = ""
    topic = ""

    def __init__(self, load: Load, name: str, rng: random.Random) -> None:
        self.load = load
        self.name = name
        self.rng = rng
        self.remoting = connections(name)
        self.client = load.client(self.remoting, name)

    async def consume(self, stop: asyncio.Event) -> None:
        """Consume until `stop`, or until cancelled."""
        raise NotImplementedError

    async def live(self, seconds: float, *, killed: bool, stop: asyncio.Event) -> None:
        """Consume for so long, then leave, with a goodbye or without; it may be crashed before."""
        work = asyncio.create_task(self._noted(stop))

        async def crash() -> None:
            work.cancel()
            await self.remoting.close()

        self.load.clients.add(self.name, crash)
        try:
            await asyncio.wait({work}, timeout=seconds)
            died = killed or work.cancelled()
        finally:
            self.load.clients.remove(self.name)
            work.cancel()
            await asyncio.wait({work})
        if not died:
            await self.everywhere(self._goodbye)
        await self.remoting.close()
        if not work.cancelled():
            # What it raised is nobody else's to hear of.
            work.result()

    async def _noted(self, stop: asyncio.Event) -> None:
        """Consume, and have it in the history that somebody does: to be without a queue leaves nothing there."""
        with consuming(self.load, self.group, self.topic):
            await self.consume(stop)

    async def greet(self) -> None:
        """Tell every broker that this consumer is there."""
        await self.everywhere(self._hello)

    async def everywhere(self, tell: Callable[[LoadClient, str], Awaitable[None]]) -> None:
        """Tell every broker something; those that cannot be reached hear it later, or never."""

        async def one(address: str) -> None:
            async with asyncio.timeout(CALL_S):
                await tell(self.client, address)

        await asyncio.gather(*(one(address) for address in self.load.addresses), return_exceptions=True)

    async def _hello(self, client: LoadClient, address: str) -> None:
        consumer = ConsumerData(
            consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
            groupName=self.group,
            subscriptionDataSet=[SubscriptionData(topic=self.topic)],
        )
        await client.api.heartbeat(address, HeartbeatData(clientID=self.name, consumerDataSet=[consumer]))

    async def _goodbye(self, client: LoadClient, address: str) -> None:
        await client.api.unregister(address, self.name, None, self.group)


class ConsumingWorkload(Plain):
    """Senders to one topic, and so many places for consumers of it: they are of one `kind`, which names both."""

    kind: type[Consumer]
    queues = 1
    senders = 8
    places = 3

    def __init__(self) -> None:
        super().__init__({self.kind.topic: self.queues}, {self.kind.group: self.kind.topic})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send and consume until `stop`."""
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            start_senders(tasks, load, remoting, self.kind.topic, self.queues, stop, count=self.senders)
            for place in range(self.places):
                rng = random.Random(load.rng.random())
                tasks.create_task(keep_place(load, self.kind, f"{self.name}{place}", rng, stop))


async def keep_place(
    load: Load, kind: Callable[[Load, str, random.Random], Consumer], name: str, rng: random.Random, stop: asyncio.Event
) -> None:
    """Have one consumer after the other at one place, until `stop`."""
    number = 0
    while not stop.is_set():
        number += 1
        consumer = kind(load, f"{name}-{number}", rng)
        await consumer.live(rng.uniform(*LIFE_S), killed=rng.random() < KILLED_SHARE, stop=stop)
        await pause(stop, rng.uniform(*EMPTY_S))
