"""`raftmq bench orderly`: how long consumption stands still, and what it repeats, when a leader or a consumer goes."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.orderly import OrderlyStall

COLUMNS = (
    "event", "consumers", "queues", "messages", "sends silent ms", "callbacks silent ms", "waited ms", "repeated",
    "inversions", "lost", "repeated of one queue", "out of turn",
)  # fmt: skip


def orderly(
    event: Annotated[
        list[str] | None,
        typer.Option("--event", help="none, transfer, kill, brokers or consumers; may be repeated. All of them."),
    ] = None,
    consumers: Annotated[int, typer.Option("--consumers", min=1, max=64)] = 3,
    queues: Annotated[int, typer.Option("--queues", min=1, max=64)] = 8,
    rate: Annotated[int, typer.Option("--rate", min=1, max=10_000, help="Messages per second, all queues.")] = 200,
    concurrent: Annotated[bool, typer.Option("--concurrent", help="Consumers that keep no order.")] = False,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure how long consumers stand still and what comes again: lead transferred, leader killed, all restarted."""
    from raftmq.bench.orderly import EVENTS, run_orderly

    events = event or list(EVENTS)
    if wrong := [one for one in events if one not in EVENTS]:
        fail(f"--event {wrong[0]}: it takes {', '.join(EVENTS)}", code=2)
    rows: list[OrderlyStall] = []

    async def work() -> None:
        async with aclosing(run_orderly(events, consumers, queues, rate, folder, orderly=not concurrent)) as all_:
            async for row in all_:
                rows.append(row)
                if not as_json:
                    typer.echo(f"{row.event}: a queue was silent for {row.consume_silence_ms} ms …")

    measured(work)
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    print_table(COLUMNS, [tuple(row.as_dict().values()) for row in rows])
