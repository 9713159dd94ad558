"""Senders of idempotent messages: each is sent until somebody says where it stands, and must stand there alone."""

import asyncio
import random

from chaos.load.clients import LoadClient
from chaos.load.workload import BODY_BYTES, Load, Pace, Plain, opened
from pipeline.history.body import Tag
from pipeline.history.rows import Kind

TOPIC = "chaos_once"
QUEUES = 4
SENDERS = 16
# How long one message is sent again: a third of the time for which brokers remember it.
PATIENCE_S = 20.0


class OnceWorkload(Plain):
    """What is sent again is the same attempt of the same message: at two places it is a violation (A6)."""

    name = "once"

    def __init__(self) -> None:
        super().__init__({TOPIC: QUEUES})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send until `stop`."""
        pace = Pace(load.rate)
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            for number in range(SENDERS):
                client = load.client(remoting, f"{TOPIC}-sender{number}")
                tasks.create_task(_keep_sending(load, client, pace, stop))


async def _keep_sending(load: Load, client: LoadClient, pace: Pace, stop: asyncio.Event) -> None:
    rng, writer = random.Random(load.rng.random()), load.names.writer()
    rest = rng.randbytes(BODY_BYTES)
    counter = attempt = 0
    while not stop.is_set():
        await pace.turn()
        tag = Tag(writer, counter, attempt)
        done = await client.send_once(load.leaders, TOPIC, rng.randrange(QUEUES), tag, rest, PATIENCE_S)
        if done.kind == Kind.FAIL:
            attempt += 1
        else:
            counter, attempt = counter + 1, 0
