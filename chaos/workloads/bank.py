"""Transfers between the accounts of a bank (pipeline/bank): each is a batch of two messages."""

import asyncio

from chaos.load.clients import LoadClient
from chaos.load.workload import PAUSE_S, Load, Pace, Plain, opened
from pipeline.history.bank import TOPIC
from pipeline.history.body import Tag
from pipeline.history.rows import Kind

QUEUES = 4
CLERKS = 8


class BankWorkload(Plain):
    """Each clerk makes one transfer after the other; one that failed for certain is made again."""

    name = "bank"

    def __init__(self) -> None:
        super().__init__({TOPIC: QUEUES})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Make transfers until `stop`."""
        pace = Pace(load.rate / 2)
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            for number in range(CLERKS):
                client = load.client(remoting, f"clerk{number}")
                tasks.create_task(_transfer(load, client, number % QUEUES, pace, stop))


async def _transfer(load: Load, client: LoadClient, queue: int, pace: Pace, stop: asyncio.Event) -> None:
    writer, counter, attempt = load.names.writer(), 0, 0
    while not stop.is_set():
        await pace.turn()
        address = load.leaders.address
        tags = [Tag(writer, counter, attempt), Tag(writer, counter + 1, attempt)]
        done = await client.send_batch(address, TOPIC, queue, tags)
        if done[0].kind == Kind.FAIL:
            attempt += 1
        else:
            counter, attempt = counter + 2, 0
        if done[0].kind != Kind.OK:
            load.leaders.failed(address)
            await asyncio.sleep(PAUSE_S)
