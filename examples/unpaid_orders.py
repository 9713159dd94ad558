"""Orders that are cancelled unless they are paid in time: each sends a message to itself, with a delay level.

A delay level is one of a broker's 18 (`messageDelayLevel`: 1 s, 5 s, 10 s, 30 s, 1 m, … 2 h), and every RocketMQ broker
has them. For any other time there are timer messages: timer_messages.py.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
"""

import asyncio
import os
import time
import uuid

from raftmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "payment_deadlines"
LEVEL, LEVEL_S = 2, 5  # the second level: 5 s
ORDERS = 6
TIMEOUT_S = 60


class Shop:
    """Orders, and what has become of them."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
        self.ordered: dict[str, float] = {}
        self.paid: set[str] = set()
        self.cancelled: dict[str, float] = {}
        self.looked_at: set[str] = set()
        self.all_decided = asyncio.Event()

    async def order(self, producer: Producer, number: int) -> str:
        """Take an order. Its deadline is in the broker's hands from now on: it outlives this process."""
        name = f"{self.run}-{number}"
        self.ordered[name] = time.time()
        await producer.send(Message(TOPIC, name.encode(), keys=name, delay_level=LEVEL))
        return name

    async def on_deadline(self, messages: list[MessageExt]) -> None:
        """Cancel what is not paid. A message that comes twice (at least once is the promise) cancels nothing twice."""
        for message in messages:
            name = bytes(message.body).decode()
            if name not in self.ordered:
                continue
            self.looked_at.add(name)
            if name not in self.paid:
                self.cancelled.setdefault(name, time.time())
        if self.looked_at == self.ordered.keys():
            self.all_decided.set()


async def main() -> None:
    shop = Shop()
    consumer = PushConsumer("cancellers", NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.on_message(shop.on_deadline)
    async with Producer("order_desk", NAMESRV) as producer, consumer:
        names = [await shop.order(producer, number) for number in range(ORDERS)]
        # Every second customer pays at once.
        shop.paid.update(names[::2])
        await asyncio.wait_for(shop.all_decided.wait(), TIMEOUT_S)
    assert shop.cancelled.keys() == set(names[1::2])
    for name, at in shop.cancelled.items():
        assert at - shop.ordered[name] >= LEVEL_S - 1, "no deadline comes early"
    print(f"of {len(names)} orders {len(shop.paid)} were paid, {len(shop.cancelled)} cancelled after {LEVEL_S} s")


if __name__ == "__main__":
    asyncio.run(main())
