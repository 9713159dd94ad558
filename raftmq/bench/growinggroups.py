"""What grows of Raft: groups on one machine, and the members of one group. Each value has the machine to itself.

Idle members take processor time too, so clusters do not stand side by side: in each round they are started one after
the other, loaded, and ended.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from chaos.host.local import LocalCluster
from raftmq.bench.group import NODES, SYNC_FLUSH
from raftmq.bench.growing import GrowthProgress, highest_memory, served
from raftmq.bench.growthrows import GrowthLoad, GrowthSample
from raftmq.bench.load import LoadedBroker, Result, Sends, run_load

TOPIC = "bench_groups"
GROUPS, MEMBERS = "groups", "members"
WHAT = {
    GROUPS: f"sends to so many Raft groups of {NODES} at once, fsync",
    MEMBERS: "sends to one Raft group of so many members, fsync",
}


class GrowingGroups:
    """Starts Raft groups for each measurement. `of` is what grows: groups of three, or one group's members."""

    def __init__(self, of: str, load: GrowthLoad, progress: GrowthProgress, parent: Path | None) -> None:
        self._of = of
        self._load = load
        self._progress = progress
        self._parent = parent

    async def measure(self, value: int, number: int) -> list[GrowthSample]:
        """Start what `value` says, load all groups at once, and end them. Raises ProcessError, OSError, BadAnswer."""
        groups, nodes = (value, NODES) if self._of == GROUPS else (1, value)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=self._parent)))
            clusters = []
            for group in range(groups):
                cluster = LocalCluster(
                    folder / f"group{group}", nodes=nodes, mode="raft", broker_settings={"flushDiskType": SYNC_FLUSH}
                )
                stack.callback(cluster.kill)
                await asyncio.to_thread(cluster.start)
                clusters.append(cluster)
                self._progress(f"start {value}", group + 1, groups)
            async with highest_memory([broker for cluster in clusters for broker in cluster.brokers]) as highest:
                results = await asyncio.gather(*(self._sends(cluster, groups) for cluster in clusters))
            together = all_together([served(self._of, value, result) for result in results])
            return [GrowthSample(self._of, value, number, WHAT[self._of], together, highest())]

    async def _sends(self, cluster: LocalCluster, groups: int) -> Result:
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        return await run_load(
            "send",
            LoadedBroker(leader.address, lambda: sum(broker.cpu_seconds() for broker in cluster.brokers)),
            lambda: Sends(TOPIC, self._load.body_bytes),
            in_flight=max(1, self._load.in_flight // groups),
            seconds=self._load.seconds,
            body_bytes=self._load.body_bytes,
        )


def all_together(results: Sequence[Result]) -> Result:
    """Return what loads at the same time have moved together: rates added, the middle p50 and the longest others."""
    messages = sum(one.messages for one in results)
    cpu = sum((one.server_cpu_us_per_message or 0.0) * one.messages for one in results)
    return replace(
        results[0],
        connections=len(results),
        requests=sum(one.requests for one in results),
        messages=messages,
        messages_per_s=sum(one.messages_per_s for one in results),
        p50_ms=statistics.median(one.p50_ms for one in results),
        p99_ms=max(one.p99_ms for one in results),
        max_ms=max(one.max_ms for one in results),
        server_cpu_us_per_message=round(cpu / messages, 2),
        # All ran in this process at the same time.
        client_busy=max(one.client_busy for one in results),
    )
