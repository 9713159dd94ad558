"""A bounded part of the torture (`make torture` does it for a quarter of an hour), and its negative control."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.run import run
from chaos.scenario import Scenario
from chaos.scenarios import SCENARIOS
from chaos.schedule import Planned, Schedule
from chaos.session import lasting
from pipeline.results import Results, Verdict
from pipeline.run import RunFolder

SCALE = float(os.environ.get("RAFTMQ_TORTURE_SCALE", "1"))
SECONDS = 8.0
RATE = 800.0
# Between two faults so many sends are acknowledged.
STEP = 800
PLANTED = "tests.chaos.planted_control"

FAULTS = ("kill-leader", "cut-leader-to-follower", "part-kill", "power-all")


def bounded(**changes: object) -> Scenario:
    short = lasting(SCENARIOS["torture"], SECONDS * SCALE)
    return replace(short, rate=RATE, acknowledged_min=500, **changes)  # type: ignore[arg-type] # as the caller gives them


def schedule(*names: str) -> Schedule:
    planned = (
        Planned(number=number, name=name, after=STEP * (number + 1), idle_ms=4000, lasts_ms=2000, seed=number)
        for number, name in enumerate(names)
    )
    return Schedule("torture", 1, tuple(planned))


def wrong(results: Results) -> list[object]:
    """What a run that should be valid is not."""
    bad = {Verdict.INVALID, Verdict.UNKNOWN}
    return [(one.check, one.text, one.witnesses[:2]) for one in results.findings if one.verdict in bad]


@pytest.mark.timeout(240)
async def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """On a slow disk, so that a power cut always finds something that was not synced."""
    results = await run(bounded(planted=f"{PLANTED}:slow_disk"), 1, tmp_path, schedule(*FAULTS))
    assert results.verdict is Verdict.VALID, wrong(results)
    lost = [fault.effect for fault in RunFolder(tmp_path).faults() if fault.name == "power-all"]
    assert re.search(r"[1-9]\d* bytes lost", lost[0]), lost


@pytest.mark.timeout(240)
async def test_the_negative_control_is_found_out(tmp_path: Path) -> None:
    """Members that acknowledge before fdatasync on a slow disk must be caught, or the torture proves nothing."""
    scenario = bounded(planted=f"{PLANTED}:acknowledge_before_sync")
    results = await run(scenario, 1, tmp_path, schedule("power-all", "power-all"))
    assert results.verdict is Verdict.INVALID, wrong(results)
    broken = {finding.check for finding in results.findings if finding.verdict is Verdict.INVALID}
    # Lost, and not on a majority's disks.
    assert broken & {"A1", "B2", "B8", "B9"}, broken
