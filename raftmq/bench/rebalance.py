"""How long a large consumer group takes until every queue has exactly one owner: after all joined, after some left.

A single broker, a topic with a queue for each consumer, and real consumers, all in this process: each has connections,
heartbeats and rebalancing of its own. On few cores it is they who take the time; what the broker's processor had to do
is told beside it.
"""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.host.processes import ServerProcess
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from raftmq.bench.frames import BadAnswer
from raftmq.bench.group import ASYNC_FLUSH, Setup, spawned_group, until_done

TOPIC, GROUP = "bench_rebalance", "bench_rebalance"
# Consumers that start at the same time.
JOIN_AT_A_TIME = 32
# Connections of a consumer to the broker and the NameServer, and what else the process has open.
FILES_EACH, FILES_OTHER = 3, 200
OWNED_S = 300.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class RebalanceFigures:
    """One row: seconds from the first join to the last, from the last join, and from the last leave, until owned."""

    consumers: int
    queues: int
    left: int
    joining_s: float
    joined_owned_s: float
    leaving_s: float
    left_owned_s: float
    broker_cpu_s: float
    broker_own_mb: float
    client_cpu_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


async def run_rebalance(
    consumers: int, leave: int, progress: Callable[[str, int, int], None], parent: Path | None = None
) -> RebalanceFigures:
    """Measure a group of so many, of which `leave` go again. Raises ProcessError, BadAnswer, OSError."""
    assert 0 <= leave < consumers, "somebody stays"
    allow_files(consumers * FILES_EACH + FILES_OTHER)
    with spawned_group(Setup("single", 1, ASYNC_FLUSH), parent) as cluster:
        broker = cluster.broker
        async with AdminClient(cluster.address) as admin:
            await until_done(lambda: admin.create_topic(TOPIC, read_queues=consumers, write_queues=consumers))
        group = _Members(cluster.address, consumers, progress)
        cpu, own, began = broker.cpu_seconds(), time.process_time(), time.monotonic()
        try:
            await group.join(consumers)
            joined = time.monotonic()
            await group.owned("shared")
            shared = time.monotonic()
            await group.leave(leave)
            left = time.monotonic()
            await group.owned("shared again")
            again = time.monotonic()
            return _figures(
                broker, consumers, leave, (began, joined, shared, left, again), (cpu, time.process_time() - own)
            )
        finally:
            await group.close()


def _figures(
    broker: ServerProcess, consumers: int, leave: int, times: tuple[float, ...], cpu: tuple[float, float]
) -> RebalanceFigures:
    began, joined, shared, left, again = times
    return RebalanceFigures(
        consumers,
        consumers,
        leave,
        round(joined - began, 2),
        round(shared - joined, 2),
        round(left - shared, 2),
        round(again - left, 2),
        round(broker.cpu_seconds() - cpu[0], 2),
        round(broker.anonymous_mb(), 1),
        round(cpu[1], 2),
    )


def allow_files(count: int) -> None:
    """Have the process open so many files; OSError when it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise OSError(f"this takes {count:,} open files, and no more than {hard:,} are allowed here (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class _Members:
    """The consumers of the group that have joined."""

    def __init__(self, namesrv: str, queues: int, progress: Callable[[str, int, int], None]) -> None:
        self._namesrv = namesrv
        self._queues = queues
        self._progress = progress
        self._members: list[LitePullConsumer] = []
        self._turns = asyncio.Semaphore(JOIN_AT_A_TIME)

    async def join(self, count: int) -> None:
        """Start so many, some at a time."""

        async def one(number: int) -> None:
            async with self._turns:
                consumer = LitePullConsumer(GROUP, self._namesrv, instance_name=f"member-{number}", auto_commit=False)
                consumer.subscribe(TOPIC)
                await consumer.start()
                self._members.append(consumer)
                self._progress("join", len(self._members), count)

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))

    async def leave(self, count: int) -> None:
        """Close so many, those who came first."""
        gone, self._members = self._members[:count], self._members[count:]
        await self._close(gone)

    async def owned(self, what: str) -> None:
        """Wait until every queue has exactly one owner; raises BadAnswer when that takes too long."""
        deadline = time.monotonic() + OWNED_S
        while True:
            owners = Counter(queue.queueId for member in self._members for queue in member.assignment())
            once = sum(count == 1 for count in owners.values())
            self._progress(what, once, self._queues)
            if once == self._queues:
                return
            if time.monotonic() > deadline:
                raise BadAnswer(f"{what}: {once} of {self._queues} queues have one owner after {OWNED_S:g} s")
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Close all who are left."""
        await self._close(self._members)

    async def _close(self, members: list[LitePullConsumer]) -> None:
        async def one(member: LitePullConsumer) -> None:
            async with self._turns:
                await member.close()

        await asyncio.gather(*(one(member) for member in members))
