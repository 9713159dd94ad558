"""Which faults a run has, and when: drawn from the seed, kept as JSON, played again from it.

A fault fires at a count of acknowledged operations, so that a replay breaks things at the same points of the load
however fast the machine is. Where nothing is acknowledged any more, it fires after `idle_ms`. Whom it hits is looked
up when it fires, and with what dice is written here: each fault has a seed of its own.

    {"format": 1, "scenario": "kill-leader", "seed": 7, "faults": [
        {"after": 4000, "idle_ms": 5000, "lasts_ms": 1500, "name": "kill-leader", "seed": 123, "number": 0}, …]}
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from chaos.runs.nemesis import FAULTS, Effect, FaultSite, Unable, inflict, make
from runtime.loop import still_wanted

FORMAT = 1
# Of a schedule: more is no run that anybody waits for.
FAULTS_MAX = 10_000
# Faults come in periods: one lasts, the group recovers, load goes on. A quarter of the periods have none.
QUIET_SHARE = 0.25
# The load runs undisturbed for this share of the run before the first fault and after the last one.
LEAD_SHARE, TAIL_SHARE = 0.1, 0.15
LASTS_MS_MIN, LASTS_MS_MAX = 300, 3000
# What hits the leader lasts two of the longest election timeouts: another one is to be elected meanwhile.
LEADER_LASTS_MS_MIN = 2000
# Nothing was acknowledged for so long: the next fault does not wait any more.
IDLE_MS = 5000
POLL_S = 0.01


class ScheduleError(ValueError):
    """A schedule that cannot be played; the text says why."""


class Drawn(Protocol):
    """What a schedule is drawn for (chaos.runs.scenario.Scenario)."""

    @property
    def name(self) -> str:
        """Of the scenario."""
        ...

    @property
    def faults(self) -> Sequence[str]:
        """Names in FAULTS; one that stands twice is drawn twice as often."""
        ...

    @property
    def seconds(self) -> float:
        """How long the load runs."""
        ...

    @property
    def rate(self) -> float:
        """Operations per second that are asked for."""
        ...

    @property
    def pace(self) -> float:
        """Operations per second that are expected to be acknowledged; 0: the rate."""
        ...

    @property
    def period_s(self) -> float:
        """How long a period is, which has one fault or none."""
        ...


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: it fires when `after` operations are acknowledged, or nothing was for `idle_ms`, and lasts."""

    number: int
    name: str
    after: int
    idle_ms: int
    lasts_ms: int
    seed: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All faults of a run, in the order in which they fire."""

    scenario: str
    seed: int
    faults: tuple[Planned, ...]

    def json(self) -> bytes:
        """Return it as a file holds it: the same schedule is the same bytes."""
        fields = {
            "format": FORMAT,
            "scenario": self.scenario,
            "seed": self.seed,
            "faults": [asdict(planned) for planned in self.faults],
        }
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)

    def cut_short(self, fired: int, acknowledged: int) -> str:
        """Say why a run whose time was over has fired only its first faults: `fired` of them, fewer than there are."""
        due = self.faults[fired].after
        why = (
            f"{acknowledged} operations were acknowledged, the next one waits for {due}"
            if acknowledged < due
            else "it took too long until the cluster was well behind each (is the machine busy?)"
        )
        return f"{fired} of {len(self.faults)} faults fired: {why}"


def draw(seed: int, scenario: Drawn) -> Schedule:
    """Draw a scenario's faults; the same seed and scenario give the same schedule. Raises ScheduleError.

    Each kind fires once, in an order that is drawn, before one fires again.
    """
    check_names(scenario.faults)
    rng = random.Random(f"{seed}/{scenario.name}")
    expected = (scenario.pace or scenario.rate) * scenario.seconds
    begin, end = expected * LEAD_SHARE, expected * (1 - TAIL_SHARE)
    broken_s = scenario.seconds * (1 - LEAD_SHARE - TAIL_SHARE)
    periods = max(1, int(broken_s / scenario.period_s)) if scenario.faults else 0
    length = (end - begin) / periods if periods else 0.0
    deck: list[str] = []
    planned: list[Planned] = []
    for period in range(periods):
        # A short run with several kinds has no time to be quiet.
        spare = periods - period > len(deck or set(scenario.faults))
        quiet = rng.random() < QUIET_SHARE
        if quiet and spare:
            continue
        if not deck:
            deck = _shuffled(scenario.faults, rng)
        name = deck.pop()
        shortest = LEADER_LASTS_MS_MIN if "leader" in name else LASTS_MS_MIN
        planned.append(
            Planned(
                number=len(planned),
                name=name,
                after=int(begin + length * (period + rng.uniform(0.0, 0.3))),
                idle_ms=IDLE_MS,
                lasts_ms=rng.randint(shortest, LASTS_MS_MAX),
                seed=rng.getrandbits(32),
            )
        )
    return Schedule(scenario.name, seed, tuple(planned))


def _shuffled(faults: Sequence[str], rng: random.Random) -> list[str]:
    """Return each kind once, and then what stands more than once again: the next to fire stands last."""
    kinds = sorted(set(faults))
    again = sorted((Counter(faults) - Counter(kinds)).elements())
    rng.shuffle(kinds)
    rng.shuffle(again)
    return again + kinds


def check_names(names: Sequence[str]) -> None:
    """Raise ScheduleError when one of the names is no fault's."""
    unknown = sorted(set(names) - FAULTS.keys())
    if unknown:
        raise ScheduleError(f"no fault is called {', '.join(unknown)}; there are: {', '.join(sorted(FAULTS))}")


