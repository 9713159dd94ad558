"""How fast a long backlog is consumed from its beginning, against the newest messages of the same topic.

A single broker of this bench's own is filled by a real producer, in batches. Then a real consumer takes the tail, which
has only just been written, and after that everything from the first message on, most of it read from the disk: the
store's files leave the page cache before. Of each message it is checked that it came once, and in its queue's order.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from chaos.host.local import LocalCluster
from chaos.host.processes import ServerProcess, anonymous_mb
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.consume.poll_queue import FetchLimits
from client.errors import RouteError
from client.message import Message
from client.produce.producer import Producer
from raftmq.bench.coldreader import give_back
from raftmq.bench.frames import BadAnswer
from raftmq.bench.group import ASYNC_FLUSH, Setup, spawned_group, until_done
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt

# (what is done, how many messages of it, of how many).
BacklogProgress = Callable[[str, int, int], None]

TOPIC, GROUP = "bench_backlog", "bench_backlog"
BROKER_GROUP = "broker-a"
# What backlog may cost: the tail's rate is at most so many times that of the backlog.
RATIO_AIM = 2.0
NUMBER_BYTES = 20  # at the beginning of a body: which message of its queue it is
SEND_BATCH = 256
SEND_TIMEOUT_S = 60.0
# Asked for at a time; a consumer's default. Brokers give no more unless they are told to (maxTransferCount…).
PULL_COUNT = 32
SILENCE_S = 30.0
SAMPLE_S = 0.2
# What a message takes beside its body: 91 bytes of the record, topic, the producer's unique key, 20 in its queue, 20
# in the index and its hash slots. And what is there whatever the number: files that are allotted before they are full.
STORED_BYTES = 220
ALLOTTED_BYTES = 2 * 1024**3
# A broker removes old files from here on (diskSpaceCleanForciblyRatio).
DISK_USED_MAX = 0.85


class NoRoomForBacklog(Exception):
    """The folder's disk cannot take the messages; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class BacklogLoad:
    """What is stored and consumed."""

    messages: int = 20_000_000
    tail: int = 500_000
    body_bytes: int = 100
    queues: int = 8
    batch: int = PULL_COUNT

    def needed_bytes(self) -> int:
        """Return what the store takes on the disk, about."""
        return self.messages * (self.body_bytes + STORED_BYTES) + ALLOTTED_BYTES


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """The memory of a process while it works, in MB."""

    begin: float
    highest: float
    end: float

    @property
    def growth(self) -> float:
        """How much higher it was than in the beginning."""
        return round(self.highest - self.begin, 1)


