"""Topics are made, changed and deleted at one price, however many there are: at a single broker and in a group."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Literal

import pytest

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from raftmq.bench.group import until_done
from remoting.codes import Perm

AT_ONCE, PART, PIECES = 16, 1000, 4
# Before changes had a journal the tenth thousand took twenty times as long as the first. A busy core makes a part
# some times as long as another one.
SLOWER_MAX = 5.0


async def timed(change: Callable[[int], Awaitable[object]], numbers: Iterable[int]) -> float:
    """Return the seconds that these changes took, some at a time: four times the quickest quarter.

    What makes changes dear makes all quarters dear; what else the machine does hits one or the other.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await change(number)

    all_numbers = list(numbers)
    took = []
    for piece in range(PIECES):
        began = time.monotonic()
        await asyncio.gather(*map(one, all_numbers[piece::PIECES]))
        took.append(time.monotonic() - began)
    return PIECES * min(took)


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

            few = range(PART // 5)
            first = {"made": await timed(made, range(PART)), "forbidden": await timed(forbidden, few)}
            first["deleted"] = await timed(deleted, few)
            for start in range(PART, count - PART, PART):
                await timed(made, range(start, start + PART))
            last = {"made": await timed(made, range(count - PART, count))}
            for number in (PART, count - 1):
                route = await admin.route(f"topic-{number}")
                assert route is not None, "clients find the topics"
                assert route.queueDatas[0].readQueueNums == 8
            some = range(count - len(few), count)
            last |= {"forbidden": await timed(forbidden, some), "deleted": await timed(deleted, some)}
    slower = {kind: round(last[kind] / first[kind], 2) for kind in last}
    print(f"{mode}, {count} topics: the last of a kind took so many times as long as the first: {slower}")
    assert max(slower.values()) < SLOWER_MAX
