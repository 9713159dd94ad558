"""Growth's figures: what one round has measured at one value of what grows, and a row of their medians."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from raftmq.bench.load import Result


@dataclass(frozen=True, slots=True)
class GrowthLoad:
    """What is measured in each round, of every value."""

    rounds: int = 3
    seconds: float = 1.0
    body_bytes: int = 100
    in_flight: int = 512
    """All requests in flight together, over however many connections."""


class ServerMemory(NamedTuple):
    """What the servers hold in memory, in MB: all of it, and what is no mapped file."""

    resident_mb: float
    own_mb: float


class GrowthSample(NamedTuple):
    """One measurement: a value of what grows, in one round. `what` says in words what was done."""

    of: str
    value: int
    number: int
    what: str
    result: Result
    memory: ServerMemory


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """One row: medians over the rounds."""

    of: str
    value: int
    what: str
    connections: int
    in_flight: int
    body_bytes: int
    rounds: int
    messages_per_s: int
    server_cpu_us_per_message: float | None
    to_first: float | None
    """How many times the first value's processor time a message costs: the median of the rounds' ratios."""
    p50_ms: float
    p99_ms: float
    client_busy: float
    server_resident_mb: float
    server_own_mb: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def growth_rows(samples: Iterable[GrowthSample]) -> list[GrowthRow]:
    """Return a row for each kind of request and value; the kinds as they came, their values from the lowest on."""
    kinds: dict[tuple[str, str], dict[int, dict[int, GrowthSample]]] = {}
    for sample in samples:
        values = kinds.setdefault((sample.of, sample.what), {})
        values.setdefault(sample.value, {})[sample.number] = sample
    return [_row(values[value], values[min(values)]) for values in kinds.values() for value in sorted(values)]


def _row(rounds: Mapping[int, GrowthSample], first: Mapping[int, GrowthSample]) -> GrowthRow:
    samples = list(rounds.values())
    results = [sample.result for sample in samples]
    costs = [cost for sample in samples if (cost := _cost(sample)) is not None]
    # A round's values are measured right after one another: what else the machine does comes to both of a pair.
    ratios = [
        cost / base
        for number, sample in rounds.items()
        if number in first and (cost := _cost(sample)) and (base := _cost(first[number]))
    ]
    return GrowthRow(
        of=samples[0].of,
        value=samples[0].value,
        what=samples[0].what,
        connections=results[0].connections,
        in_flight=results[0].in_flight * results[0].connections,
        body_bytes=results[0].body_bytes,
        rounds=len(samples),
        messages_per_s=round(statistics.median(one.messages_per_s for one in results)),
        server_cpu_us_per_message=round(statistics.median(costs), 2) if costs else None,
        to_first=round(statistics.median(ratios), 2) if ratios else None,
        p50_ms=round(statistics.median(one.p50_ms for one in results), 3),
        p99_ms=round(statistics.median(one.p99_ms for one in results), 3),
        client_busy=round(statistics.median(one.client_busy for one in results), 2),
        server_resident_mb=round(statistics.median(sample.memory.resident_mb for sample in samples), 1),
        server_own_mb=round(statistics.median(sample.memory.own_mb for sample in samples), 1),
    )


def _cost(sample: GrowthSample) -> float | None:
    return sample.result.server_cpu_us_per_message
