"""Several NameServers: some die, all die, one is cut off, one starts empty; and many topics, many brokers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, Message, SendStatus
from client.produce.producer import Producer
from namesrv.routes import Address
from namesrv.server import NameServer
from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from tests.cluster.consuming import Seen
from tests.cluster.namesrv_many import Claimant, Gate, NameServers, asked, masters, serving, until

TOPIC = "T"


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[NameServers]:
    made = NameServers(tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_one_of_three_is_killed_and_comes_back_empty(tmp_path: Path, names: NameServers) -> None:
    async with serving(tmp_path, names.all) as broker, Producer("p", names.all) as producer:
        await producer.send(Message(TOPIC, b"0"))
        await names.kill(0)
        for number in range(5):
            sent = await producer.send(Message(f"New{number}", b"1"))
            assert sent.status is SendStatus.SEND_OK, "the client asks one of the others"
        await until(lambda: all("New4" in names.server(n).routes.queues["broker-a"] for n in (1, 2)))
        for address in names.addresses[1:]:
            assert await masters(address, "New4") == [broker.address]
        server = await names.restart(0)
        await until(lambda: "New4" in server.routes.queues.get("broker-a", {}))
        assert await masters(names.addresses[0], TOPIC) == [broker.address]


async def test_all_are_killed_and_clients_go_on_with_the_routes_they_have(tmp_path: Path, names: NameServers) -> None:
    seen = Seen()
    async with serving(tmp_path, names.all), Producer("p", names.all) as producer:
        await producer.send(Message(TOPIC, b"0"))
        consumer = PushConsumer("g", names.all, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe(TOPIC)
        consumer.on_message(seen)
        async with consumer:
            await seen.reaches(1)
            for number in range(3):
                await names.kill(number)
            for number in range(1, 40):
                sent = await producer.send(Message(TOPIC, b"%d" % number))
                assert sent.status is SendStatus.SEND_OK
            bodies = await seen.reaches(40)
            assert sorted(map(int, bodies)) == list(range(40))
            for number in range(3):
                await names.restart(number)
            await until(lambda: all(names.server(number).routes.live for number in range(3)))
            assert (await producer.send(Message("Afterwards", b"new topic"))).status is SendStatus.SEND_OK


async def test_a_broker_that_is_cut_off_from_some_is_found_through_the_others(
    tmp_path: Path, names: NameServers
) -> None:
    async with Gate(names.addresses[0]) as gate:
        namesrv = ";".join([gate.address, *names.addresses[1:]])
        async with serving(tmp_path, namesrv) as one, serving(tmp_path, names.all, "broker-b") as other:
            async with Producer("p", names.addresses[1]) as producer:
                await producer.send(Message(TOPIC, b"0"))
                for broker in (one, other):
                    await broker_has(broker, TOPIC)
                gate.cut()
                # Silence: the NameServer forgets it after 120 s; the other one's connection is alive all the while.
                first = names.server(0)
                names.clocks[0].advance(119)
                first.routes.heartbeat(Address("DefaultCluster", other.address), link_of(first, other))
                names.clocks[0].advance(2)
                first.scan()
                assert await masters(names.addresses[0], TOPIC) == [other.address]
                assert await masters(names.addresses[1], TOPIC) == sorted((one.address, other.address))
                for topic in ("Later", "StillLater"):
                    # Answered when the others know it: a tool waits 3 s.
                    await broker_has(one, topic)
                    assert await masters(names.addresses[1], topic) == [one.address]
                for number in range(16):
                    assert (await producer.send(Message(TOPIC, b"%d" % number))).status is SendStatus.SEND_OK
            async with Producer("q", names.addresses[0]) as cut_off:
                assert (await cut_off.send(Message(TOPIC, b"elsewhere"))).queue.brokerName == "broker-b"
            gate.heal()
            await until(lambda: Address("DefaultCluster", one.address) in first.routes.live)
            assert await masters(names.addresses[0], TOPIC) == sorted((one.address, other.address))


async def broker_has(broker: Broker, topic: str) -> None:
    """Have a broker take the topic too, as an administrator would."""
    client = RemotingClient()
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    answer = await client.invoke(broker.address, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await client.close()


def link_of(server: NameServer, broker: Broker) -> Any:
    return server.routes.live[Address("DefaultCluster", broker.address)].link


async def test_split_brain_ends_with_the_newer_master_everywhere(tmp_path: Path, names: NameServers) -> None:
    """The new master reaches one NameServer only, and the deposed one goes on telling all of them that it is it."""
    async with Gate(names.addresses[1]) as gate:
        deposed = Claimant(tmp_path, ";".join(names.addresses[:2]), "10.0.0.1:10911", 1)
        promoted = Claimant(tmp_path, f"{names.addresses[0]};{gate.address}", "10.0.0.2:10911", 2)
        async with deposed:
            gate.cut()
            starting = asyncio.create_task(promoted.__aenter__())
            await until(lambda: names.server(0).routes.groups["g"].brokerAddrs[0] == promoted.address)
            await deposed.registration.refresh()
            assert await masters(names.addresses[0], "T0") == [promoted.address], "a lower epoch takes nothing back"
            assert await masters(names.addresses[1], "T0") == [deposed.address], "it knows of nothing else"
            gate.heal()
            await starting
            await until(lambda: names.server(1).routes.groups["g"].brokerAddrs[0] == promoted.address)
            await deposed.registration.refresh()
            for address in names.addresses[:2]:
                assert await masters(address, "T0") == [promoted.address]
        for address in names.addresses[:2]:
            assert await masters(address, "T0") == [promoted.address], "who leaves does not take the other with it"
        await promoted.__aexit__()


async def test_one_that_starts_empty_says_so_until_brokers_had_their_time(tmp_path: Path, names: NameServers) -> None:
    first = names.addresses[0]
    async with serving(tmp_path, names.all) as broker, Producer("p", first) as producer:
        await producer.send(Message(TOPIC, b"0"))
        await names.kill(0)
        server = await names.restart(0, needWaitForService=True)
        await until(lambda: bool(server.routes.live))
        names.clocks[0].advance(44)
        refused = await asked(first, TOPIC)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "name server not ready" in (refused.remark or "")
        assert (await producer.send(Message(TOPIC, b"1"))).status is SendStatus.SEND_OK, "with the route that it has"
        names.clocks[0].advance(2)
        assert await masters(first, TOPIC) == [broker.address]


async def test_by_default_one_that_starts_empty_answers_at_once_and_brokers_find_it(
    tmp_path: Path, names: NameServers
) -> None:
    first = names.addresses[0]
    async with serving(tmp_path, names.all) as broker, Producer("p", first) as producer:
        await producer.send(Message(TOPIC, b"0"))
        await names.kill(0)
        server = await names.restart(0)
        assert (await asked(first, "Unknown")).code == ResponseCode.TOPIC_NOT_EXIST
        await until(lambda: bool(server.routes.live), within=15)
        assert await masters(first, TOPIC) == [broker.address]


BROKERS = 100


def broker_header(number: int) -> RegisterBrokerRequestHeader:
    return RegisterBrokerRequestHeader(
        brokerName=f"b{number}",
        brokerAddr=f"10.0.{number}.1:10911",
        clusterName="C",
        haServerAddr="",
        brokerId=0,
    )


@contextlib.asynccontextmanager
async def registered(address: str, count: int, topics: int) -> AsyncIterator[list[RemotingClient]]:
    """So many brokers with the same topics, each over a connection of its own."""
    table = {f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(topics)}
    body = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 0, 1), topicConfigTable=table)).encode()
    clients = [RemotingClient() for _ in range(count)]
    try:
        calls = (
            client.call(address, RequestCode.REGISTER_BROKER, broker_header(number), body, 30.0)
            for number, client in enumerate(clients)
        )
        await asyncio.gather(*calls)
        yield clients
    finally:
        for client in clients:
            await client.close()


async def test_a_hundred_brokers_take_leave_at_once(names: NameServers) -> None:
    address = names.addresses[0]
    async with registered(address, BROKERS + 1, 300) as clients:
        assert len(await masters(address, "T299")) == BROKERS + 1

        async def leave(number: int) -> None:
            header = UnRegisterBrokerRequestHeader(
                brokerName=f"b{number}", brokerAddr=f"10.0.{number}.1:10911", clusterName="C", brokerId=0
            )
            await clients[number].call(address, RequestCode.UNREGISTER_BROKER, header)

        route = asyncio.create_task(asked(address, "T0"))
        # Each within the 3 s of a call, and so is whoever asks for a route meanwhile.
        await asyncio.gather(*(leave(number) for number in range(BROKERS)))
        assert (await route).code == ResponseCode.SUCCESS
        assert await masters(address, "T0") == [f"10.0.{BROKERS}.1:10911"]
        assert list(names.server(0).routes.groups) == [f"b{BROKERS}"]


async def test_a_hundred_brokers_die_at_once(names: NameServers) -> None:
    address, server = names.addresses[0], names.server(0)
    async with registered(address, BROKERS + 1, 300) as clients:
        await asyncio.gather(*(client.close() for client in clients[:BROKERS]))
        await until(lambda: len(server.routes.live) == 1, within=10)
        assert await masters(address, "T0") == [f"10.0.{BROKERS}.1:10911"]


TOPICS = 100_000


@pytest.mark.timeout(120)
async def test_unchanged_heartbeats_of_a_hundred_thousand_topics_cost_less_than_a_kibibyte(
    tmp_path: Path, names: NameServers
) -> None:
    async with (
        Gate(names.addresses[0]) as gate,
        Claimant(tmp_path, gate.address, "10.0.0.1:10911", 3, TOPICS) as broker,
    ):
        await broker.registration.announce()
        routes = names.server(0).routes
        assert len(routes.queues["g"]) >= TOPICS
        whole, gate.passed = gate.passed, 0
        assert whole < 4 * 1024 * 1024, "a table that is sent is compressed"
        for _ in range(10):
            await broker.registration.refresh()
        assert gate.passed / 10 < 1024
        names.clocks[0].advance(119)
        await broker.registration.refresh()
        names.clocks[0].advance(119)
        names.server(0).scan()
        assert routes.live, "it is a sign of life all the same"


@pytest.mark.timeout(120)
async def test_a_changed_table_goes_in_pieces_and_others_are_served_between_them(
    tmp_path: Path, names: NameServers
) -> None:
    values = {"enableSplitRegistration": "true", "compressedRegister": "true"}
    count = 20_000
    async with Claimant(tmp_path, names.addresses[0], "10.0.0.1:10911", 3, count, **values) as broker:
        routes = names.server(0).routes
        await broker.registration.announce()
        assert len(routes.queues["g"]) >= count
        broker.topics.update(*(TopicConfig(f"T{number}", 7, 7) for number in range(count)))
        telling = asyncio.create_task(broker.registration.announce())
        answers = 0
        while not telling.done():
            assert await masters(names.addresses[0], "T5") == [broker.address]
            answers += 1
        assert answers > 3
        assert {routes.queues["g"][f"T{number}"].readQueueNums for number in range(count)} == {7}
        before = routes.live[Address("DefaultCluster", broker.address)].version
        assert before == broker.topics.data_version
