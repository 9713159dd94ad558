"""Three brokers as a Raft group in one process: election, sends, a stopped leader, the route, restarts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.message import Message, SendStatus
from client.produce.producer import Producer
from remoting.bodies.registry import TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import GetRouteInfoRequestHeader
from tests.cluster.broker_peer import ask, v2
from tests.cluster.raft_cluster import CALM, RaftCluster, read_all


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    running = RaftCluster(tmp_path, values=CALM)
    try:
        await running.start()
        yield running
    finally:
        await running.close()


async def test_three_brokers_elect_a_leader_and_acknowledge_a_send(group: RaftCluster) -> None:
    await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        result = await producer.send(Message("T", b"hello"))
    assert result.status is SendStatus.SEND_OK
    (found,) = await read_all(group.namesrv, "T", 1)
    assert found.body == b"hello"


async def route(group: RaftCluster, topic: str) -> dict[int, str]:
    """Return what the NameServer says: address by brokerId."""
    client = RemotingClient()
    try:
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = await client.invoke(group.namesrv, Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), 5.0)
    finally:
        await client.close()
    assert answer.code == ResponseCode.SUCCESS, answer
    (broker,) = TopicRouteData.decode(answer.body).brokerDatas
    return dict(broker.brokerAddrs)


async def test_R15_the_route_shows_the_leader_as_0_and_the_others_by_their_number(group: RaftCluster) -> None:
    for _ in range(3):
        leader = await group.leader()
        expected = {
            0 if member == leader else int(member[1:]) + 1: broker.address for member, broker in group.brokers.items()
        }
        async with asyncio.timeout(20):
            while await route(group, "TBW102") != expected:
                await asyncio.sleep(0.01)
        assert await group.brokers[leader].hand_over()
        async with asyncio.timeout(20):
            while group.leaders() in ([], [leader]):
                await asyncio.sleep(0.01)


async def test_what_was_acknowledged_is_read_from_the_next_leader(group: RaftCluster) -> None:
    first = await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        for number in range(50):
            await producer.send(Message("T", b"%d" % number))
        await group.stop_broker(first)
        second = await group.leader()
        assert second != first
        for number in range(50, 100):
            await producer.send(Message("T", b"%d" % number))
    found = await read_all(group.namesrv, "T", 100)
    assert sorted(int(message.body) for message in found) == list(range(100))
    await group.start_broker(first)
    assert await group.leader() == second


async def test_a_rolling_restart_costs_no_send(group: RaftCluster) -> None:
    await group.leader()
    sent: list[int] = []
    stop = asyncio.Event()

    async def send(producer: Producer) -> None:
        while not stop.is_set():
            await producer.send(Message("T", b"%d" % len(sent)))
            sent.append(len(sent))

    async with Producer("producers", group.namesrv) as producer:
        sending = asyncio.create_task(send(producer))
        for member in group.ids:
            await group.stop_broker(member)
            await group.start_broker(member)
            await group.leader()
        stop.set()
        await sending
    found = await read_all(group.namesrv, "T", len(sent))
    assert {int(message.body) for message in found} == set(sent)


async def test_a_group_that_stopped_as_a_whole_goes_on_with_read_all(group: RaftCluster) -> None:
    await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
    for member in group.ids:
        await group.stop_broker(member)
    await asyncio.gather(*(group.start_broker(member) for member in group.ids))
    await group.leader()
    async with Producer("producers", group.namesrv) as producer:
        await producer.send(Message("T", b"20"))
    found = await read_all(group.namesrv, "T", 21)
    assert sorted(int(message.body) for message in found) == list(range(21))


async def test_ASYNC_FLUSH_is_honoured_and_said_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = RaftCluster(tmp_path, values={**CALM, "flushDiskType": "ASYNC_FLUSH"})
    try:
        await group.start()
        leader = await group.leader()
        async with Producer("producers", group.namesrv) as producer:
            for number in range(20):
                await producer.send(Message("T", b"%d" % number))
        found = await read_all(group.namesrv, "T", 20)
    finally:
        await group.close()
    assert len(found) == 20
    assert "acknowledged before they are on any disk" in caplog.text
    assert leader


async def test_the_preferred_leader_gets_the_lead_back_after_its_restart(tmp_path: Path) -> None:
    group = RaftCluster(tmp_path, values={**CALM, "preferredLeaderId": "n1"})

    async def led_by(member: str) -> None:
        async with asyncio.timeout(30):
            while group.leaders() != [member]:
                await asyncio.sleep(0.01)

    try:
        await group.start()
        await led_by("n1")
        sent: list[int] = []
        stop = asyncio.Event()

        async def send(producer: Producer) -> None:
            while not stop.is_set():
                await producer.send(Message("T", b"%d" % len(sent)))
                sent.append(len(sent))

        async with Producer("producers", group.namesrv) as producer:
            await producer.send(Message("T", b"first"))
            sending = asyncio.create_task(send(producer))
            await group.stop_broker("n1")
            assert await group.leader() in {"n0", "n2"}
            count = len(sent)
            async with asyncio.timeout(30):
                while len(sent) < count + 20:
                    await asyncio.sleep(0.01)
            await group.start_broker("n1")
            await led_by("n1")
            stop.set()
            await sending
        found = await read_all(group.namesrv, "T", len(sent) + 1)
        assert {message.body for message in found} == {b"first", *(b"%d" % number for number in sent)}
        # Led on purpose, not by chance: it goes away again when it is told to, and comes back by itself.
        assert await group.brokers["n1"].hand_over()
        await led_by("n1")
    finally:
        await group.close()


async def test_whether_topics_are_made_by_sends_is_for_the_leader_to_say(group: RaftCluster) -> None:
    client = RemotingClient()

    async def codes(topic: str) -> set[int]:
        """What the members answer to a send; who does not lead hands it on."""
        found = [
            await ask(client, each, RequestCode.SEND_MESSAGE_V2, v2(topic), b"x") for each in group.brokers.values()
        ]
        return {answer.code for answer in found}

    try:
        leader = group.brokers[await group.leader()]
        assert await codes("Made") == {0}
        answer = await ask(client, leader, RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=false")
        assert answer.code == 0, answer
        assert await codes("Refused") == {int(ResponseCode.TOPIC_NOT_EXIST)}
        assert await leader.hand_over()
        await group.leader()
        assert await codes("Allowed") == {0}
    finally:
        await client.close()
