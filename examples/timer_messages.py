"""Messages that are delivered later: one after a delay, one at a moment, and one that is recalled before.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
Recalls are off where a broker's `recallMessageEnable` is false, which is RocketMQ's default.
"""

import asyncio
import os
import time
import uuid
from datetime import UTC, datetime, timedelta

from raftmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer, RequestRefused

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "reminders"
TIMEOUT_S = 60


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
    arrived: dict[str, float] = {}
    both = asyncio.Event()

    async def on_message(messages: list[MessageExt]) -> None:
        for message in messages:
            # The same message may come twice (at least once is the promise), and earlier runs left theirs.
            if message.keys[0].startswith(run):
                arrived.setdefault(bytes(message.body).decode(), time.time())
        if {"in 2 seconds", "at a moment"} <= arrived.keys():
            both.set()

    consumer = PushConsumer("reminders_consumer", NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.on_message(on_message)
    async with Producer("reminders_producer", NAMESRV) as producer, consumer:
        began = time.time()
        moment = datetime.now(UTC) + timedelta(seconds=4)
        await producer.send(Message(TOPIC, b"in 2 seconds", keys=f"{run}-1", delay=2))
        await producer.send(Message(TOPIC, b"at a moment", keys=f"{run}-2", deliver_at=moment))
        sent = await producer.send(Message(TOPIC, b"never", keys=f"{run}-3", delay=timedelta(seconds=5)))
        recalled = False
        try:
            assert sent.recall_handle is not None
            await producer.recall(TOPIC, sent.recall_handle)
            recalled = True
            print("recalled one")
        except RequestRefused as refused:
            print(f"this broker takes no recalls: {refused.remark}")
        await asyncio.wait_for(both.wait(), TIMEOUT_S)
        if recalled:
            await asyncio.sleep(max(0.0, began + 7 - time.time()))
            assert "never" not in arrived, "what was recalled is not delivered"
    for body, due in (("in 2 seconds", began + 2), ("at a moment", moment.timestamp())):
        # Brokers deliver up to a second late, and never early; what they are told is in whole milliseconds.
        assert arrived[body] >= due - 0.001, (body, due, arrived[body])
        print(f"received {body!r}, {arrived[body] - began:.1f} s after it was sent")


if __name__ == "__main__":
    asyncio.run(main())
