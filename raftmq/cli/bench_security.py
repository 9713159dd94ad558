"""`raftmq bench security`: what signatures and TLS cost sends, against plain ones of the same rounds."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured, seconds_option
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.security import SecurityCost, SecurityRound

COLUMNS = (
    "mode", "what", "protection", "in flight", "bytes", "msgs/s", "p50 ms", "p99 ms", "server µs/msg", "load busy",
    "fewer msgs/s", "more server CPU",
)  # fmt: skip
_MODES = ("single", "raft")


def security(
    mode: Annotated[list[str] | None, typer.Option("--mode", help="single or raft; may be repeated. Both.")] = None,
    in_flight: Annotated[
        list[int] | None,
        typer.Option("--in-flight", "-w", min=1, max=65535, help="Requests in flight; may be repeated. 1, 64, 512."),
    ] = None,
    size: Annotated[int, typer.Option("--size", "-s", min=1, max=4 * 1024 * 1024, help="Bytes of a body.")] = 100,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="How often each is measured.")] = 5,
    seconds: Annotated[float, seconds_option("Measured time of each figure.")] = 2.0,
    pulls: Annotated[bool, typer.Option("--pulls", help="Measure pulls of 32 messages, too: 16 in flight.")] = False,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure sends, and pulls, plain, signed (ACL 2.0), by TLS, and both: clusters side by side, loaded by turns."""
    from raftmq.bench.security import IN_FLIGHT, SecurityLoad, aims, costs, run_security

    modes = list(dict.fromkeys(mode or _MODES))
    if wrong := [one for one in modes if one not in _MODES]:
        fail(f"--mode {wrong[0]}: it takes {' or '.join(_MODES)}", code=2)
    load = SecurityLoad(tuple(dict.fromkeys(in_flight or IN_FLIGHT)), size, rounds, seconds, pulls)
    found: list[SecurityRound] = []

    async def work() -> None:
        async with aclosing(run_security(modes, load, folder)) as all_:
            async for one in all_:
                found.append(one)
                if not as_json:
                    result = one.result
                    told = f"{one.mode}, round {one.number + 1}, {result.what}, {result.in_flight} in flight"
                    typer.echo(f"{told}, {one.protection}: {result.messages_per_s:,} msgs/s …")

    measured(work)
    rows = costs(found)
    wanted = aims(rows)
    if as_json:
        print_json({"rows": [row.as_dict() for row in rows], "aims": [aim.as_dict() for aim in wanted]})
        return
    print_table(COLUMNS, [_cells(row) for row in rows])
    for aim in wanted:
        typer.echo(
            f"{aim.mode}, {aim.protection}, {aim.in_flight} in flight: {aim.cost_percent:g} % fewer,"
            f" at most {aim.cost_percent_max:g} % are to be: {'met' if aim.met else 'missed'}"
        )


def _cells(row: "SecurityCost") -> tuple[object, ...]:
    return (
        row.mode,
        row.what,
        row.protection,
        row.in_flight,
        row.body_bytes,
        row.messages_per_s,
        row.p50_ms,
        row.p99_ms,
        row.server_cpu_us_per_message,
        f"{row.client_busy:.0%}",
        None if row.cost_percent is None else f"{row.cost_percent:g} %",
        None if row.cpu_cost_percent is None else f"{row.cpu_cost_percent:g} %",
    )
