"""`raftmq bench growth`: what a message costs as something grows; `raftmq bench plot`: pictures of such figures."""

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from raftmq.cli.bench_running import Folder, measured, seconds_option, told_progress
from raftmq.cli.options import Json
from raftmq.cli.output import fail, one_line_errors, print_json_line, print_table

if TYPE_CHECKING:
    from raftmq.bench.growthrows import GrowthLoad, GrowthRow, GrowthSample

COLUMNS = (
    "msgs/s", "server µs/msg", "to the first", "p50 ms", "p99 ms", "servers RSS MB", "their own MB", "load busy",
    "in flight", "what",
)  # fmt: skip
# A line of JSON is some hundred bytes, a file of them a few dozen.
PLOTTED_BYTES_MAX = 64 * 1024 * 1024

Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="D", help="Folder for plots; needs pip install 'raftmq[bench]'.")
]


def growth(
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            help="topics, queues, connections, consumers, backlog, groups or members; may be repeated. All of them.",
        ),
    ] = None,
    values: Annotated[
        str, typer.Option("--values", help="Numbers to measure, such as 1,4,16, of the one thing that --of names.")
    ] = "",
    seconds: Annotated[float, seconds_option("Measured time of each value a round.")] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=100)] = 3,
    in_flight: Annotated[
        int, typer.Option("--in-flight", "-w", min=1, max=65535, help="Sends in flight, over all connections.")
    ] = 512,
    size: Annotated[int, typer.Option("--size", "-s", min=1, max=1024 * 1024, help="Bytes of a body.")] = 100,
    svg: Svg = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure what a message costs the servers as topics, queues, connections, consumers, a backlog or groups grow.

    Topics to backlog: a single broker (async flush), where all numbers stand, each loaded in turn, round after round.
    Groups and members: Raft with fsync, started anew for each number. Figures are medians of the rounds; "to the first"
    is a message's processor time to that at the lowest number, round by round.
    """
    from raftmq.bench.growth import GROWTH_VALUES, values_of
    from raftmq.bench.growthrows import GrowthLoad, growth_rows

    wanted = list(dict.fromkeys(of or GROWTH_VALUES))
    if wrong := [one for one in wanted if one not in GROWTH_VALUES]:
        fail(f"--of {wrong[0]}: it takes {', '.join(GROWTH_VALUES)}", code=2)
    if values and len(wanted) > 1:
        fail("--values: it takes one --of to go with", code=2)
    _check_plots(svg)
    load = GrowthLoad(rounds, seconds, size, in_flight)
    found: list[GrowthRow] = []
    for one in wanted:
        try:
            asked = values_of(one, values)
        except ValueError as error:
            fail(f"--values {error}", code=2)
        rows = growth_rows(_samples(one, asked, load, folder))
        found += rows
        # What one has found stays when the next is ended.
        if as_json:
            for row in rows:
                print_json_line(row.as_dict())
        else:
            _show(one, rows)
    if svg is not None:
        from raftmq.bench.growthplots import plot_growth

        with one_line_errors():
            _told(plot_growth([row.as_dict() for row in found], svg))


def plot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of JSON that a benchmark printed.")],
    svg: Annotated[Path, typer.Option("--svg", metavar="D", help="Folder for the plots.")],
) -> None:
    """Draw plots of saved figures: lines of `bench growth --json`, or of `bench peers --json`."""
    _check_plots(svg)
    from raftmq.bench.growthplots import NothingToPlot, plot_rows

    rows = []
    with one_line_errors():
        if file.stat().st_size > PLOTTED_BYTES_MAX:
            fail(f"{file}: more than {PLOTTED_BYTES_MAX // 1024**2} MiB are no figures")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = orjson.loads(line) if line.strip() else None
            except orjson.JSONDecodeError:
                fail(f"{file}: line {number} is no JSON")
            rows += [row] if isinstance(row, dict) else []
        try:
            _told(plot_rows(rows, svg))
        except NothingToPlot as error:
            fail(f"{file}: {error}")
        except (KeyError, TypeError, ValueError):
            fail(f"{file}: its figures are not as a benchmark prints them")


def _samples(of: str, values: tuple[int, ...], load: "GrowthLoad", folder: Path | None) -> "list[GrowthSample]":
    from raftmq.bench.backlog import NoRoomForBacklog
    from raftmq.bench.growth import run_growth

    samples: list[GrowthSample] = []

    async def work() -> None:
        with told_progress() as progress:
            async with aclosing(run_growth(of, values, load, progress, folder)) as all_:
                samples.extend([sample async for sample in all_])

    try:
        measured(work)
    except NoRoomForBacklog as error:
        fail(str(error))
    return samples


def _show(of: str, rows: "list[GrowthRow]") -> None:
    print_table(
        (of, *COLUMNS),
        [
            (
                row.value, row.messages_per_s, row.server_cpu_us_per_message, row.to_first, row.p50_ms, row.p99_ms,
                row.server_resident_mb, row.server_own_mb, row.client_busy, row.in_flight, row.what,
            )
            for row in rows
        ],
    )  # fmt: skip


def _check_plots(svg: Path | None) -> None:
    """End the command before it measures when it could not draw."""
    if svg is None:
        return
    with one_line_errors():
        import raftmq.bench.plots  # noqa: F401

        svg.mkdir(parents=True, exist_ok=True)


def _told(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(f"{path}", err=True)
