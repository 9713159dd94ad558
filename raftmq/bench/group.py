"""Figures of the ways to replicate, side by side, and of a Raft group: failover, start, recovery, memory."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from chaos.host.local import LocalCluster, Mode
from chaos.host.processes import ProcessError, ServerProcess
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer
from raftmq.bench.load import Result
from raftmq.bench.suite import BODY_BYTES, IN_FLIGHT, send_load
from remoting.errors import RemotingError

NODES = 3
ASYNC_FLUSH, SYNC_FLUSH = "ASYNC_FLUSH", "SYNC_FLUSH"


class Setup(NamedTuple):
    """A broker group to measure."""

    mode: Mode
    brokers: int
    flush: str


# What is compared: name → how it is set up.
RAFT_MODES: Mapping[str, Setup] = {
    "single, async flush": Setup("single", 1, ASYNC_FLUSH),
    "single, sync flush": Setup("single", 1, SYNC_FLUSH),
    "raft, fsync": Setup("raft", NODES, SYNC_FLUSH),
    "raft, no fsync": Setup("raft", NODES, ASYNC_FLUSH),
}
# Each with RocketMQ's flushDiskType, ASYNC_FLUSH, but for the group, which promises the disks of a majority.
REPLICATION_MODES: Mapping[str, Setup] = {
    "single": Setup("single", 1, ASYNC_FLUSH),
    "async master, one slave": Setup("async", 2, ASYNC_FLUSH),
    "sync master, one slave": Setup("sync", 2, ASYNC_FLUSH),
    "raft, fsync": Setup("raft", NODES, SYNC_FLUSH),
}
FILL_BODY_BYTES = 64 * 1024
FILL_IN_FLIGHT = 64
CAUGHT_UP_TIMEOUT_S = 300.0
POLL_S = 0.01
PREPARE_S = 30.0
AGAIN_S = 0.05
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, in seconds, over several rounds."""

    what: str
    rounds: int
    p50_s: float
    max_s: float
    all_s: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def times(what: str, values: list[float]) -> Times:
    """Sum up rounds."""
    rounded = tuple(round(value, 3) for value in values)
    return Times(what, len(values), round(statistics.median(values), 3), max(rounded), rounded)


@contextmanager
def spawned_group(
    setup: Setup, parent: Path | None = None, settings: Mapping[str, object] | None = None
) -> Iterator[LocalCluster]:
    """Run a NameServer and brokers in a new folder, with production timers; `settings` are keys of broker.conf."""
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
        values = {"flushDiskType": setup.flush, **(settings or {})}
        cluster = LocalCluster(Path(folder), nodes=setup.brokers, mode=setup.mode, broker_settings=values)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.kill()


