"""Request-reply in a Raft group: the reply finds who asked, whoever leads by then and whichever member knows it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest

from chaos.host.processes import ServerProcess, namesrv_process, raft_processes
from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.errors import ClientError
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from client.replies import answering
from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.message import MessageExt
from remoting.properties import encode_properties
from tests.cluster.process_group import leader_of
from tests.cluster.raft_cluster import CALM, RaftCluster, led_cluster
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

REPLIES = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    async with led_cluster(tmp_path, CALM) as running:
        yield running


class Stale:
    """A client that talks to one member for ever, whoever leads."""

    def __init__(self, address: str, client_id: str = "stale@1", answers: int = ResponseCode.SUCCESS) -> None:
        self._address = address
        self.client_id = client_id
        self._answers = answers
        self.pushed: list[Command] = []
        self._client = RemotingClient({RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._push})

    async def __aenter__(self) -> Self:
        beat = HeartbeatData(clientID=self.client_id, producerDataSet=[ProducerData(groupName="P")])
        answer = await self.ask(Command.request(RequestCode.HEART_BEAT, None, beat.encode()))
        assert answer.code == ResponseCode.SUCCESS
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, request: Command) -> Command:
        return await self._client.invoke(self._address, request, 5.0)

    async def reply(self, to: str, body: bytes = b"reply") -> Command:
        properties = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": to, "CORRELATION_ID": "n"}
        header = SendMessageRequestHeaderV2(
            producerGroup="P",
            topic=REPLIES,
            defaultTopic="TBW102",
            defaultTopicQueueNums=1,
            queueId=0,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties=encode_properties(properties).decode(),
        )
        return await self.ask(Command.request(RequestCode.SEND_REPLY_MESSAGE_V2, header, body))

    def _push(self, _connection: object, request: Command) -> Command:
        self.pushed.append(request)
        return Command.response(self._answers)


async def test_a_reply_reaches_a_client_that_only_a_follower_knows(group: RaftCluster) -> None:
    leader = await group.leader()
    first, second = [group.brokers[member].address for member in group.ids if member != leader]
    async with Stale(first) as asker, Stale(second, "stale@2") as replier:
        # Forwarded by one follower, stored by the leader, pushed by the other.
        answer = await replier.reply("stale@1")
        assert (answer.code, answer.remark, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, None, "0")
        (pushed,) = asker.pushed
        assert bytes(pushed.body) == b"reply"
        assert pushed.ext["topic"] == REPLIES
        assert "CORRELATION_ID\x01n\x02" in pushed.ext["properties"]
        assert pushed.ext["storeHost"] == group.brokers[leader].address
        assert not replier.pushed
        answer = await replier.reply("nobody")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "push reply message fail, channel of <nobody> not found."
        assert answer.ext["queueOffset"] == "1"
    # It has gone: that is found out the same way.
    async with Stale(first, "stale@2") as replier:
        assert (await replier.reply("stale@1")).code == ResponseCode.SYSTEM_ERROR


async def test_what_the_client_of_another_member_refuses_is_told(group: RaftCluster) -> None:
    leader = await group.leader()
    first, second = [group.brokers[member].address for member in group.ids if member != leader]
    async with Stale(first, answers=ResponseCode.SYSTEM_ERROR), Stale(second, "stale@2") as replier:
        answer = await replier.reply("stale@1")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to stale@1fail.")


@pytest.mark.parametrize("how", ["transfer", "stop"])
async def test_a_reply_after_a_failover_reaches_who_asked(group: RaftCluster, how: str) -> None:
    came, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: MessageExt) -> bytes | None:
        if "CORRELATION_ID" not in request.properties:
            return None
        came.set()
        await go_on.wait()
        return bytes(request.body).upper()

    async with Producer("repliers", group.namesrv) as replies, Producer("askers", group.namesrv) as producer:
        await replies.send(Message("T", b"first"), timeout=10)
        consumer = PushConsumer("answering", group.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("T")
        consumer.on_message(answering(replies, answer))
        async with consumer:
            for number in range(2):
                came.clear()
                go_on.clear()
                asked = asyncio.create_task(producer.request(Message("T", b"hello %d" % number), timeout=60))
                await asyncio.wait_for(came.wait(), 60)
                leader = await group.leader()
                if how == "stop" and not number:
                    await group.stop_broker(leader)
                elif how == "transfer":
                    await group.brokers[leader].hand_over()
                await group.leader()
                go_on.set()
                assert bytes((await asked).body) == b"HELLO %d" % number
        assert not producer.instance.replies


async def test_killed_leaders_make_no_request_hang(tmp_path: Path) -> None:
    """Real processes: each request has its reply or one error by its deadline, and afterwards they work as before."""
    namesrv = namesrv_process(tmp_path / "namesrv")
    namesrv.start()
    members = raft_processes(
        tmp_path, 3, namesrv=namesrv.address, settings={**SMALL_FILES, "mappedFileSizeCommitLog": 1 << 20}
    )
    try:
        for member in members:
            member.launch()
        for member in members:
            member.wait_ready()
        await _ask_while_killing(namesrv, members)
    finally:
        for process in (*members, namesrv):
            process.kill()


async def _ask_while_killing(namesrv: ServerProcess, members: list[ServerProcess]) -> None:
    async def answer(request: MessageExt) -> bytes:
        return bytes(request.body).upper()

    async def ask(producer: Producer, number: int) -> bool:
        async with asyncio.timeout(15):
            try:
                reply = await producer.request(Message("T", b"n%d" % number), timeout=8)
            except ClientError:
                return False
        assert bytes(reply.body) == b"N%d" % number
        return True

    async with AdminClient(namesrv.address) as admin, asyncio.timeout(30):
        while not any(broker.broker_id == 0 for broker in await admin.brokers()):
            await asyncio.sleep(0.05)
        await admin.create_topic("T", read_queues=1, write_queues=1)
        await admin.create_group("answering")
    consumer = PushConsumer("answering", namesrv.address, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("T")
    async with Producer("repliers", namesrv.address) as replies, Producer("askers", namesrv.address) as producer:
        consumer.on_message(answering(replies, answer))
        async with consumer:
            # Once: the first one waits for the consumer to have its queues.
            async with asyncio.timeout(60):
                while not await ask(producer, 0):
                    pass
            for kill in range(2):
                asked = [asyncio.create_task(ask(producer, 1000 * kill + number)) for number in range(1, 40)]
                leading = await leader_of(members, 20.0)
                leading.kill()
                await asyncio.gather(*asked)
                await asyncio.to_thread(leading.start)
                async with asyncio.timeout(60):
                    while not await ask(producer, 1000 * kill + 999):
                        pass
            assert not producer.instance.replies
    assert await everything(namesrv.address, REPLIES, 3)
