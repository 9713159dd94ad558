"""How the benchmarks run: what all of them take, and how their mistakes are told."""

import math
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from raftmq.cli.output import fail, one_line_errors

T = TypeVar("T")

Folder = Annotated[
    Path | None, typer.Option("--dir", metavar="D", help="Folder for the stores; its disk is what is measured.")
]
# Nobody waits longer for one figure.
SECONDS_MAX = 3600.0
# Where there is no terminal, a line about what goes on follows the one before after so many seconds.
SAID_EVERY_S = 30.0


def finite(value: float) -> float:
    """Return an option's number; ends the command when it is none, which limits do not see."""
    if math.isnan(value):
        raise typer.BadParameter("this is no number")
    return value


def seconds_option(what: str, most: float = SECONDS_MAX) -> Any:
    """Return the option --seconds; `what` takes so long."""
    return typer.Option("--seconds", min=0.1, max=most, callback=finite, help=what)


def measured(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a measurement; what goes wrong with it ends the command with a sentence.

    SIGTERM, by which CI ends a job, ends it as Ctrl-C does: what it started goes with it.
    """
    from chaos.host.processes import ProcessError
    from raftmq.bench.frames import BadAnswer
    from runtime.loop import run_until_told

    try:
        with one_line_errors():
            return run_until_told(work())
    except (BadAnswer, ProcessError) as error:
        fail(str(error))


@contextmanager
def told_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Give what tells how far each part of a long work is: bars on standard error, a line now and then in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,}/s"),
    )
    bars: dict[str, TaskID] = {}
    began: dict[str, float] = {}
    said: dict[str, float] = {}
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as shown:

        def tell(what: str, done: int, total: int) -> None:
            now = time.monotonic()
            if what not in bars:
                bars[what], began[what], said[what] = shown.add_task(what, total=total, rate=0), now, now
            rate = round(done / max(now - began[what], 0.001))
            shown.update(bars[what], completed=done, total=total, rate=rate)
            if not console.is_terminal and now - said[what] > SAID_EVERY_S:
                said[what] = now
                typer.echo(f"{what}: {done:,} of {total:,}, {rate:,}/s", err=True)

        yield tell
