"""What an administrator does with a Raft group: status, transfer, members that come and go, and the group's end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from client.message import Message
from client.produce.producer import Producer
from remoting.bodies.registry import HARuntimeInfo, KVTable
from remoting.client import RemotingClient
from remoting.codes import RaftCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import PullMessageRequestHeader
from store.errors import StoreDamaged
from tests.cluster.broker_peer import SMALL
from tests.cluster.raft_cluster import CALM, RaftCluster, read_all


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    running = RaftCluster(tmp_path, values=CALM)
    try:
        await running.start()
        yield running
    finally:
        await running.close()


async def ask(broker: Broker, code: RaftCode, **fields: str) -> Command:
    client = RemotingClient()
    try:
        return await client.invoke(broker.address, Command.request(code, body=orjson.dumps(fields)), 10.0)
    finally:
        await client.close()


async def done(broker: Broker, code: RaftCode, **fields: str) -> dict[str, Any]:
    answer = await ask(broker, code, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer
    said: dict[str, Any] = orjson.loads(answer.body)
    return said


async def until_voting(group: RaftCluster, voters: set[str]) -> None:
    """Wait until the leader's list of voters is this one, and the change is over."""
    async with asyncio.timeout(30):
        while True:
            status = await done(group.brokers[await group.leader()], RaftCode.STATUS)
            named = {member["id"] for member in status["members"] if member["voter"]}
            if named == voters and status["commit"] >= status["config_index"]:
                return
            await asyncio.sleep(0.02)


async def test_every_member_tells_what_it_knows(group: RaftCluster) -> None:
    leader = await group.leader()
    for member, broker in group.brokers.items():
        status = await done(broker, RaftCode.STATUS)
        assert (status["self"], status["group"], status["leader"]) == (member, "g", leader)
        assert status["leads"] == (member == leader)
        assert status["leaderAddress"] == group.brokers[leader].address
        assert (status["flushDiskType"], status["warnings"]) == ("SYNC_FLUSH", [])


async def test_mqadmins_haStatus_sees_a_group_as_master_and_slaves(group: RaftCluster) -> None:
    leader = await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        await producer.send(Message("T", b"x"))
    async with asyncio.timeout(30):
        while True:
            info = HARuntimeInfo.decode(bytes((await ha_status(group.brokers[leader])).body))
            if info.inSyncSlaveNums == 2 and not any(each.diff for each in info.haConnectionInfo):
                break
            await asyncio.sleep(0.02)
    assert info.master
    assert info.masterCommitLogMaxOffset > 0
    follower = next(member for member in group.ids if member != leader)
    info = HARuntimeInfo.decode(bytes((await ha_status(group.brokers[follower])).body))
    assert not info.master
    assert info.haClientRuntimeInfo.masterAddr == group.brokers[leader].address


async def ha_status(broker: Broker) -> Command:
    client = RemotingClient()
    try:
        answer = await client.invoke(broker.address, Command.request(RequestCode.GET_BROKER_HA_STATUS), 10.0)
    finally:
        await client.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


async def test_slaveReadEnable_decides_whether_a_follower_answers_pulls(group: RaftCluster) -> None:
    leader = await group.leader()
    follower = group.brokers[next(member for member in group.ids if member != leader)]
    async with Producer("producers", group.namesrv) as producer:
        for _ in range(8):
            await producer.send(Message("T", b"x"))
    served = group.brokers[leader]
    follower.live.update({"slaveReadEnable": "true"})
    async with asyncio.timeout(30):
        # The first one makes the group, at the leader.
        while await counted_pulls(served, follower) != (0, 1):
            await asyncio.sleep(0.02)
    follower.live.update({"slaveReadEnable": "false"})
    assert await counted_pulls(served, follower) == (1, 0), "passed on to the leader"


