"""`raftmq bench readers`: what others feel of a reader who is far behind, and of one that never reads."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured, told_progress
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.readers import Beside

COLUMNS = (
    "beside", "messages", "ack p50 ms", "p99", "max", "arrival p50 ms", "p99", "max", "broker's own MB",
    "reader MiB/s", "from disk MiB/s", "cut off",
)  # fmt: skip


def readers(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=10, max=10_000_000, help="How many are sent for each row.")
    ] = 3000,
    mib: Annotated[int, typer.Option("--mib", min=1, max=1_000_000, help="How long the log is that is read.")] = 1024,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure what sends and their arrival at a consumer take beside a reader of cold log, and one that never reads.

    A broker of the bench's own gets a log of --mib and is started again. One message at a time is sent and waited for:
    alone; beside a reader who goes through that log from the beginning, always from the disk; alone; beside a
    connection that asks for all it can and never reads an answer; alone.
    """
    from raftmq.bench.backlog import NoRoomForBacklog
    from raftmq.bench.readers import run_readers

    rows: list[Beside] = []

    async def work() -> None:
        with told_progress() as progress:
            async with aclosing(run_readers(mib, messages, progress, folder)) as all_:
                async for row in all_:
                    rows.append(row)
                    typer.echo(f"beside {row.beside}: p99 {row.ack_p99_ms} ms, {row.arrival_p99_ms} ms …", err=True)

    try:
        measured(work)
    except NoRoomForBacklog as error:
        fail(str(error))
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    print_table(COLUMNS, [tuple(row.as_dict().values()) for row in rows])
    typer.echo("The broker's own memory is the highest, without the files that it maps.")
