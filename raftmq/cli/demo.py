"""`raftmq demo`: the main job in half a minute."""

from pathlib import Path
from typing import Annotated

import typer

from raftmq.cli.options import Json
from raftmq.cli.output import FAILED, fail, one_line_errors, print_json, print_table, run


def demo(
    messages: Annotated[int, typer.Option("--messages", "-m", min=2, help="Messages to send.")] = 20_000,
    input_file: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Send the lines of this file instead.")
    ] = None,
    records: Annotated[
        str,
        typer.Option(help="flights (from the web), bundled (needs no web), or auto: flights where they can be had."),
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Send real records, kill -9 the broker half way, go on, consume everything and compare it with what was sent."""
    from raftmq.demo import Demo
    from raftmq.flights import RecordsError, lines_of, load_records
    from raftmq.processes import ProcessError

    if records not in {"auto", "flights", "bundled"}:
        fail(f"--records {records}: it takes auto, flights or bundled", code=2)
    try:
        if input_file is not None:
            source = lines_of(input_file)
            count = len(source.items)
        else:
            source = load_records(records)  # type: ignore[arg-type]
            count = messages
        if source.note and not as_json:
            typer.echo(f"note: {source.note}")
        with one_line_errors():
            verdict = run(Demo(source, count, quiet=as_json).run)
    except (RecordsError, ProcessError) as error:
        fail(str(error))
    if as_json:
        print_json(verdict.as_dict())
    else:
        print_table(("", ""), verdict.rows())
        typer.echo(verdict.sentence())
    if not verdict.good:
        raise typer.Exit(FAILED)
