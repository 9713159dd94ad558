"""`raftmq demo`: the main job in half a minute."""

from pathlib import Path
from typing import Annotated

import typer

from raftmq.cli.options import Json
from raftmq.cli.output import FAILED, fail, one_line_errors, print_json, print_table, run


def demo(
    messages: Annotated[int, typer.Option("--messages", "-m", min=2, help="Flights to send.")] = 20_000,
    input_file: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Send the lines of this file instead.")
    ] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With users and TLS on every port.")] = False,
    as_json: Json = False,
) -> None:
    """Send real records, kill -9 the leader of a three-node group half way, go on, consume all and compare."""
    from chaos.host.processes import ProcessError
    from raftmq.demo import Demo
    from raftmq.flights import RecordsError, flights, lines_of

    try:
        records = flights(messages) if input_file is None else lines_of(input_file)
        with one_line_errors():
            verdict = run(Demo(records, secure=secure, quiet=as_json).run)
    except (RecordsError, ProcessError) as error:
        fail(str(error))
    if as_json:
        print_json(verdict.as_dict())
    else:
        print_table(("", ""), verdict.rows())
        typer.echo(verdict.sentence())
    if not verdict.good:
        raise typer.Exit(FAILED)
