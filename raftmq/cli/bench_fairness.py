"""`raftmq bench fairness`: what a quiet client feels beside others that flood a broker."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, cast

import typer

from raftmq.cli.bench_running import Folder, measured, seconds_option
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.fairness import Fairness, FairnessMode

COLUMNS = (
    "mode",
    "floods",
    "p50 ms",
    "p99 ms",
    "max ms",
    "alone msgs/s",
    "beside",
    "kept",
    "elections",
    "errors",
    "aims",
)
_MODES = ("single", "raft")


def fairness(
    mode: Annotated[list[str] | None, typer.Option("--mode", help="single or raft; may be repeated. Both.")] = None,
    floods: Annotated[
        list[int] | None,
        typer.Option("--floods", min=1, max=1024, help="Flooding connections; may be repeated. 10 and 40."),
    ] = None,
    seconds: Annotated[float, seconds_option("Measured time of each figure.")] = 10.0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure a quiet client's sends alone and beside floods, of a single broker and of a Raft group of three."""
    from raftmq.bench.fairness import run_fairness

    modes = mode or list(_MODES)
    if wrong := [one for one in modes if one not in _MODES]:
        fail(f"--mode {wrong[0]}: it takes {' or '.join(_MODES)}", code=2)
    rows: list[Fairness] = []

    async def work() -> None:
        async with aclosing(
            run_fairness(cast("list[FairnessMode]", modes), floods or [10, 40], seconds, folder)
        ) as all_:
            async for row in all_:
                rows.append(row)
                if not as_json:
                    typer.echo(f"{row.mode}, {row.floods} floods: p99 {row.quiet_p99_ms} ms …")

    measured(work)
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    print_table(COLUMNS, [_cells(row) for row in rows])


def _cells(row: "Fairness") -> tuple[object, ...]:
    errors = ", ".join(f"{count} x code {code}" for code, count in row.flood_errors.items()) or None
    figures = (row.mode, row.floods, row.quiet_p50_ms, row.quiet_p99_ms, row.quiet_max_ms)
    if not row.floods:
        return (*figures, None, None, None, None, None, None)
    aims = ", ".join(row.missed) or "met"
    return (*figures, row.flood_per_s_alone, row.flood_per_s, row.flood_kept, row.elections, errors, aims)
