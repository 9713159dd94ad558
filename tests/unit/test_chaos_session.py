"""The folder of a run: what a killed one left there is no hindrance, and what is somebody else's is left alone."""

from pathlib import Path

import pytest

import chaos.runs.session
from chaos.runs.run import Progress
from chaos.runs.scenario import Scenario
from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import Schedule
from chaos.runs.session import LOCK, SessionError, report_of
from pipeline.history.folder import INFO, SCHEDULE
from pipeline.history.results import Results, Verdict
from tests.parts.chaos_runs import findings, write_run

KILL = SCENARIOS["smoke-kill"]


class Killed(BaseException):
    """Stands for `kill -9`: nothing in the harness looks after what it had begun."""


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the folder instead of a run: "killed" ends in the middle of its beginning."""
    how: list[str] = []

    async def run(
        scenario: Scenario, seed: int, folder: Path, schedule: Schedule | None, progress: Progress | None
    ) -> Results:
        assert [path.name for path in folder.iterdir()] == [LOCK]
        if how.pop(0) == "killed":
            # As chaos/runs/run.py begins: the schedule and the history's folder before run.json.
            (folder / SCHEDULE).write_text("{}")
            (folder / "history").mkdir()
            raise Killed
        write_run(folder, Verdict.VALID, seed=seed, name=scenario.name)
        return Results(findings(Verdict.VALID))

    monkeypatch.setattr(chaos.runs.session, "run", run)
    return how


async def test_a_run_may_be_killed_before_it_has_said_what_it_is(tmp_path: Path, begins: list[str]) -> None:
    begins += ["killed", "killed", "done", "done"]
    for _ in range(2):
        with pytest.raises(Killed):
            await report_of(KILL, 1, tmp_path / "run", ())
        assert not (tmp_path / "run" / INFO).exists()
    for _ in range(2):
        assert (await report_of(KILL, 1, tmp_path / "run", ())).results.verdict == Verdict.VALID


async def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, begins: list[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SessionError, match="holds something else than a run"):
        await report_of(KILL, 1, tmp_path, ())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
