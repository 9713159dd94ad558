"""`raftmq bench latency`: from a send to a waiting consumer, at shares of what a broker can do."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, cast

import typer

from raftmq.cli.bench_explain import show_explained
from raftmq.cli.bench_running import Folder, measured, seconds_option, told_progress
from raftmq.cli.options import Json, Settings
from raftmq.cli.output import fail, parse_settings, print_json_line, print_table

if TYPE_CHECKING:
    from raftmq.bench.latency import LatencyMode, LatencyRow

COLUMNS = (
    "mode", "share", "offered/s", "acked/s", "p50 ms", "p99 ms", "max ms", "ack p50", "ack p99", "ack max",
    "sender late p99", "servers busy", "sender", "consumer", "lost", "kept up",
)  # fmt: skip
_MODES = ("single", "raft")
# Above its capacity a broker only piles up what comes.
SHARE_MAX = 1.5


def latency(
    share: Annotated[
        list[float] | None,
        typer.Option("--share", help=f"Of the capacity, up to {SHARE_MAX:g}; may be repeated. 0.2 and 0.8."),
    ] = None,
    mode: Annotated[list[str] | None, typer.Option("--mode", help="single or raft; may be repeated. Both.")] = None,
    seconds: Annotated[float, seconds_option("Measured time of each share.")] = 10.0,
    size: Annotated[int, typer.Option("--size", "-s", min=24, max=1024 * 1024, help="Bytes of a body.")] = 100,
    explain: Annotated[
        bool, typer.Option("--explain", help="Where one send's time goes in a Raft group of three, stage by stage.")
    ] = False,
    settings: Settings = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure how long messages take from their send to a waiting consumer, another process, under a steady load.

    The capacity comes first: a closed loop with 512 sends in flight, the consumer taking all. Then messages leave at a
    share of that rate when they are due, and their time counts from then, also of one that had to leave late.

    With --explain: one send in flight, followed through marks that the group's three brokers make; --set is for them.
    """
    if explain:
        if share or mode:
            fail("--explain goes without --share and --mode: it is one send in flight, in a Raft group", code=2)
        show_explained(seconds, size, parse_settings(settings), folder, as_json=as_json)
        return
    if settings:
        fail("--set goes with --explain", code=2)
    from raftmq.bench.latency import LatencyLoad, run_latency

    modes, shares = mode or list(_MODES), share or [0.2, 0.8]
    if wrong := [one for one in modes if one not in _MODES]:
        fail(f"--mode {wrong[0]}: it takes {' or '.join(_MODES)}", code=2)
    if outside := [one for one in shares if not 0 < one <= SHARE_MAX]:
        fail(f"--share {outside[0]:g}: it takes more than 0 and at most {SHARE_MAX:g}", code=2)
    rows: list[LatencyRow] = []

    async def work() -> None:
        with told_progress() as progress:
            for one in cast("list[LatencyMode]", modes):
                async with aclosing(run_latency(one, LatencyLoad(shares, seconds, size), progress, folder)) as all_:
                    async for row in all_:
                        rows.append(row)
                        if as_json:
                            print_json_line(row.as_dict())

    measured(work)
    if not as_json:
        print_table(COLUMNS, [_cells(row) for row in rows])
        typer.echo(
            "p50 to max: from when a message was due until a waiting consumer had it; ack: until it was acknowledged."
        )


def _cells(row: "LatencyRow") -> tuple[object, ...]:
    return (
        row.mode,
        "closed loop" if row.share is None else f"{row.share:.0%}",
        row.offered_per_s,
        row.acknowledged_per_s,
        row.p50_ms,
        row.p99_ms,
        row.max_ms,
        row.ack_p50_ms,
        row.ack_p99_ms,
        row.ack_max_ms,
        row.late_p99_ms,
        row.servers_busy,
        row.sender_busy,
        row.consumer_busy,
        row.lost,
        None if row.share is None else row.kept_up,
    )
