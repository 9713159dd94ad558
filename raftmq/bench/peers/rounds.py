"""Measuring by turns: in each round each system is loaded once, so that what the machine does beside comes to all.

By default each is started for its turn and ended after it. Or all are up at once (`together`), which is over sooner,
but those whose turn it is not take their part of the processor: RocketMQ looks for work every millisecond.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from chaos.host.processes import ProcessError
from raftmq.bench.backlog import room_in
from raftmq.bench.frames import BadAnswer
from raftmq.bench.peers.processes import family_seconds, known_processes
from raftmq.bench.peers.rawclient import RawLoad, RawResult, build, run_raw
from raftmq.bench.peers.systems import SYSTEMS, TOPIC, PeerSystem

IN_FLIGHT = (1, 64, 512)
LEAD_IN_S = 0.5
SETTLE_S = 90.0
SETTLE_AGAIN_S = 0.5
SETTLED_S = 0.3
WARM_IN_FLIGHT = 64
# Python and Erlang's code is not compiled as it runs; a little fills files and buffers.
WARM_UP_OTHERS_S = 3.0
# After the warm-up Java compiles on for a while, which would be part of what is measured next. At rest is what uses
# little of a core, or no less than it did a moment ago: DLedger takes nearly half of one for ever.
CALM_CORES = 0.15
CALM_FALLS = 0.9
CALM_TIMEOUT_S = 90.0
CALM_SAMPLE_S = 2.0
# For the room on the disk: what a system stores a second at most, by messages and by bytes, and what a record has
# beside its body.
GUESSED_PER_S = 150_000
GUESSED_BYTES_PER_S = 500_000_000
RECORD_BYTES = 300
# Messages that are pulled, as rawload/rocketmq.c has it: of four queues, each time from their begin.
PULLED = 4 * 40_000
FILL_IN_FLIGHT = 256
FILL_S = 1.0
PULL_PROMISE = "pulls of 32 messages"
GB = 10**9


@dataclass(frozen=True, slots=True)
class PeersLoad:
    """What is measured."""

    systems: Sequence[str]
    in_flight: Sequence[int] = IN_FLIGHT
    body_bytes: int = 100
    rounds: int = 3
    seconds: float = 2.0
    warm_up_s: float = 25.0
    """Of load after a start, for what is compiled as it runs; the others get at most three seconds."""
    together: bool = False
    """Whether all are up at once."""
    pulls: bool = False
    """Pulls of messages that were sent before, in place of sends."""

    def warm_up_of(self, system: str) -> float:
        """Return the seconds of load that a system gets before it is measured."""
        return self.warm_up_s if SYSTEMS[system].compiles else min(self.warm_up_s, WARM_UP_OTHERS_S)

    def disk_bytes(self) -> int:
        """Return what the stores will hold at most at once."""
        round_s = len(self.in_flight) * (self.seconds + LEAD_IN_S)
        copied_s = [
            SYSTEMS[name].copies * ((self.rounds if self.together else 1) * round_s + self.warm_up_of(name))
            for name in self.systems
        ]
        seconds = sum(copied_s) if self.together else max(copied_s)
        if self.pulls:
            # What is sent goes on until there is enough to be pulled.
            seconds += len(self.systems) * PULLED / GUESSED_PER_S
        return int(seconds * min(GUESSED_PER_S * (self.body_bytes + RECORD_BYTES), GUESSED_BYTES_PER_S))


class PeerTurn(NamedTuple):
    """Whose turn it is; `again`: the first system once more, which shows what chance does."""

    system: str
    again: bool


@dataclass(frozen=True, slots=True)
class PeerRound:
    """One measurement. What is of servers is of all processes of a system."""

    round: int
    system: str
    again: bool
    promise: str
    in_flight: int
    body_bytes: int
    acknowledged: int = 0
    seconds: float = 0.0
    messages_per_s: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    cpu_us_per_message: float | None = None
    client_busy: float = 0.0
    others_busy: float = 0.0
    """Processor time of the systems whose turn it was not, as a share of one core."""
    errors: int = 0
    failed: str | None = None
    """Why the round does not count."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def turns(systems: Sequence[str], number: int) -> list[PeerTurn]:
    """Return a round's order: each comes first in its turn, and the first system twice, apart from one another."""
    order = [PeerTurn(name, again=False) for name in systems]
    order.insert(len(order) // 2 + 1, PeerTurn(systems[0], again=True))
    by = number % len(order)
    return order[by:] + order[:by]


async def run_peers(
    load: PeersLoad, say: Callable[[str], None], parent: Path | None = None
) -> AsyncGenerator[PeerRound]:
    """Start what is to be measured, and yield each measurement; raises ProcessError, BadAnswer.

    One system's failure costs that system its measurements, unless all are up at once.
    """
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
        room, needed = room_in(Path(folder)), load.disk_bytes()
        if room < needed:
            raise ProcessError(
                f"the stores may come to {needed / GB:.0f} GB, and the disk takes {max(room, 0) / GB:.0f} GB until "
                "brokers take no more: take fewer --systems, --rounds or --seconds, or another folder by --dir"
            )
        program = await asyncio.to_thread(build, Path(folder))
        work = _together if load.together else _one_by_one
        async with aclosing(work(load, program, say, Path(folder))) as rounds:
            async for one in rounds:
                yield one


async def _one_by_one(
    load: PeersLoad, program: Path, say: Callable[[str], None], parent: Path
) -> AsyncGenerator[PeerRound]:
    for number in range(load.rounds):
        for turn in turns(load.systems, number):
            with tempfile.TemporaryDirectory(dir=parent) as folder, ExitStack() as stack:
                bench = PeersBench(load, program, say)
                try:
                    await bench.start(turn.system, Path(folder), stack)
                    await bench.prepare(turn.system)
                    await bench.calm()
                except (BadAnswer, ProcessError) as error:
                    # Of the others there is something to be said all the same.
                    for in_flight in load.in_flight:
                        yield replace(bench.told(number, turn, in_flight), failed=str(error))
                    continue
                for in_flight in load.in_flight:
                    yield await bench.measure(number, turn, in_flight)


async def _together(
    load: PeersLoad, program: Path, say: Callable[[str], None], folder: Path
) -> AsyncGenerator[PeerRound]:
    with ExitStack() as stack:
        bench = PeersBench(load, program, say)
        for name in load.systems:
            await bench.start(name, folder, stack)
        for name in load.systems:
            await bench.prepare(name)
        say(f"all are at rest, which takes {await bench.calm():.0%} of a core …")
        for number in range(load.rounds):
            for in_flight in load.in_flight:
                for turn in turns(load.systems, number):
                    yield await bench.measure(number, turn, in_flight)


async def started(system: PeerSystem) -> None:
    """Start a system in a thread; who is cancelled meanwhile leaves nothing running. Raises ProcessError."""
    work = asyncio.ensure_future(asyncio.to_thread(system.start))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        # What has begun is ended, which ends the waiting for it; what the thread began just now, in the next turn.
        while not work.done():
            system.kill()
            await asyncio.wait([work], timeout=SETTLE_AGAIN_S)
        work.exception()
        raise


class PeersBench:
    """The systems that are up, and the program that loads them."""

    def __init__(self, load: PeersLoad, program: Path, say: Callable[[str], None]) -> None:
        """`say` tells a person what takes time."""
        self._load = load
        self._program = program
        self._say = say
        self._systems: dict[str, PeerSystem] = {}

    async def start(self, name: str, folder: Path, stack: ExitStack) -> None:
        """Start a system and wait until it takes sends; `stack` ends it. Raises ProcessError."""
        self._say(f"{name} starts …")
        system = self._systems[name] = SYSTEMS[name].make(folder / name)
        stack.callback(system.kill)
        await started(system)
        await self._settle(name)
        await asyncio.to_thread(system.settled)

    async def _settle(self, name: str) -> None:
        """Send until every send is acknowledged; raises ProcessError."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                found = await self._run(name, in_flight=1, lead_in_s=0.0, seconds=SETTLED_S)
                if found.acknowledged and not found.errors:
                    break
                why = found.first_error or "nothing was acknowledged"
            except (BadAnswer, ProcessError) as error:
                why = str(error)
            if time.monotonic() > deadline:
                raise ProcessError(f"{name} does not take what is to be measured: {why}")
            await asyncio.sleep(SETTLE_AGAIN_S)

    async def prepare(self, name: str) -> None:
        """Load a system before it is measured; answers may be errors yet. Raises BadAnswer, ProcessError."""
        if self._load.pulls:
            await self._fill(name)
        seconds = self._load.warm_up_of(name)
        if seconds > 0:
            self._say(f"{name} is warmed up for {seconds:g} s …")
            await self._run(name, in_flight=WARM_IN_FLIGHT, lead_in_s=0.0, seconds=seconds, pulls=self._load.pulls)

    async def _fill(self, name: str) -> None:
        """Send what is to be pulled. Raises BadAnswer, ProcessError."""
        self._say(f"{name} is filled …")
        deadline, stored = time.monotonic() + SETTLE_S, 0
        while stored < PULLED:
            found = await self._run(name, in_flight=FILL_IN_FLIGHT, lead_in_s=0.0, seconds=FILL_S)
            stored += found.acknowledged
            if time.monotonic() > deadline:
                raise ProcessError(f"{name} has stored {stored} of {PULLED} messages in {SETTLE_S:g} s")

    async def calm(self) -> float:
        """Wait until the systems use no less of the processor with time; return the share of one core."""
        deadline, last = time.monotonic() + CALM_TIMEOUT_S, 0.0
        while True:
            began, before = time.monotonic(), sum(self._cpu_seconds().values())
            await asyncio.sleep(CALM_SAMPLE_S)
            used = (sum(self._cpu_seconds().values()) - before) / (time.monotonic() - began)
            if used <= CALM_CORES or 0 < last * CALM_FALLS <= used or time.monotonic() > deadline:
                return used
            last = used

    def told(self, number: int, turn: PeerTurn, in_flight: int) -> PeerRound:
        """Return what is known of a measurement before it is made."""
        promise = PULL_PROMISE if self._load.pulls else SYSTEMS[turn.system].promise
        return PeerRound(number, turn.system, turn.again, promise, in_flight, self._load.body_bytes)

    async def measure(self, number: int, turn: PeerTurn, in_flight: int) -> PeerRound:
        """Measure one system; a round in which anything is refused, or that breaks off, says so."""
        told = self.told(number, turn, in_flight)
        samples: list[dict[str, float]] = []
        try:
            found = await self._run(
                turn.system,
                in_flight=in_flight,
                lead_in_s=LEAD_IN_S,
                seconds=self._load.seconds,
                at_mark=lambda: samples.append(self._cpu_seconds()),
                pulls=self._load.pulls,
            )
        except (BadAnswer, ProcessError) as error:
            return replace(told, failed=str(error))
        if len(samples) != 2:
            return replace(told, failed="the load did not say when it began and ended")
        used = {name: samples[1][name] - samples[0][name] for name in self._systems}
        return _round_of(told, found, used)

    async def _run(
        self,
        name: str,
        *,
        in_flight: int,
        lead_in_s: float,
        seconds: float,
        at_mark: Callable[[], None] | None = None,
        pulls: bool = False,
    ) -> RawResult:
        system = self._systems[name]
        port = await system.port()
        protocol = f"{system.protocol}-pulls" if pulls else system.protocol
        load = RawLoad(protocol, port, TOPIC, in_flight, self._load.body_bytes, lead_in_s, seconds)
        return await run_raw(self._program, load, at_mark)

    def _cpu_seconds(self) -> dict[str, float]:
        known = known_processes()
        return {name: family_seconds(known, system.pids()) for name, system in self._systems.items()}


def _round_of(told: PeerRound, found: RawResult, used: dict[str, float]) -> PeerRound:
    """Put a measurement together; `used` is the processor time of each system meanwhile."""
    why = None
    if found.errors:
        why = f"{found.errors} answers were errors, the first: {found.first_error}"
    elif not found.acknowledged:
        why = "nothing was acknowledged"
    others = sum(seconds for name, seconds in used.items() if name != told.system)
    cpu = round(used[told.system] / found.acknowledged * 1e6, 2) if found.acknowledged else None
    return replace(
        told,
        acknowledged=found.acknowledged,
        seconds=round(found.seconds, 3),
        messages_per_s=round(found.acknowledged / found.seconds),
        p50_ms=found.p50_ms,
        p99_ms=found.p99_ms,
        max_ms=found.max_ms,
        cpu_us_per_message=cpu,
        client_busy=round(found.client_busy, 3),
        others_busy=round(others / found.seconds, 3),
        errors=found.errors,
        failed=why,
    )
