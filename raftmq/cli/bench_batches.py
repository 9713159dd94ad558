"""`raftmq bench batches`: how many times the messages of single sends batches bring, in one group by turns."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured, seconds_option
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.batches import BatchFigures, BatchRound

COLUMNS = ("what", "in flight", "bytes", "rounds", "msgs/s", "p50 ms", "p99 ms", "server µs/msg", "load busy")


def batches(
    count: Annotated[int, typer.Option("--count", min=1, max=4096, help="Messages of a batch.")] = 32,
    size: Annotated[int, typer.Option("--size", "-s", min=1, max=65_536, help="Bytes of a body.")] = 100,
    in_flight: Annotated[int, typer.Option("--in-flight", "-w", min=1, max=65535, help="Batches in flight.")] = 256,
    sends_in_flight: Annotated[
        int, typer.Option("--sends-in-flight", min=1, max=65535, help="Single sends in flight.")
    ] = 512,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="How often each is measured.")] = 5,
    seconds: Annotated[float, seconds_option("Measured time of each figure.")] = 2.0,
    mode: Annotated[
        str, typer.Option("--mode", help="What is loaded, by a name of `raftmq bench raft`.")
    ] = "raft, fsync",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure batches and single sends by turns, to a Raft group of three with fsync: how many times the messages."""
    from raftmq.bench.batches import RATIO_AIM, BatchLoad, figures, ratio, run_batches
    from raftmq.bench.group import RAFT_MODES

    if mode not in RAFT_MODES:
        fail(f"--mode {mode}: it takes one of {', '.join(map(repr, RAFT_MODES))}", code=2)
    load = BatchLoad(mode, count, size, sends_in_flight, in_flight, rounds, seconds)
    found: list[BatchRound] = []

    async def work() -> None:
        async with aclosing(run_batches(load, folder)) as all_:
            async for one in all_:
                found.append(one)
                if not as_json:
                    typer.echo(f"round {one.number + 1}, {one.result.what}: {one.result.messages_per_s:,} msgs/s …")

    measured(work)
    times = ratio(found)
    if as_json:
        print_json({"rows": [row.as_dict() for row in figures(found)], "ratio": times, "ratio_aim": RATIO_AIM})
        return
    print_table(COLUMNS, [_cells(row) for row in figures(found)])
    typer.echo(f"batches bring {times} times the messages of single sends; the aim is {RATIO_AIM:g} times")


def _cells(row: "BatchFigures") -> tuple[object, ...]:
    return (
        row.what,
        row.in_flight,
        row.body_bytes,
        row.rounds,
        row.messages_per_s,
        row.p50_ms,
        row.p99_ms,
        row.server_cpu_us_per_message,
        f"{row.client_busy:.0%}",
    )
