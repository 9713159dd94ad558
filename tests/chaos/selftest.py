"""Proves the harness by mutation: `make chaos-self`, or `python -m tests.chaos.selftest [--only NAME] [--seed N]`.

1. Every trial is run without a bug and must be valid.
2. Every planted bug is run through its trial and must be caught: verdict invalid, by a check that is named for it. A
   member that crashes, a run of unknown verdict or one that breaks down catches nothing. One that got away may be met
   once more, with the next seed: faults hit whom they hit.
3. Every anomaly of the catalogue is forged into a history or into store folders, and must be found by its witness.

Ends with 0 only when all of it holds. `--out DIR` leaves mutation.json and mutation.md there.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from chaos.apps.site import SiteError
from chaos.faults import whole
from chaos.host.processes import ProcessError
from chaos.pop.verdict import judge_pop_folder
from chaos.runs import closing, restart
from chaos.runs.run import RunError, recheck, run
from pipeline.history.parquet import HistoryError
from pipeline.history.results import Results, Verdict
from raftmq.cli.output import print_json, print_table
from runtime.loop import run as run_loop
from tests.chaos.planted.anomalies import Forged, forged
from tests.chaos.planted.bugs import BUGS, PlantedBug
from tests.chaos.planted.grafts import graft
from tests.chaos.planted.poptrial import PopTrial
from tests.chaos.planted.trials import TRIALS, Trial

# What is broken for good settles never and answers no scan: no closing waits longer than this for it.
CLOSING_S = 20.0
CLOSING_LIMITS = ("HEAL_S", "BARRIER_S", "ASK_S", "SCAN_S", "DRAIN_S")
RESTART_LIMITS = ("START_S", "LEVEL_S")
# A run that takes longer is given up.
RUN_S_MAX = 240.0
SEEDS_PER_BUG = 2
CONTROL = "(no bug)"


class Outcome(NamedTuple):
    """What came of one run."""

    name: str
    """Of the bug; CONTROL for a trial without one."""
    trial: str
    seed: int
    verdict: str
    checks: tuple[str, ...]
    """Those that found it invalid."""
    by: tuple[str, ...]
    """Those of them that were to find the bug."""
    good: bool
    """A bug was caught, or a control is valid."""
    seconds: float
    why: str = ""
    """Why it is not good."""


def arguments() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.selftest", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a bug or a trial; repeatable")
    parser.add_argument("--no-controls", action="store_true", help="run no trial without a bug")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print mutation.json in place of tables")
    parser.add_argument("--out", type=Path, help="leave mutation.json and mutation.md in this folder")
    parser.add_argument("--runs", type=Path, help="keep the folders of all runs here")
    return parser


def main() -> int:
    """Do what the command line says."""
    parser = arguments()
    options = parser.parse_args()
    unknown = sorted(set(options.only) - BUGS.keys() - TRIALS.keys() - {"anomalies"})
    if unknown:
        parser.error(
            f"no such bug or trial: {', '.join(unknown)}; there are: {', '.join([*BUGS, *TRIALS, 'anomalies'])}"
        )
    for name in CLOSING_LIMITS:
        graft(closing, name, lambda limit: min(limit, CLOSING_S))
    graft(whole, "WHOLE_S", lambda limit: min(limit, CLOSING_S))
    for name in RESTART_LIMITS:
        graft(restart, name, lambda limit: min(limit, CLOSING_S))
    # Ended by others it takes its folder away, as at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    session = Session(options.seed, options.runs, _say)
    return session.run(options.only, options.out, controls=not options.no_controls, as_json=options.json)


class Session:
    """All runs, one cluster at a time; `say` is told of each when it begins and when it is over."""

    def __init__(self, seed: int, runs: Path | None, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._runs = runs
        self._say = say
        self.controls: list[Outcome] = []
        self.caught: list[Outcome] = []
        self.anomalies: list[Forged] = []

    def run(self, only: Sequence[str], out: Path | None, *, controls: bool, as_json: bool) -> int:
        """Run everything, or what is named; return the exit code."""
        began = time.monotonic()
        bugs = [bug for bug in BUGS.values() if not only or bug.name in only]
        wanted = set(only) & TRIALS.keys() | ({bug.trial for bug in bugs} if controls else set())
        with tempfile.TemporaryDirectory(prefix="raftmq-self-") as name:
            folder = self._runs or Path(name)
            total = len(wanted) + len(bugs)
            for trial in [trial for trial in TRIALS if trial in wanted]:
                self.controls.append(self._told(self._control(folder, trial), total))
            for bug in bugs:
                self.caught.append(self._told(self._hunt(folder, bug), total))
            if not only or "anomalies" in only:
                self._say("forging every anomaly of the catalogue …")
                self.anomalies = list(forged(folder / "forged"))
        facts = self._facts(time.monotonic() - began)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / "mutation.json").write_bytes(orjson.dumps(facts, option=orjson.OPT_INDENT_2))
            (out / "mutation.md").write_text(markdown(facts), encoding="utf-8")
        if as_json:
            print_json(facts)
        else:
            _print_tables(facts)
        return 0 if facts["holds"] else 1

    def _told(self, outcome: Outcome, total: int) -> Outcome:
        number = len(self.controls) + len(self.caught) + 1
        word = "ok" if outcome.good else "NOT OK"
        what = f"caught by {', '.join(outcome.by)}" if outcome.by else outcome.verdict
        self._say(
            f"{number}/{total} {word} {outcome.trial}: {outcome.name} {what} in {outcome.seconds:.0f} s {outcome.why}"
        )
        return outcome

    def _control(self, folder: Path, name: str) -> Outcome:
        outcome, results = self._once(folder, CONTROL, name, TRIALS[name], "", self._seed)
        bad = [
            f"{one.check} {one.verdict}: {one.text or one.witnesses[:1]}"
            for one in (results.findings if results is not None else ())
            if one.verdict in {Verdict.INVALID, Verdict.UNKNOWN}
        ]
        good = outcome.verdict == Verdict.VALID
        return outcome._replace(good=good, why="" if good else "; ".join(bad) or outcome.why)

    def _hunt(self, folder: Path, bug: PlantedBug) -> Outcome:
        """Run a bug's trial until it is caught, at most SEEDS_PER_BUG times."""
        seconds = 0.0
        for seed in range(self._seed, self._seed + SEEDS_PER_BUG):
            outcome, _ = self._once(folder, bug.name, bug.trial, TRIALS[bug.trial], bug.plant, seed)
            by = tuple(sorted(bug.checks & set(outcome.checks)))
            good = outcome.verdict == Verdict.INVALID and bool(by)
            seconds += outcome.seconds
            if good:
                break
        why = "" if good else outcome.why or f"wanted: {', '.join(sorted(bug.checks))}, said: {outcome.checks}"
        return outcome._replace(by=by, good=good, seconds=seconds, why=why)

    def _once(
        self, folder: Path, name: str, trial_name: str, trial: Trial | PopTrial, plant: str, seed: int
    ) -> tuple[Outcome, Results | None]:
        where = folder / f"{trial_name}-{name if plant else 'control'}-{seed}"
        began = time.monotonic()
        results, why = None, ""
        self._say(f"{trial_name}: {name}, seed {seed} …")
        try:
            if isinstance(trial, PopTrial):
                made = trial.run(plant, seed, where)
            else:
                made = run(trial.planted(plant), seed, where, trial.schedule(seed))
            results = run_loop(asyncio.wait_for(made, RUN_S_MAX))
        except (RunError, ProcessError, SiteError, ExceptionGroup, TimeoutError) as error:
            why = f"{type(error).__name__}: {error}"
            results = _rejudged(where, judge_pop_folder if isinstance(trial, PopTrial) else recheck)
        invalid = tuple(one.check for one in results.findings if one.verdict == Verdict.INVALID) if results else ()
        verdict = str(results.verdict) if results is not None else "none"
        if self._runs is None:
            shutil.rmtree(where, ignore_errors=True)
        seconds = time.monotonic() - began
        return Outcome(name, trial_name, seed, verdict, invalid, (), good=False, seconds=seconds, why=why), results

    def _facts(self, seconds: float) -> dict[str, Any]:
        bugs, anomalies = self.caught, self.anomalies
        killed, found = sum(one.good for one in bugs), sum(one.found for one in anomalies)
        mutants = len(bugs) + len(anomalies)
        score = round(100 * (killed + found) / mutants, 1) if mutants else 100.0
        return {
            "seed": self._seed,
            "seconds": round(seconds),
            "bugs": {"planted": len(bugs), "caught": killed},
            "anomalies": {"forged": len(anomalies), "found": found},
            "score": score,
            "holds": score == 100.0 and all(one.good for one in self.controls),
            "runs": [one._asdict() for one in bugs],
            "controls": [one._asdict() for one in self.controls],
            "forged": [one._asdict() for one in anomalies],
        }


