"""Schedules: the same seed gives the same bytes, a file gives the same schedule, and faults fire at their counts."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos.faults.base import Effect, FaultSite, Nemesis, Unable
from chaos.runs.nemesis import FAULTS
from chaos.runs.schedule import Planned, Schedule, ScheduleError, draw, load, play, save
from tests.parts.chaos_site import DoubledSite


@dataclass(frozen=True)
class Drawn:
    name: str = "mixed"
    faults: tuple[str, ...] = ("kill-leader", "kill-leader", "isolate-leader", "pause-follower")
    seconds: float = 300.0
    rate: float = 1000.0
    pace: float = 0.0
    period_s: float = 5.0


@dataclass
class Told:
    """What happened, in order."""

    lines: list[tuple[Any, ...]] = field(default_factory=list)

    def began(self, planned: Planned, acknowledged: int) -> None:
        self.lines.append(("began", planned.name, acknowledged))

    def healed(self) -> None:
        self.lines.append(("healed",))

    def ended(self, planned: Planned, effect: Effect) -> None:
        self.lines.append(("ended", planned.name, effect))


# Name, count, duration and dice of the first fault of seed 1 and of what is drawn by default above.
PINNED = ("isolate-leader", 30328, 2703, 3276089025)


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert draw(7, Drawn()).json() == draw(7, Drawn()).json()
    assert len({draw(seed, Drawn()).json() for seed in range(50)}) == 50
    assert draw(7, Drawn()).faults != draw(7, Drawn(name="other")).faults


def test_a_run_that_is_late_says_what_it_waited_for() -> None:
    schedule = draw(7, Drawn())
    due, of = schedule.faults[3].after, len(schedule.faults)
    assert schedule.cut_short(3, due - 1) == (
        f"3 of {of} faults fired: {due - 1} operations were acknowledged, the next one waits for {due}"
    )
    assert schedule.cut_short(3, due).startswith(f"3 of {of} faults fired: it took too long until the cluster was well")


def test_schedules_stay_as_they_were_drawn() -> None:
    """A seed that somebody wrote down gives the same faults with every version of the same format."""
    first = draw(1, Drawn()).faults[0]
    assert (first.name, first.after, first.lasts_ms, first.seed) == PINNED


def test_faults_fall_inside_of_the_run_in_order_and_by_weight() -> None:
    counted: Counter[str] = Counter()
    for seed in range(30):
        faults = draw(seed, Drawn()).faults
        assert [one.number for one in faults] == list(range(len(faults)))
        after = [one.after for one in faults]
        assert after == sorted(after)
        assert after[0] >= 30_000
        assert after[-1] <= 0.85 * 300_000
        assert 0.55 < len(faults) / 45 < 0.95, "about a quarter of the periods are quiet"
        assert {one.name for one in faults[:4]} >= {one.name for one in faults[:3]}
        assert len({one.name for one in faults[:3]}) == 3, "each kind once before one comes again"
        counted.update(one.name for one in faults)
    assert 1.6 < counted["kill-leader"] / counted["isolate-leader"] < 2.4


def test_a_short_run_does_all_it_has_time_for_and_one_without_faults_none() -> None:
    short = Drawn(faults=("kill-leader", "power-all"), seconds=12.0)
    for seed in range(20):
        assert {one.name for one in draw(seed, short).faults} <= set(short.faults)
        assert draw(seed, short).faults
    assert draw(1, Drawn(faults=())).faults == ()
    with pytest.raises(ScheduleError, match=r"no fault is called meteor; there are: .*kill-leader"):
        draw(1, Drawn(faults=("meteor",)))


def test_a_file_gives_the_same_schedule(tmp_path: Path) -> None:
    drawn = draw(3, Drawn(faults=tuple(FAULTS)))
    save(drawn, tmp_path / "schedule.json")
    assert load(tmp_path / "schedule.json") == drawn
    assert load(tmp_path / "schedule.json").json() == drawn.json()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "a newer raftmq wrote it"),
        ({"faults": [{"name": "kill-leader"}]}, "is no schedule"),
        ({"faults": None}, "is no schedule"),
        ({"faults": [{"number": 0, "name": "meteor", "after": 1, "idle_ms": 1, "lasts_ms": 1, "seed": 1}]}, "meteor"),
        ({"faults": [{"number": 0, "name": "flap", "after": -1, "idle_ms": 1, "lasts_ms": 1, "seed": 1}]}, "below 0"),
    ],
)
def test_what_is_no_schedule_is_refused_in_words(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    fields = orjson.loads(draw(3, Drawn()).json()) | change
    path = tmp_path / "schedule.json"
    path.write_bytes(orjson.dumps(fields))
    with pytest.raises(ScheduleError, match=words) as error:
        load(path)
    assert "\n" not in str(error.value)
    path.write_text("{")
    with pytest.raises(ScheduleError, match="cannot be read as a schedule"):
        load(path)
    with pytest.raises(ScheduleError, match="cannot be read"):
        load(tmp_path / "none")


def plan(*after: int, idle_ms: int = 60_000, lasts_ms: int = 0) -> Schedule:
    planned = [
        Planned(number, "kill-leader", count, idle_ms, lasts_ms, 10 + number) for number, count in enumerate(after)
    ]
    return Schedule("x", 1, tuple(planned))


async def replayed(schedule: Schedule, site: FaultSite) -> list[tuple[Any, ...]]:
    """Play a schedule beside a load of its own; return what was fired, at which count, with which dice."""
    count = 0
    dice = []

    def acknowledged() -> int:
        nonlocal count
        count += 1
        return count

    async def do(nemesis: Nemesis, _site: FaultSite, rng: random.Random, *, lasts_s: float, healed: Any) -> Effect:
        dice.append((nemesis.name, rng.random(), lasts_s))
        return Effect("n0", "leader", "done")

    told = Told()
    assert await play(schedule, site, acknowledged, told, stop=asyncio.Event(), do=do) == len(schedule.faults)
    return [*told.lines, *dice]


async def test_a_replay_fires_the_same_faults_in_the_same_order_at_the_same_counts(tmp_path: Path) -> None:
    site = DoubledSite(tmp_path)
    schedule = plan(3, 20, 30)
    first, second = await replayed(schedule, site), await replayed(schedule, site)
    assert first == second
    counts = [line[2] for line in first if line[0] == "began"]
    assert all(
        planned.after <= count <= planned.after + 3 for planned, count in zip(schedule.faults, counts, strict=True)
    )


async def test_a_fault_does_not_wait_for_a_load_that_stands_still(tmp_path: Path) -> None:
    told = Told()
    schedule = plan(1000, idle_ms=30)
    assert await play(schedule, DoubledSite(tmp_path), lambda: 5, told, stop=asyncio.Event()) == 1
    assert told.lines[0] == ("began", "kill-leader", 5)
    assert told.lines[1] == ("healed",)
    assert "ended with -9" in told.lines[2][2].effect


async def test_what_cannot_be_done_is_told_without_proof_and_the_next_fault_fires(tmp_path: Path) -> None:
    async def do(_nemesis: Nemesis, _site: FaultSite, rng: random.Random, *, lasts_s: float, healed: Any) -> Effect:
        if not lasts_s and rng.random() == random.Random(10).random():
            raise Unable("nothing to break")
        return Effect("n0", "leader", "done")

    told = Told()
    assert await play(plan(0, 0), DoubledSite(tmp_path), lambda: 0, told, stop=asyncio.Event(), do=do) == 2
    ended = [line[2] for line in told.lines if line[0] == "ended"]
    assert ended == [Effect("", "nothing to break", ""), Effect("n0", "leader", "done")]


async def test_after_the_load_has_ended_no_fault_begins(tmp_path: Path) -> None:
    stop, told = asyncio.Event(), Told()
    playing = asyncio.create_task(play(plan(0, 1000), DoubledSite(tmp_path), lambda: 1, told, stop=stop))
    while len(told.lines) < 3:
        await asyncio.sleep(0.01)
    stop.set()
    assert await playing == 1
    assert [line[0] for line in told.lines] == ["began", "healed", "ended"]


async def test_a_run_that_is_to_end_does_so_though_a_fault_keeps_that_to_itself(tmp_path: Path) -> None:
    """Healing that fails takes the place of the cancellation that it cleans up after."""
    under_way, told = asyncio.Event(), Told()

    async def do(_nemesis: Nemesis, _site: FaultSite, _rng: random.Random, *, lasts_s: float, healed: Any) -> Effect:
        under_way.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise Unable("it cannot be healed")

    playing = asyncio.create_task(play(plan(0, 0), DoubledSite(tmp_path), lambda: 0, told, stop=asyncio.Event(), do=do))
    await under_way.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert [line[0] for line in told.lines] == ["began", "ended"]
