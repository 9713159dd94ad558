"""How long a message takes from its send to a waiting consumer in another process, at shares of what a broker can do.

What it can do is measured first, by a closed loop of the same sender while the same consumer takes everything. Then an
open loop sends at a share of that rate. Sender, consumer and brokers are processes of their own on this machine.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from chaos.host.interpreter import MODULE
from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError
from client.admin.client import AdminClient
from raftmq.bench.frames import QUEUES, BadAnswer
from raftmq.bench.group import RAFT_MODES, spawned_group, until_done
from raftmq.bench.load import WARM_UP_S, percentile
from raftmq.bench.openloop import DueTimes, PacedSends, SendWindow, StampedSender

LatencyMode = Literal["single", "raft"]
# (what is done, how much of it, of how much).
LatencyProgress = Callable[[str, int, int], None]

LATENCY_SETUPS = {"single": RAFT_MODES["single, async flush"], "raft": RAFT_MODES["raft, fsync"]}
TOPIC = "bench_latency"
CAPACITY_IN_FLIGHT = 512
CAPACITY_S_MAX = 5.0
# Until the first pull of the consumer is under way, and until what was acknowledged has arrived.
CONSUMER_START_S, ARRIVAL_S = 30.0, 20.0
LOOK_S, TOLD_S = 0.05, 0.5
# An open loop kept up when so much of what was due was acknowledged at its rate.
KEPT_UP = 0.99
WARM_UP_PHASE = 0


@dataclass(frozen=True, slots=True)
class LatencyLoad:
    """What is measured."""

    shares: Sequence[float] = (0.2, 0.8)
    seconds: float = 10.0
    body_bytes: int = 100


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One row. Latencies in ms from when a message was due: to its arrival, and to its acknowledgement (ack)."""

    mode: str
    share: float | None
    """Of the capacity; None: the closed loop that measures it."""
    offered_per_s: int | None
    acknowledged_per_s: int
    arrived_per_s: int
    seconds: float
    body_bytes: int
    sent: int
    arrived: int
    lost: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    ack_p50_ms: float
    ack_p99_ms: float
    ack_max_ms: float
    late_p99_ms: float
    """How late the sender itself was: p99 from when a message was due until it left."""
    servers_busy: float
    """Processors that the brokers kept busy, all together; 1 is one of them."""
    sender_busy: float
    consumer_busy: float
    errors: dict[int, int] = field(default_factory=dict)

    @property
    def capacity_per_s(self) -> int:
        """What a closed loop moved from end to end."""
        return min(self.acknowledged_per_s, self.arrived_per_s)

    @property
    def kept_up(self) -> bool:
        """Whether what was offered was taken as fast: if not, latencies grow with the time measured."""
        return self.offered_per_s is None or self.acknowledged_per_s >= KEPT_UP * self.offered_per_s

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        values = asdict(self) | {"kept_up": self.kept_up}
        values["errors"] = {str(code): count for code, count in self.errors.items()}
        return values


async def run_latency(
    mode: LatencyMode, load: LatencyLoad, progress: LatencyProgress, parent: Path | None = None
) -> AsyncGenerator[LatencyRow]:
    """Yield the closed loop, then each share. Raises ProcessError, BadAnswer, OSError."""
    with spawned_group(LATENCY_SETUPS[mode], parent) as cluster:
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        async with AdminClient(cluster.address) as admin:
            await until_done(lambda: admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES))
        async with arrivals_at(leader.address, TOPIC) as arrivals:
            sender = await asyncio.to_thread(StampedSender, leader.address, TOPIC, load.body_bytes)
            run = _LatencyRun(mode, load, cluster, arrivals, sender, progress)
            try:
                closed = await run.closed()
                yield closed
                for share in load.shares:
                    yield await run.open(share, max(1, round(closed.capacity_per_s * share)))
            finally:
                sender.close()


