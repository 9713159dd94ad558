"""`raftmq bench latency --explain`: where one send's time goes in a Raft group of three, from real timestamps."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raftmq.cli.bench_running import measured
from raftmq.cli.output import print_json_line, print_table

if TYPE_CHECKING:
    from raftmq.bench.explain import Explanation, StageTime

COLUMNS = ("stage", "is", "p50 µs", "p99 µs", "share")


def show_explained(seconds: float, size: int, settings: dict[str, str], folder: Path | None, *, as_json: bool) -> None:
    """Measure and show; `settings` go into broker.conf, `folder` is where the clusters live."""
    from raftmq.bench.explain import explain as explain_sends

    found = measured(lambda: explain_sends(seconds, size, settings, folder))
    if as_json:
        for row in (*found.stages, *found.kinds, found.whole, found.leader_disk):
            print_json_line(row.as_dict())
        print_json_line({key: value for key, value in found.as_dict().items() if key in _BESIDE})
        return
    _show(found)


_BESIDE = ("sends", "followed", "waited_for_leader", "unmarked_p50_us")


def _show(found: "Explanation") -> None:
    print_table(COLUMNS, [_cells(row) for row in found.stages])
    typer.echo()
    print_table(("together", *COLUMNS[1:]), [_cells(row) for row in (*found.kinds, found.whole, found.leader_disk)])
    typer.echo(
        f"\n{found.followed:,} of {found.sends:,} sends were followed from end to end; the leader's own disk was the"
        f" last for {found.waited_for_leader:.0%} of them. p50 of a group without marks, by turns:"
        f" {found.unmarked_p50_us:,} µs."
    )


def _cells(row: "StageTime") -> tuple[object, ...]:
    return row.stage, row.kind, row.p50_us, row.p99_us, f"{row.share:.1%}"