def _rejudged(folder: Path, judge: Callable[[Path], Results]) -> Results | None:
    """Judge what a run left that broke down; None when that is nothing."""
    try:
        return judge(folder)
    except (HistoryError, OSError, ValueError):
        return None


def rows_of(facts: dict[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of both tables: runs, and forged anomalies."""
    runs = []
    for one in [*facts["controls"], *facts["runs"]]:
        text = BUGS[one["name"]].text if one["name"] in BUGS else TRIALS[one["trial"]].text
        by = ", ".join(one["by"]) or ("" if one["name"] == CONTROL else "nothing")
        good = "yes" if one["good"] else f"NO: {one['why']}"
        runs.append([one["name"], text, one["trial"], one["verdict"], by, f"{one['seconds']:.0f}", good])
    anomalies = [
        [one["check"], one["title"], one["kind"], one["planter"], "yes" if one["found"] else f"NO: {one['why']}"]
        for one in facts["forged"]
    ]
    return runs, anomalies


RUN_COLUMNS = ("bug", "what it does", "trial", "verdict", "caught by", "s", "as it must be")
ANOMALY_COLUMNS = ("check", "anomaly", "forged into", "by", "found")


def summary(facts: dict[str, Any]) -> str:
    """Return the score in a line."""
    bugs, anomalies = facts["bugs"], facts["anomalies"]
    valid = sum(one["good"] for one in facts["controls"])
    return (
        f"mutation score {facts['score']:g} %: {bugs['caught']} of {bugs['planted']} planted bugs caught, "
        f"{anomalies['found']} of {anomalies['forged']} forged anomalies found; "
        f"{valid} of {len(facts['controls'])} controls valid; {facts['seconds']} s, seed {facts['seed']}"
    )


def markdown(facts: dict[str, Any]) -> str:
    """Return both tables and the score as Markdown."""
    runs, anomalies = rows_of(facts)
    return f"{summary(facts)}\n\n{_lines(RUN_COLUMNS, runs)}\n\n{_lines(ANOMALY_COLUMNS, anomalies)}\n"


def _lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = [columns, ["---"] * len(columns)]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in [*head, *rows])


def _print_tables(facts: dict[str, Any]) -> None:
    for columns, rows in zip((RUN_COLUMNS, ANOMALY_COLUMNS), rows_of(facts), strict=True):
        print_table(columns, rows, empty="")
    print(summary(facts))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