def save(schedule: Schedule, path: Path) -> None:
    """Write a schedule's file; raises OSError."""
    path.write_bytes(schedule.json())


def load(path: Path) -> Schedule:
    """Read a schedule's file; raises ScheduleError that says what is wrong with it."""
    try:
        fields = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ScheduleError(f"{path} cannot be read as a schedule: {error}") from error
    try:
        return _parsed(fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ScheduleError(f"{path} is no schedule: {error!r}; `raftmq chaos run` writes schedule.json") from error
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from error


def _parsed(fields: Any) -> Schedule:
    if fields["format"] != FORMAT:
        raise ScheduleError(f"it has format {fields['format']}, known is {FORMAT}: a newer raftmq wrote it")
    if len(fields["faults"]) > FAULTS_MAX:
        raise ScheduleError(f"it has {len(fields['faults'])} faults, allowed are {FAULTS_MAX}")
    planned = tuple(Planned(**one) for one in fields["faults"])
    check_names([one.name for one in planned])
    for one in planned:
        numbers = (one.number, one.after, one.idle_ms, one.lasts_ms, one.seed)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ScheduleError(f"fault {one.number} has a number that is none or below 0: {numbers}")
    if any(one.after > other.after for one, other in itertools.pairwise(planned)):
        raise ScheduleError("its faults are not in the order of `after`")
    return Schedule(str(fields["scenario"]), int(fields["seed"]), planned)


class Fired(Protocol):
    """Told of each fault: when it begins, and what came of it."""

    def began(self, planned: Planned, acknowledged: int) -> None:
        """Take note that it fires now, at this count of acknowledged operations."""
        ...

    def healed(self) -> None:
        """Take note that nothing is broken any more: from now on the cluster may be expected to get well."""
        ...

    def ended(self, planned: Planned, effect: Effect) -> None:
        """Take note that the cluster is well.

        An effect without proof: it could not be done (`wanted` says why then), or nothing shows that it was.
        """
        ...


async def play(
    schedule: Schedule,
    site: FaultSite,
    acknowledged: Callable[[], int],
    fired: Fired,
    *,
    stop: asyncio.Event,
    do: Callable[..., Awaitable[Effect]] = inflict,
) -> int:
    """Fire all faults, one after the other, each when its time has come; returns how many. Raises NotHealed.

    `acknowledged` tells the count of operations so far. When `stop` is set no further fault begins; the one under way
    goes on to its end, so that the history tells all of it. A cancelled one is healed, and told as one without end.
    """
    for planned in schedule.faults:
        if not await _due(planned, acknowledged, stop):
            return planned.number
        fired.began(planned, acknowledged())
        try:
            rng = random.Random(planned.seed)
            effect = await do(make(planned.name), site, rng, lasts_s=planned.lasts_ms / 1000, healed=fired.healed)
        except Unable as error:
            effect = Effect("", str(error), "")
        fired.ended(planned, effect)
        still_wanted()
    return len(schedule.faults)


async def _due(planned: Planned, acknowledged: Callable[[], int], stop: asyncio.Event) -> bool:
    """Wait until a fault's count is reached, or nothing was acknowledged for its idle time; False when stopped."""
    loop = asyncio.get_running_loop()
    seen, since = acknowledged(), loop.time()
    while not stop.is_set() and (count := acknowledged()) < planned.after:
        if count != seen:
            seen, since = count, loop.time()
        elif (loop.time() - since) * 1000 >= planned.idle_ms:
            break
        await asyncio.sleep(POLL_S)
        still_wanted()
    return not stop.is_set()