async def until_done(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the cluster does it: a broker that serves may not be registered yet. Raises ProcessError."""
    deadline = time.monotonic() + PREPARE_S
    while True:
        try:
            await ask()
        except (ClientError, RemotingError) as error:
            if time.monotonic() > deadline:
                raise ProcessError(f"the cluster does not take what is to be measured: {error}") from error
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def run_matrix(
    setups: Mapping[str, Setup], seconds: float, parent: Path | None = None
) -> AsyncGenerator[tuple[str, Result]]:
    """Yield sends by mode, size and requests in flight; the server's time is that of all brokers together."""
    for mode, setup in setups.items():
        with spawned_group(setup, parent) as cluster:
            leader = cluster.wait_for_leader()
            for size in BODY_BYTES:
                for in_flight in IN_FLIGHT:
                    result = await send_load(
                        leader.address,
                        in_flight=in_flight,
                        size=size,
                        seconds=seconds,
                        cpu_seconds=lambda: sum(broker.cpu_seconds() for broker in cluster.brokers),
                    )
                    yield mode, result


async def failover(rounds: int, parent: Path | None = None) -> Times:
    """Kill the leader under load, again and again: from kill -9 to the first acknowledged send."""
    taken = []
    with spawned_group(RAFT_MODES["raft, fsync"], parent) as cluster:
        async with Producer("bench_failover", cluster.address) as producer:
            await _send_until_acknowledged(producer)
            for _ in range(rounds):
                leader = await asyncio.to_thread(cluster.wait_for_leader)
                for _ in range(100):
                    await _send_until_acknowledged(producer)
                leader.kill()
                began = time.monotonic()
                await _send_until_acknowledged(producer)
                taken.append(time.monotonic() - began)
                await asyncio.to_thread(leader.start)
                await asyncio.to_thread(_wait_caught_up, cluster)
    return times("failover", taken)


async def cold_start(rounds: int, parent: Path | None = None) -> Times:
    """From the start of three brokers on empty folders to the first acknowledged send."""
    taken = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
            cluster = LocalCluster(Path(folder), nodes=NODES)
            try:
                cluster.namesrv.start()
                began = time.monotonic()
                for broker in cluster.brokers:
                    broker.launch()
                async with Producer("bench_start", cluster.address) as producer:
                    await _send_until_acknowledged(producer)
                taken.append(time.monotonic() - began)
            finally:
                cluster.kill()
    return times("start", taken)


async def recovery(restart_mib: int, behind_mib: int, parent: Path | None = None) -> dict[str, Any]:
    """Restart of a member with a long log, and catch-up of one that missed a part of it; leader's memory on the way."""
    with spawned_group(RAFT_MODES["raft, fsync"], parent) as cluster:
        leader = cluster.wait_for_leader()
        follower = next(broker for broker in cluster.brokers if broker is not leader)
        await fill(leader, 64)
        before = leader.memory_mb()
        await fill(leader, restart_mib)
        _wait_caught_up(cluster)
        follower.kill()
        began = time.monotonic()
        follower.start()
        ready_s = time.monotonic() - began
        _wait_caught_up(cluster)
        follower.kill()
        await fill(leader, behind_mib)
        end = position(leader)
        behind = end - behind_mib * MIB
        follower.launch()
        began_bytes: int | None = None
        began = time.monotonic()
        while (at := position(follower)) < end:
            now = time.monotonic()
            if began_bytes is None and at > behind:
                began, began_bytes = now, at
            if now - began > CAUGHT_UP_TIMEOUT_S:
                raise ProcessError(f"the follower stands at {at} of {end} after {CAUGHT_UP_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)
        took = time.monotonic() - began
        return {
            "restart_log_mib": round(end / MIB) - behind_mib,
            "restart_ready_s": round(ready_s, 2),
            "catch_up_mib": behind_mib,
            "catch_up_s": round(took, 2),
            "catch_up_mib_per_s": round((end - (began_bytes or behind)) / MIB / max(took, POLL_S)),
            "leader_memory_before_mb": round(before),
            "leader_memory_after_mb": round(leader.memory_mb()),
        }


async def memory(gib: int, parent: Path | None = None) -> list[dict[str, Any]]:
    """Memory of every member after each GiB appended; retention at work so that the disk stays small."""
    found = []
    with spawned_group(RAFT_MODES["raft, fsync"], parent) as cluster:
        leader = cluster.wait_for_leader()
        await fill(leader, 128)
        for done in range(gib + 1):
            found.append({"gib": done, **{broker.name: round(broker.anonymous_mb()) for broker in cluster.brokers}})
            if done < gib:
                await fill(leader, 1024)
    return found


async def _send_until_acknowledged(producer: Producer) -> None:
    while True:
        try:
            await producer.send(Message("bench_failover", b"x" * 100))
            return
        except (ClientError, RemotingError):
            await asyncio.sleep(POLL_S)


async def fill(
    leader: ServerProcess, mib: int, body_bytes: int = FILL_BODY_BYTES, in_flight: int = FILL_IN_FLIGHT
) -> None:
    """Append so much to the log; with few in flight a Raft entry is hardly more than one message."""
    end = position(leader) + mib * MIB
    while position(leader) < end:
        await send_load(leader.address, in_flight=in_flight, size=body_bytes, seconds=1.0)


def position(broker: ServerProcess) -> int:
    """Return where a member's log ends, 0 while it does not answer."""
    state = broker.state("/v1/raft")
    return int(state["end"]) if state is not None else 0


def _wait_caught_up(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + CAUGHT_UP_TIMEOUT_S
    while True:
        states = [broker.state("/v1/raft") for broker in cluster.brokers]
        if all(state is not None for state in states) and len({state["last"] for state in states if state}) == 1:
            return
        if time.monotonic() > deadline:
            raise ProcessError("the members did not catch up")
        time.sleep(POLL_S)
