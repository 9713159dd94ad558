"""Offsets of many consumer groups, committed and asked for again and again: what was acknowledged never goes back."""

import asyncio
import random

from chaos.load.clients import LoadClient
from chaos.load.workload import Load, Plain, opened, pause, start_senders
from pipeline.history.rows import Act, Kind

TOPIC = "chaos_offsets"
QUEUES = 4
GROUPS = tuple(f"chaos_offsets_{number}" for number in range(4))
SENDERS = 8
EVERY_S = 0.05
STEP_MAX = 5
# Once in so many turns somebody commits what was committed before, as a consumer does that lost its queue.
BACK_SHARE = 0.02


class OffsetsWorkload(Plain):
    """One committer for each group; each commits offsets that lie before the ends of the queues."""

    name = "offsets"

    def __init__(self) -> None:
        # They are not drained: nobody reads for these groups.
        super().__init__({TOPIC: QUEUES})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send, commit and ask until `stop`."""
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            start_senders(tasks, load, remoting, TOPIC, QUEUES, stop, count=SENDERS)
            for group in GROUPS:
                client = load.client(remoting, group)
                tasks.create_task(_commit(load, client, group, random.Random(load.rng.random()), stop))


async def _commit(load: Load, client: LoadClient, group: str, rng: random.Random, stop: asyncio.Event) -> None:
    at = [0] * QUEUES
    while await pause(stop, EVERY_S):
        queue = rng.randrange(QUEUES)
        address = load.leaders.address
        # What is committed beyond the end of a queue counts as its end: it would be no proof.
        end = await client.edge(Act.MAX, address, TOPIC, queue)
        if end.kind != Kind.OK:
            load.leaders.failed(address)
            continue
        wanted = min(at[queue] + rng.randint(1, STEP_MAX), end.value)
        if rng.random() < BACK_SHARE:
            wanted = rng.randrange(at[queue] + 1)
        if (await client.commit(address, group, TOPIC, queue, wanted)).kind == Kind.OK:
            at[queue] = wanted
        # Of any queue: what was lost of this one has just been put right by the commit.
        await client.query(load.leaders.address, group, TOPIC, rng.randrange(QUEUES))
