"""`raftmq bench backlog`: a long backlog from its beginning, against the newest messages of the same topic."""

from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured, told_progress
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.backlog import BacklogFigures

COLUMNS = (
    "what", "messages", "seconds", "messages/s", "broker CPU µs", "client busy", "from disk MB", "broker RSS MB",
    "broker's own MB", "client's own MB", "repeated", "lost",
)  # fmt: skip


def backlog(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=100, max=1_000_000_000, help="How many are stored and consumed.")
    ] = 20_000_000,
    tail: Annotated[int, typer.Option("--tail", min=10, help="How many of the newest are the tail.")] = 500_000,
    size: Annotated[int, typer.Option("--size", "-s", min=20, max=65_536, help="Bytes of a body.")] = 100,
    queues: Annotated[int, typer.Option("--queues", min=1, max=64)] = 8,
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            min=1,
            max=1024,
            help="Messages that the consumer asks for at a time; above 32 the broker is configured to give so many.",
        ),
    ] = 32,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure how fast a backlog is consumed from the first message on, against the tail rate, and the memory it takes.

    A broker of the bench's own is filled by a producer in batches. Tail rate: messages per second at which one consumer
    takes the newest ones (--tail) right after they were stored, when they are still in memory. Then a consumer like it
    takes all, from the beginning, once the store's files have left the page cache. The aim is a tail rate of at most
    twice the backlog's, each message once and in its queue's order. 20,000,000 messages take some 9 GB.
    """
    from raftmq.bench.backlog import BacklogLoad, NoRoomForBacklog, run_backlog

    load = BacklogLoad(messages, min(tail, messages), size, queues, batch)
    if load.tail < queues:
        fail(f"--tail {load.tail}: it takes at least one message for each of the {queues} queues", code=2)

    async def work() -> "BacklogFigures":
        with told_progress() as progress:
            return await run_backlog(load, progress, folder)

    try:
        figures = measured(work)
    except NoRoomForBacklog as error:
        fail(str(error))
    if as_json:
        print_json(figures.as_dict())
        return
    _show(figures)


def _show(figures: "BacklogFigures") -> None:
    from raftmq.bench.backlog import RATIO_AIM, MemoryRange

    def memory(found: MemoryRange) -> str:
        return f"{found.begin:.0f} → {found.highest:.0f} → {found.end:.0f}"

    print_table(
        COLUMNS,
        [
            (
                part.what, part.messages, part.seconds, part.per_s, part.broker_cpu_us, part.client_busy,
                part.disk_read_mb, memory(part.broker_resident), memory(part.broker_anonymous),
                memory(part.client_anonymous), part.repeated, part.lost,
            )
            for part in figures.parts
        ],
    )  # fmt: skip
    typer.echo("Memory: in the beginning, highest, in the end; RSS with the files that the broker maps.")
    last = figures.parts[-1]
    typer.echo(
        f"The tail is {figures.ratio:g} times as fast as the backlog (aim: at most {RATIO_AIM:g}); while that was "
        f"consumed, the broker's own memory grew by {last.broker_anonymous.growth:g} MB, the client's by "
        f"{last.client_anonymous.growth:g} MB."
    )
