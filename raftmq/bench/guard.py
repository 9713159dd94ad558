"""Guard against getting slower: this tree and the last release side by side, loaded by turns, pair after pair.

A machine's mood changes within seconds, so only the two halves of one pair are compared, and which comes first changes
from pair to pair. A process is a few percent faster or slower from its start to its end, whichever version it is of;
so both are started several times, and what is said of their ratio is said over the starts (raftmq/bench/intervals.py).
"""

import statistics
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError
from raftmq.bench.frames import BadAnswer
from raftmq.bench.group import ASYNC_FLUSH, NODES, SYNC_FLUSH, Setup
from raftmq.bench.intervals import ratio_interval
from raftmq.bench.load import LoadedBroker, Pulls, Result, Sends, run_load
from raftmq.bench.suite import PULL_COUNT, max_offsets
from raftmq.bench.versions import RunVersion

T = TypeVar("T")

GuardSide = Literal["base", "this"]

# A version whose messages per second are surely below so much of the other's is slower.
SLOWER_BELOW = 0.9
IN_FLIGHT = (1, 64, 512)
BODY_BYTES = 100
SENT_TO, PULLED_FROM = "bench_guard", "bench_guard_pulls"
# The first messages of each queue, which are pulled; and attempts of a second each to have them stored.
PULLED_OF_A_QUEUE = 2048
FILL_ATTEMPTS = 60


class GuardKind(NamedTuple):
    """One kind of load: which brokers it comes to, and whether it pulls."""

    what: str
    setup: Setup
    pulls: bool = False


_SINGLE = Setup("single", 1, ASYNC_FLUSH)
KINDS: Mapping[str, GuardKind] = {
    "single-async": GuardKind("single, async flush", _SINGLE),
    "pull": GuardKind(f"single, pull of {PULL_COUNT}", _SINGLE, pulls=True),
    "single-sync": GuardKind("single, sync flush", Setup("single", 1, SYNC_FLUSH)),
    "raft": GuardKind("raft, fsync", Setup("raft", NODES, SYNC_FLUSH)),
}


@dataclass(frozen=True, slots=True)
class GuardLoad:
    """What is measured of both."""

    kinds: Sequence[str] = tuple(KINDS)
    in_flight: Sequence[int] = IN_FLIGHT
    rounds: int = 9
    seconds: float = 0.8
    starts: int = 3


class GuardPair(NamedTuple):
    """One pair of measurements."""

    kind: str
    in_flight: int
    start: int
    number: int
    base: Result
    this: Result

    @property
    def ratio(self) -> float:
        """How many times the base's messages per second this tree's are."""
        return self.this.messages_per_s / self.base.messages_per_s


@dataclass(frozen=True, slots=True)
class GuardRow:
    """One load, summed up: medians, the ratio of this tree's messages per second to the base's, and its interval."""

    what: str
    in_flight: int
    starts: int
    rounds: int
    base_per_s: int
    this_per_s: int
    ratio: float
    ratio_low: float
    ratio_high: float
    ratio_of_starts: tuple[float, ...]
    base_p99_ms: float
    this_p99_ms: float
    load_busy: float
    """The share of the time that the load itself was at work: near 1 it hides what brokers differ by."""
    base_refused: int
    this_refused: int

    @property
    def slower(self) -> bool:
        """Whether this tree is slower with confidence."""
        return self.ratio_high < SLOWER_BELOW

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self) | {"slower": self.slower}


async def run_guard(
    base: RunVersion, this: RunVersion, load: GuardLoad, parent: Path | None = None
) -> AsyncGenerator[GuardPair]:
    """Yield each pair as it is measured; `guarded` sums them up. Raises ProcessError, BadAnswer."""
    by_setup: dict[Setup, list[str]] = {}
    for kind in load.kinds:
        by_setup.setdefault(KINDS[kind].setup, []).append(kind)
    for start in range(load.starts):
        for setup, kinds in by_setup.items():
            with ExitStack() as stack:
                # Starts block the loop, for a signal that comes meanwhile must find all of them on the stack.
                clusters = [
                    stack.enter_context(GuardedCluster(side, version, setup, parent))
                    for side, version in _ordered({"base": base, "this": this}, start)
                ]
                for cluster in clusters:
                    await cluster.prepare(kinds)
                for number in range(load.rounds):
                    for kind in kinds:
                        for in_flight in load.in_flight:
                            found = {}
                            for _, cluster in _ordered({one.side: one for one in clusters}, number):
                                found[cluster.side] = await cluster.measure(kind, in_flight, load.seconds)
                            yield GuardPair(kind, in_flight, start, number, found["base"], found["this"])