class _LatencyRun:
    """The phases of one run against its brokers."""

    def __init__(
        self,
        mode: str,
        load: LatencyLoad,
        cluster: LocalCluster,
        arrivals: "ArrivalsProcess",
        sender: StampedSender,
        progress: LatencyProgress,
    ) -> None:
        self._mode = mode
        self._load = load
        self._cluster = cluster
        self._arrivals = arrivals
        self._sender = sender
        self._progress = progress
        self._phase = WARM_UP_PHASE

    async def closed(self) -> LatencyRow:
        """Measure what the brokers can do."""
        await self._paced(SendWindow(time.monotonic_ns(), CAPACITY_IN_FLIGHT, WARM_UP_S), WARM_UP_PHASE)
        seconds = min(self._load.seconds, CAPACITY_S_MAX)
        return await self._row(lambda now_ns: SendWindow(now_ns, CAPACITY_IN_FLIGHT, seconds), "capacity", seconds)

    async def open(self, share: float, per_s: int) -> LatencyRow:
        """Send `per_s` messages a second, and measure."""
        await self._paced(DueTimes(time.monotonic_ns(), per_s, WARM_UP_S), WARM_UP_PHASE)
        seconds = self._load.seconds
        return await self._row(
            lambda now_ns: DueTimes(now_ns, per_s, seconds), f"{share:.0%}", seconds, share=share, offered_per_s=per_s
        )

    async def _row(
        self,
        pace: Callable[[int], SendWindow | DueTimes],
        what: str,
        seconds: float,
        *,
        share: float | None = None,
        offered_per_s: int | None = None,
    ) -> LatencyRow:
        self._phase += 1
        telling = asyncio.create_task(self._tell(what, seconds))
        servers, consumer, began = self._servers_s(), await self._arrivals.cpu_s(), time.monotonic()
        try:
            sent = await self._paced(pace(time.monotonic_ns()), self._phase)
            took, servers = time.monotonic() - began, self._servers_s() - servers
            found = await self._arrivals.all_of(self._phase, sent.acknowledged)
        finally:
            telling.cancel()
        if not sent.acknowledged:
            raise BadAnswer(f"{self._mode}, {what}: none of {sent.sent:,} sends was taken, but {sent.errors} answered")
        acks, late = sorted(sent.latencies_us), sorted(sent.late_us)
        return LatencyRow(
            mode=self._mode,
            share=share,
            offered_per_s=offered_per_s,
            acknowledged_per_s=round(sent.acknowledged / sent.seconds),
            arrived_per_s=found["arrived_per_s"],
            seconds=round(sent.seconds, 3),
            body_bytes=self._load.body_bytes,
            sent=sent.sent,
            arrived=found["arrived"],
            lost=max(0, sent.acknowledged - found["arrived"]),
            p50_ms=found["p50_ms"],
            p99_ms=found["p99_ms"],
            max_ms=found["max_ms"],
            ack_p50_ms=percentile(acks, 0.50),
            ack_p99_ms=percentile(acks, 0.99),
            ack_max_ms=percentile(acks, 1.0),
            late_p99_ms=percentile(late, 0.99),
            servers_busy=round(servers / took, 2),
            sender_busy=round(sent.busy, 2),
            consumer_busy=round((found["arrived_cpu_s"] - consumer) / took, 2),
            errors=dict(sorted(sent.errors.items())),
        )

    async def _paced(self, pace: SendWindow | DueTimes, phase: int) -> PacedSends:
        """Run the sender in a thread; one that is no longer wanted ends before this returns."""
        running = asyncio.ensure_future(asyncio.to_thread(self._sender.run, pace, phase))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._sender.stop()
            await asyncio.wait([running])
            raise

    async def _tell(self, what: str, seconds: float) -> None:
        began = time.monotonic()
        while True:
            self._progress(f"{self._mode} {what}", min(round(time.monotonic() - began), round(seconds)), round(seconds))
            await asyncio.sleep(TOLD_S)

    def _servers_s(self) -> float:
        return sum(broker.cpu_seconds() for broker in self._cluster.brokers)


class ArrivalsProcess:
    """The consumer's process, which is asked what has arrived."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def started(self) -> None:
        """Wait until its pulls are under way; raises ProcessError."""
        await self._line()

    async def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        return float((await self._ask("0"))["cpu_s"])

    async def all_of(self, phase: int, count: int) -> dict[str, Any]:
        """Wait until so many messages of a phase have arrived, though not without end; return its figures."""
        deadline = time.monotonic() + ARRIVAL_S
        found = await self._ask(str(phase))
        while found["arrived"] < count and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_S)
            found = await self._ask(str(phase))
        return {**await self._ask(f"{phase} figures"), "arrived_cpu_s": found["cpu_s"]}

    async def _ask(self, words: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(words.encode() + b"\n")
        found: dict[str, Any] = orjson.loads(await self._line())
        return found

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), CONSUMER_START_S)
        except TimeoutError:
            raise ProcessError(f"the consumer said nothing for {CONSUMER_START_S:g} s") from None
        if not line:
            _out, errors = await self._process.communicate()
            words = errors.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise ProcessError(f"the consumer ended: {words[-1]}")
        return line


@asynccontextmanager
async def arrivals_at(address: str, topic: str) -> AsyncIterator[ArrivalsProcess]:
    """Run a consumer of a topic as a process of its own. Raises ProcessError."""
    process = await asyncio.create_subprocess_exec(
        *MODULE, "raftmq.bench.arrivals", address, topic,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        arrivals = ArrivalsProcess(process)
        await arrivals.started()
        yield arrivals
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
