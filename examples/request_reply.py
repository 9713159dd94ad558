"""Asks questions over a topic and gets replies to them, with asyncio.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
"""

import asyncio
import os

from raftmq import Message, MessageExt, Producer, PushConsumer, RequestTimedOut, answering

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "sums"
TIMEOUT_S = 10


async def add(request: MessageExt) -> bytes | None:
    """Answer "1 2 3" with b"6"; what is no question of ours gets no reply."""
    try:
        return str(sum(map(int, bytes(request.body).split()))).encode()
    except ValueError:
        return None


async def main() -> None:
    # Who asks and who answers are two programs as a rule; each has a producer.
    async with Producer("sums_asker", NAMESRV) as asker, Producer("sums_answerer", NAMESRV) as answerer:
        await asker.send(Message(TOPIC, b"makes the topic, where there is none"))
        consumer = PushConsumer("sums_group", NAMESRV)
        consumer.subscribe(TOPIC)
        consumer.on_message(answering(answerer, add))
        async with consumer:
            for question in ("1 2 3", "40 2", "-7 7"):
                reply = await asker.request(Message(TOPIC, question.encode()), timeout=TIMEOUT_S)
                print(f"the sum of {question} is {bytes(reply.body).decode()}")
            try:
                await asker.request(Message(TOPIC, b"one two"), timeout=1)
            except RequestTimedOut as error:
                print(f"no reply: {error}")


if __name__ == "__main__":
    asyncio.run(main())
