"""What grows at a single broker: topics, a topic's queues, connections, consumer groups, a backlog.

Of each, all values stand on one running broker, made one after the other from the lowest on, when its memory is looked
at; then they are loaded by turns.
"""

import asyncio
import itertools
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chaos.host.local import LocalCluster
from chaos.host.processes import ServerProcess
from client.admin.client import AdminClient
from client.errors import RouteError
from client.message import Message
from client.produce.producer import Producer
from raftmq.bench.backlog import BROKER_GROUP, SEND_BATCH, BacklogLoad, check_room
from raftmq.bench.frames import QUEUES, Answer, BadAnswer, body_of, send_template
from raftmq.bench.group import ASYNC_FLUSH, Setup, spawned_group, until_done
from raftmq.bench.growthrows import GrowthLoad, GrowthSample, ServerMemory
from raftmq.bench.load import LoadedBroker, Pulls, Result, Sends, Work, run_load
from raftmq.bench.rebalance import allow_files
from raftmq.bench.suite import PULL_COUNT, max_offsets
from remoting.bodies.registry import MessageQueue

# (what is done, how much of it, of how much).
GrowthProgress = Callable[[str, int, int], None]

TOPICS_AT_ONCE = 64
WARM_S = 0.3
# Loads after which places that got no message yet are given up on.
WARM_LOADS_MAX = 200
LOOK_S = 0.1
# Files that this process has open beside the connections of its load.
FILES_OTHER = 200
# What consumer groups read, all of it again and again.
READ_OF_A_QUEUE = 1024
# So that a hundred groups have one pull under way each, as one group alone has a hundred.
PULLS_IN_FLIGHT = 100
# The newest of each queue, which are pulled from beside a backlog.
NEWEST_OF_A_QUEUE = 1024


class SpreadSends:
    """Sends bodies of one size to many places in turn, (topic, queue) pairs; the next load goes on where one ended."""

    def __init__(self, places: Sequence[tuple[str, int]], size: int) -> None:
        body = body_of(size)
        self._patterns = [send_template(topic, queue, body).pattern for topic, queue in places]
        self._made = 0

    @property
    def rounds(self) -> int:
        """How often each place has been sent to."""
        return self._made // len(self._patterns)

    def frames(self, opaques: range) -> list[bytes]:
        """Return sends to the places whose turn it is."""
        patterns, count, made = self._patterns, len(self._patterns), self._made
        self._made = made + len(opaques)
        return [patterns[number % count] % opaque for number, opaque in enumerate(opaques, made)]

    def messages(self, answers: Sequence[Answer]) -> int:
        """Return 1 for each stored message."""
        return sum(not code for _, code, _ in answers)


def served(of: str, value: int, found: Result) -> Result:
    """Return what was measured; raises BadAnswer when anything was refused, for then that is not what it says."""
    if found.errors or not found.messages:
        raise BadAnswer(
            f"{of}, {value:,}: of {found.requests:,} requests there were refused {found.errors or 'none'}, and "
            f"{found.messages:,} messages moved"
        )
    return found


