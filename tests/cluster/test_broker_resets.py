"""Offsets that an administrator sets, on a single broker and in a Raft group whose lead changes: they are kept."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from broker.messages.offset_handlers import RESET
from broker.metadata.committers import DoubtfulCommit
from broker.server import Broker
from remoting.bodies.registry import ConsumerData, HeartbeatData, SubscriptionData, SubscriptionGroupConfig
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    CreateTopicRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.cluster.broker_peer import ask, messages, pull_header, running, send
from tests.cluster.raft_cluster import CALM, RaftCluster

COUNT = 10
Next = Callable[[], Awaitable[Broker]]


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


@asynccontextmanager
async def single(folder: Path) -> AsyncIterator[tuple[Broker, Next]]:
    async with running(folder) as broker:

        async def same() -> Broker:
            return broker

        yield broker, same


@asynccontextmanager
async def grouped(folder: Path) -> AsyncIterator[tuple[Broker, Next]]:
    """A group; `next` stops its leader and returns the one that follows."""
    cluster = RaftCluster(folder, values=CALM)
    await cluster.start()

    async def follows() -> Broker:
        await cluster.stop_broker(await cluster.leader())
        return cluster.brokers[await cluster.leader()]

    try:
        yield cluster.brokers[await cluster.leader()], follows
    finally:
        await cluster.close()


async def commit(client: RemotingClient, broker: Broker, offset: int) -> Command:
    header = UpdateConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0, commitOffset=offset)
    return await ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def commit_until_taken(client: RemotingClient, broker: Broker, offset: int) -> None:
    """Commit again for as long as the answer asks for that.

    When a commit that a follower passes on came is known as well as the clocks are, and not to the millisecond while
    the machine is busy: one that may be older than the commit before it is refused with that word.
    """
    async with asyncio.timeout(30):
        while (answer := await commit(client, broker, offset)).code != ResponseCode.SUCCESS:
            assert answer.remark == DoubtfulCommit().remark


async def stored(client: RemotingClient, broker: Broker) -> str | None:
    header = QueryConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0)
    return (await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, header)).ext.get("offset")


async def fill(client: RemotingClient, broker: Broker) -> None:
    for number in range(COUNT):
        await send(client, broker, b"%d" % number)
    body = SubscriptionGroupConfig("G").encode()
    answer = await ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("mode", [single, grouped])
async def test_a_reset_of_a_group_that_nobody_has_joined_holds_until_its_next_pull(
    tmp_path: Path, client: RemotingClient, mode: Callable[[Path], AbstractAsyncContextManager[tuple[Broker, Next]]]
) -> None:
    """In a group whoever leads when the consumer comes: the reset went through the log."""
    async with mode(tmp_path) as (broker, following):
        await fill(client, broker)
        assert (await commit(client, broker, 7)).code == ResponseCode.SUCCESS
        reset = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0, isForce=True)
        assert (await ask(client, broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 0
        answer = await commit(client, broker, 5)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, RESET)

        successor = await following()
        answer = await commit(client, successor, 5)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, RESET)
        assert await stored(client, successor) == "0"
        moved = await ask(client, successor, RequestCode.PULL_MESSAGE, pull_header(5))
        assert (moved.code, moved.remark, moved.ext["nextBeginOffset"]) == (21, "OFFSET_RESET", "0")
        assert (await ask(client, successor, RequestCode.PULL_MESSAGE, pull_header(0))).code == ResponseCode.SUCCESS
        answer = await commit(client, successor, 5)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert await stored(client, successor) == "5"


@pytest.mark.parametrize("mode", [single, grouped])
async def test_a_new_group_loses_nothing_that_is_sent_while_it_begins(
    tmp_path: Path, client: RemotingClient, mode: Callable[[Path], AbstractAsyncContextManager[tuple[Broker, Next]]]
) -> None:
    """What the first question is answered holds, however much later, and by whom, the queue is pulled from."""
    async with mode(tmp_path) as (broker, following):
        wide = CreateTopicRequestHeader(
            topic="T", defaultTopic="TBW102", readQueueNums=1, writeQueueNums=1, perm=6, topicFilterType="SINGLE_TAG"
        )
        assert (await ask(client, broker, RequestCode.UPDATE_AND_CREATE_TOPIC, wide)).code == ResponseCode.SUCCESS
        begin = await stored(client, broker)
        assert begin == "0"
        await send(client, broker, b"between the two questions")
        successor = await following()
        answer = await ask(client, successor, RequestCode.PULL_MESSAGE, pull_header(int(begin)))
        assert [message.body for message in messages(answer)] == [b"between the two questions"]


async def join(client: RemotingClient, cluster: RaftCluster, name: str) -> None:
    """Make a client a member of the group at every broker, as consumers do."""
    wanted = SubscriptionData(topic="T", subString="*", subVersion=1)
    consumer = ConsumerData(groupName="G", subscriptionDataSet=[wanted])
    beat = HeartbeatData(clientID=name, consumerDataSet=[consumer]).encode()
    for broker in cluster.brokers.values():
        assert (await ask(client, broker, RequestCode.HEART_BEAT, body=beat)).code == ResponseCode.SUCCESS


async def test_only_an_administrators_lower_commit_is_taken_whatever_member_is_asked(
    tmp_path: Path, client: RemotingClient
) -> None:
    cluster, owner, former = RaftCluster(tmp_path, values=CALM), RemotingClient(), RemotingClient()
    await cluster.start()
    try:
        leader = cluster.brokers[await cluster.leader()]
        await fill(client, leader)
        await join(owner, cluster, "owner@1")
        await join(former, cluster, "former@1")
        lower = 8
        for broker in cluster.brokers.values():
            assert (await commit(owner, leader, 9)).code == ResponseCode.SUCCESS
            await commit_until_taken(former, broker, 2)
            assert await stored(client, leader) == "9", "it lost the queue, and waits for the answer all the same"
            await commit_until_taken(client, broker, lower)
            assert await stored(client, leader) == str(lower)
            lower -= 1
    finally:
        await owner.close()
        await former.close()
        await cluster.close()
