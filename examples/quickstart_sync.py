"""Sends ten messages and consumes them, without asyncio.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
"""

import os
import time
import uuid

from raftmq import Message
from raftmq.sync import LitePullConsumer, Producer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "quickstart"
COUNT = 10
TIMEOUT_S = 30


def main() -> None:
    run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
    with Producer("quickstart_producer", NAMESRV) as producer:
        for number in range(COUNT):
            result = producer.send(Message(TOPIC, f"hello {number}".encode(), keys=f"{run}-{number}"))
            print(f"sent     hello {number} to queue {result.queue.queueId} at offset {result.queue_offset}")

    seen: set[str] = set()
    deadline = time.monotonic() + TIMEOUT_S
    with LitePullConsumer("quickstart_sync_consumer", NAMESRV) as consumer:
        queues = consumer.queues(TOPIC)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        while len(seen) < COUNT:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {len(seen)} of {COUNT} messages came back within {TIMEOUT_S} s")
            for message in consumer.poll(1.0):
                key = message.keys[0]
                if key.startswith(run) and key not in seen:
                    seen.add(key)
                    print(f"received {bytes(message.body).decode()}")
    print(f"all {COUNT} came back")


if __name__ == "__main__":
    main()
