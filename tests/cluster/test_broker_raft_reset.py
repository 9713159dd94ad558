"""R13: a member that lacks what the others no longer keep is given a copy of the leader's store, while they serve."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.message import Message
from client.producer import Producer
from raft.reset import Marker, write_marker
from tests.cluster.raft_cluster import RaftCluster
from tests.cluster.test_client_producer import everything

FILE_BYTES = 256 * 1024


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    running = RaftCluster(tmp_path, values={"mappedFileSizeCommitLog": str(FILE_BYTES), "fileReservedTime": "0"})
    try:
        await running.start()
        yield running
    finally:
        await running.close()


async def send(group: RaftCluster, first: int, count: int) -> None:
    async with Producer("producers", group.namesrv) as producer:
        for number in range(first, first + count):
            await producer.send(Message("T", (b"%d " % number).ljust(10_000, b"x")))


def numbers(found: list[bytes]) -> list[int]:
    return sorted(int(body.split()[0]) for body in found)


async def equal(group: RaftCluster, one: str, other: str) -> None:
    """Wait until two members' logs are the same to the last byte."""
    stores = [group.brokers[member].store for member in (one, other)]
    async with asyncio.timeout(10):
        while stores[0].written != stores[1].written:
            await asyncio.sleep(0.01)


async def test_R13_a_marked_member_copies_the_store_before_it_opens_its_own(group: RaftCluster, tmp_path: Path) -> None:
    leader = await group.leader()
    await send(group, 0, 60)
    follower = next(member for member in group.ids if member != leader)
    await group.stop_broker(follower)
    await send(group, 60, 60)
    write_marker(tmp_path / follower / "raft" / "reset", Marker(leader=leader))
    (tmp_path / follower / "commitlog" / f"{0:020d}").write_bytes(b"rotten")
    await group.start_broker(follower)
    assert not (tmp_path / follower / "raft" / "reset").exists()
    await group.leader()
    await send(group, 120, 10)
    await equal(group, leader, follower)
    await group.stop_broker(next(member for member in group.ids if member not in (leader, follower)))
    if leader == await group.leader():
        assert await group.brokers[leader].hand_over()
        async with asyncio.timeout(5):
            while group.leaders() != [follower]:
                await asyncio.sleep(0.01)
    found = await everything(group.namesrv, "T", 130)
    assert numbers([message.body for message in found]) == list(range(130))


async def test_R13_a_member_behind_retention_is_reset(group: RaftCluster, tmp_path: Path) -> None:
    leader = await group.leader()
    await send(group, 0, 5)
    follower = next(member for member in group.ids if member != leader)
    await group.stop_broker(follower)
    await send(group, 5, 115)
    for member in group.brokers.values():
        await member.persist()
        async with asyncio.timeout(10):
            while not member.store.clean(now=True).removed:
                await asyncio.sleep(0.05)
    behind = await group.start_broker(follower)
    async with asyncio.timeout(10):
        await behind.stopped.wait()
    assert behind.restarts
    assert (tmp_path / follower / "raft" / "reset").exists()
    await behind.close()
    await group.start_broker(follower)
    await group.leader()
    await send(group, 120, 5)
    await equal(group, leader, follower)
    assert group.brokers[follower].store.min_physical > 0
