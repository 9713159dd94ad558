"""Clients of a Raft group while its leader changes: ours, and such as look at no route (as official ones for 30 s)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest

from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, Message, SendStatus
from client.produce.producer import Producer
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.message import MessageExt
from remoting.record import decode_records
from tests.cluster.raft_cluster import CALM, RaftCluster, led_cluster


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    async with led_cluster(tmp_path, CALM) as running:
        yield running


class Stale:
    """A client that talks to one member for ever, whoever leads."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = RemotingClient()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, request: Command) -> Command:
        return await self._client.invoke(self._address, request, 5.0)

    async def send(self, body: bytes) -> Command:
        header = SendMessageRequestHeaderV2(
            producerGroup="P",
            topic="T",
            defaultTopic="TBW102",
            defaultTopicQueueNums=1,
            queueId=0,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties="",
        )
        return await self.ask(Command.request(RequestCode.SEND_MESSAGE_V2, header, body))

    async def pull(self, offset: int, suspend_ms: int = 0) -> Command:
        header = PullMessageRequestHeader(
            consumerGroup="G",
            topic="T",
            queueId=0,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=6 if suspend_ms else 4,
            commitOffset=0,
            suspendTimeoutMillis=suspend_ms,
            subscription="*",
            subVersion=0,
        )
        return await self.ask(Command.request(RequestCode.PULL_MESSAGE, header))


async def follower_of(group: RaftCluster) -> str:
    leader = await group.leader()
    return next(member for member in group.ids if member != leader)


async def test_a_follower_serves_a_client_that_takes_it_for_the_leader(group: RaftCluster) -> None:
    follower = await follower_of(group)
    async with Stale(group.brokers[follower].address) as client:
        for number in range(3):
            answer = await client.send(b"%d" % number)
            assert (answer.code, answer.ext["queueOffset"]) == (0, str(number))
        commit = UpdateConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0, commitOffset=2)
        assert (await client.ask(Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))).code == 0
        query = QueryConsumerOffsetRequestHeader(consumerGroup="G", topic="T", queueId=0)
        assert (await client.ask(Command.request(RequestCode.QUERY_CONSUMER_OFFSET, query))).ext["offset"] == "2"
        end = GetMaxOffsetRequestHeader(topic="T", queueId=0)
        assert (await client.ask(Command.request(RequestCode.GET_MAX_OFFSET, end))).ext["offset"] == "3"


async def test_R8_the_born_host_of_a_forwarded_send_is_the_clients(group: RaftCluster) -> None:
    follower = await follower_of(group)
    async with Stale(group.brokers[follower].address) as client:
        await client.send(b"x")
        answer = await client.pull(0, 2000)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            answer = await client.pull(0)
        (found,) = decode_records(memoryview(bytes(answer.body)))
        own = [peer.peer[1] for server in group.brokers[follower]._servers for peer in server.connections]
        assert found.born_host[0] == "127.0.0.1"
        assert found.born_host[1] in own


async def test_R14_a_follower_does_not_move_a_consumer(group: RaftCluster) -> None:
    follower = await follower_of(group)
    async with Stale(group.brokers[follower].address) as client:
        await client.send(b"x")
        # The leader knows that this is wrong, and says so itself.
        answer = await client.pull(99)
        assert (answer.code, answer.ext["maxOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
        # Nobody leads: nobody knows.
        for member in group.ids:
            if member != follower:
                await group.stop_broker(member)
        async with asyncio.timeout(20):
            while group.brokers[follower].role.lease():
                await asyncio.sleep(0.01)
        answer = await client.pull(99)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "99")
        assert answer.ext["suggestWhichBrokerId"] == "0"


async def test_a_transfer_under_load_costs_a_stale_client_no_send(group: RaftCluster) -> None:
    first = await group.leader()
    stop = asyncio.Event()
    codes: list[int] = []

    async def load(client: Stale) -> None:
        while not stop.is_set():
            codes.append((await client.send(b"x")).code)

    async with Stale(group.brokers[first].address) as client:
        assert (await client.send(b"x")).code == 0
        tasks = [asyncio.create_task(load(client)) for _ in range(16)]
        for _ in range(3):
            leader = await group.leader()
            assert await group.brokers[leader].hand_over()
            await group.leader()
            await asyncio.sleep(0.1)
        stop.set()
        await asyncio.gather(*tasks)
        end = GetMaxOffsetRequestHeader(topic="T", queueId=0)
        answer = await client.ask(Command.request(RequestCode.GET_MAX_OFFSET, end))
    assert set(codes) == {0}
    # One attempt, one record.
    assert int(answer.ext["offset"]) == len(codes) + 1


async def test_our_consumers_go_on_with_the_next_leader(group: RaftCluster) -> None:
    seen: list[bytes] = []

    def note(messages: list[MessageExt]) -> None:
        seen.extend(message.body for message in messages)

    async with Producer("P", group.namesrv) as producer:
        while (await producer.send(Message("T", b"0"))).status is not SendStatus.SEND_OK:
            pass
        consumer = PushConsumer("G", group.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("T")
        consumer.on_message(note)
        async with consumer:
            for number in range(1, 60):
                if number % 20 == 0:
                    await group.stop_broker(await group.leader()) if number == 40 else await group.brokers[
                        await group.leader()
                    ].hand_over()
                await producer.send(Message("T", b"%d" % number))
            async with asyncio.timeout(60):
                while len(set(seen)) < 60:
                    await asyncio.sleep(0.01)
        async with LitePullConsumer("G", group.namesrv) as other:
            queues = await other.queues("T")
            await other.assign(queues)
            stored = [await other.committed(queue) for queue in queues]
    assert sum(offset or 0 for offset in stored) >= 60
