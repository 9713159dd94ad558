"""Sends ten messages and consumes them, with asyncio.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
"""

import asyncio
import os
import uuid

from raftmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "quickstart"
COUNT = 10
TIMEOUT_S = 30


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
    seen: set[str] = set()
    all_seen = asyncio.Event()

    async with Producer("quickstart_producer", NAMESRV) as producer:
        for number in range(COUNT):
            result = await producer.send(
                Message(TOPIC, f"hello {number}".encode(), tags="greeting", keys=f"{run}-{number}")
            )
            print(f"sent     hello {number} to queue {result.queue.queueId} at offset {result.queue_offset}")

    async def on_message(messages: list[MessageExt]) -> None:
        for message in messages:
            key = message.keys[0]
            # The same message may come twice (at least once is the promise), and earlier runs left theirs.
            if key.startswith(run) and key not in seen:
                seen.add(key)
                print(f"received {bytes(message.body).decode()}")
        if len(seen) == COUNT:
            all_seen.set()

    consumer = PushConsumer("quickstart_consumer", NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC, "greeting")
    consumer.on_message(on_message)
    async with consumer:
        await asyncio.wait_for(all_seen.wait(), TIMEOUT_S)
    print(f"all {COUNT} came back")


if __name__ == "__main__":
    asyncio.run(main())
