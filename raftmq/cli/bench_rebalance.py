"""`raftmq bench rebalance`: how long a large consumer group takes to share its queues."""

from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, measured, told_progress
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from raftmq.bench.rebalance import RebalanceFigures

COLUMNS = (
    "consumers", "queues", "left", "joining s", "then owned after s", "leaving s", "then owned after s", "broker CPU s",
    "broker's own MB", "client CPU s",
)  # fmt: skip


def rebalance(
    consumers: Annotated[int, typer.Option("--consumers", min=2, max=5000, help="And as many queues.")] = 1000,
    leave: Annotated[int, typer.Option("--leave", min=1, help="How many of them leave in the end.")] = 100,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure how long it takes until each queue has exactly one owner: when the last consumer joined, when some left.

    The consumers are real ones of a single group, all in one process, each with connections of its own.
    """
    from raftmq.bench.rebalance import run_rebalance

    if leave >= consumers:
        fail(f"--leave {leave}: of {consumers} consumers at least one stays", code=2)

    async def work() -> "RebalanceFigures":
        with told_progress() as progress:
            return await run_rebalance(consumers, leave, progress, folder)

    found = measured(work)
    if as_json:
        print_json(found.as_dict())
        return
    print_table(COLUMNS, [tuple(found.as_dict().values())])
