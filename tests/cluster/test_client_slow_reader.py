"""A consumer that is far behind, and a Raft group whose followers may be read: it is sent to one, whoever leads."""

import asyncio
from pathlib import Path

import pytest

from broker.server import Broker
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.message import ConsumeFrom
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from tests.cluster.modes import send_numbers
from tests.cluster.raft_cluster import CALM, RaftCluster

COUNT = 200
# Messages that one answer brings at most: none of them counts as being in memory.
ANSWER = 8
# Nothing but the last message counts as being in memory.
SLOW = {**CALM, "slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0", "defaultTopicQueueNums": "1"}


@pytest.mark.parametrize("leader", ["n0", "n2"])
async def test_a_slow_reader_is_served_by_a_follower_whoever_leads(tmp_path: Path, leader: str) -> None:
    cluster = RaftCluster(tmp_path, values=SLOW)
    await cluster.start()
    try:
        await lead(cluster, leader)
        async with Producer("P", cluster.namesrv) as producer:
            await send_numbers(producer, "T", range(COUNT))
        name = cluster.brokers[leader].live.broker.name()
        async with AdminClient(cluster.namesrv) as admin:
            await admin.create_group("G", address=cluster.brokers[leader].address)
        # A follower asks its leader for its readers while it does not know the topic or the group, or that all is
        # committed.
        async with asyncio.timeout(30):
            while not all(knows_all(broker) for broker in cluster.brokers.values()):
                await asyncio.sleep(0.02)
        async with LitePullConsumer("G", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
            await consumer.assign([MessageQueue("T", name, 0)])
            got: list[int] = []
            async with asyncio.timeout(20):
                while len(got) < COUNT:
                    got += [int(message.body) for message in await consumer.poll(0.5)]
        assert got == list(range(COUNT))
        assert cluster.leaders() == [leader], "the measure is of one leader"
        served = {member: broker._parts.stats.totals.got for member, broker in cluster.brokers.items()}
        # The first answer is the leader's, and perhaps the last: what comes before it may have nothing behind it.
        assert served.pop(leader) <= 2 * ANSWER
        assert sum(served.values()) >= COUNT - 2 * ANSWER
    finally:
        await cluster.close()


def knows_all(broker: Broker) -> bool:
    """Tell whether a member can answer every question of this consumer."""
    known = broker._parts.groups.get("G") is not None and broker._parts.topics.get("T") is not None
    return known and broker.store.max_offset("T", 0) == COUNT


async def lead(cluster: RaftCluster, wanted: str) -> None:
    """Have a member lead, and the route say so."""
    now = await cluster.leader()
    group = cluster.brokers[now].live.broker.name()
    async with AdminClient(cluster.namesrv) as admin:
        async with asyncio.timeout(15):
            while await cluster.leader() != wanted:
                await admin.transfer_leader(group, wanted)
        address = cluster.brokers[wanted].address
        async with asyncio.timeout(30):
            while (await admin.cluster_info()).brokerAddrTable[group].brokerAddrs.get(0) != address:
                await asyncio.sleep(0.02)
