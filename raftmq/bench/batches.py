"""Batches against single sends, in turn, to one broker group: how many times the messages per second."""

import asyncio
import statistics
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from raftmq.bench.frames import BadAnswer
from raftmq.bench.group import RAFT_MODES, spawned_group
from raftmq.bench.load import BatchSends, LoadedBroker, Result, Sends, run_load

TOPIC = "bench_batches"
SINGLE, BATCH = "send", "batch"
# 500,000 messages/s in batches, in the hour in which single sends reach 80,000.
RATIO_AIM = 6.0


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """What is measured in each round: single sends, then batches."""

    mode: str = "raft, fsync"
    count: int = 32
    """Messages of a batch."""
    body_bytes: int = 100
    sends_in_flight: int = 512
    batches_in_flight: int = 256
    rounds: int = 5
    seconds: float = 2.0


class BatchRound(NamedTuple):
    """One measurement."""

    kind: str
    number: int
    result: Result


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """Medians over the rounds of one kind."""

    what: str
    in_flight: int
    body_bytes: int
    rounds: int
    messages_per_s: int
    p50_ms: float
    p99_ms: float
    server_cpu_us_per_message: float | None
    client_busy: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


async def run_batches(load: BatchLoad, parent: Path | None = None) -> AsyncGenerator[BatchRound]:
    """Yield each measurement; `figures` and `ratio` sum them up. Raises ProcessError, BadAnswer."""
    with spawned_group(RAFT_MODES[load.mode], parent) as cluster:
        kinds = {
            SINGLE: (Sends(TOPIC, load.body_bytes), load.sends_in_flight),
            BATCH: (BatchSends(TOPIC, load.body_bytes, load.count), load.batches_in_flight),
        }
        for number in range(load.rounds):
            for kind, (work, in_flight) in kinds.items():
                # Again each time: the lead may have moved.
                leader = await asyncio.to_thread(cluster.wait_for_leader)
                result = await run_load(
                    kind if kind == SINGLE else f"batch of {load.count}",
                    LoadedBroker(leader.address, lambda: sum(broker.cpu_seconds() for broker in cluster.brokers)),
                    lambda work=work: work,  # type: ignore[misc] # one connection, so one of them
                    in_flight=in_flight,
                    seconds=load.seconds,
                    body_bytes=load.body_bytes,
                )
                if result.errors or not result.messages:
                    raise BadAnswer(f"{kind}: of {result.requests} requests were refused {result.errors}")
                yield BatchRound(kind, number, result)


def figures(measured: Sequence[BatchRound]) -> list[BatchFigures]:
    """Return the medians of each kind that was measured."""
    rows = []
    for kind in (SINGLE, BATCH):
        results = [one.result for one in measured if one.kind == kind]
        if not results:
            continue
        cpu = [one.server_cpu_us_per_message for one in results if one.server_cpu_us_per_message is not None]
        rows.append(
            BatchFigures(
                results[0].what,
                results[0].in_flight,
                results[0].body_bytes,
                len(results),
                round(statistics.median(one.messages_per_s for one in results)),
                round(statistics.median(one.p50_ms for one in results), 2),
                round(statistics.median(one.p99_ms for one in results), 2),
                round(statistics.median(cpu), 2) if cpu else None,
                round(statistics.median(one.client_busy for one in results), 2),
            )
        )
    return rows


def ratio(measured: Sequence[BatchRound]) -> float | None:
    """Return how many times the messages of single sends batches bring, the median of the rounds that have both."""
    rates: dict[int, dict[str, float]] = {}
    for one in measured:
        rates.setdefault(one.number, {})[one.kind] = one.result.messages_per_s
    found = [both[BATCH] / both[SINGLE] for both in rates.values() if len(both) == 2]
    return round(statistics.median(found), 2) if found else None
