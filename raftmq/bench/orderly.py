"""How long consumption in order stands still: at a planned transfer of the lead, at a kill -9, while members restart.

A Raft group of three brokers as processes, a steady load of numbered messages for each of many keys, and a group of
consumers, in order or not, here. What is told of each event: the longest silence of one queue's acknowledgements and of
its callbacks, the longest wait of a message from the one to the other, how many messages came again, in all and of one
queue, and whether any key came out of order, or to two holders of its queue by turns.
"""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from chaos.host.local import LocalCluster
from chaos.host.processes import ServerProcess
from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.errors import ClientError
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from remoting.errors import RemotingError
from remoting.message import MessageExt

NODES = 3
BROKER_GROUP = "broker-a"
TOPIC, GROUP = "bench_orderly", "bench_orderly"
KEYS = 1000
# Seconds before each event, and after it: behind a change of the lead until no client trusts a lock any more that the
# old leader granted. And what all messages of the load may take to be consumed in the end.
CALM_S = 3.0
AFTER_S = {"none": 3.0, "transfer": 35.0, "kill": 35.0, "brokers": 35.0, "consumers": 3.0}
EVENTS = tuple(AFTER_S)
ARRIVE_S = 90.0
RETRY_S = 0.02


@dataclass(frozen=True, slots=True)
class OrderlyStall:
    """One row; times in milliseconds, each the longest of any queue."""

    event: str
    consumers: int
    queues: int
    messages: int
    send_silence_ms: float
    consume_silence_ms: float
    wait_ms: float
    repeated: int
    inversions: int
    lost: int
    repeated_most: int
    out_of_turn: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(slots=True)
