"""Several scenarios one after the other, each reported as soon as it is over."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos.host.processes import ProcessError
from chaos.report.report import write_suite
from chaos.report.run import NotRun, Reported
from chaos.runs.run import Progress, RunError
from chaos.runs.scenario import Scenario
from chaos.runs.schedule import Schedule
from chaos.runs.session import SessionError, may_run, report_of
from chaos.runs.tiers import probe
from pipeline.history.results import Verdict
from runtime.loop import run_until_told


class Session:
    """Runs scenarios with one seed. `broken`: one of them ended without a verdict."""

    def __init__(self, folder: Path, seed: int, *, keep: bool, progress: Callable[[Scenario], Progress]) -> None:
        self._folder = folder
        self._seed = seed
        self._keep = keep
        self._progress = progress
        self.runs: list[Reported] = []
        self.not_run: list[NotRun] = []
        self.broken = False

    def run(self, scenarios: Sequence[Scenario], schedule: Schedule | None) -> None:
        """Run all of them. What breaks down is told, and the others run all the same."""
        capabilities = probe()
        self._folder.mkdir(parents=True, exist_ok=True)
        for scenario in scenarios:
            skipped = may_run(scenario, capabilities)
            if skipped is not None:
                self.not_run.append(skipped)
            else:
                folder = self._folder / f"{scenario.name}-{self._seed}"
                told = self._progress(scenario)
                try:
                    made = report_of(
                        scenario, self._seed, folder, capabilities, schedule=schedule, progress=told, keep=self._keep
                    )
                    self.runs.append(run_until_told(made))
                except (RunError, ProcessError, SessionError) as error:
                    self._break(scenario, str(error))
                except Exception as error:
                    (folder / "crash.txt").write_text(traceback.format_exc(), encoding="utf-8")
                    self._break(scenario, f"{type(error).__name__}: {error}; see {folder / 'crash.txt'}")
            write_suite(self._folder, self.runs, self.not_run)

    def _break(self, scenario: Scenario, why: str) -> None:
        self.broken = True
        self.not_run.append(NotRun(scenario.name, why, Verdict.UNKNOWN))
