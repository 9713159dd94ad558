"""What others feel of a reader who is far behind, or takes nothing: sends, and their arrival at a consumer beside him.

A broker's log is filled with a backlog and the broker started again; what the machine has of its files in memory is
given back, so that who reads from the start reads from the disk. Beside him one message at a time is sent, and waited
for by a consumer. Then the same beside a connection that asks for all it can and never reads an answer.
"""

import asyncio
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.host.interpreter import MODULE
from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError
from client.admin.client import AdminClient
from client.errors import RouteError
from client.message import Message
from client.produce.producer import Producer
from raftmq.bench.backlog import ALLOTTED_BYTES, BROKER_GROUP, BacklogProgress, NoRoomForBacklog, room_in
from raftmq.bench.coldreader import PULL_COUNT, give_back
from raftmq.bench.endtoend import latency_load
from raftmq.bench.frames import OPAQUE_MIN, QUEUES, pull_template
from raftmq.bench.group import until_done
from raftmq.bench.load import Result
from remoting.bodies.registry import MessageQueue

COLD_TOPIC = "bench_cold"
COLD_BODY_BYTES = 16 * 1024
FILE_BYTES = 64 * 1024 * 1024
SEND_BATCH = 16
SEND_TIMEOUT_S = 60.0
LIVE_BODY_BYTES = 100
MIB = 1024**2
# A reader begins before what is measured beside him.
READER_START_S = 1.0
READER_FIRST_S = 20.0
SAMPLE_S = 0.05
# What one write of the reader who takes nothing asks for, and when he comes again after he was cut off.
UNREAD_PULLS = 256
UNREAD_AGAIN_S = 0.5
UNREAD_RECEIVE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Beside:
    """One row; times in milliseconds, memory of the broker without the files that it maps."""

    beside: str
    messages: int
    ack_p50_ms: float
    ack_p99_ms: float
    ack_max_ms: float
    arrival_p50_ms: float
    arrival_p99_ms: float
    arrival_max_ms: float
    broker_own_mb: float
    """At most."""
    read_mib_per_s: float = 0.0
    """What the reader got."""
    disk_mib_per_s: float = 0.0
    """What of it the broker had from the disk."""
    cut_off: int = 0
    """How often the broker closed the connection of the one that never reads."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Reading:
    """What a reader has done so far."""

    got_bytes: int = 0
    cut_off: int = 0
    at: float = 0.0
    """When it said how many bytes: on the clock of time.perf_counter()."""
    said: asyncio.Event | None = None
    """Set whenever it says so; None: it never does."""

    async def news(self) -> None:
        """Wait until it says that it got more: nobody may have served it since. Raises ProcessError."""
        if self.said is None:
            self.at = time.perf_counter()
            return
        before = self.got_bytes
        try:
            async with asyncio.timeout(READER_FIRST_S):
                while self.got_bytes == before:
                    self.said.clear()
                    await self.said.wait()
        except TimeoutError:
            raise ProcessError(f"the reader of cold log got nothing for {READER_FIRST_S:g} s") from None


def check_readers_room(mib: int, folder: Path) -> None:
    """Raise NoRoomForBacklog when the disk would be too full for a broker."""
    needed, room = mib * MIB + ALLOTTED_BYTES, room_in(folder)
    if room < needed:
        raise NoRoomForBacklog(
            f"a log of {mib:,} MiB needs about {needed / 1e9:.1f} GB, and the disk of {folder} takes "
            f"{max(room, 0) / 1e9:.1f} GB more: name another folder (--dir) or less of it (--mib)"
        )


async def run_readers(
    mib: int, messages: int, progress: BacklogProgress, parent: Path | None = None
) -> AsyncGenerator[Beside]:
    """Yield rows: alone, beside a reader of `mib` of cold log, alone, beside one that never reads, alone.

    Raises NoRoomForBacklog, ProcessError, BadAnswer, OSError.
    """
    check_readers_room(mib, Path(tempfile.gettempdir()) if parent is None else parent)
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
        cluster = LocalCluster(Path(folder), broker_settings={"mappedFileSizeCommitLog": FILE_BYTES})
        cluster.start()
        try:
            await _fill(cluster, mib, progress)
            # Not in a thread: who is told to end would kill the broker while that starts it.
            cluster.broker.stop()
            give_back(Path(folder), write_first=True)
            cluster.broker.start()
            for beside, reader in PARTS:
                yield await _measured(cluster, beside, messages, reader)
        finally:
            cluster.kill()


async def _fill(cluster: LocalCluster, mib: int, progress: BacklogProgress) -> None:
    """Send until the log is as long as that: a batch of each queue is under way."""
    total = max(mib * MIB // (COLD_BODY_BYTES * SEND_BATCH * QUEUES), 1)
    done = 0

    async def fill_queue(producer: Producer, queue: int) -> None:
        nonlocal done
        place = MessageQueue(COLD_TOPIC, BROKER_GROUP, queue)
        for _ in range(total):
            await producer.send([Message(COLD_TOPIC, bytes(COLD_BODY_BYTES))] * SEND_BATCH, queue=place)
            done += SEND_BATCH
            progress("fill", done, total * SEND_BATCH * QUEUES)

    async with AdminClient(cluster.address) as admin:
        await until_done(lambda: admin.create_topic(COLD_TOPIC, read_queues=QUEUES, write_queues=QUEUES))
    async with Producer("bench_readers", cluster.address, send_timeout=SEND_TIMEOUT_S) as producer:
        await until_done(lambda: _known_queues(producer))
        async with asyncio.TaskGroup() as group:
            for queue in range(QUEUES):
                group.create_task(fill_queue(producer, queue))


async def _known_queues(producer: Producer) -> None:
    if len(await producer.queues(COLD_TOPIC)) != QUEUES:
        raise RouteError(f"topic {COLD_TOPIC} is not known yet", retriable=True)


Reader = Callable[[LocalCluster], AbstractAsyncContextManager[Reading]]


async def _measured(cluster: LocalCluster, beside: str, messages: int, reader: Reader | None) -> Beside:
    # One for each row: a new group begins with the first message, and would take another row's for this one's.
    topic = f"bench_live_{beside.replace(' ', '_')}"
    async with AdminClient(cluster.address) as admin:
        await until_done(lambda: admin.create_topic(topic, read_queues=QUEUES, write_queues=QUEUES))
    highest = [cluster.broker.anonymous_mb()]
    watching = asyncio.create_task(_watch(cluster, highest))
    try:
        if reader is None:
            return row(beside, await _latencies(cluster, topic, messages), max(highest))
        async with reader(cluster) as reading:
            await asyncio.sleep(READER_START_S)
            await reading.news()
            got, disk, began = reading.got_bytes, cluster.broker.disk_reads_mb(), reading.at
            found = await _latencies(cluster, topic, messages)
            await reading.news()
            took = reading.at - began
            rates = ((reading.got_bytes - got) / MIB / took, (cluster.broker.disk_reads_mb() - disk) / took)
        return row(beside, found, max(highest), rates, reading.cut_off)
    finally:
        watching.cancel()


async def _watch(cluster: LocalCluster, highest: list[float]) -> None:
    while True:
        highest[0] = max(highest[0], cluster.broker.anonymous_mb())
        await asyncio.sleep(SAMPLE_S)


async def _latencies(cluster: LocalCluster, topic: str, messages: int) -> tuple[Result, Result]:
    return await latency_load(cluster.address, topic=topic, messages=messages, size=LIVE_BODY_BYTES)


def row(
    beside: str,
    found: tuple[Result, Result],
    own_mb: float,
    rates: tuple[float, float] = (0.0, 0.0),
    cut_off: int = 0,
) -> Beside:
    """Return the row of what was found: acknowledgements, then arrivals; `rates` of the reader and of the disk."""
    ack, arrival = found
    return Beside(
        beside, ack.messages, ack.p50_ms, ack.p99_ms, ack.max_ms, arrival.p50_ms, arrival.p99_ms, arrival.max_ms,
        round(own_mb, 1), round(rates[0], 1), round(rates[1], 1), cut_off,
    )  # fmt: skip


@asynccontextmanager
async def cold_reader(cluster: LocalCluster) -> AsyncIterator[Reading]:
    """Run a reader of the cold topic, as a process of its own: this one's loop is where latencies are measured."""
    log = cluster.broker.log.parent
    process = await asyncio.create_subprocess_exec(
        *MODULE, "raftmq.bench.coldreader", cluster.broker.address, COLD_TOPIC, str(log),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    reading = Reading(said=asyncio.Event())
    assert process.stdout is not None
    listening = asyncio.create_task(_listen(process.stdout, reading))
    try:
        await _first_bytes(reading, listening, process)
        yield reading
        if process.returncode is not None:
            raise ProcessError(f"the reader of cold log ended: {await _last_line(process)}")
    finally:
        listening.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listen(lines: asyncio.StreamReader, reading: Reading) -> None:
    while line := await lines.readline():
        reading.got_bytes, reading.at = int(line), time.perf_counter()
        if reading.said is not None:
            reading.said.set()


async def _first_bytes(reading: Reading, listening: "asyncio.Task[None]", process: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + READER_FIRST_S
    while not reading.got_bytes:
        if listening.done() or time.monotonic() > deadline:
            raise ProcessError(f"the reader of cold log got nothing: {await _last_line(process)}")
        await asyncio.sleep(SAMPLE_S)


async def _last_line(process: asyncio.subprocess.Process) -> str:
    with suppress(ProcessLookupError):
        process.kill()
    _out, errors = await process.communicate()
    return (errors.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]


@asynccontextmanager
async def unread_reader(cluster: LocalCluster) -> AsyncIterator[Reading]:
    """Keep a connection that asks for the cold topic as fast as it is let, and never reads an answer."""
    reading = Reading()
    asking = asyncio.create_task(_ask_without_reading(cluster.broker.address, reading))
    try:
        yield reading
        if asking.done():
            asking.result()
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await asking


async def _ask_without_reading(address: str, reading: Reading) -> None:
    host, _, port = address.rpartition(":")
    loop, pulls = asyncio.get_running_loop(), _pulls()
    while True:
        with socket.socket() as connection:
            connection.setblocking(False)
            # The less the machine keeps for him, the more the broker has to.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_RECEIVE_BYTES)
            await loop.sock_connect(connection, (host, int(port)))
            try:
                while True:
                    await loop.sock_sendall(connection, pulls)
            except OSError:
                reading.cut_off += 1
        await asyncio.sleep(UNREAD_AGAIN_S)


def _pulls() -> bytes:
    """Return pulls of the topic's first messages, 32 each: the broker has a copy of its own for each answer."""
    return b"".join(
        pull_template(COLD_TOPIC, at % QUEUES, 0, PULL_COUNT).fill(OPAQUE_MIN + at) for at in range(UNREAD_PULLS)
    )


PARTS: tuple[tuple[str, Reader | None], ...] = (
    ("nobody", None),
    ("a reader of cold log", cold_reader),
    ("nobody again", None),
    ("one that never reads", unread_reader),
    ("nobody at last", None),
)