class OrderBook:
    """What was acknowledged and what came, by queue and number, and when.

    All messages of a queue are sent one after the other, those of its many keys by turns: so the order of each key is
    kept when that of its queue is, and an inversion of any two is found, of one key or not.

    Who takes a queue over may begin with older messages, and goes on from them one by one. Whatever comes in between
    and is further on is of a former holder that has not ended: out of turn, though each of both is in order.
    """

    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    came: dict[tuple[int, int], float] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    sends: dict[int, list[float]] = field(default_factory=dict)
    callbacks: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """By queue: when, and which number."""
    repeats: Counter[int] = field(default_factory=Counter)
    inversions: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledged(self, queue: int, number: int) -> None:
        """Note a message that is stored."""
        self.sent[queue, number] = now = time.monotonic()
        self.sends.setdefault(queue, []).append(now)

    def consumed(self, queue: int, body: bytes, at: float | None = None) -> None:
        """Note a message that came, now or `at`: in another process, whose time.monotonic() is the same.

        A later one of its queue before it is an inversion, the same one again is not.
        """
        number = int(body)
        now = time.monotonic() if at is None else at
        self.callbacks.setdefault(queue, []).append((now, number))
        self._news.set()
        if (queue, number) in self.came:
            self.repeats[queue] += 1
            return
        self.came[queue, number] = now
        self.inversions += number < self.newest.get(queue, -1)
        self.newest[queue] = max(number, self.newest.get(queue, -1))

    @property
    def repeated(self) -> int:
        """How many messages came again."""
        return self.repeats.total()

    @property
    def out_of_turn(self) -> int:
        """How many came that were neither the next one of their queue, nor one that came again; see the class."""
        return sum(
            after > before + 1
            for taken in self.callbacks.values()
            for (_, before), (_, after) in pairwise(sorted(taken))
        )

    @property
    def missing(self) -> int:
        """How many acknowledged messages have not come."""
        return len(self.sent.keys() - self.came.keys())

    async def complete(self, within_s: float) -> None:
        """Return when everything that was acknowledged has come; raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while self.missing:
                self._news.clear()
                await self._news.wait()

    def row(self, event: str, consumers: int) -> OrderlyStall:
        """Return what came of it."""
        waits = [self.came[each] - at for each, at in self.sent.items() if each in self.came]
        return OrderlyStall(
            event=event,
            consumers=consumers,
            queues=len(self.sends),
            messages=len(self.sent),
            send_silence_ms=_ms(max(map(_silence, self.sends.values()), default=0.0)),
            consume_silence_ms=_ms(
                max((_silence([at for at, _ in one]) for one in self.callbacks.values()), default=0.0)
            ),
            wait_ms=_ms(max(waits, default=0.0)),
            repeated=self.repeated,
            inversions=self.inversions,
            lost=self.missing,
            repeated_most=max(self.repeats.values(), default=0),
            out_of_turn=self.out_of_turn,
        )


class OrderedGroup:
    """The consumers of one group, in order unless `options` say otherwise."""

    def __init__(self, namesrv: str, consumed: Callable[[int, bytes], None], **options: Any) -> None:
        self._namesrv, self._consumed, self._options = namesrv, consumed, options
        self._number = 0
        self.members: list[PushConsumer] = []

    async def join(self) -> PushConsumer:
        """Start one more member."""
        self._number += 1
        consumer = PushConsumer(
            GROUP,
            self._namesrv,
            from_where=ConsumeFrom.FIRST_OFFSET,
            instance_name=f"member-{self._number}",
            **{"orderly": True, **self._options},
        )
        consumer.subscribe(TOPIC)
        consumer.on_message(self._take)
        await consumer.start()
        self.members.append(consumer)
        return consumer

    async def leave(self, consumer: PushConsumer) -> None:
        """Close a member."""
        self.members.remove(consumer)
        await consumer.close()

    async def close(self) -> None:
        """Close all members."""
        await asyncio.gather(*(self.leave(consumer) for consumer in list(self.members)))

    async def _take(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self._consumed(message.queue_id, message.body)


async def run_orderly(
    events: list[str],
    consumers: int = 3,
    queues: int = 8,
    rate: int = 200,
    parent: Path | None = None,
    *,
    orderly: bool = True,
) -> AsyncGenerator[OrderlyStall]:
    """Yield a row for each of EVENTS that is named, of `rate` messages a second. Raises ProcessError."""
    for event in events:
        with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
            cluster = LocalCluster(Path(folder), nodes=NODES, broker_settings={"defaultTopicQueueNums": queues})
            cluster.start()
            try:
                await asyncio.to_thread(cluster.wait_for_leader)
                book = OrderBook()
                group = OrderedGroup(cluster.address, book.consumed, orderly=orderly)
                await _measure(cluster, event, group, book, consumers, queues, rate)
                yield book.row(event, consumers)
            finally:
                cluster.kill()


async def _measure(
    cluster: LocalCluster, event: str, group: OrderedGroup, book: OrderBook, consumers: int, queues: int, rate: int
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        admin = await stack.enter_async_context(AdminClient(cluster.address))
        await admin.create_topic(TOPIC, read_queues=queues, write_queues=queues)
        stack.push_async_callback(group.close)
        for _ in range(consumers):
            await group.join()
        async with load(cluster.address, book.acknowledged, queues, rate):
            await asyncio.sleep(CALM_S)
            # What came while the group was forming is not what is measured.
            for times in book.sends.values():
                del times[:-1]
            for taken in book.callbacks.values():
                del taken[:-1]
            book.sent.clear()
            book.repeats.clear()
            await happens(event, cluster, admin, group)
            await asyncio.sleep(AFTER_S[event])
        with contextlib.suppress(TimeoutError):
            await book.complete(ARRIVE_S)


async def happens(event: str, cluster: LocalCluster, admin: AdminClient, group: OrderedGroup) -> None:
    """Have one of EVENTS happen; returns when it has, before what it leads to is over."""
    match event:
        case "transfer":
            await admin.transfer_leader(BROKER_GROUP)
        case "kill":
            leader = await asyncio.to_thread(cluster.wait_for_leader)
            leader.kill()
        case "brokers":
            for broker in cluster.brokers:
                await asyncio.to_thread(_restart, cluster, broker)
        case "consumers":
            for consumer in list(group.members):
                await group.leave(consumer)
                await group.join()


def _restart(cluster: LocalCluster, broker: ServerProcess) -> None:
    """Restart a member in good order, as a rolling restart does: the next one only when this one is there again."""
    broker.stop()
    broker.start()
    cluster.wait_for_leader()


@contextlib.asynccontextmanager
async def load(namesrv: str, acknowledged: Callable[[int, int], None], queues: int, rate: int) -> AsyncGenerator[None]:
    """Send numbered messages of KEYS keys, those of a key one after the other into one queue, until the end."""
    async with Producer("bench_orderly", namesrv, send_timeout=10.0) as producer:
        over = asyncio.Event()
        senders = [
            asyncio.create_task(_send(producer, queue, range(queue, KEYS, queues), queues / rate, acknowledged, over))
            for queue in range(queues)
        ]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*senders)


async def _send(
    producer: Producer,
    queue: int,
    keys: range,
    pause_s: float,
    acknowledged: Callable[[int, int], None],
    over: asyncio.Event,
) -> None:
    """Send to one queue. What fails is sent again before the next: it may be stored twice, and never too late."""
    place = MessageQueue(TOPIC, BROKER_GROUP, queue)
    number = 0
    while not over.is_set():
        message = Message(TOPIC, b"%d" % number, keys=[str(keys[number % len(keys)])])
        while True:
            try:
                await producer.send(message, queue=place)
            except (ClientError, RemotingError):
                await asyncio.sleep(RETRY_S)
            else:
                break
        acknowledged(queue, number)
        number += 1
        await asyncio.sleep(pause_s)


def _silence(times: list[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