class GrowingBroker(ABC):
    """A single broker that something grows at."""

    of: str

    def __init__(self, cluster: LocalCluster, load: GrowthLoad, progress: GrowthProgress) -> None:
        self.cluster = cluster
        self.load = load
        self.progress = progress
        self.memory: dict[int, ServerMemory] = {}

    async def grow(self, value: int) -> None:
        """Let there be so many, and look at the broker's memory then."""
        await self.make(value)
        self.memory[value] = memory_of(self.cluster.brokers)

    @abstractmethod
    async def make(self, value: int) -> None:
        """Let there be so many."""

    @abstractmethod
    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Load what there is of `value`, for round `number`. Raises OSError, BadAnswer."""

    async def topic(self, name: str, queues: int) -> None:
        """Make a topic; raises ProcessError."""
        async with AdminClient(self.cluster.address) as admin:
            await until_done(lambda: admin.create_topic(name, read_queues=queues, write_queues=queues))

    async def loaded(self, what: str, work: Callable[[], Work], in_flight: int, connections: int = 1) -> Result:
        """Load the broker for a round."""
        broker = self.cluster.broker
        return await run_load(
            what,
            LoadedBroker(broker.address, broker.cpu_seconds),
            work,
            in_flight=in_flight,
            seconds=self.load.seconds,
            body_bytes=self.load.body_bytes,
            connections=connections,
        )

    async def spread(self, value: int, work: SpreadSends) -> Result:
        """Load all places of `work` for a round. Raises BadAnswer when it did not come to each of them."""
        before = work.rounds
        found = await self.loaded("send", lambda: work, self.load.in_flight)
        if work.rounds == before:
            raise BadAnswer(
                f"{self.of}, {value:,}: not all were sent to in {self.load.seconds:g} s: take more --seconds"
            )
        return found

    async def warmed(self, value: int, work: SpreadSends) -> None:
        """Send to every place at least twice: the first message of a queue makes its files."""
        target = LoadedBroker(self.cluster.broker.address)
        for _ in range(WARM_LOADS_MAX):
            found = await run_load("warm-up", target, lambda: work, in_flight=self.load.in_flight, seconds=WARM_S)
            served(self.of, value, found)
            if work.rounds > 1:
                return
        raise BadAnswer(f"{self.of}, {value:,}: after {WARM_LOADS_MAX} loads not all have had two messages")

    def sample(self, value: int, number: int, what: str, result: Result) -> GrowthSample:
        """Return one measurement, with the memory that the broker had when it had just grown to it."""
        return GrowthSample(self.of, value, number, what, served(self.of, value, result), self.memory[value])


class GrowingTopics(GrowingBroker):
    """Topics of one queue each, sent to in turn."""

    of = "topics"

    async def make(self, value: int) -> None:
        """Make those that are missing."""
        made, gate = max(self.memory, default=0), asyncio.Semaphore(TOPICS_AT_ONCE)
        done = itertools.count(made + 1)
        address = self.cluster.broker.address
        async with AdminClient(self.cluster.address) as admin:

            async def one(number: int) -> None:
                async with gate:
                    # Straight to the broker: the NameServer need not be asked each time who that is.
                    await admin.create_topic(_topic(number), read_queues=1, write_queues=1, address=address)
                    self.progress("topics", next(done), value)

            async with asyncio.TaskGroup() as group:
                for number in range(made, value):
                    group.create_task(one(number))
        await self.warmed(value, self._work(value))

    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Send to the first `value` topics."""
        found = await self.spread(value, self._work(value))
        return [self.sample(value, number, "sends to so many topics of one queue in turn", found)]

    def _work(self, value: int) -> SpreadSends:
        return SpreadSends([(_topic(number), 0) for number in range(value)], self.load.body_bytes)


