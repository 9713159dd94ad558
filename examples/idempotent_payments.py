"""Sends payments, each of which must stand in the topic once, whatever happens to the brokers meanwhile.

Start a cluster in another terminal with `raftmq local`, then run this file; kill or freeze the broker while it sends.
NAMESRV_ADDR names another cluster, PAYMENTS another number.

A producer whose answer does not come cannot know whether its message was stored, and sends it again. Idempotent sends,
which RaftMQ's Producer asks for unless told otherwise, have that answered with the first one's result.
"""

import asyncio
import os
import uuid
from collections import Counter

from raftmq import LitePullConsumer, Message, Producer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "payments"
COUNT = int(os.environ.get("PAYMENTS", "200"))
SEND_TIMEOUT_S = 20.0
# How long reading waits for more before it takes what came for everything.
QUIET_S = 2.0


async def pay(run: str) -> set[int]:
    """Send all payments, some at a time, and return those that were acknowledged."""
    paid: set[int] = set()
    # Attempts do not end before the time is over: an unknown outcome is no outcome.
    async with Producer("payers", NAMESRV, send_timeout=SEND_TIMEOUT_S, retries=20, idempotent=True) as producer:

        async def send(number: int) -> None:
            await producer.send(Message(TOPIC, f"payment {number}".encode(), keys=f"{run}-{number}"))
            paid.add(number)

        for start in range(0, COUNT, 10):
            await asyncio.gather(*[send(number) for number in range(start, min(start + 10, COUNT))])
            if start == 0:
                print(f"sending  {COUNT} payments", flush=True)
            await asyncio.sleep(0.05)
    return paid


async def booked(run: str) -> Counter[int]:
    """Read the topic from its start and count the copies of each payment of this run."""
    copies: Counter[int] = Counter()
    async with LitePullConsumer("auditors", NAMESRV, auto_commit=False) as consumer:
        queues = await consumer.queues(TOPIC)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        while messages := await consumer.poll(QUIET_S):
            for message in messages:
                key, _, number = message.keys[0].rpartition("-")
                if key == run:
                    copies[int(number)] += 1
    return copies


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's payments from those of earlier runs
    paid = await pay(run)
    copies = await booked(run)
    lost, doubled = paid - copies.keys(), [number for number, count in copies.items() if count > 1]
    print(f"paid {len(paid)}, lost {len(lost)}, booked twice {len(doubled)}")


if __name__ == "__main__":
    asyncio.run(main())
