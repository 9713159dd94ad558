"""How the benchmarks run: what all of them take, and how their mistakes are told."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from raftmq.cli.output import fail, run

T = TypeVar("T")

Folder = Annotated[
    Path | None, typer.Option("--dir", metavar="D", help="Folder for the stores; its disk is what is measured.")
]


def measured(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a measurement; what goes wrong with it ends the command with a sentence."""
    from chaos.host.processes import ProcessError
    from raftmq.bench.frames import BadAnswer

    try:
        return run(work)
    except (BadAnswer, ProcessError) as error:
        fail(str(error))
