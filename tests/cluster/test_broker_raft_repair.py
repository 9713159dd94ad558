"""R4: what a member's disk lost below its floor is fetched from the others, while they serve."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.raft_group.mode import MemberMode
from broker.server import Broker
from client.message import Message
from client.produce.producer import Producer
from raft.protocol.types import EntryType
from store.errors import StoreDamaged
from tests.cluster.raft_cluster import CALM, RaftCluster, read_all

FILE_BYTES = 256 * 1024


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    running = RaftCluster(tmp_path, values={**CALM, "mappedFileSizeCommitLog": str(FILE_BYTES)})
    try:
        await running.start()
        yield running
    finally:
        await running.close()


def log_file(tmp_path: Path, member: str, number: int) -> Path:
    return tmp_path / member / "commitlog" / f"{number * FILE_BYTES:020d}"


def status(broker: Broker) -> dict[str, Any]:
    assert isinstance(broker._mode, MemberMode)
    return broker._mode.group.status()


async def fill(group: RaftCluster) -> None:
    """Write four files, with a topic in each that no other has."""
    async with Producer("producers", group.namesrv) as producer:
        for number in range(100):
            await producer.send(Message("T", b"%d " % number + os.urandom(10_000)))
            if number % 20 == 10:
                await producer.send(Message(f"U{number}", b"a topic of its own"))


async def whole(broker: Broker) -> None:
    async with asyncio.timeout(30):
        while not status(broker)["whole"]:
            await asyncio.sleep(0.02)


async def check(group: RaftCluster, tmp_path: Path, hurt: str) -> None:
    """The member serves as leader what it lost: messages, and the topics in between."""
    async with asyncio.timeout(20):
        while len({broker.store.written for broker in group.brokers.values()}) > 1:
            await asyncio.sleep(0.01)
    for number in range(3):
        contents = {log_file(tmp_path, member, number).read_bytes() for member in group.ids}
        assert len(contents) == 1, number
    leader = await group.leader()
    while leader != hurt:
        assert await group.brokers[leader].hand_over()
        leader = await group.leader()
    found = await read_all(group.namesrv, "T", 100)
    assert sorted(int(message.body.split()[0]) for message in found) == list(range(100))
    for number in range(10, 100, 20):
        (message,) = await read_all(group.namesrv, f"U{number}", 1)
        assert message.body == b"a topic of its own"


@pytest.mark.parametrize("gone", [[1], [2], [1, 2], [0], [0, 1]])
async def test_R4_files_that_a_member_lost_come_back_from_the_others(
    group: RaftCluster, tmp_path: Path, gone: list[int]
) -> None:
    leader = await group.leader()
    await fill(group)
    hurt = next(member for member in group.ids if member != leader)
    await group.stop_broker(hurt)
    for path in (tmp_path / hurt / "config").iterdir():
        # Its metadata is that of the log, then.
        path.unlink()
    for number in gone:
        log_file(tmp_path, hurt, number).unlink()
    await group.start_broker(hurt)
    await whole(group.brokers[hurt])
    await check(group, tmp_path, hurt)


async def test_R4_a_byte_that_rots_comes_back_from_the_others(group: RaftCluster, tmp_path: Path) -> None:
    leader = await group.leader()
    await fill(group)
    hurt = next(member for member in group.ids if member != leader)
    await group.stop_broker(hurt)
    with log_file(tmp_path, hurt, 1).open("r+b") as file:
        file.seek(FILE_BYTES // 2)
        file.write(b"rotten bytes, not one of which is right")
    (tmp_path / hurt / "checkpoint").unlink()
    (tmp_path / hurt / "abort").write_text("1")
    await group.start_broker(hurt)
    await whole(group.brokers[hurt])
    await check(group, tmp_path, hurt)


async def test_R4_a_member_that_cannot_tell_who_the_members_are_says_so(group: RaftCluster, tmp_path: Path) -> None:
    leader = await group.leader()
    await fill(group)
    hurt = next(member for member in group.ids if member != leader)
    await group.stop_broker(hurt)
    log_file(tmp_path, hurt, 0).unlink()
    # As an earlier version leaves it: nothing tells where the log begins.
    (tmp_path / hurt / "checkpoint").unlink()
    with pytest.raises(StoreDamaged, match="the list of the group's members, is damaged or missing"):
        await group.start_broker(hurt)
    assert not log_file(tmp_path, hurt, 0).exists()


async def test_R4_metadata_that_rots_is_waited_for(group: RaftCluster, tmp_path: Path) -> None:
    """Behind the checkpoint no start looks at it, before it is asked for."""
    leader = await group.leader()
    await fill(group)
    hurt = next(member for member in group.ids if member != leader)
    entries = group.brokers[hurt].store.entries
    assert entries is not None
    async with asyncio.timeout(20):
        while entries.released < entries.last.index:
            await asyncio.sleep(0.01)
    found = [entries.control(index) for index in range(1, entries.last.index + 1)]
    rotten = next(entry for entry in found if entry.kind is EntryType.META)
    await group.stop_broker(hurt)
    for path in (tmp_path / hurt / "config").iterdir():
        path.unlink()
    with log_file(tmp_path, hurt, 0).open("r+b") as file:
        file.seek(rotten.position + rotten.size // 2)
        file.write(b"rot")
    await group.start_broker(hurt)
    await whole(group.brokers[hurt])
    await check(group, tmp_path, hurt)
