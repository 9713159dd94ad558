"""`raftmq chaos`: fault scenarios against a real local cluster, and what is left of a run judged and reported again.

Exit codes of this command, which CI servers trust: 0 valid, 1 invalid, 2 unknown, 254 the command line is wrong,
255 it broke down itself, 130 interrupted.
"""

import secrets
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from raftmq.cli.chaos_apps import apps
from raftmq.cli.chaos_pop import pop
from raftmq.cli.options import Json
from raftmq.cli.output import INTERRUPTED, emit, fail, print_json

if TYPE_CHECKING:
    from chaos.report.run import NotRun, Reported
    from chaos.runs.run import Progress
    from chaos.runs.scenario import Scenario

USAGE, CRASH = 254, 255
OWN_COMMANDS = [
    ("raftmq chaos apps", "applications of all kinds come, go and die while the cluster does"),
    ("raftmq chaos pop", "consumers pop, hold and acknowledge, and are killed while they hold; their leader falls"),
]
FOLDER = Path("chaos-runs")
RunFolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Folder of a run, or of several.")
]


class ChaosGroup(TyperGroup):
    """Ends with 254 where others end with 2 when the command line is wrong, for 2 is a verdict here; as is 1."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the group's own arguments."""
        with endings():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Read a command's arguments, and run it."""
        with endings():
            return super().invoke(ctx)