class GrowingQueues(GrowingBroker):
    """One topic for each number of queues."""

    of = "queues"

    async def make(self, value: int) -> None:
        """Make the topic of so many."""
        await self.topic(f"bench_queues_{value}", value)
        await self.warmed(value, self._work(value))

    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Send to all queues of that topic."""
        found = await self.spread(value, self._work(value))
        return [self.sample(value, number, "sends to so many queues of one topic in turn", found)]

    def _work(self, value: int) -> SpreadSends:
        return SpreadSends([(f"bench_queues_{value}", queue) for queue in range(value)], self.load.body_bytes)


class GrowingConnections(GrowingBroker):
    """Connections that send at the same time; all requests in flight together stay as many, but for one each."""

    of = "connections"

    async def make(self, value: int) -> None:
        """Make the topic; connections are made for each round."""
        if not self.memory:
            await self.topic("bench_connections", QUEUES)
            places = [("bench_connections", queue) for queue in range(QUEUES)]
            await self.warmed(value, SpreadSends(places, self.load.body_bytes))

    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Send from so many connections; the broker's memory is that while they are open."""
        work = Sends("bench_connections", self.load.body_bytes)
        async with highest_memory(self.cluster.brokers) as highest:
            found = await self.loaded("send", lambda: work, max(1, self.load.in_flight // value), value)
        self.memory[value] = highest()
        return [self.sample(value, number, "sends from so many connections", found)]


class GrowingConsumers(GrowingBroker):
    """Consumer groups that read one topic, each all of it, each over a connection of its own."""

    of = "consumers"

    async def make(self, value: int) -> None:  # noqa: ARG002 - of all values alike
        """Make and fill the topic; groups come to be by their first pull."""
        if not self.memory:
            await self.topic("bench_consumers", QUEUES)
            await fill_queues(self.cluster, "bench_consumers", QUEUES * READ_OF_A_QUEUE, self.load, self.progress)

    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Pull by so many groups; the broker's memory is that while they do."""
        names = itertools.count()

        def work() -> Pulls:
            group = f"bench_consumers_{next(names)}"
            return Pulls("bench_consumers", [READ_OF_A_QUEUE] * QUEUES, PULL_COUNT, group=group)

        async with highest_memory(self.cluster.brokers) as highest:
            found = await self.loaded(f"pull of {PULL_COUNT}", work, max(1, PULLS_IN_FLIGHT // value), value)
        self.memory[value] = highest()
        what = f"pulls of {PULL_COUNT} by so many consumer groups, each reads all"
        return [self.sample(value, number, what, found)]


class GrowingBacklog(GrowingBroker):
    """A topic for each length of a backlog; the newest messages are what is sent and pulled."""

    of = "backlog"

    async def make(self, value: int) -> None:
        """Store so many messages in a topic of their own."""
        await self.topic(_held(value, 0), QUEUES)
        await fill_queues(self.cluster, _held(value, 0), value, self.load, self.progress)

    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Send, then pull of what is newest."""
        topic, address = _held(value, number), self.cluster.broker.address
        work = Sends(topic, self.load.body_bytes)
        if number and not value:
            await self.topic(topic, QUEUES)
        sent = await self.loaded("send", lambda: work, self.load.in_flight)
        ends = await max_offsets(address, topic)
        begins = [max(0, end - NEWEST_OF_A_QUEUE) for end in ends]
        pulled = await self.loaded(
            f"pull of {PULL_COUNT}",
            lambda: Pulls(topic, ends, PULL_COUNT, begins=begins),
            max(1, PULLS_IN_FLIGHT),
        )
        return [
            self.sample(value, number, "sends to a topic that holds so many messages", sent),
            self.sample(value, number, f"pulls of {PULL_COUNT} of its newest messages", pulled),
        ]


GROWING_AT_A_BROKER: dict[str, type[GrowingBroker]] = {
    one.of: one for one in (GrowingTopics, GrowingQueues, GrowingConnections, GrowingConsumers, GrowingBacklog)
}


@asynccontextmanager
async def growing_broker(
    of: str, values: Sequence[int], load: GrowthLoad, progress: GrowthProgress, parent: Path | None
) -> AsyncIterator[GrowingBroker]:
    """Run a broker on which `of` has come to all values, one after the other, the last one the highest.

    Raises ProcessError, BadAnswer, NoRoomForBacklog, and OSError where so many connections may not be open.
    """
    if of == GrowingConnections.of:
        _allow_connections(max(values))
    if of == GrowingBacklog.of:
        folder = Path(tempfile.gettempdir()) if parent is None else parent
        check_room(BacklogLoad(sum(values), body_bytes=load.body_bytes), folder)
    with spawned_group(Setup("single", 1, ASYNC_FLUSH), parent) as cluster:
        growing = GROWING_AT_A_BROKER[of](cluster, load, progress)
        for value in values:
            await growing.grow(value)
        yield growing


async def fill_queues(
    cluster: LocalCluster, topic: str, messages: int, load: GrowthLoad, progress: GrowthProgress
) -> None:
    """Store so many messages in a topic of eight queues, by turns, in batches of a producer."""
    body, done = body_of(load.body_bytes), 0
    async with Producer("bench_growth", cluster.address, retries=0) as producer:

        async def known() -> None:
            if len(await producer.queues(topic)) != QUEUES:
                raise RouteError(f"topic {topic} is not known yet", retriable=True)

        async def one(queue: int) -> None:
            nonlocal done
            left = len(range(queue, messages, QUEUES))
            while left:
                count = min(left, SEND_BATCH)
                await producer.send(
                    [Message(topic, body) for _ in range(count)], queue=MessageQueue(topic, BROKER_GROUP, queue)
                )
                left -= count
                done += count
                progress(f"fill {messages:,}", done, messages)

        await until_done(known)
        async with asyncio.TaskGroup() as group:
            for queue in range(QUEUES):
                group.create_task(one(queue))


def memory_of(brokers: Sequence[ServerProcess]) -> ServerMemory:
    """Return what brokers hold in memory, all together."""
    return ServerMemory(sum(broker.memory_mb() for broker in brokers), sum(broker.anonymous_mb() for broker in brokers))


@asynccontextmanager
async def highest_memory(brokers: Sequence[ServerProcess]) -> AsyncIterator[Callable[[], ServerMemory]]:
    """Look at the memory of brokers now and then; what is given tells the highest so far."""
    found = memory_of(brokers)

    async def look() -> None:
        nonlocal found
        while True:
            await asyncio.sleep(LOOK_S)
            found = ServerMemory(*map(max, found, memory_of(brokers)))

    looking = asyncio.create_task(look())
    try:
        yield lambda: found
    finally:
        looking.cancel()
        await asyncio.wait([looking])


def _allow_connections(count: int) -> None:
    try:
        allow_files(count + FILES_OTHER)
    except OSError as error:
        raise OSError(f"{error}: name fewer connections (--of connections --values)") from None


def _topic(number: int) -> str:
    return f"bench_topic_{number}"


def _held(value: int, number: int) -> str:
    """Return the topic of a backlog; of none, it is a new one each round, for the last one's holds what was sent."""
    return f"bench_backlog_{value}" if value else f"bench_backlog_none_{number}"
