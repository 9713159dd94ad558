"""Assignment by a Raft group's brokers: modes are agreed upon, and queues come from the NameServer's routes."""

import asyncio
import json
from pathlib import Path

from raftmq import AdminClient
from raftmq.bench.group import until_done
from remoting.bodies.registry import (
    ConsumerData,
    HeartbeatData,
    QueryAssignmentBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeBody,
    SubscriptionData,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from tests.cluster.process_group import leader_of, process_group
from tests.cluster.raft_cluster import CALM

MODE = SetMessageRequestModeBody(consumerGroup="G", mode="POP", popShareQueueNum=1, topic="T")


async def ask(client: RemotingClient, address: str, code: int, body: bytes = b"") -> Command:
    return await client.invoke(address, Command.request(code, None, body), 10.0)


async def test_a_group_keeps_modes_over_the_fall_of_its_leader(tmp_path: Path) -> None:
    with process_group(tmp_path, {**CALM, "flushDiskType": "SYNC_FLUSH"}) as (namesrv, members):
        leader = await leader_of(members)
        async with AdminClient(namesrv.address) as admin:
            # Who leads need not be registered yet.
            await until_done(lambda: admin.create_topic("T", read_queues=4, write_queues=4))
        client, consumer = RemotingClient(), ConsumerData(groupName="G")
        consumer.subscriptionDataSet = [SubscriptionData(topic="T", subString="*")]
        beat = HeartbeatData(clientID="me", consumerDataSet=[consumer]).encode()
        follower = next(member for member in members if member is not leader)
        # By way of a follower: its leader sets it.
        assert (await ask(client, follower.address, RequestCode.SET_MESSAGE_REQUEST_MODE, MODE.encode())).code == 0
        wanted = {"messageRequestModeMap": {"T": {"G": json.loads(MODE.encode())}}}
        async with asyncio.timeout(60):
            for member in members:
                while True:
                    told = await ask(client, member.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
                    if json.loads(bytes(told.body)) == wanted:
                        break
                    await asyncio.sleep(0.05)
        leader.kill()
        following = await leader_of([member for member in members if member is not leader])
        assert (await ask(client, following.address, RequestCode.HEART_BEAT, beat)).code == 0
        body = QueryAssignmentBody(clientId="me", consumerGroup="G", strategyName="AVG", topic="T").encode()
        answer = await ask(client, following.address, RequestCode.QUERY_ASSIGNMENT, body)
        found = QueryAssignmentResponseBody.decode(answer.body).messageQueueAssignments
        assert found is not None
        # One member: all queues of the broker, as a number of any.
        assert [(each.mode, each.messageQueue.queueId) for each in found] == [("POP", -1)]
        # Who was down reads it in the log, and it outlives a stop of all.
        await asyncio.to_thread(leader.start)
        async with asyncio.timeout(60):
            while True:
                told = await ask(client, leader.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
                if json.loads(bytes(told.body)) == wanted:
                    break
                await asyncio.sleep(0.05)
        await client.close()
