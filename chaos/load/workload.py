"""What a workload is: one small class that asks things of a cluster, all of it recorded, until it is told to stop."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chaos.load.clients import BROKER, Clients, Leaders, Leads, LoadClient, connections
from chaos.load.recorder import Recorder
from client.admin.client import AdminClient
from client.errors import ClientError
from pipeline.history.body import Tag
from pipeline.history.rows import Act, Kind
from remoting.bodies.client import HeartbeatData
from remoting.client import RemotingClient
from remoting.errors import RemotingError

PAUSE_S = 0.02
SETUP_TIMEOUT_S = 30.0
# What a message carries beside its name.
BODY_BYTES = 100
# Messages of a batch, and how many senders have one that sends batches.
BATCH = 8
BATCHED_EVERY = 4
# Of the attempts whose end is unknown so many are repeated.
RETRY_SHARE = 0.5
# Between two words to the brokers that a client is there.
BEAT_S = 1.0
# A sender that is so far behind its rate does not make up for it: what was not asked meanwhile was not asked.
BEHIND_S_MAX = 1.0


@dataclass
class Load:
    """What workloads share. `rng` is the workload's own; `rate` is sends per second over all workloads."""

    recorder: Recorder
    namesrv: str
    addresses: Sequence[str]
    """Of all members."""
    leaders: Leaders
    """Those members that take what only a leader or a master answers: all of a Raft group, for they pass it on."""
    clients: Clients
    rng: random.Random
    rate: float
    names: "Names"
    leads: Leads

    def client(self, remoting: RemotingClient, name: str) -> LoadClient:
        """Return a recorded client."""
        return LoadClient(self.recorder, remoting, self.namesrv, name)


class Names:
    """Numbers of writers, which no two senders of a run share."""

    def __init__(self) -> None:
        self._writers = 0

    def writer(self) -> int:
        """Return the next one."""
        self._writers += 1
        return self._writers


class Workload(Protocol):
    """One object is used for one run. `topics` are scanned in the end, with their numbers of queues."""

    @property
    def name(self) -> str:
        """What scenarios call it."""
        ...

    @property
    def topics(self) -> dict[str, int]:
        """Topics whose final state is read, and how many queues they have."""
        ...

    @property
    def groups(self) -> dict[str, str]:
        """Consumer groups and the topic of each; they are drained in the end.

        Promised of each: it begins at the first offset, and commits only behind what it was given (A17); and its
        queues move on while a consumer lives (A26), which `consuming` notes: without it, while somebody asks.
        """
        ...

    @property
    def orderly(self) -> bool:
        """Whether the members of its groups lock a queue while they consume it (A19)."""
        ...

    async def setup(self, load: Load) -> None:
        """Make topics and groups; raises an error when the cluster does not take them."""
        ...

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Ask until `stop`; what is under way then is waited for."""
        ...

    async def close(self, load: Load, client: LoadClient) -> None:
        """Ask what is to be asked of the healed cluster, whose members all have the same."""
        ...


class Pace:
    """Turns for many senders at one rate that does not depend on how fast the cluster answers."""

    def __init__(self, rate: float) -> None:
        self._step = 1 / rate
        self._next = 0.0

    async def turn(self, count: int = 1) -> None:
        """Wait until it is one's turn to send so many."""
        now = asyncio.get_running_loop().time()
        at = max(self._next, now - BEHIND_S_MAX)
        self._next = at + self._step * count
        if at > now:
            await asyncio.sleep(at - now)


async def create(load: Load, topics: dict[str, int], groups: dict[str, str] | None = None) -> None:
    """Make topics and groups, trying until the cluster takes them; raises TimeoutError."""
    async with asyncio.timeout(SETUP_TIMEOUT_S), AdminClient(load.namesrv) as admin:
        for topic, queues in topics.items():
            await _until_taken(lambda t=topic, q=queues: admin.create_topic(t, read_queues=q, write_queues=q))
        for group in groups or {}:
            await _until_taken(lambda g=group: admin.create_group(g))