app = typer.Typer(
    cls=ChaosGroup,
    help="Break a real local cluster under load, and judge whether it kept its promises.",
    epilog="Exit codes: 0 valid, 1 invalid, 2 unknown, 254 wrong command line, 255 it broke down itself.",
    no_args_is_help=True,
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Print the scenarios and suites, with what each breaks and what must hold."""
    from chaos.runs.scenarios import SCENARIOS, SUITES

    rows = [
        (s.name, s.mode, ", ".join(s.workload_names), _faults(s.faults), s.seconds, s.tier, s.text)
        for s in SCENARIOS.values()
    ]
    columns = ("scenario", "mode", "workloads", "faults", "seconds", "tier", "what")
    value = {
        "scenarios": [dict(zip(columns, row, strict=True)) for row in rows],
        "suites": {name: list(names) for name, names in SUITES.items()},
    }
    emit(as_json, value, columns, rows)
    if not as_json:
        typer.echo("")
        emit(False, None, ("suite", "scenarios"), [(name, ", ".join(names)) for name, names in SUITES.items()])
        typer.echo("")
        emit(False, None, ("command of its own", "what"), OWN_COMMANDS)


@app.command()
def probe(as_json: Json = False) -> None:
    """Try what this machine lets us break: a scenario that needs more is skipped, and said to be."""
    from chaos.runs.tiers import probe as try_all

    found = try_all()
    rows = [(one.name, one.tier, one.ok, one.why) for one in found]
    emit(as_json, [one._asdict() for one in found], ("means", "tier", "here", "why not"), rows)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SCENARIO|SUITE]...", help="See `chaos list`.")] = None,
    suite: Annotated[str, typer.Option("--suite", help="A suite; the same as naming it.")] = "",
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="All that is random comes from it; otherwise one is drawn.")
    ] = None,
    budget: Annotated[
        str,
        typer.Option("--budget", metavar="TIME", help="Time for all together, 90s, 5m, 1h30m; loads are fitted to it."),
    ] = "",
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1, help="How long each load lasts, instead of what its scenario says."),
    ] = None,
    schedule: Annotated[
        Path | None,
        typer.Option("--schedule", exists=True, dir_okay=False, help="Fire the faults of this schedule.json again."),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where runs and reports go, a folder for each.")] = FOLDER,
    secure: Annotated[
        bool, typer.Option("--secure", help="With users and TLS everywhere: servers, links, clients, readings.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the stores of valid runs too; others are always kept.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run scenarios one after the other and write report.html, junit.xml and summary.md for all and for each."""
    from chaos.runs.schedule import ScheduleError, load
    from chaos.runs.session import SessionError, lasting, within
    from raftmq.cli.chaos_session import Session

    chosen = _chosen([*(names or []), *([suite] if suite else [])])
    if seconds is not None and budget:
        raise typer.BadParameter("--budget says how long loads last; leave one of the two out", param_hint="--seconds")
    if schedule is not None and len(chosen) != 1:
        raise typer.BadParameter("it is one scenario's: name that one", param_hint="--schedule")
    try:
        planned = load(schedule) if schedule is not None else None
    except ScheduleError as error:
        raise typer.BadParameter(str(error), param_hint="--schedule") from error
    try:
        fitted = within(chosen, parse_time(budget)) if budget else chosen
        if seconds is not None:
            fitted = [lasting(one, seconds) for one in chosen]
    except SessionError as error:
        raise typer.BadParameter(str(error), param_hint="--budget") from error
    if secure:
        fitted = [replace(one, secure=True) for one in fitted]
    drawn = secrets.randbelow(2**31) if seed is None else seed
    with _ended_like_by_ctrl_c(), _progress() as progress:
        session = Session(folder, drawn, keep=keep, progress=progress)
        session.run(fitted, planned)
    _tell(session.runs, session.not_run, folder, as_json)
    if session.broken:
        raise typer.Exit(CRASH)
    _exit(session.runs, session.not_run)


@app.command()
def recheck(folder: RunFolderArgument, as_json: Json = False) -> None:
    """Judge runs again by what they left, without a cluster, and write their reports again."""
    from chaos.runs.run import recheck as judge

    def again(run_folder: Path) -> None:
        from pipeline.history.folder import RunFolder

        if not RunFolder(run_folder).members():
            raise _NotPossible(f"{run_folder} has no stores: those of valid runs are only kept with `chaos run --keep`")
        judge(run_folder)

    _report(folder, again, as_json)


@app.command()
def report(folder: RunFolderArgument, as_json: Json = False) -> None:
    """Write report.html, junit.xml and summary.md again, from the results that the runs have."""
    _report(folder, lambda _: None, as_json)


app.command()(apps)
app.command()(pop)


class _NotPossible(Exception):
    """What the command was asked for cannot be done with this folder."""


def _report(folder: Path, first: Callable[[Path], None], as_json: bool) -> None:
    from chaos.report.report import write_report, write_suite
    from chaos.report.run import ReportError
    from pipeline.history.folder import INFO
    from pipeline.history.parquet import HistoryError

    alone = (folder / INFO).exists()
    folders = [folder] if alone else sorted(path.parent for path in folder.glob(f"*/{INFO}"))
    if not folders:
        fail(f"{folder} holds no run: `raftmq chaos run` makes some below {FOLDER}", USAGE)
    runs = []
    try:
        for each in folders:
            first(each)
            runs.append(write_report(each))
    except (_NotPossible, ReportError, HistoryError) as error:
        fail(str(error), USAGE)
    if not alone:
        write_suite(folder, runs)
    _tell(runs, (), folder, as_json)
    _exit(runs, ())


def _chosen(names: Sequence[str]) -> "list[Scenario]":
    """Return the scenarios behind the names of scenarios and suites, each once."""
    from chaos.runs.scenarios import SCENARIOS, SUITES

    if not names:
        raise typer.BadParameter("name a scenario or a suite; `raftmq chaos list` shows them")
    single = [one for name in names for one in SUITES.get(name, (name,))]
    unknown = [name for name in single if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"no scenario or suite is called {', '.join(unknown)}; `raftmq chaos list` shows them")
    return [SCENARIOS[name] for name in dict.fromkeys(single)]


def parse_time(text: str) -> float:
    """Return the seconds of 90, 90s, 5m, 1h30m; raises BadParameter for anything else."""
    import re

    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not found or not any(found.groups()):
        raise typer.BadParameter(f"{text!r} is no time: write 90s, 5m or 1h30m", param_hint="--budget")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _faults(names: Sequence[str]) -> str:
    from collections import Counter

    return ", ".join(name if count == 1 else f"{name} {count}x" for name, count in Counter(names).items()) or "none"


def _tell(runs: "Sequence[Reported]", not_run: "Sequence[NotRun]", folder: Path, as_json: bool) -> None:
    """Print a line for each run and where the report is, or all of it as JSON."""
    from chaos.report.report import REPORT
    from chaos.report.text import overall, sentence

    if as_json:
        print_json(
            {
                "verdict": str(overall(runs, not_run)),
                "report": str(folder / REPORT),
                "runs": [
                    {
                        "scenario": run.scenario,
                        "seed": run.info.get("seed"),
                        "folder": str(run.folder),
                        **run.results.as_dict(),
                    }
                    for run in runs
                ],
                "not_run": [{"scenario": one.scenario, "verdict": str(one.verdict), "why": one.why} for one in not_run],
            }
        )
        return
    for run in runs:
        typer.echo(sentence(run))
        if run.results.exit_code:
            typer.echo(f"  again, in {run.folder}: {run.replay}")
    for one in not_run:
        typer.echo(f"{str(one.verdict).upper()} {one.scenario}: {one.why}")
    typer.echo(f"report: {folder / REPORT}")


def _exit(runs: "Sequence[Reported]", not_run: "Sequence[NotRun]") -> None:
    from chaos.report.text import overall
    from pipeline.history.results import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, Verdict

    codes = {Verdict.INVALID: EXIT_INVALID, Verdict.UNKNOWN: EXIT_UNKNOWN}
    raise typer.Exit(codes.get(overall(runs, not_run), EXIT_VALID))


@contextmanager
def _progress() -> "Iterator[Callable[[Scenario], Progress]]":
    """Show what happens on standard error: a moving line at a terminal, a line for each step in a log."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f} acknowledged"))
    with Bars(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bars:

        def begin(scenario: "Scenario") -> "Progress":
            task = bars.add_task(f"{scenario.name}: starting", total=None)

            def say(what: str, acknowledged: int) -> None:
                bars.update(task, description=f"{scenario.name}: {what}", completed=acknowledged)
                if not console.is_terminal:
                    count = f" ({acknowledged:,} acknowledged)" if acknowledged else ""
                    typer.echo(f"{scenario.name}: {what}{count}", err=True)

            return say

        yield begin


@contextmanager
def _ended_like_by_ctrl_c() -> Iterator[None]:
    """Take SIGTERM, by which CI ends a job, for Ctrl-C, between the runs too (within one: see run_until_told)."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def endings() -> Iterator[None]:
    """Give what ends a command its code. 255 is for the harness's own failures: no verdict must be read into them."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        # Typer's own errors about arguments are not public; what marks them is the code that they want to end with.
        if hasattr(error, "exit_code"):
            error.exit_code = USAGE
            raise
        broke_down()


def broke_down() -> NoReturn:
    """End a command whose 1 is a verdict, because of the error that is being handled."""
    typer.echo(traceback.format_exc(), err=True)
    fail("it broke down; this is no verdict about the cluster", CRASH)
