"""A scenario from start to report, for `raftmq chaos run` and the pytest plugin: may it run here; run, judge, tell."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from chaos.host.localfolder import FolderInUse, taken
from chaos.report.report import write_report
from chaos.report.run import NotRun, Reported
from chaos.runs.run import SITE, Progress, run
from chaos.runs.scenario import Scenario
from chaos.runs.schedule import Schedule
from chaos.runs.tiers import Capability, missing
from pipeline.history.folder import AFTER, DATA, EARLIER, INFO
from pipeline.history.results import Verdict

# What a run takes besides its load, on two cores: start, closings, judgement.
OVERHEAD_S = 35.0
SECONDS_MIN = 10.0
TABLE = "capabilities"
# Says that the folder is a run's, from before anything else stands in it, and who makes one there.
LOCK = "run.lock"
IN_USE = "wait until it is done, end it with Ctrl-C, or give this one another seed (--seed) or folder (--dir)"


class SessionError(Exception):
    """What was asked for cannot be done; the text says why and what to do."""


def may_run(scenario: Scenario, capabilities: Sequence[Capability]) -> NotRun | None:
    """Return why a scenario is skipped on a machine with these capabilities, None when it is not."""
    lacking = missing(scenario.faults, capabilities)
    if not lacking:
        return None
    return NotRun(scenario.name, "; ".join(f"{fault} needs {why}" for fault, why in lacking.items()))


async def report_of(
    scenario: Scenario,
    seed: int,
    folder: Path,
    capabilities: Sequence[Capability],
    *,
    schedule: Schedule | None = None,
    progress: Progress | None = None,
    keep: bool = False,
    replay: str = "",
) -> Reported:
    """Run a scenario in `folder`, whose earlier run is replaced, judge it and write its reports.

    `replay` is the command that makes the run again, where `raftmq chaos run` does not know the scenario.

    The stores of a valid run are removed unless they are to be kept: they are what makes a run large. Raises RunError
    when the cluster did not come up, SessionError for a folder that holds something else than a run.
    """
    with _room(folder):
        results = await run(scenario, seed, folder, schedule, progress)
        _complete(folder, capabilities, replay)
        reported = write_report(folder)
        if results.verdict == Verdict.VALID and not keep:
            for name in (DATA, EARLIER, AFTER, SITE):
                shutil.rmtree(folder / name, ignore_errors=True)
    return reported


@contextlib.contextmanager
def _room(folder: Path) -> Iterator[None]:
    """Have the folder, emptied, alone. What a run left is removed, also of one that was killed wherever it was."""
    if folder.exists() and not any((folder / name).exists() for name in (INFO, LOCK)) and any(folder.iterdir()):
        raise SessionError(f"{folder} holds something else than a run: name another folder by --dir")
    try:
        with taken(folder, servers=folder / SITE, lock_name=LOCK, by="raftmq chaos run", else_=IN_USE):
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
            yield
    except FolderInUse as error:
        raise SessionError(str(error)) from error


def within(scenarios: Sequence[Scenario], budget_s: float) -> list[Scenario]:
    """Return the scenarios with loads so long that all of them together take `budget_s`; raises SessionError.

    What a scenario asks as a minimum of acknowledged sends shrinks with its load.
    """
    share = (budget_s - OVERHEAD_S * len(scenarios)) / sum(scenario.seconds for scenario in scenarios)
    shortest = min(scenario.seconds for scenario in scenarios)
    if shortest * share < SECONDS_MIN:
        least = OVERHEAD_S * len(scenarios) + sum(s.seconds for s in scenarios) * SECONDS_MIN / shortest
        raise SessionError(f"{len(scenarios)} scenarios need at least {least:.0f} s: raise --budget or name fewer")
    return [lasting(scenario, scenario.seconds * share) for scenario in scenarios]


def lasting(scenario: Scenario, seconds: float) -> Scenario:
    """Return a scenario with a load of so many seconds; a shorter one asks for fewer acknowledged sends."""
    share = min(seconds / scenario.seconds, 1.0)
    least = int(scenario.promises.acknowledged_min * share)
    promises = replace(scenario.promises, acknowledged_min=least)
    asked = int(scenario.acknowledged_min * share)
    return replace(scenario, seconds=round(seconds, 1), acknowledged_min=asked, promises=promises)


def _complete(folder: Path, capabilities: Sequence[Capability], replay: str) -> None:
    path = folder / INFO
    info: Mapping[str, object] = orjson.loads(path.read_bytes())
    told = {
        **info,
        TABLE: [capability._asdict() for capability in capabilities],
        **({"replay": replay} if replay else {}),
    }
    path.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2))