async def counted_pulls(leader: Broker, follower: Broker) -> tuple[int, int]:
    """Pull one message at the follower; returns how many messages each of the two has handed out for it."""
    header = PullMessageRequestHeader(
        consumerGroup="readers", topic="T", queueId=0, queueOffset=0, maxMsgNums=1, sysFlag=4, commitOffset=0,
        suspendTimeoutMillis=0, subVersion=0, subscription="*",
    )  # fmt: skip
    client = RemotingClient()
    try:

        async def given(broker: Broker) -> int:
            answer = await client.invoke(broker.address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), 10.0)
            return int(KVTable.decode(bytes(answer.body)).table["msgGetTotalTodayNow"])

        before = await given(leader), await given(follower)
        await client.invoke(follower.address, Command.request(RequestCode.PULL_MESSAGE, header), 10.0)
        return await given(leader) - before[0], await given(follower) - before[1]
    finally:
        await client.close()


async def test_the_lead_goes_where_it_is_told_to(group: RaftCluster) -> None:
    leader = await group.leader()
    to = next(member for member in group.ids if member != leader)
    said = await done(group.brokers[leader], RaftCode.TRANSFER_LEADER, to=to)
    assert said == {"leader": to, "address": group.brokers[to].address}
    assert await group.leader() == to


async def test_what_makes_no_sense_is_refused_in_words(group: RaftCluster) -> None:
    async with asyncio.timeout(30):
        while True:
            leader = await group.leader()
            follower = next(member for member in group.ids if member != leader)
            answer = await ask(group.brokers[follower], RaftCode.TRANSFER_LEADER)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            # On a busy machine the lead may have ended since.
            if leader in (answer.remark or ""):
                break
    for code, fields in (
        (RaftCode.ADD_PEER, {"id": "n3"}),
        (RaftCode.ADD_PEER, {"id": "x", "address": "127.0.0.1:1"}),
        (RaftCode.REMOVE_PEER, {"id": "n7"}),
        (RaftCode.REMOVE_PEER, {"id": leader}),
        (RaftCode.LEAVE, {}),
    ):
        answer = await ask(group.brokers[leader], code, **fields)
        assert answer.code == ResponseCode.INVALID_PARAMETER, (code, answer.remark)


async def test_R9_a_member_comes_learns_votes_and_goes_while_the_group_serves(group: RaftCluster) -> None:
    leader = await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
        address = group.add("n3")
        newcomer = await group.start_broker("n3")
        await done(group.brokers[leader], RaftCode.ADD_PEER, id="n3", address=address)
        await until_voting(group, {"n0", "n1", "n2", "n3"})
        async with asyncio.timeout(20):
            while newcomer.role.leader_address is None:
                await asyncio.sleep(0.01)
        gone = next(member for member in ("n0", "n1", "n2") if member != leader)
        await done(group.brokers[leader], RaftCode.REMOVE_PEER, id=gone)
        await until_voting(group, {"n0", "n1", "n2", "n3"} - {gone})
        await group.stop_broker(gone)
        for number in range(20, 40):
            await producer.send(Message("T", b"%d" % number))
    found = await read_all(group.namesrv, "T", 40)
    assert sorted(int(message.body) for message in found) == list(range(40))


async def test_R2_a_group_is_left_by_a_committed_act_and_its_store_becomes_a_single_brokers(
    group: RaftCluster, tmp_path: Path
) -> None:
    leader = await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        for number in range(10):
            await producer.send(Message("T", b"%d" % number))
    for member in group.ids:
        if member != leader:
            await done(group.brokers[leader], RaftCode.REMOVE_PEER, id=member)
            await group.stop_broker(member)
    values = {**SMALL, "brokerName": "broker-a", "namesrvAddr": group.namesrv, "mappedFileSizeCommitLog": str(4 << 20)}
    config, store_config, _ = load_broker_config({**values, "storePathRootDir": str(tmp_path / leader)})
    await group.stop_broker(leader)
    with pytest.raises(StoreDamaged):
        await Broker(config, store_config).start()
    last = await group.start_broker(leader)
    await group.leader()
    await done(last, RaftCode.LEAVE)
    await group.stop_broker(leader)
    alone = Broker(config, store_config)
    await alone.start()
    try:
        async with Producer("producers", group.namesrv) as producer:
            await producer.send(Message("T", b"10"))
        found = await read_all(group.namesrv, "T", 11)
        assert sorted(int(message.body) for message in found) == list(range(11))
    finally:
        await alone.close()
