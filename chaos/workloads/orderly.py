"""A consumer group that consumes in order: whoever consumes a queue holds its lock meanwhile."""

import asyncio
import random
from dataclasses import dataclass

from chaos.load.clients import REFUSED
from chaos.load.workload import Load, pause
from chaos.workloads.consumers import Consumer, ConsumingWorkload
from pipeline.history.rows import UNKNOWN, Act, Kind, Op

TOPIC = "chaos_orderly"
GROUP = "chaos_orderly_workers"
QUEUES = 4
GREET_S = 2.0
POLL_S = 0.02
POLL_COUNT = 512
# A lock is trusted for so long without a renewal, and renewed after so long, as real clients do it.
TRUSTED_S = 30.0
RENEW_S = 20.0
# How long one keeps a queue before another may have it.
KEEP_S = (0.5, 10.0)
# A lock that was not granted is asked for again after so long.
AGAIN_S = 0.2


@dataclass
class Lock:
    """A lock on a queue. Times are the loop's, seconds."""

    renewed: float
    until: float
    """When it is given back."""
    at: int = UNKNOWN
    """The offset to go on from; UNKNOWN before it was asked for."""


class Holder(Consumer):
    """Consumes the queues that it holds."""

    group = GROUP
    topic = TOPIC

    def __init__(self, load: Load, name: str, rng: random.Random) -> None:
        super().__init__(load, name, rng)
        self._locks: dict[int, Lock] = {}
        self._not_before: dict[int, float] = {}

    async def consume(self, stop: asyncio.Event) -> None:
        """Consume until `stop`, or until cancelled."""
        loop = asyncio.get_running_loop()
        greeted = 0.0
        while await pause(stop, POLL_S):
            if loop.time() - greeted > GREET_S:
                greeted = loop.time()
                await self.greet()
            for queue in range(QUEUES):
                lock = await self._lock(queue, loop.time())
                if lock is not None:
                    await self._step(queue, lock)

    async def _lock(self, queue: int, now: float) -> Lock | None:
        """Return the lock on a queue that may be relied on now; take, renew and give it back as its time comes."""
        lock = self._locks.get(queue)
        if lock is not None and now > lock.until:
            del self._locks[queue]
            self._not_before[queue] = now + self.rng.uniform(AGAIN_S, KEEP_S[1])
            self._heard(await self.client.unlock(self.load.leaders.address, GROUP, TOPIC, queue))
            return None
        if (lock is None or now - lock.renewed > RENEW_S) and now >= self._not_before.get(queue, 0.0):
            self._not_before[queue] = now + AGAIN_S
            done = await self.client.lock(self.load.leaders.address, GROUP, TOPIC, queue)
            if done.kind == Kind.OK:
                lock = lock or Lock(now, now + self.rng.uniform(*KEEP_S))
                lock.renewed = now
                self._locks[queue] = lock
            elif done.error == REFUSED:
                self._locks.pop(queue, None)
            else:
                self._heard(done)
        lock = self._locks.get(queue)
        return lock if lock is not None and now - lock.renewed < TRUSTED_S else None

    async def _step(self, queue: int, lock: Lock) -> None:
        """Read what comes next in a queue, and commit it."""
        client, address = self.client, self.load.leaders.address
        if lock.at == UNKNOWN:
            stored = await client.query(address, GROUP, TOPIC, queue)
            if self._heard(stored):
                lock.at = max(stored.value, 0)
            return
        found = await client.poll(address, GROUP, TOPIC, queue, lock.at, count=POLL_COUNT)
        if self._heard(found) and found.value > lock.at:
            lock.at = found.value
            self._heard(await client.commit(address, GROUP, TOPIC, queue, found.value))

    def _heard(self, done: Op) -> bool:
        """Note how a question ended; tell whether it was answered."""
        if done.kind == Kind.OK:
            return True
        # A lock that is refused says nothing against whoever refused it: a new leader grants none for a while.
        if done.act != Act.LOCK or done.kind == Kind.INFO:
            self.load.leaders.failed(done.address)
        if done.kind == Kind.INFO:
            # It goes on as another process of the history, which holds nothing yet.
            self._locks.clear()
        return False


class OrderlyWorkload(ConsumingWorkload):
    """Every member wants every queue, and consumes those whose lock it has got."""

    name = "orderly"
    orderly = True
    kind = Holder
    queues = QUEUES
