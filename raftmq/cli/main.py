"""The command `raftmq`: what all its commands (raftmq/cli/themes.py) have in common."""

import gc
import logging
import os
import sys
from typing import Annotated

import typer

from raftmq.cli.output import one_line_errors
from raftmq.cli.themes import Themes

# Objects made between two rounds of the garbage collector, as in a broker that runs (broker/main.py): what is imported
# stays, and looking through it at every 700 took 20 ms of each start.
GC_ALLOCATIONS = 50_000

# Nobody here multiplies matrices: threads for that, and a buffer for each, are half of what NumPy takes to be imported,
# and that was a tenth of a broker's start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="raftmq",
    cls=Themes,
    help="RaftMQ: a message broker that speaks RocketMQ's own protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from remoting.compiled.door import describe
        from runtime.version import RELEASE

        typer.echo(f"raftmq {RELEASE}, hot path: {describe()}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Take what stands before the command."""


def main() -> None:
    """Run the command; the process's exit code is its own."""
    gc.set_threshold(GC_ALLOCATIONS, 20, 50)
    # What the client logs of its retries is no news at a terminal: what fails in the end is said in one line. Server
    # commands set up logging of their own.
    logging.getLogger().setLevel(logging.ERROR)
    try:
        # Whatever a command does outside of its own care: reading files, importing what an extra brings, printing.
        with one_line_errors():
            app()
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()
