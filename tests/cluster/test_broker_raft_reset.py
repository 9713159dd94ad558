"""R13: a member that lacks what the others no longer keep is given a copy of the leader's store, while they serve."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker import meta
from broker.server import Broker
from client.message import Message
from client.producer import Producer
from raft.reset import Marker, write_marker
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from store import keeper
from tests.cluster.raft_cluster import RaftCluster, read_all

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
            await producer.send(Message("T", b"%d " % number + os.urandom(10_000)))


def numbers(found: list[bytes]) -> list[int]:
    return sorted(int(body.split()[0]) for body in found)


async def clean(broker: Broker) -> None:
    """Have files deleted at once, as an administrator does."""
    client = RemotingClient()
    try:
        await client.call(broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG)
    finally:
        await client.close()


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
    found = await read_all(group.namesrv, "T", 130)
    assert numbers([message.body for message in found]) == list(range(130))


async def test_R13_a_member_behind_retention_is_reset(
    group: RaftCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta, "RESTAMP_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.05)
    leader = await group.leader()
    await send(group, 0, 5)
    follower = next(member for member in group.ids if member != leader)
    await group.stop_broker(follower)
    await send(group, 5, 115)
    for broker in group.brokers.values():
        async with asyncio.timeout(20):
            while broker.store.min_physical < 3 * FILE_BYTES:
                # Twice, for the older copy of each file of metadata counts too.
                await broker.persist()
                await asyncio.sleep(0.05)
                await clean(broker)
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
    for member in group.ids:
        await group.stop_broker(member)
    await asyncio.gather(*(group.start_broker(member) for member in group.ids))
    await group.leader()
    await send(group, 125, 5)
