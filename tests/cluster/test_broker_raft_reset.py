"""What a group forgets (R12), and how a member that lacks what the others no longer keep is given a copy (R13)."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.metadata import replicated as meta
from broker.server import Broker
from client.message import Message
from client.produce.producer import Producer
from raft.snapshot.protocol import Marker, write_marker
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import GetRouteInfoRequestHeader
from store.log import checkpointer as keeper
from tests.cluster.raft_cluster import CALM, RaftCluster, read_all

QUEUES_WITHIN_S = 20.0

FILE_BYTES = 256 * 1024


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    values = {**CALM, "mappedFileSizeCommitLog": str(FILE_BYTES), "fileReservedTime": "0"}
    running = RaftCluster(tmp_path, values=values)
    try:
        await running.start()
        yield running
    finally:
        await running.close()


async def routed(group: RaftCluster) -> None:
    """Wait until the NameServer knows the topic that others are made after."""
    client = RemotingClient()
    try:
        async with asyncio.timeout(30):
            header = GetRouteInfoRequestHeader(topic="TBW102")
            request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            while (await client.invoke(group.namesrv, request, 5.0)).code != ResponseCode.SUCCESS:
                await asyncio.sleep(0.01)
    finally:
        await client.close()


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


async def forget(group: RaftCluster, before: int) -> None:
    """Have every member delete its files before a position."""
    async with asyncio.timeout(20):
        while min(broker.store.min_physical for broker in group.brokers.values()) < before:
            for broker in group.brokers.values():
                # Twice, for the older copy of each file of metadata counts too.
                await broker.persist()
                await clean(broker)
            await asyncio.sleep(0.05)


async def equal(group: RaftCluster, one: str, other: str) -> None:
    """Wait until two members' logs are the same to the last byte."""
    stores = [group.brokers[member].store for member in (one, other)]
    async with asyncio.timeout(30):
        while stores[0].written != stores[1].written:
            await asyncio.sleep(0.01)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of metadata and checkpoints follow at once, so that they keep no log back."""
    monkeypatch.setattr(meta, "RESTAMP_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.05)


def kept(tmp_path: Path, member: str) -> list[str]:
    """The files of a member's log that hold something."""
    files = sorted((tmp_path / member / "commitlog").iterdir())
    return [file.name for file in files if any(file.read_bytes())]


