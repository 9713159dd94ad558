"""`raftmq verify`: judges what a run, or a broker group, left behind. Exit codes as of `raftmq chaos`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from raftmq.cli.chaos import USAGE, broke_down, endings
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from pipeline.history.folder import RunFolder
    from pipeline.history.results import Results
    from pipeline.judge import Progress

# Witnesses of a check that the table shows; results.json has up to 32.
SHOWN = 3


class OwnCommand(TyperCommand):
    """Ends with 254 where others end with 2 when the command line is wrong, for 2 is a verdict here."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments."""
        with endings():
            return super().make_context(*args, **kwargs)


def verify(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN_DIR]", exists=True, file_okay=False, help="A run's folder, of `raftmq chaos run`."
        ),
    ] = None,
    store: Annotated[
        list[Path] | None,
        typer.Option("--store", exists=True, file_okay=False, help="Store folder of a member; once for each."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history", exists=True, file_okay=False, help="A run's folder, judged by what clients saw alone."
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="What the stores' group promised: raft, raft-async, sync, async, single.")
    ] = "raft",
    engine: Annotated[
        str, typer.Option("--engine", help="plain (Python), spark, or auto: Spark for what is large.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where results.json goes; of a run: its own folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that nothing acknowledged is lost, repeated, misplaced or different, by 40 checks of clients and replicas.

    Give a run's folder, or the store folders of the members of a group whose brokers are stopped, or a history.
    What was promised and cannot be looked at, such as a store that is not there, makes the verdict unknown.
    Exit codes: 0 valid, 1 invalid, 2 unknown, 254 wrong command line, 255 it broke down itself.
    """
    from pipeline.history.folder import RunFolder
    from pipeline.history.parquet import HistoryError
    from pipeline.history.promises import MODES
    from pipeline.judge import ENGINES, EngineMissing, judge_history, judge_run, judge_stores

    chosen: Any = engine
    if engine not in ENGINES:
        fail(f"--engine is one of {', '.join(ENGINES)}", USAGE)
    if mode not in MODES:
        fail(f"--mode is one of {', '.join(MODES)}", USAGE)
    if sum(given is not None for given in (run, store or None, history)) != 1:
        fail("give one of RUN_DIR, --store DIR (once for each member), --history DIR", USAGE)
    try:
        with _progress() as told:
            if run is not None:
                results = _with_own(judge_run(RunFolder(run), engine=chosen, progress=told), RunFolder(run))
            elif history is not None:
                results = judge_history(RunFolder(history), engine=chosen, progress=told)
            else:
                results = judge_stores(store or [], mode, engine=chosen, progress=told)
    except (HistoryError, EngineMissing, OSError) as error:
        fail(str(error), USAGE)
    except ModuleNotFoundError:
        # Of an extra, which is told in one line (raftmq/extras.py).
        raise
    except Exception:
        broke_down()
    _keep(results, run, out)
    _tell(results, as_json)
    raise typer.Exit(results.exit_code)


def _with_own(results: "Results", run: "RunFolder") -> "Results":
    """Add what a run of `raftmq chaos` says of itself: whether it came to its end, and its bank's sum."""
    from dataclasses import replace

    from chaos.runs.self_checks import own_findings

    if "workloads" not in run.info():
        return results
    return replace(results, findings=(*results.findings, *own_findings(run)))


def _keep(results: "Results", run: Path | None, out: Path | None) -> None:
    """Write results.json, and of a run the reports; unless the one that is there rests on more evidence."""
    from pipeline.history.resultsfile import keep_results

    folder = out or run
    if folder is None:
        return
    why = keep_results(folder, results)
    if why:
        typer.echo(why, err=True)
    elif folder == run:
        from chaos.report.report import write_report

        write_report(folder)


def _tell(results: "Results", as_json: bool) -> None:
    from pipeline.history.results import Verdict

    if as_json:
        print_json(results.as_dict())
        return
    rows = [
        (one.check, str(one.verdict), one.count or "", one.title, one.text)
        for one in results.findings
        if one.verdict != Verdict.SKIPPED
    ]
    print_table(("check", "verdict", "count", "looks for", ""), rows)
    skipped = [one.check for one in results.findings if one.verdict == Verdict.SKIPPED]
    if skipped:
        typer.echo(f"nothing to look at for {', '.join(skipped)}")
    for one in results.findings:
        if one.verdict in {Verdict.INVALID, Verdict.UNKNOWN}:
            for witness in one.witnesses[:SHOWN]:
                typer.echo(f"{one.check}: {witness}")
    typer.echo(f"{str(results.verdict).upper()} (by {results.figures['engine']})")


@contextmanager
def _progress() -> "Iterator[Progress]":
    """Show which part is looked at, on standard error, at a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task("reading", total=None)
        yield lambda what: bars.update(task, description=what)
