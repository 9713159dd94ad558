"""The same seed and schedule fire the same faults in the same order at the same counts, whatever the machine does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.run import Run
from chaos.scenarios import SCENARIOS
from chaos.schedule import Schedule, draw, load, save
from pipeline.run import SCHEDULE, RunFolder

SEED = 11
# Long enough for several faults.
SCENARIO = replace(SCENARIOS["single"], seconds=14.0, rate=400.0, pace=200.0, period_s=3.5)


async def fired(folder: Path, schedule: Schedule) -> list[dict[str, Any]]:
    """Make a run, which nobody judges, and return what it fired."""
    await Run(SCENARIO, SEED, folder, schedule).run()
    found: list[dict[str, Any]] = RunFolder(folder).info()["fired"]
    return found


@pytest.mark.timeout(180)
async def test_a_replay_fires_the_same_faults_at_the_same_counts(tmp_path: Path) -> None:
    drawn = draw(SEED, SCENARIO)
    assert len({planned.name for planned in drawn.faults}) == 2
    save(drawn, tmp_path / SCHEDULE)
    assert draw(SEED, SCENARIO).json() == (tmp_path / SCHEDULE).read_bytes()
    for name, schedule in (("first", drawn), ("again", load(tmp_path / SCHEDULE))):
        told = await fired(tmp_path / name, schedule)
        assert [(one["number"], one["name"]) for one in told] == [(one.number, one.name) for one in drawn.faults]
        for one, planned in zip(told, drawn.faults, strict=True):
            assert one["acknowledged"] >= planned.after
            assert one["effect"]