async def test_R12_all_members_delete_the_same_files(
    group: RaftCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    leader = await group.leader()
    await routed(group)
    await send(group, 0, 100)
    followers = [member for member in group.ids if member != leader]
    for _ in range(5):
        for member in followers:
            await group.brokers[member].persist()
            await clean(group.brokers[member])
        await asyncio.sleep(0.05)
    assert [broker.store.min_physical for broker in group.brokers.values()] == [0, 0, 0], "a follower decides nothing"
    await forget(group, 2 * FILE_BYTES)
    # What the leader has decided last the others do a moment later.
    async with asyncio.timeout(20):
        while len(starts := {broker.store.min_physical for broker in group.brokers.values()}) > 1:
            await asyncio.sleep(0.01)
    await equal(group, leader, followers[0])
    await equal(group, leader, followers[1])
    async with asyncio.timeout(20):
        while len({tuple(kept(tmp_path, member)) for member in group.ids}) > 1:
            await asyncio.sleep(0.05)
    assert kept(tmp_path, leader)[0] == f"{starts.pop():020d}"
    await send(group, 100, 5)


async def only_in_front(group: RaftCluster) -> dict[int, int]:
    """Let all messages of topic U expire; return how many each of its queues had."""
    await group.leader()
    await routed(group)
    async with Producer("producers", group.namesrv) as producer:
        for _ in range(20):
            await producer.send(Message("U", b"expires"))
    ends = queue_ends(group.brokers[await group.leader()])
    assert sum(ends.values()) == 20
    await send(group, 0, 100)
    await forget(group, 2 * FILE_BYTES)
    return ends


def queue_ends(broker: Broker) -> dict[int, int]:
    return {queue: broker.store.max_offset("U", queue) for queue in broker.store.topics().get("U", [])}


async def test_R3_an_empty_queue_goes_on_with_its_offsets_whatever_a_member_forgets(
    group: RaftCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    ends = await only_in_front(group)
    leader = await group.leader()
    lost, reset = (member for member in group.ids if member != leader)
    # One loses its queues, which are made from the log again; another one copies everything from the leader.
    for member in (lost, reset):
        await group.stop_broker(member)
        shutil.rmtree(tmp_path / member / "consumequeue")
        (tmp_path / member / "abort").write_text("1")
        if member == reset:
            write_marker(tmp_path / member / "raft" / "reset", Marker(leader=leader))
        await group.start_broker(member)
        await group.leader()
    # A member knows its queues as soon as the leader has told it what is committed, and its copy is whole.
    async with asyncio.timeout(QUEUES_WITHIN_S):
        while any(queue_ends(group.brokers[member]) != ends for member in group.ids):
            await asyncio.sleep(0.05)
    for _ in (lost, reset):
        leader = await group.leader()
        assert await group.brokers[leader].hand_over()
        await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        results = [await producer.send(Message("U", b"again")) for _ in range(8)]
    for result in results:
        assert result.queue_offset >= ends[result.queue.queueId]
    await equal(group, group.ids[0], group.ids[1])
    await equal(group, group.ids[0], group.ids[2])
    async with asyncio.timeout(20):
        while len({tuple(queue_ends(broker).items()) for broker in group.brokers.values()}) > 1:
            await asyncio.sleep(0.01)


async def test_R13_a_marked_member_copies_the_store_before_it_opens_its_own(group: RaftCluster, tmp_path: Path) -> None:
    leader = await group.leader()
    await routed(group)
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
        async with asyncio.timeout(20):
            while group.leaders() != [follower]:
                await asyncio.sleep(0.01)
    found = await read_all(group.namesrv, "T", 130)
    assert numbers([message.body for message in found]) == list(range(130))


async def test_R4_a_lost_oldest_file_behind_retention_is_fetched(
    group: RaftCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log begins now was agreed upon; what is missing from there on is a hole."""
    hurry(monkeypatch)
    leader = await group.leader()
    await routed(group)
    await send(group, 0, 120)
    await forget(group, 2 * FILE_BYTES)
    follower = next(member for member in group.ids if member != leader)
    begin = group.brokers[follower].store.min_physical
    await group.stop_broker(follower)
    assert kept(tmp_path, follower)[0] == f"{begin:020d}"
    (tmp_path / follower / "commitlog" / f"{begin:020d}").unlink()
    broker = await group.start_broker(follower)
    assert broker.store.min_physical == begin
    entries = broker.store.entries
    assert entries is not None
    async with asyncio.timeout(30):
        while not entries.whole:
            await asyncio.sleep(0.01)
    await equal(group, leader, follower)
    files = [(tmp_path / member / "commitlog" / f"{begin:020d}").read_bytes() for member in (leader, follower)]
    assert files[0] == files[1]
    assert broker.reborn is None


async def test_R13_a_lost_oldest_file_that_nobody_keeps_any_more_does_not_block(
    group: RaftCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have agreed meanwhile that it goes: its member is behind what is kept, and copies."""
    hurry(monkeypatch)
    leader = await group.leader()
    await routed(group)
    await send(group, 0, 60)
    follower = next(member for member in group.ids if member != leader)
    await group.stop_broker(follower)
    (tmp_path / follower / "commitlog" / f"{0:020d}").unlink()
    await send(group, 60, 60)
    await forget(group, 3 * FILE_BYTES)
    behind = await group.start_broker(follower)
    async with asyncio.timeout(30):
        await behind.stopped.wait()
    assert behind.reborn is not None
    await behind.close()
    await group.start_broker(follower)
    await group.leader()
    await send(group, 120, 5)
    await equal(group, leader, follower)
    assert group.brokers[follower].store.min_physical >= 3 * FILE_BYTES


async def test_R13_a_member_behind_retention_is_reset(
    group: RaftCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    leader = await group.leader()
    await routed(group)
    await send(group, 0, 5)
    follower = next(member for member in group.ids if member != leader)
    await group.stop_broker(follower)
    await send(group, 5, 115)
    await forget(group, 3 * FILE_BYTES)
    # Its configuration file names nobody else: whom to copy from it knows from the last CONFIG alone.
    alone = next(peer for peer in group.peers.split(";") if peer.startswith(follower))
    behind = await group.start_broker(follower, dLegerPeers=alone)
    async with asyncio.timeout(30):
        await behind.stopped.wait()
    assert behind.reborn is not None
    assert (tmp_path / follower / "raft" / "reset").exists()
    await behind.close()
    await group.start_broker(follower, dLegerPeers=alone)
    await group.leader()
    await send(group, 120, 5)
    await equal(group, leader, follower)
    assert group.brokers[follower].store.min_physical > 0
    for member in group.ids:
        await group.stop_broker(member)
    await asyncio.gather(*(group.start_broker(member) for member in group.ids))
    await group.leader()
    await send(group, 125, 5)