def _ordered(sides: Mapping[GuardSide, T], number: int) -> list[tuple[GuardSide, T]]:
    """Return base and this tree, or the other way round when the number is odd."""
    order: tuple[GuardSide, GuardSide] = ("this", "base") if number % 2 else ("base", "this")
    return [(side, sides[side]) for side in order]


class GuardedCluster:
    """Running servers of one version. Use as a context manager."""

    def __init__(self, side: GuardSide, version: RunVersion, setup: Setup, parent: Path | None) -> None:
        self.side = side
        self._version = version
        self._setup = setup
        self._parent = parent
        self._stack = ExitStack()
        self._ends: list[int] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=self._parent))
            setup = self._setup
            self._cluster = cluster = LocalCluster(
                Path(folder), nodes=setup.brokers, mode=setup.mode, broker_settings={"flushDiskType": setup.flush}
            )
            for server in cluster.servers:
                server.environment = self._version.environment
            stack.callback(cluster.kill)
            try:
                cluster.start()
            except ProcessError as error:
                raise ProcessError(f"{self.side}, {self._version.source}: {error}") from error
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    async def prepare(self, kinds: Iterable[str]) -> None:
        """Store what is pulled, if anything is: as much at both, however fast they are. Raises ProcessError."""
        if not any(KINDS[kind].pulls for kind in kinds):
            return
        broker = LoadedBroker(self._cluster.wait_for_leader().address)
        work = Sends(PULLED_FROM, BODY_BYTES)
        for _ in range(FILL_ATTEMPTS):
            await run_load("fill", broker, lambda: work, in_flight=512, seconds=0.5)
            ends = await max_offsets(broker.address, PULLED_FROM)
            if min(ends) >= PULLED_OF_A_QUEUE:
                self._ends = [PULLED_OF_A_QUEUE for _ in ends]
                return
        raise ProcessError(f"{self.side} stored too little to be pulled in {FILL_ATTEMPTS} seconds: {ends}")

    async def measure(self, kind: str, in_flight: int, seconds: float) -> Result:
        """Load it once. Raises BadAnswer when it does nothing of what is asked."""
        brokers = self._cluster.brokers
        leader = self._cluster.wait_for_leader()
        broker = LoadedBroker(leader.address, lambda: sum(each.cpu_seconds() for each in brokers))
        work = Pulls(PULLED_FROM, self._ends, PULL_COUNT) if KINDS[kind].pulls else Sends(SENT_TO, BODY_BYTES)
        found = await run_load(
            KINDS[kind].what, broker, lambda: work, in_flight=in_flight, seconds=seconds, body_bytes=BODY_BYTES
        )
        if not found.messages:
            raise BadAnswer(
                f"{self.side} served none of {found.requests} requests ({found.what}, {in_flight} in flight):"
                f" codes {found.errors}"
            )
        return found


def guarded(pairs: Iterable[GuardPair]) -> list[GuardRow]:
    """Return a row for each load that was measured, in the order of KINDS and of requests in flight."""
    loads: dict[tuple[str, int], list[GuardPair]] = {}
    for pair in pairs:
        loads.setdefault((pair.kind, pair.in_flight), []).append(pair)
    order = list(KINDS)
    return [_row(loads[load]) for load in sorted(loads, key=lambda load: (order.index(load[0]), load[1]))]


def _row(pairs: Sequence[GuardPair]) -> GuardRow:
    starts: dict[int, list[float]] = {}
    for pair in pairs:
        starts.setdefault(pair.start, []).append(pair.ratio)
    sure = ratio_interval(list(starts.values()))
    base, this = [pair.base for pair in pairs], [pair.this for pair in pairs]
    return GuardRow(
        what=KINDS[pairs[0].kind].what,
        in_flight=pairs[0].in_flight,
        starts=len(starts),
        rounds=len(pairs),
        base_per_s=round(statistics.median(one.messages_per_s for one in base)),
        this_per_s=round(statistics.median(one.messages_per_s for one in this)),
        ratio=round(sure.middle, 3),
        ratio_low=round(sure.low, 3),
        ratio_high=round(sure.high, 3),
        ratio_of_starts=tuple(round(statistics.median(rounds), 3) for rounds in starts.values()),
        base_p99_ms=round(statistics.median(one.p99_ms for one in base), 3),
        this_p99_ms=round(statistics.median(one.p99_ms for one in this), 3),
        load_busy=round(statistics.median(one.client_busy for one in base + this), 2),
        base_refused=sum(sum(one.errors.values()) for one in base),
        this_refused=sum(sum(one.errors.values()) for one in this),
    )
