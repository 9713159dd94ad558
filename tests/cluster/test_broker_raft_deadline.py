"""R8 and A16 with real processes: what a member was asked long ago is done by nobody, whichever way it went."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from chaos.site.site import Site, SiteMember
from client.admin.client import AdminClient
from client.message import Message
from client.produce.producer import Producer
from remoting.bodies.registry import ConsumerData, HeartbeatData, SubscriptionData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from tests.cluster.raft_cluster import CALM
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

SETTINGS = {
    **SMALL_FILES,
    # Who leads and is not stopped is to lead on.
    **CALM,
    "mappedFileSizeCommitLog": 1 << 20,
}
WITHIN_S = 60.0
# Longer than the bound of a member for a request (broker/raft_group/forwarder.py), of which nothing tells from outside.
PAST_DEADLINE_S = 3.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path, settings=SETTINGS, links=True)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def leader_of(site: Site, *but: SiteMember) -> SiteMember:
    async with asyncio.timeout(WITHIN_S):
        while (found := await site.leader()) is None or found in but:
            await asyncio.sleep(0.05)
    return found


def send(body: bytes) -> Command:
    header = SendMessageRequestHeaderV2(
        producerGroup="P", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, sysFlag=0,
        bornTimestamp=1, flag=0, properties="",
    )  # fmt: skip
    return Command.request(RequestCode.SEND_MESSAGE_V2, header, body)


async def begin(site: Site) -> SiteMember:
    """Make the topic; return who leads."""
    leader = await leader_of(site)
    async with AdminClient(site.namesrv) as admin:
        await admin.create_topic("T", read_queues=1, write_queues=1)
    async with Producer("producers", site.namesrv) as producer:
        await producer.send(Message("T", b"first"))
    return await leader_of(site) if (await site.leader()) is not leader else leader


async def bodies(site: Site, count: int) -> list[bytes]:
    """What stands in the topic, in its order; waits for `count` messages."""
    async with asyncio.timeout(WITHIN_S):
        return [bytes(message.body) for message in await everything(site.namesrv, "T", count)]


@pytest.mark.timeout(120)
async def test_R8_an_overwritten_send_is_not_stored_behind_its_own_retry(site: Site) -> None:
    """The old leader appends it and reaches nobody; its client sends it again; then it hears what became of it."""
    old = await begin(site)
    client = RemotingClient()
    try:
        for other in site.members:
            if other is not old:
                await site.links.cut(old.name, other.name, both=True)
        first = asyncio.ensure_future(client.invoke(old.process.address, send(b"once"), 60.0))
        new = await leader_of(site, old)
        retry = await client.invoke(new.process.address, send(b"once"), 10.0)
        assert retry.code == ResponseCode.SUCCESS
        await asyncio.sleep(PAST_DEADLINE_S)
        await site.links.heal()
        told = await asyncio.wait_for(first, WITHIN_S)
        assert told.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "not stored" in (told.remark or "")
        assert (await client.invoke(new.process.address, send(b"last"), 10.0)).code == ResponseCode.SUCCESS
        assert await bodies(site, 3) == [b"first", b"once", b"last"]
    finally:
        await client.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_R8_a_send_that_lay_in_a_stopped_members_socket_is_not_stored(site: Site, role: str) -> None:
    leader = await begin(site)
    stopped = leader if role == "leader" else next(member for member in site.members if member is not leader)
    client = RemotingClient()
    try:
        # There is a connection before it stops.
        await client.invoke(stopped.process.address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), 10.0)
        stopped.process.signal(signal.SIGSTOP)
        stopped.paused = True
        first = asyncio.ensure_future(client.invoke(stopped.process.address, send(b"once"), 60.0))
        other = leader if role == "follower" else await leader_of(site, stopped)
        assert (await client.invoke(other.process.address, send(b"once"), 10.0)).code == ResponseCode.SUCCESS
        await asyncio.sleep(PAST_DEADLINE_S)
        stopped.process.signal(signal.SIGCONT)
        stopped.paused = False
        told = await asyncio.wait_for(first, WITHIN_S)
        assert told.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.invoke(other.process.address, send(b"last"), 10.0)).code == ResponseCode.SUCCESS
        assert await bodies(site, 3) == [b"first", b"once", b"last"]
    finally:
        await client.close()


class Consumer:
    """A consumer that is known to all members, and commits by whichever it likes."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def join(self, members: Iterable[SiteMember]) -> None:
        consumer = ConsumerData(groupName="g", subscriptionDataSet=[SubscriptionData(topic="T")])
        body = HeartbeatData(clientID="reader@1", consumerDataSet=[consumer]).encode()
        for member in members:
            beat = Command.request(RequestCode.HEART_BEAT, body=body)
            assert (await self._client.invoke(member.process.address, beat, 10.0)).code == ResponseCode.SUCCESS

    async def commit(self, member: SiteMember, offset: int) -> int:
        header = UpdateConsumerOffsetRequestHeader(consumerGroup="g", topic="T", queueId=0, commitOffset=offset)
        request = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        return (await self._client.invoke(member.process.address, request, 60.0)).code

    async def offset(self, member: SiteMember) -> int:
        header = QueryConsumerOffsetRequestHeader(consumerGroup="g", topic="T", queueId=0)
        request = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._client.invoke(member.process.address, request, 10.0)
        assert answer.code == ResponseCode.SUCCESS
        return answer.header(QueryConsumerOffsetResponseHeader).offset


@pytest.mark.timeout(120)
@pytest.mark.parametrize("stopped_s", [0.8, PAST_DEADLINE_S], ids=["shortly", "past its deadline"])
async def test_A16_a_stopped_followers_late_commit_does_not_move_an_offset_back(site: Site, stopped_s: float) -> None:
    leader = await begin(site)
    follower = next(member for member in site.members if member is not leader)
    async with AdminClient(site.namesrv) as admin, Producer("producers", site.namesrv) as producer:
        await admin.create_group("g")
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
    client = RemotingClient()
    consumer = Consumer(client)
    try:
        await consumer.join((leader, follower))
        follower.process.signal(signal.SIGSTOP)
        follower.paused = True
        late = asyncio.ensure_future(consumer.commit(follower, 5))
        # It is in the socket of the stopped process before the other one is sent.
        await asyncio.sleep(0.1)
        assert await consumer.commit(leader, 18) == ResponseCode.SUCCESS
        await asyncio.sleep(stopped_s)
        follower.process.signal(signal.SIGCONT)
        follower.paused = False
        assert await asyncio.wait_for(late, WITHIN_S) != ResponseCode.SUCCESS, "nobody is told that it counts"
        assert await consumer.offset(leader) == 18
        # Who goes back by intention does, by whichever member he asks, as soon as that one is awake again.
        for member, offset in ((follower, 9), (leader, 4), (follower, 2)):
            async with asyncio.timeout(WITHIN_S):
                while await consumer.commit(member, offset) != ResponseCode.SUCCESS:
                    await asyncio.sleep(0.05)
            assert await consumer.offset(leader) == offset
    finally:
        await client.close()