async def _until_taken(ask: Any) -> None:
    while True:
        try:
            await ask()
            return
        except (ClientError, RemotingError):
            await asyncio.sleep(PAUSE_S)


@contextlib.asynccontextmanager
async def opened(name: str) -> AsyncIterator[RemotingClient]:
    """Yield connections, closed afterwards."""
    remoting = connections(name)
    try:
        yield remoting
    finally:
        await remoting.close()


@contextlib.contextmanager
def consuming(load: Load, group: str, topic: str) -> Iterator[None]:
    """Note that a consumer of a group lives for as long as this lasts: while one does, the group must move on (A26)."""
    recorder = load.recorder
    life = recorder.invoke(Act.CONSUME, recorder.process(), topic=topic, broker=BROKER, group=group)
    try:
        yield
    finally:
        recorder.ok(life)


class Plain:
    """What most workloads have in common."""

    name = ""
    orderly = False

    def __init__(self, topics: dict[str, int], groups: dict[str, str] | None = None) -> None:
        self.topics = topics
        self.groups = groups or {}

    async def setup(self, load: Load) -> None:
        """Make topics and groups."""
        await create(load, self.topics, self.groups)

    async def close(self, load: Load, client: LoadClient) -> None:
        """Ask nothing: the final scans tell all."""


async def keep_sending(
    load: Load,
    client: LoadClient,
    topic: str,
    queues: int,
    pace: Pace,
    stop: asyncio.Event,
    *,
    body_bytes: int = BODY_BYTES,
    batch: int = 1,
) -> None:
    """Send numbers in their order, so many at a time, to a queue that is drawn, until `stop`.

    An attempt that certainly did not happen is made again. Of those whose end is unknown some are, as applications do:
    the broker may have both then.
    """
    rng, writer = random.Random(load.rng.random()), load.names.writer()
    rest = rng.randbytes(body_bytes)
    counter, attempt, queue = 0, 0, 0
    while not stop.is_set():
        await pace.turn(batch)
        if not attempt:
            queue = rng.randrange(queues)
        address = load.leaders.address
        tags = [Tag(writer, counter + number, attempt) for number in range(batch)]
        if batch > 1:
            done, *_ = await client.send_batch(address, topic, queue, tags, rest)
        else:
            done = await client.send(address, topic, queue, tags[0], rest)
        if done.kind == Kind.OK:
            counter, attempt = counter + batch, 0
            continue
        load.leaders.failed(address)
        await asyncio.sleep(PAUSE_S)
        if done.kind == Kind.INFO and rng.random() >= RETRY_SHARE:
            counter, attempt = counter + batch, 0
        else:
            attempt += 1


def start_senders(
    tasks: asyncio.TaskGroup,
    load: Load,
    remoting: RemotingClient,
    topic: str,
    queues: int,
    stop: asyncio.Event,
    *,
    count: int,
) -> None:
    """Begin so many senders who share the load's rate; every BATCHED_EVERY-th sends batches."""
    pace = Pace(load.rate)
    for number in range(count):
        client = load.client(remoting, f"{topic}-sender{number}")
        batch = 1 if (number + 1) % BATCHED_EVERY else BATCH
        tasks.create_task(keep_sending(load, client, topic, queues, pace, stop, batch=batch))


async def keep_known(load: Load, client: LoadClient, data: HeartbeatData, stop: asyncio.Event) -> None:
    """Tell every member again and again that a client is there, so that whoever leads can reach it."""

    async def one(address: str) -> None:
        async with asyncio.timeout(BEAT_S):
            await client.api.heartbeat(address, data)

    while True:
        await asyncio.gather(*(one(address) for address in load.addresses), return_exceptions=True)
        if not await pause(stop, BEAT_S):
            return


async def pause(stop: asyncio.Event, seconds: float) -> bool:
    """Wait so long, or until `stop`; tell whether to go on."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    return not stop.is_set()
