"""Works on orders by POP: each is acknowledged by itself, one that fails comes again later, and workers share the rest.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
"""

import asyncio
import os
import uuid

from raftmq import ConsumeFrom, Message, PoppedMessage, Producer, SimpleConsumer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "pop_orders"
GROUP = "pop_workers"
COUNT = 20
TIMEOUT_S = 60


class Shop:
    """Which orders of this run were paid, and which failed at first."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex  # tells this run's orders from those of earlier runs
        self.paid: set[str] = set()
        self.failed: set[str] = set()
        self.done = asyncio.Event()

    async def pay(self, message: PoppedMessage) -> None:
        """Pay one order; every fifth one cannot be paid the first time."""
        key = message.keys[0]
        if not key.startswith(self.run):
            await message.ack()
            return
        number = int(key.rpartition("-")[2])
        if number % 5 == 0 and message.reconsume_times == 0:
            self.failed.add(key)
            await message.nak(delay=1.0)
            return
        # What comes twice (an acknowledgement was lost) must not be paid twice.
        self.paid.add(key)
        await message.ack()
        if len(self.paid) == COUNT:
            self.done.set()


async def work(name: str, shop: Shop, counts: dict[str, int]) -> None:
    """One worker: a member of the group with a consumer of its own."""
    async with SimpleConsumer(GROUP, NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET, buffer=2) as consumer:
        consumer.subscribe(TOPIC)
        async for message in consumer:
            counts[name] += 1
            await shop.pay(message)


async def main() -> None:
    shop = Shop()
    async with Producer("pop_shop", NAMESRV) as producer:
        for number in range(COUNT):
            await producer.send(Message(TOPIC, f"order {number}".encode(), keys=f"{shop.run}-{number}"))
    print(f"sent {COUNT} orders")
    counts = dict.fromkeys(("worker 1", "worker 2", "worker 3"), 0)
    workers = [asyncio.create_task(work(name, shop, counts)) for name in counts]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await shop.done.wait()
    except TimeoutError:
        raise SystemExit(f"only {len(shop.paid)} of {COUNT} orders were paid within {TIMEOUT_S} s") from None
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    print(f"paid {len(shop.paid)} orders, {len(shop.failed)} of them at the second try")


if __name__ == "__main__":
    asyncio.run(main())
