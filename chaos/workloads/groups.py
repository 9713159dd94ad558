"""A consumer group whose members join, leave and are killed while it consumes."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from chaos.clients import Client, connections
from chaos.workload import Load, Pace, Plain, keep_sending, opened, pause
from client.rebalance import average
from pipeline.history import UNKNOWN, Kind
from remoting.bodies import MessageQueue
from remoting.bodies_client import ConsumerData, HeartbeatData, SubscriptionData
from remoting.errors import RemotingError

TOPIC = "chaos_groups"
GROUP = "chaos_workers"
BROKER = "broker-a"
QUEUES = 6
SENDERS = 4
MEMBERS = 3
# How long a member lives, and how long its place stays empty, in seconds.
LIFE_S = (3.0, 9.0)
EMPTY_S = (0.2, 1.5)
# Of the members so many leave without a goodbye.
KILLED_SHARE = 0.5
REBALANCE_S = 0.5
CALL_S = 2.0
POLL_S = 0.02


class GroupsWorkload(Plain):
    """Members share the queues as real consumers do, begin at the stored offset, and commit behind what they read."""

    name = "groups"

    def __init__(self) -> None:
        super().__init__({TOPIC: QUEUES}, {GROUP: TOPIC})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send and consume until `stop`."""
        pace = Pace(load.rate)
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            for number in range(SENDERS):
                client = load.client(remoting, f"{self.name}{number}")
                tasks.create_task(keep_sending(load, client, TOPIC, QUEUES, pace, stop))
            for place in range(MEMBERS):
                tasks.create_task(_place(load, place, random.Random(load.rng.random()), stop))


async def _place(load: Load, place: int, rng: random.Random, stop: asyncio.Event) -> None:
    """Have one member after the other."""
    number = 0
    while not stop.is_set():
        number += 1
        member = Member(load, f"member{place}-{number}")
        await member.live(rng.uniform(*LIFE_S), killed=rng.random() < KILLED_SHARE, stop=stop)
        await pause(stop, rng.uniform(*EMPTY_S))


class Member:
    """One consumer, with connections of its own."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._remoting = connections(name)
        self._client = load.client(self._remoting, name)

    async def live(self, seconds: float, *, killed: bool, stop: asyncio.Event) -> None:
        """Consume for so long, then leave, with a goodbye or without; it may be crashed before."""
        work = asyncio.create_task(self._consume(stop))

        async def crash() -> None:
            work.cancel()
            await self._remoting.close()

        self._load.clients.add(self._name, crash)
        try:
            await asyncio.wait({work}, timeout=seconds)
            died = killed or work.cancelled()
        finally:
            self._load.clients.remove(self._name)
            work.cancel()
            await asyncio.wait({work})
        if not died:
            await self._everywhere(self._goodbye)
        await self._remoting.close()
        if not work.cancelled():
            # What it raised is nobody else's to hear of.
            work.result()

    async def _consume(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        queues: list[int] = []
        at: dict[int, int] = {}
        balanced = 0.0
        while not stop.is_set():
            if loop.time() - balanced > REBALANCE_S:
                balanced = loop.time()
                queues = await self._share()
                # A queue that comes anew, or again, is begun where the group has got to.
                at = {queue: offset for queue, offset in at.items() if queue in queues}
            for queue in queues:
                await self._step(queue, at)
            await asyncio.sleep(POLL_S)

    async def _step(self, queue: int, at: dict[int, int]) -> None:
        """Read what comes next in a queue, and commit it."""
        client, leaders = self._client, self._load.leaders
        address = leaders.address
        if queue not in at:
            stored = await client.query(address, GROUP, TOPIC, queue)
            if stored.kind != Kind.OK:
                leaders.failed(address)
                return
            at[queue] = 0 if stored.value == UNKNOWN else stored.value
        found = await client.poll(address, GROUP, TOPIC, queue, at[queue])
        if found.kind != Kind.OK:
            leaders.failed(address)
        elif found.value > at[queue]:
            at[queue] = found.value
            await client.commit(address, GROUP, TOPIC, queue, found.value)

    async def _share(self) -> list[int]:
        """Tell the brokers that this member is there, ask who else is, and return the queues that are its own."""
        await self._everywhere(self._hello)
        try:
            async with asyncio.timeout(CALL_S):
                members = await self._client.api.consumer_ids(self._load.leaders.address, GROUP)
        except (RemotingError, TimeoutError):
            return []
        if self._name not in members:
            return []
        every = [MessageQueue(TOPIC, BROKER, queue) for queue in range(QUEUES)]
        return [queue.queueId for queue in average(self._name, every, sorted(members))]

    async def _hello(self, client: Client, address: str) -> None:
        consumer = ConsumerData(
            consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
            groupName=GROUP,
            subscriptionDataSet=[SubscriptionData(topic=TOPIC)],
        )
        await client.api.heartbeat(address, HeartbeatData(clientID=self._name, consumerDataSet=[consumer]))

    async def _goodbye(self, client: Client, address: str) -> None:
        await client.api.unregister(address, self._name, None, GROUP)

    async def _everywhere(self, tell: Callable[[Client, str], Awaitable[None]]) -> None:
        """Tell every broker something; those that cannot be reached hear it later, or never."""

        async def one(address: str) -> None:
            async with asyncio.timeout(CALL_S):
                await tell(self._client, address)

        await asyncio.gather(*(one(address) for address in self._load.addresses), return_exceptions=True)