@dataclass(frozen=True, slots=True)
class BacklogPart:
    """One row: what was filled or consumed. Memory in MB, `anonymous`: without the files that a process maps."""

    what: str
    messages: int
    seconds: float
    per_s: int
    broker_cpu_us: float
    client_busy: float
    disk_read_mb: float
    broker_resident: MemoryRange
    broker_anonymous: MemoryRange
    client_anonymous: MemoryRange
    repeated: int = 0
    lost: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class BacklogFigures:
    """All that one run has measured."""

    load: BacklogLoad
    parts: tuple[BacklogPart, ...]
    ratio: float
    """How many times faster the tail was than the backlog."""

    @property
    def met(self) -> bool:
        """Whether the ratio is within the aim, and nothing was lost or came twice."""
        return self.ratio <= RATIO_AIM and not any(part.repeated or part.lost for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        growth = {"broker": self.parts[-1].broker_anonymous.growth, "client": self.parts[-1].client_anonymous.growth}
        return {
            **asdict(self.load),
            "parts": [part.as_dict() for part in self.parts],
            "ratio": self.ratio,
            "ratio_aim": RATIO_AIM,
            "met": self.met,
            "growth_mb": growth,
        }


@dataclass(slots=True)
class BacklogBook:
    """Which message of each queue comes next: what is beyond it has been skipped, what is before it came once more."""

    expected: dict[int, int]
    passed: int = 0
    """How far the queues have come, all together."""
    repeated: int = 0
    skipped: int = 0

    def take(self, messages: list[MessageExt]) -> None:
        """Note messages as they come."""
        expected = self.expected
        for message in messages:
            queue, number = message.queue_id, int(message.body[:NUMBER_BYTES])
            due = expected[queue]
            if number < due:
                self.repeated += 1
                continue
            self.skipped += number - due
            self.passed += number + 1 - due
            expected[queue] = number + 1


def room_in(folder: Path) -> int:
    """Return the bytes that a folder's disk takes until brokers remove old messages; below 0 when they do already."""
    usage = shutil.disk_usage(folder)
    return min(usage.free, int(usage.total * DISK_USED_MAX) - usage.used)


def check_room(load: BacklogLoad, folder: Path) -> None:
    """Raise NoRoomForBacklog when the disk would be too full for a broker."""
    needed, room = load.needed_bytes(), room_in(folder)
    if room < needed:
        raise NoRoomForBacklog(
            f"{load.messages:,} messages of {load.body_bytes} B need about {needed / 1e9:.1f} GB, and the disk of "
            f"{folder} takes {max(room, 0) / 1e9:.1f} GB until it is {DISK_USED_MAX:.0%} full, from where on brokers "
            "remove old messages: name another folder (--dir) or fewer messages (--messages)"
        )


async def run_backlog(load: BacklogLoad, progress: BacklogProgress, parent: Path | None = None) -> BacklogFigures:
    """Fill a broker, consume the tail, and then everything. Raises NoRoomForBacklog, ProcessError, BadAnswer."""
    check_room(load, Path(tempfile.gettempdir()) if parent is None else parent)
    # So that an answer can hold what is asked for, wherever it comes from.
    settings = {} if load.batch <= PULL_COUNT else _answers_of(load)
    with spawned_group(Setup("single", 1, ASYNC_FLUSH), parent, settings) as cluster:
        async with AdminClient(cluster.address) as admin:
            await until_done(lambda: admin.create_topic(TOPIC, read_queues=load.queues, write_queues=load.queues))
        run = _BacklogRun(load, cluster, progress)
        filled = await run.measured("fill", load.messages, run.fill)
        begins = [max(0, run.stored(queue) - load.tail // load.queues) for queue in range(load.queues)]
        tail = await run.consumed("tail", begins)
        await asyncio.to_thread(give_back, cluster.broker.log.parent, write_first=True)
        backlog = await run.consumed("backlog", [0] * load.queues)
    return BacklogFigures(load, (filled, tail, backlog), round(tail.per_s / max(backlog.per_s, 1), 2))


def _answers_of(load: BacklogLoad) -> dict[str, object]:
    size = load.batch * (load.body_bytes + STORED_BYTES)
    return {
        "maxTransferCountOnMessageInMemory": load.batch,
        "maxTransferCountOnMessageInDisk": load.batch,
        "maxTransferBytesOnMessageInMemory": max(size, 256 * 1024),
        "maxTransferBytesOnMessageInDisk": max(size, 64 * 1024),
    }


class _BacklogRun:
    """The parts of one run against its broker."""

    def __init__(self, load: BacklogLoad, cluster: LocalCluster, progress: BacklogProgress) -> None:
        self._load = load
        self._cluster = cluster
        self._progress = progress
        self._done = 0

    def stored(self, queue: int) -> int:
        """Return how many messages a queue gets: they are dealt out by turns."""
        return len(range(queue, self._load.messages, self._load.queues))

    async def measured(self, what: str, total: int, work: Callable[[], Coroutine[Any, Any, None]]) -> BacklogPart:
        """Do `work` and tell what it took; `total` is how many messages it should move."""
        broker = self._cluster.broker
        self._done = 0
        watch = _MemoryWatch(broker)
        watching = asyncio.create_task(self._watch(what, total, watch))
        cpu, own, read, began = broker.cpu_seconds(), time.process_time(), broker.disk_reads_mb(), time.perf_counter()
        try:
            await work()
            took = max(time.perf_counter() - began, 1e-6)
        finally:
            watching.cancel()
        self._progress(what, self._done, total)
        watch.look()
        resident, anonymous, client = watch.ranges()
        return BacklogPart(
            what,
            self._done,
            round(took, 2),
            round(self._done / took),
            round((broker.cpu_seconds() - cpu) / max(self._done, 1) * 1e6, 2),
            round((time.process_time() - own) / took, 2),
            round(broker.disk_reads_mb() - read, 1),
            resident,
            anonymous,
            client,
        )

    async def fill(self) -> None:
        """Store all messages: a batch of each queue is under way, the next one follows its acknowledgement."""
        # Sent once: what is sent again may be stored twice, and would be found as repeated.
        async with Producer("bench_backlog", self._cluster.address, send_timeout=SEND_TIMEOUT_S, retries=0) as producer:
            await until_done(lambda: _known_queues(producer, self._load.queues))
            async with asyncio.TaskGroup() as group:
                for queue in range(self._load.queues):
                    group.create_task(self._fill_queue(producer, queue))

    async def _fill_queue(self, producer: Producer, queue: int) -> None:
        place = MessageQueue(TOPIC, BROKER_GROUP, queue)
        rest = b"x" * (self._load.body_bytes - NUMBER_BYTES)
        end = self.stored(queue)
        for first in range(0, end, SEND_BATCH):
            numbers = range(first, min(first + SEND_BATCH, end))
            await producer.send([Message(TOPIC, b"%020d" % number + rest) for number in numbers], queue=place)
            self._done += len(numbers)

    async def consumed(self, what: str, begins: list[int]) -> BacklogPart:
        """Consume every queue from an offset to its end with a consumer of its own; raises BadAnswer when it stops."""
        total = sum(self.stored(queue) - begin for queue, begin in enumerate(begins))
        book = BacklogBook(dict(enumerate(begins)))
        limits = FetchLimits(
            count=self._load.batch, bytes_max=self._load.batch * (self._load.body_bytes + STORED_BYTES)
        )
        consumer = LitePullConsumer(f"{GROUP}_{what}", self._cluster.address, limits=limits, auto_commit=False)
        queues = [MessageQueue(TOPIC, BROKER_GROUP, queue) for queue in range(self._load.queues)]
        await consumer.assign(queues)
        for queue, begin in zip(queues, begins, strict=True):
            consumer.seek(queue, begin)

        async def work() -> None:
            async with consumer:
                while book.passed < total:
                    messages = await consumer.poll(SILENCE_S)
                    if not messages:
                        raise BadAnswer(f"{what}: nothing came for {SILENCE_S:g} s, after {book.passed:,} of {total:,}")
                    book.take(messages)
                    self._done = book.passed

        part = await self.measured(what, total, work)
        return replace(part, repeated=book.repeated, lost=book.skipped)

    async def _watch(self, what: str, total: int, watch: "_MemoryWatch") -> None:
        while True:
            self._progress(what, self._done, total)
            watch.look()
            await asyncio.sleep(SAMPLE_S)


class _MemoryWatch:
    """Looks at the memory of the broker and of this process from time to time; keeps what `ranges` tells."""

    def __init__(self, broker: ServerProcess) -> None:
        self._looks = (broker.memory_mb, broker.anonymous_mb, lambda: anonymous_mb("self"))
        self._begin = [look() for look in self._looks]
        self._highest = self._last = self._begin

    def look(self) -> None:
        """Measure once more."""
        self._last = [look() for look in self._looks]
        self._highest = [max(pair) for pair in zip(self._highest, self._last, strict=True)]

    def ranges(self) -> tuple[MemoryRange, MemoryRange, MemoryRange]:
        """Return what the broker had in memory, what of it was its own, and what this process had of its own."""
        found = zip(self._begin, self._highest, self._last, strict=True)
        resident, anonymous, client = (MemoryRange(*(round(value, 1) for value in values)) for values in found)
        return resident, anonymous, client


async def _known_queues(producer: Producer, queues: int) -> None:
    """Raise RouteError while the NameServer does not know the topic as it was created."""
    if len(await producer.queues(TOPIC)) != queues:
        raise RouteError(f"topic {TOPIC} is not known yet", retriable=True)
