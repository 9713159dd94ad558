"""`raftmq chaos apps`: applications that come, go and die while the cluster does, and the verdict on what they saw."""

import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from pipeline.history.results import Results

CRASH = 255
SAID_EVERY_S = 10.0
# What a plan's JSON can hold.
SEED_MAX = 2**63 - 1
Say = Callable[[str, float, int], None]
"""Takes what is done, which part of the plan is over, and how many messages are acknowledged."""


def apps(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="How long things happen.")] = 10.0,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=SEED_MAX, help="What happens comes from it.")] = None,
    folder: Annotated[Path | None, typer.Option("--dir", help="Where the run's files go; kept.")] = None,
    again: Annotated[
        bool, typer.Option("--judge-again", help="Make no run: judge the one that is in --dir already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run applications of all kinds, start, close, cancel and kill them, break the cluster, and judge what they saw.

    Exit codes: 0 valid, 1 invalid, 254 unknown (evidence is missing) or a wrong command line, 255 it broke down itself.
    """
    from chaos.apps.driver import torture
    from chaos.apps.judge import EXIT_CODES, judge_folder
    from chaos.apps.plan import make_plan

    drawn, into = folder_of(folder, "apps", seed, again=again)
    if not again:
        make_run(into, lambda say: torture(make_plan(drawn, minutes * 60), into, say))
    elif not (into / "plan.json").exists():
        raise typer.BadParameter(f"{into} holds no run of applications", param_hint="--dir")
    results = judge_folder(into)
    if as_json:
        print_json(results.as_dict() | {"folder": str(into)})
    else:
        _tell(results, into)
    raise typer.Exit(EXIT_CODES[results.verdict])


def folder_of(folder: Path | None, what: str, seed: int | None, *, again: bool) -> tuple[int, Path]:
    """Return a run's seed and where its files go; a new run takes an empty folder, one that is judged again its own."""
    if again and folder is None:
        raise typer.BadParameter("name the run's folder with --dir", param_hint="--judge-again")
    drawn = secrets.randbelow(2**31) if seed is None else seed
    into = folder or Path("chaos-runs") / f"{what}-{drawn}"
    try:
        if again:
            used = not into.is_dir()
        else:
            into.mkdir(parents=True, exist_ok=True)
            used = any(into.iterdir())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{into} cannot be a run's folder: {error}", param_hint="--dir") from error
    if used:
        why = "is no folder" if again else "is not empty: a run needs a folder of its own"
        raise typer.BadParameter(f"{into} {why}", param_hint="--dir")
    return drawn, into


def make_run(into: Path, work: Callable[[Say], Coroutine[Any, Any, None]]) -> None:
    """Do it, and show how far it is; what breaks down is no verdict."""
    from chaos.apps.site import SiteError
    from chaos.host.processes import ProcessError
    from runtime.loop import run_until_told

    try:
        with _progress() as say:
            run_until_told(work(say))
    except (SiteError, ProcessError, ExceptionGroup) as error:
        fail(f"the run broke down, which is no verdict; its files are in {into}: {_text_of(error)}", CRASH)


def _tell(results: "Results", folder: Path) -> None:
    """Print what was found: a line for each check, tables of duplicates and of the longest calls."""
    figures = results.figures
    print_table(
        ("check", "verdict", "found", "what"),
        [(one.title, str(one.verdict), one.count, one.text) for one in results.findings],
    )
    for one in results.findings:
        for witness in one.witnesses[:3]:
            typer.echo(f"  {one.check}: {witness}")
    typer.echo("")
    _table_of("came again after", "after", figures["duplicates"])
    typer.echo("")
    _table_of("call", "call", figures["calls"])
    counts = ", ".join(f"{count:,} {fate}" for fate, count in sorted(figures["messages"].items()))
    typer.echo(
        f"\n{results.verdict.upper()} (seed {figures['seed']}, {figures['seconds']:g} s): messages {counts}; "
        f"{figures['deliveries']:,} deliveries, {figures['processes']} processes\nfiles: {folder}"
    )


def _table_of(title: str, key: str, rows: list[dict[str, Any]]) -> None:
    columns = [name for name in rows[0] if name != key] if rows else []
    print_table((title, *columns), [(row[key], *(row[name] for name in columns)) for row in rows])


def _text_of(error: BaseException) -> str:
    """Return what an error says, the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


@contextmanager
def _progress() -> Iterator[Say]:
    """Show how much of the plan is over on standard error: a bar at a terminal, a line now and then in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[acked]:,} acknowledged"))
    said, words = 0.0, ""
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0, acked=0)

        def say(what: str, part: float, acknowledged: int) -> None:
            nonlocal said, words
            bar.update(task, description=what, completed=part, acked=acknowledged)
            if not console.is_terminal and (what != words or time.monotonic() - said > SAID_EVERY_S):
                said, words = time.monotonic(), what
                typer.echo(f"{what}: {part:.0%} of the plan, {acknowledged:,} acknowledged", err=True)

        yield say
