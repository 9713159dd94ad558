"""`raftmq bench guard`: whether this tree is slower than the last release; both side by side, loaded by turns."""

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured, seconds_option
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json_line, print_table

if TYPE_CHECKING:
    from raftmq.bench.guard import GuardLoad, GuardPair, GuardRow
    from raftmq.bench.versions import RunVersion

COLUMNS = (
    "load", "in flight", "base msgs/s", "this msgs/s", "ratio", "from", "to", "of each start", "base p99 ms",
    "this p99 ms", "load busy", "refused", "is",
)  # fmt: skip
_KINDS = ("single-async", "pull", "single-sync", "raft")


def guard(
    wheel: Annotated[
        Path | None, typer.Option("--wheel", metavar="FILE", help="The wheel to compare with, of the last release.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", metavar="DIR", help="Instead: another checkout to compare with.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help=f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}; may be repeated. All."),
    ] = None,
    in_flight: Annotated[
        list[int] | None,
        typer.Option("--in-flight", "-w", min=1, max=65535, help="Requests in flight; may be repeated. 1, 64, 512."),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Pairs of each load and start.")] = 9,
    seconds: Annotated[float, seconds_option("Measured time of each half of a pair.")] = 0.8,
    starts: Annotated[int, typer.Option("--starts", min=1, max=100, help="How often both are started.")] = 3,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Compare this tree with the last release: exit code 1 when it is slower with confidence (below 0.9 of it).

    Without --wheel and --base the wheel is built from the newest tag vX.Y.Z.
    """
    from raftmq.bench.guard import IN_FLIGHT, SLOWER_BELOW, GuardLoad, guarded, run_guard
    from raftmq.bench.versions import NoBase, base_version, this_version

    kinds = list(dict.fromkeys(kind or _KINDS))
    if wrong := [one for one in kinds if one not in _KINDS]:
        fail(f"--kind {wrong[0]}: it takes {', '.join(_KINDS)}", code=2)
    load = GuardLoad(kinds, tuple(dict.fromkeys(in_flight or IN_FLIGHT)), rounds, seconds, starts)

    async def work() -> "tuple[RunVersion, RunVersion, list[GuardPair]]":
        found: list[GuardPair] = []
        with base_version(wheel, base) as older:
            this = this_version()
            typer.echo(f"base: {older}\nthis: {this}", err=True)
            async with aclosing(run_guard(older, this, load, folder)) as all_:
                async for pair in all_:
                    found.append(pair)
                    typer.echo(_told(pair, load), err=True)
            return older, this, found

    try:
        older, this, pairs = measured(work)
    except NoBase as error:
        fail(str(error), code=2)
    rows = guarded(pairs)
    slower = [row for row in rows if row.slower]
    if as_json:
        print_json_line({"base": older.as_dict(), "this": this.as_dict(), "slower_below": SLOWER_BELOW})
        for row in rows:
            print_json_line(row.as_dict())
    else:
        typer.echo(f"base: {older}\nthis: {this}")
        print_table(COLUMNS, [_cells(row) for row in rows])
    if slower:
        named = "; ".join(f"{row.what}, {row.in_flight} in flight: at most {row.ratio_high:g}" for row in slower)
        fail(f"slower than {older.version} with confidence, of whose rate {SLOWER_BELOW:g} is to be kept: {named}")


def _told(pair: "GuardPair", load: "GuardLoad") -> str:
    at = f"start {pair.start + 1} of {load.starts}, round {pair.number + 1} of {load.rounds}"
    rates = f"{pair.this.messages_per_s:,} msgs/s, base {pair.base.messages_per_s:,}: {pair.ratio:.2f}"
    return f"{at}, {pair.this.what}, {pair.in_flight} in flight: {rates} …"


def _cells(row: "GuardRow") -> tuple[object, ...]:
    refused = row.base_refused + row.this_refused
    return (
        row.what,
        row.in_flight,
        row.base_per_s,
        row.this_per_s,
        row.ratio,
        row.ratio_low,
        row.ratio_high,
        " ".join(f"{ratio:g}" for ratio in row.ratio_of_starts),
        row.base_p99_ms,
        row.this_p99_ms,
        f"{row.load_busy:.0%}",
        f"{row.base_refused:,} + {row.this_refused:,}" if refused else None,
        "slower" if row.slower else "not slower",
    )
