"""A bounded part of the torture (`make torture` does it for a quarter of an hour), and its negative control."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.runs.run import run
from chaos.runs.scenario import Scenario
from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import Planned, Schedule
from chaos.runs.self_checks import own_findings
from chaos.runs.session import lasting
from pipeline.history.folder import RunFolder
from pipeline.history.results import Verdict
from tests.chaos.verdicts import assert_valid, wrong

SCALE = float(os.environ.get("RAFTMQ_TORTURE_SCALE", "1"))
SECONDS = 8.0
RATE = 800.0
# Between two faults so many sends are acknowledged.
STEP = 800
CLOSING_S = 5.0
PLANTED = "tests.chaos.planted_control"

FAULTS = ("kill-leader", "cut-leader-to-follower", "part-kill", "power-all")
# Each with how long it lasts, in ms.
DAMAGE = {
    "clock-step-leader": 2000,
    "lose-file-killed": 0,
    "rot-running-follower": 300,
    "lose-file-follower": 300,
    "rot-follower": 300,
    "lose-queues-killed": 0,
}
FILE_BYTES = 128 * 1024


def bounded(**changes: object) -> Scenario:
    short = lasting(SCENARIOS["torture"], SECONDS * SCALE)
    return replace(short, rate=RATE, acknowledged_min=500, **changes)  # type: ignore[arg-type] # as the caller gives them


def schedule(*names: str, lasts_ms: Mapping[str, int] | None = None) -> Schedule:
    lasting_ms = dict.fromkeys(names, 2000) | dict(lasts_ms or {})
    planned = (
        Planned(number, name, after=STEP * (number + 1), idle_ms=4000, lasts_ms=lasting_ms[name], seed=number)
        for number, name in enumerate(names)
    )
    return Schedule("torture", 1, tuple(planned))


@pytest.mark.timeout(240)
async def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """On a slow disk, so that a power cut always finds something that was not synced."""
    results = await run(bounded(planted=f"{PLANTED}:slow_disk"), 1, tmp_path, schedule(*FAULTS))
    assert_valid(results, tmp_path)
    lost = [fault.effect for fault in RunFolder(tmp_path).faults() if fault.name == "power-all"]
    assert re.search(r"[1-9]\d* bytes lost", lost[0]), lost


@pytest.mark.timeout(240)
async def test_what_was_damaged_is_mended_and_nothing_expires(tmp_path: Path) -> None:
    """Each kind of damage once, in a log of many files; in the end all members start, and are equal to the end."""
    scenario = bounded()
    scenario = replace(scenario, settings={**scenario.settings, "mappedFileSizeCommitLog": FILE_BYTES})
    results = await run(scenario, 1, tmp_path, schedule(*DAMAGE, lasts_ms=DAMAGE))
    assert_valid(results, tmp_path)
    judged = {finding.check: finding.verdict for finding in results.findings}
    assert {judged[check] for check in ("M-start", "M-level", "M-time")} == {Verdict.VALID}
    run_folder = RunFolder(tmp_path)
    assert [fault.name for fault in run_folder.faults() if fault.effect] == list(DAMAGE)
    for change in (lose_a_file, lose_a_queue, lose_the_end):
        change(run_folder.after()[1])
        (found,) = [one for one in own_findings(run_folder) if one.check == "M-level"]
        assert found.verdict is Verdict.INVALID, (change.__name__, found)
        shutil.rmtree(run_folder.after()[1])
        shutil.copytree(run_folder.after()[0], tmp_path / "data-after" / "n1")


def lose_a_file(store: Path) -> None:
    sorted((store / "commitlog").iterdir())[1].unlink()


def lose_a_queue(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "chaos_send" / "3")


def lose_the_end(store: Path) -> None:
    """The last file that has something in it is zeros from its middle on."""
    path = [path for path in sorted((store / "commitlog").iterdir()) if any(path.read_bytes())][-1]
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[: len(data) // 2].ljust(path.stat().st_size, b"\0"))


@pytest.mark.timeout(240)
async def test_the_negative_control_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that acknowledge before fdatasync on a slow disk must be caught, or the torture proves nothing."""
    # What is broken for good gets level and starts never: nobody waits for that as long as for what should.
    for limit in (
        "chaos.runs.closing.HEAL_S",
        "chaos.runs.closing.BARRIER_S",
        "chaos.runs.restart.START_S",
        "chaos.runs.restart.LEVEL_S",
    ):
        monkeypatch.setattr(limit, CLOSING_S)
    scenario = bounded(planted=f"{PLANTED}:acknowledge_before_sync")
    results = await run(scenario, 1, tmp_path, schedule("power-all", "power-all"))
    assert results.verdict is Verdict.INVALID, wrong(results)
    broken = {finding.check for finding in results.findings if finding.verdict is Verdict.INVALID}
    # Lost, not on a majority's disks, or no start: the floor or the checkpoint promises what the disk never got.
    assert broken & {"A1", "B2", "B8", "B9", "M-start"}, broken
