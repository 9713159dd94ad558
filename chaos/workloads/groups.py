"""A consumer group whose members join, leave and are killed while it consumes."""

import asyncio

from chaos.load.clients import BROKER
from chaos.workloads.consumers import CALL_S, Consumer, ConsumingWorkload
from client.consume.rebalance import average
from pipeline.history.rows import UNKNOWN, Kind
from remoting.bodies.registry import MessageQueue
from remoting.errors import RemotingError

TOPIC = "chaos_groups"
GROUP = "chaos_workers"
QUEUES = 6
REBALANCE_S = 0.5
POLL_S = 0.02
# So many messages at most are asked for at a time.
POLL_COUNT = 512


class GroupConsumer(Consumer):
    """Consumes its share of the queues."""

    group = GROUP
    topic = TOPIC

    async def consume(self, stop: asyncio.Event) -> None:
        """Consume until `stop`, or until cancelled."""
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
        client, leaders = self.client, self.load.leaders
        address = leaders.address
        if queue not in at:
            stored = await client.query(address, GROUP, TOPIC, queue)
            if stored.kind != Kind.OK:
                leaders.failed(address)
                return
            at[queue] = 0 if stored.value == UNKNOWN else stored.value
        found = await client.poll(address, GROUP, TOPIC, queue, at[queue], count=POLL_COUNT)
        if found.kind != Kind.OK:
            leaders.failed(address)
        elif found.value > at[queue]:
            at[queue] = found.value
            await client.commit(address, GROUP, TOPIC, queue, found.value)

    async def _share(self) -> list[int]:
        """Tell the brokers that this member is there, ask who else is, and return the queues that are its own."""
        await self.greet()
        try:
            async with asyncio.timeout(CALL_S):
                members = await self.client.api.consumer_ids(self.load.leaders.address, GROUP)
        except (RemotingError, TimeoutError):
            return []
        if self.name not in members:
            return []
        every = [MessageQueue(TOPIC, BROKER, queue) for queue in range(QUEUES)]
        return [queue.queueId for queue in average(self.name, every, sorted(members))]


class GroupsWorkload(ConsumingWorkload):
    """Members share the queues as real consumers do, begin at the stored offset, and commit behind what they read."""

    name = "groups"
    kind = GroupConsumer
    queues = QUEUES
