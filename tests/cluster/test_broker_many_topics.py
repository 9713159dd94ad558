"""Topics are made, changed and deleted at one price, however many there are: at a single broker and in a group."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Literal

import pytest

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from raftmq.bench.group import until_done
from remoting.codes import Perm

AT_ONCE, PART, FEW = 16, 1000, 400
# Before changes had a journal the tenth thousand took twenty times as long as the first.
DEARER_MAX = 5.0


async def spent(cluster: LocalCluster, change: Callable[[int], Awaitable[object]], numbers: Iterable[int]) -> float:
    """Make these changes, some at a time; return the seconds of the processor that they took the brokers.

    By a clock on the wall they take as long as what else the machine does leaves them.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await change(number)

    before = sum(broker.cpu_seconds() for broker in cluster.brokers)
    await asyncio.gather(*map(one, numbers))
    return sum(broker.cpu_seconds() for broker in cluster.brokers) - before


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("mode", "count"), [("single", 10_000), ("raft", 4_000)])
async def test_the_last_thousand_costs_as_much_as_the_first(
    tmp_path: Path, mode: Literal["single", "raft"], count: int
) -> None:
    cluster = LocalCluster(tmp_path, nodes=3 if mode == "raft" else 1, mode=mode)
    with cluster:
        if mode == "raft":
            cluster.wait_for_leader()
        async with AdminClient(cluster.address) as admin:
            await until_done(lambda: admin.create_topic("before", read_queues=8, write_queues=8))

            def made(number: int) -> Awaitable[object]:
                return admin.create_topic(f"topic-{number}", read_queues=8, write_queues=8)

            def forbidden(number: int) -> Awaitable[object]:
                return admin.create_topic(f"topic-{number}", read_queues=8, write_queues=8, perm=Perm.READ)

            def deleted(number: int) -> Awaitable[object]:
                return admin.delete_topic(f"topic-{number}")

            few = range(FEW)
            first = {"made": await spent(cluster, made, range(PART)), "forbidden": await spent(cluster, forbidden, few)}
            first["deleted"] = await spent(cluster, deleted, few)
            for start in range(PART, count - PART, PART):
                await spent(cluster, made, range(start, start + PART))
            last = {"made": await spent(cluster, made, range(count - PART, count))}
            for number in (PART, count - 1):
                route = await admin.route(f"topic-{number}")
                assert route is not None, "clients find the topics"
                assert route.queueDatas[0].readQueueNums == 8
            some = range(count - len(few), count)
            last |= {"forbidden": await spent(cluster, forbidden, some), "deleted": await spent(cluster, deleted, some)}
    dearer = {kind: round(last[kind] / first[kind], 2) for kind in last}
    print(f"{mode}, {count} topics: the last of a kind cost so many times as much as the first: {dearer}")
    assert max(dearer.values()) < DEARER_MAX
