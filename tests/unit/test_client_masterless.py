"""Consumers of a group whose master is away: a slave and a master that play their part, and a NameServer's script."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.message import ConsumeFrom
from remoting.bodies.registry import (
    BrokerData,
    ConsumerIdList,
    HeartbeatData,
    MessageQueue,
    QueueData,
    TopicRouteData,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
)
from remoting.server import Connection, Handler, RemotingServer, Reply


class Broker:
    """Has no messages. `sends_away` is what a slave does that may not be read."""

    def __init__(self, *, sends_away: bool) -> None:
        self.pulls = 0
        self.commits = 0
        self._sends_away = sends_away
        self._clients: set[str] = set()
        ok: Handler = lambda _connection, _request: Command.response(0)  # noqa: E731 # twice the same answer
        self.server = RemotingServer(
            {
                RequestCode.HEART_BEAT: self._beat,
                RequestCode.UNREGISTER_CLIENT: ok,
                RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
                RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
                RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
                RequestCode.PULL_MESSAGE: self._pull,
                RequestCode.LITE_PULL_MESSAGE: self._pull,
            },
            name="broker",
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _beat(self, _connection: Connection, request: Command) -> Reply:
        self._clients.add(HeartbeatData.decode(request.body).clientID)
        return Command.response(0)

    def _members(self, _connection: Connection, _request: Command) -> Reply:
        return Command.response(0, body=ConsumerIdList(sorted(self._clients)).encode())

    def _commit(self, _connection: Connection, _request: Command) -> Reply:
        self.commits += 1
        return Command.response(0)

    def _offset(self, _connection: Connection, _request: Command) -> Reply:
        return Command.response(0, header=QueryConsumerOffsetResponseHeader(offset=7))

    async def _pull(self, _connection: Connection, request: Command) -> Command:
        self.pulls += 1
        asked = request.header(PullMessageRequestHeader)
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if not self._sends_away:
            await asyncio.sleep(min(asked.suspendTimeoutMillis / 1000, 0.2))
            code = ResponseCode.PULL_NOT_FOUND
        header = PullMessageResponseHeader(
            suggestWhichBrokerId=0, nextBeginOffset=asked.queueOffset, minOffset=0, maxOffset=asked.queueOffset
        )
        return Command.response(code, header=header)


class Pair:
    """A NameServer that knows the slave, and the master when it is `there`."""

    def __init__(self) -> None:
        self.master, self.slave = Broker(sends_away=False), Broker(sends_away=True)
        self.there = False
        self._names = RemotingServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}, name="name server")

    async def start(self) -> None:
        for server in (self.master.server, self.slave.server, self._names):
            await server.start("127.0.0.1", 0)

    async def close(self) -> None:
        for server in (self.master.server, self.slave.server, self._names):
            await server.close()

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self._names.port}"

    def _route(self, _connection: Connection, _request: Command) -> Reply:
        addresses = {1: self.slave.address, **({0: self.master.address} if self.there else {})}
        data = TopicRouteData(
            brokerDatas=[BrokerData(brokerAddrs=addresses, brokerName="b", cluster="c")],
            queueDatas=[QueueData(brokerName="b", perm=6, readQueueNums=1, writeQueueNums=1)],
        )
        return Command.response(0, body=data.encode())


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    try:
        await made.start()
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_a_slave_that_sends_away_is_asked_now_and_then_until_the_master_is_there(pair: Pair, kind: str) -> None:
    consumer: PushConsumer | LitePullConsumer
    if kind == "push":
        consumer = PushConsumer("G", pair.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.on_message(lambda _messages: None)
    else:
        consumer = LitePullConsumer("G", pair.namesrv)
    consumer.subscribe("T")
    async with consumer:
        async with asyncio.timeout(20):
            while not pair.slave.pulls:
                await asyncio.sleep(0.01)
        before = pair.slave.pulls
        # One scaled unit of real time: a loop without pauses would ask hundreds of times.
        await asyncio.sleep(0.5)
        assert pair.slave.pulls - before < 30
        pair.there = True
        async with asyncio.timeout(20):
            while pair.master.pulls < 2:
                await asyncio.sleep(0.01)
        asked = pair.slave.pulls
        async with asyncio.timeout(20):
            while pair.master.pulls < 4:
                await asyncio.sleep(0.01)
        assert pair.slave.pulls <= asked + 2
        if isinstance(consumer, PushConsumer):
            # The slave was told where the group began, as nobody else was there; now the master is.
            async with asyncio.timeout(20):
                while not pair.master.commits:
                    await consumer.commit()
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_how_far_a_queue_was_that_went_is_not_told_to_a_new_master(pair: Pair, *, auto_commit: bool) -> None:
    """Its next owner has stored more since: who commits by hand had it go back to its own place of long ago."""
    queue = MessageQueue("T", "b", 0)
    consumer = LitePullConsumer("G", pair.namesrv, auto_commit=auto_commit)
    async with consumer:
        await consumer.assign([queue])
        await consumer.position(queue)
        await consumer.commit()
        assert pair.slave.commits == 1
        await consumer.assign([])
        pair.there = True
        await consumer.instance.routes.refresh("T")
        await consumer.commit()
        assert pair.master.commits == 0
        await consumer.assign([queue])
        await consumer.position(queue)
        await consumer.commit()
        assert pair.master.commits == 1, "what is told again is what it has now"
