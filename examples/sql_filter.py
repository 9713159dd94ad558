"""A consumer that gets only what it wants: brokers filter by the properties of messages, with SQL92.

Start a cluster in another terminal with `raftmq local`, type `raftmq cluster config --set enablePropertyFilter=true`
(brokers filter by SQL92 only where that is set, as RocketMQ's do), then run this file. NAMESRV_ADDR names another
cluster.
"""

import asyncio
import os
import uuid

from raftmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "offers"
TIMEOUT_S = 60
OFFERS = (("tea", 4, "eu"), ("samovar", 120, "eu"), ("teapot", 35, "us"), ("tray", 28, "eu"), ("sugar", 2, "us"))


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
    got: list[str] = []
    both = asyncio.Event()

    async def on_message(messages: list[MessageExt]) -> None:
        for message in messages:
            # The same message may come twice: at least once is the promise.
            if (name := bytes(message.body).decode()) not in got:
                got.append(name)
                print(f"received {name} at {message.properties['price']}")
        if len(got) == 2:
            both.set()

    consumer = PushConsumer("offers_consumer", NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    # Of texts only = and <> are there, and IN, CONTAINS, STARTSWITH, ENDSWITH; numbers are compared as numbers.
    consumer.subscribe(TOPIC, sql=f"price > 10 AND region = 'eu' AND run = '{run}'")
    consumer.on_message(on_message)
    async with Producer("offers_producer", NAMESRV) as producer:
        for name, price, region in OFFERS:
            properties = {"price": str(price), "region": region, "run": run}
            await producer.send(Message(TOPIC, name.encode(), properties=properties))
        async with consumer:
            await asyncio.wait_for(both.wait(), TIMEOUT_S)
    assert sorted(got) == ["samovar", "tray"], got
    print(f"of {len(OFFERS)} offers 2 came: the brokers kept the others")


if __name__ == "__main__":
    asyncio.run(main())
