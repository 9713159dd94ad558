"""Senders to many queues, and readers who follow the log at every member."""

import asyncio
import random

from chaos.load.clients import LoadClient
from chaos.load.workload import Load, Plain, opened, pause, start_senders
from pipeline.history.rows import Act, Kind

TOPIC = "chaos_send"
GROUP = "chaos_readers"
QUEUES = 8
SENDERS = 32
READ_EVERY_S = 0.1
# Every so many reads a reader goes back somewhere, as one does that was started anew; and asks for the queue's end.
SEEK_SHARE = 0.02
MAX_SHARE = 0.2
# And goes on right before the end: who only follows, slower than others send, never sees what is just being stored.
TAIL_SHARE = 0.3
TAIL = 8
# Of so many reads it is found out whether the member led meanwhile: what a leader answers must not be old.
LED_SHARE = 0.3


class SendWorkload(Plain):
    """Each sender sends its numbers in their order, alone or in batches, to queues that it draws."""

    name = "send"

    def __init__(self) -> None:
        super().__init__({TOPIC: QUEUES})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send and read until `stop`."""
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            start_senders(tasks, load, remoting, TOPIC, QUEUES, stop, count=SENDERS)
            for address in load.addresses:
                client = load.client(remoting, "reader")
                tasks.create_task(_read(load, client, address, random.Random(load.rng.random()), stop))


async def _read(load: Load, client: LoadClient, address: str, rng: random.Random, stop: asyncio.Event) -> None:
    """Follow all queues at one member, whatever it is just now."""
    at = [0] * QUEUES
    while await pause(stop, READ_EVERY_S):
        queue = rng.randrange(QUEUES)
        if rng.random() < SEEK_SHARE:
            at[queue] = rng.randrange(at[queue] + 1)
        leads = load.leads if rng.random() < LED_SHARE else None
        done = await client.poll(address, GROUP, TOPIC, queue, at[queue], leads=leads)
        if done.kind == Kind.OK:
            at[queue] = max(done.value, 0)
            if rng.random() < TAIL_SHARE:
                at[queue] = max(at[queue], done.end - TAIL)
        if rng.random() < MAX_SHARE:
            asked = load.leaders.address
            if (await client.edge(Act.MAX, asked, TOPIC, queue)).kind != Kind.OK:
                load.leaders.failed(asked)
