"""What a quiet client feels beside others that flood a broker: its sends alone, then beside 10 and 40 of them."""

import asyncio
import json
import tempfile
import time
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from chaos.host.interpreter import MODULE
from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError, ServerProcess
from raftmq.bench.frames import QUEUES
from raftmq.bench.load import WARM_UP_S, percentile
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.headers.registry import SendMessageRequestHeaderV2

FairnessMode = Literal["single", "raft"]

NODES = 3
TOPIC = "bench_fairness"
QUIET_PAUSE_S = 0.02
QUIET_TIMEOUT_S = 30.0
FLOOD_IN_FLIGHT = 2048
FLOOD_BODY_BYTES = 1024
# From the start of the flood's process to its full load, and what it may take to come to rest.
FLOOD_START_S = 3.0
FLOOD_END_S = 60.0
# The aims on two cores: the quiet client's p99, and the part of its rate alone that the flood keeps.
AIM_P99_MS = {"single": 50.0, "raft": 250.0}
AIM_KEPT = 0.8


@dataclass(frozen=True, slots=True)
class Fairness:
    """One row: latencies of the quiet client in milliseconds, messages per second of all who flood together."""

    mode: str
    floods: int
    quiet_sends: int
    quiet_p50_ms: float
    quiet_p99_ms: float
    quiet_max_ms: float
    flood_per_s_alone: int = 0
    flood_per_s: int = 0
    flood_kept: float = 1.0
    elections: int = 0
    flood_errors: dict[str, int] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        """What this row misses of the aims, in words: empty without floods too, for none is about that."""
        if not self.floods:
            return []
        aim_ms, found = AIM_P99_MS[self.mode], []
        if self.quiet_p99_ms > aim_ms:
            found.append(f"p99 over {aim_ms:g} ms")
        if self.flood_kept < AIM_KEPT:
            found.append(f"kept under {AIM_KEPT:g}")
        return [*found, "an election"] if self.elections else found

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self) | {"missed": self.missed}


async def run_fairness(
    modes: Sequence[FairnessMode], floods: Sequence[int], seconds: float, parent: Path | None = None
) -> AsyncGenerator[Fairness]:
    """Yield each row as it is measured: alone, then beside each number of flooding connections.

    A flood slows down as its broker's log grows, whoever is beside it, so its rate alone is the mean of one before and
    one after: what is left is what the quiet client costs.
    """
    for mode in modes:
        with _cluster(mode, parent) as (target, term):
            await quiet(target.address, WARM_UP_S)
            yield _row(mode, await quiet(target.address, seconds))
            for count in floods:
                window = seconds + FLOOD_START_S
                alone_before = await _flood_alone(target.address, count, window)
                before = term()
                async with flooded(target.address, count, window) as flood:
                    await asyncio.sleep(FLOOD_START_S)
                    latencies = await quiet(target.address, seconds)
                    beside = await flood()
                elections = term() - before
                rate = (alone_before + await _flood_alone(target.address, count, window)) // 2
                yield _row(
                    mode,
                    latencies,
                    floods=count,
                    flood_per_s_alone=rate,
                    flood_per_s=int(beside["messages_per_s"]),
                    flood_kept=round(beside["messages_per_s"] / max(1, rate), 2),
                    elections=elections,
                    flood_errors=beside["errors"],
                )


async def _flood_alone(address: str, connections: int, seconds: float) -> int:
    """Return how many messages per second a flood gets through with nobody beside it."""
    async with flooded(address, connections, seconds) as flood:
        return int((await flood())["messages_per_s"])


def _row(mode: str, latencies_us: Sequence[int], **flood: Any) -> Fairness:
    found = sorted(latencies_us)
    return Fairness(
        mode,
        flood.pop("floods", 0),
        len(found),
        percentile(found, 0.5),
        percentile(found, 0.99),
        percentile(found, 1.0),
        **flood,
    )


@contextmanager
def _cluster(mode: FairnessMode, parent: Path | None) -> Iterator[tuple[ServerProcess, Callable[[], int]]]:
    """Run brokers in a new folder; give the one to load and what tells the group's term, always 0 of a single one."""
    grouped = mode == "raft"
    flush = {"flushDiskType": "SYNC_FLUSH" if grouped else "ASYNC_FLUSH"}
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
        cluster = LocalCluster(Path(folder), nodes=NODES if grouped else 1, mode=mode, broker_settings=flush)
        cluster.start()
        try:
            if grouped:
                yield cluster.wait_for_leader(), lambda: _term(cluster)
            else:
                yield cluster.broker, lambda: 0
        finally:
            cluster.kill()


def _term(cluster: LocalCluster) -> int:
    """Return the highest term that a member knows."""
    states = [broker.state("/v1/raft") for broker in cluster.brokers]
    return max((int(state["term"]) for state in states if state is not None), default=0)


async def quiet(address: str, seconds: float) -> Sequence[int]:
    """Send one small message after the other, with pauses; return how long each took, microseconds.

    One that is refused or not answered counts as long as a client would have waited. Raises RemotingError when none is
    answered.
    """
    client, latencies, answered = RemotingClient(), array("I"), 0
    until = time.perf_counter() + seconds
    try:
        while (began := time.perf_counter()) < until:
            header = SendMessageRequestHeaderV2(
                producerGroup="bench_quiet",
                topic=TOPIC,
                defaultTopic="TBW102",
                defaultTopicQueueNums=QUEUES,
                queueId=len(latencies) % QUEUES,
                sysFlag=0,
                bornTimestamp=time.time_ns() // 1_000_000,
                flag=0,
                properties="",
            )
            try:
                answer = await client.call(
                    address, RequestCode.SEND_MESSAGE_V2, header, body=b"quiet" * 20, timeout=QUIET_TIMEOUT_S
                )
                good = answer.code == ResponseCode.SUCCESS
            except RemotingError:
                if not answered:
                    raise
                good = False
            answered += good
            took = time.perf_counter() - began if good else QUIET_TIMEOUT_S
            latencies.append(int(took * 1_000_000))
            await asyncio.sleep(QUIET_PAUSE_S)
    finally:
        await client.close()
    return latencies


@asynccontextmanager
async def flooded(address: str, connections: int, seconds: float) -> AsyncIterator[Callable[[], Any]]:
    """Flood a broker from a process of its own; what is given waits for its figures: a dict as of `bench send`.

    Raises ProcessError when it fails.
    """
    command = [
        *MODULE, "raftmq.cli.main", "bench", "send", "-a", address, "--topic", TOPIC, "--json",
        "--connections", str(connections), "-w", str(FLOOD_IN_FLIGHT), "-s", str(FLOOD_BODY_BYTES),
        "--seconds", f"{seconds:g}",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )

    async def figures() -> Any:
        out, errors = await asyncio.wait_for(process.communicate(), seconds + FLOOD_END_S)
        if process.returncode:
            raise ProcessError(f"the flood failed: {errors.decode(errors='replace').strip()}")
        return json.loads(out)

    try:
        yield figures
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
