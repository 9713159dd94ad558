"""Quotas at real brokers: who is over his is told so with code 2, everybody else is served, and metrics tell."""

import asyncio
import contextlib
import http.client
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import pytest

from auth.quota_keys import Quota
from chaos.host.local import LocalCluster
from chaos.host.processes import ServerProcess
from raftmq import (
    AdminClient,
    ConsumeFrom,
    Credentials,
    LitePullConsumer,
    Message,
    Producer,
    RequestFailed,
    SendFailed,
    SimpleConsumer,
)
from remoting.codec import encode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.framing import FrameReader
from remoting.headers.registry import GetRouteInfoRequestHeader, SendMessageRequestHeaderV2
from tests.cluster.raft_cluster import CALM, RaftCluster
from tests.cluster.small_files import SMALL_FILES

ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ALICE, BOB = Credentials("alice", "alice-secret-1"), Credentials("bob", "bob-secret-1")
USERS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
}
# Without a signature other machines' clients are told apart by their addresses: here, by those of the loopback.
ONE, OTHER = "127.0.0.2", "127.0.0.3"


def refusals(process: ServerProcess) -> dict[str, float]:
    """Return what /metrics tells of refusals, those that there were."""
    connection = http.client.HTTPConnection(process.host, process.http_port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    lines = re.findall(r"^raftmq_quota_refused_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    assert len(lines) == 10, "each of two for each of five"
    labels = [(dict(re.findall(r'(\w+)="(\w+)"', found)), float(count)) for found, count in lines]
    return {f"{found['of']} {found['quota']}": count for found, count in labels if count}


class Wire:
    """A client on one connection from an address of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._opaque = 0

    @classmethod
    async def open(cls, address: str, host: str) -> "Wire":
        reader, writer = await asyncio.open_connection(*address.split(":"), local_addr=(host, 0))
        return cls(reader, writer)

    async def ask(self, requests: Iterable[Command]) -> list[Command]:
        """Send everything in one piece; return the answers in its order, which a close may cut short."""
        asked = list(requests)
        for request in asked:
            self._opaque += 1
            request.opaque = self._opaque
        self._writer.write(b"".join(map(encode, asked)))
        answers: list[Command] = []
        async with asyncio.timeout(60):
            while len(answers) < len(asked) and (data := await self._reader.read(1 << 16)):
                answers += self._frames.feed(data)
        return sorted(answers, key=lambda answer: answer.opaque)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


Dial = Callable[[str, str], Awaitable[Wire]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Open connections from addresses of the test's choice, and close them after it."""
    wires: list[Wire] = []

    async def opened(address: str, host: str) -> Wire:
        wires.append(await Wire.open(address, host))
        return wires[-1]

    yield opened
    for wire in wires:
        await wire.close()


def send(topic: str, body: bytes = b"x") -> Command:
    header = SendMessageRequestHeaderV2(
        producerGroup="p",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=1,
        queueId=0,
        sysFlag=0,
        bornTimestamp=0,
        flag=0,
    )
    return Command.request(RequestCode.SEND_MESSAGE_V2, header, body=body)


def codes(answers: Iterable[Command]) -> list[int]:
    return [answer.code for answer in answers]


async def with_users(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.address, credentials=ADMIN) as admin:
        broker = cluster.broker.address
        await admin.create_topic("orders", read_queues=1, write_queues=1, address=broker)
        for who in (ALICE, BOB):
            await admin.create_user(who.access_key, who.secret_key, address=broker)


async def set_quotas(cluster: LocalCluster, credentials: Credentials | None = None, **values: object) -> None:
    async with AdminClient(cluster.address, credentials=credentials) as admin:
        await admin.update_broker_config(values, address=cluster.broker.address)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("quotas"), broker_settings={**SMALL_FILES, **USERS}) as cluster:
        asyncio.run(with_users(cluster))
        yield cluster


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("quotas"), broker_settings=SMALL_FILES) as cluster:
        yield cluster


async def test_a_user_over_his_quota_is_refused_and_the_other_one_served(guarded: LocalCluster) -> None:
    await set_quotas(guarded, ADMIN, quotaUserBytesPerSecond=10_000, quotaUsers="bob bytes=0")
    alice = Producer("p", guarded.address, credentials=ALICE, retries=0, instance_name="alice")
    bob = Producer("p", guarded.address, credentials=BOB, retries=0, instance_name="bob")
    reader = LitePullConsumer("g", guarded.address, credentials=ALICE, instance_name="reader")
    async with alice, bob, reader:
        # A minute's worth and more: let in, and to be paid for.
        await alice.send(Message("orders", os.urandom(1_000_000)))
        for _ in range(3):
            with pytest.raises(SendFailed, match="user alice: 10000 bytes of sends a second are the quota") as refused:
                await alice.send(Message("orders", b"no"))
            assert "quotaUserBytesPerSecond" in str(refused.value)
            assert "(SYSTEM_BUSY)" in str(refused.value)
            await bob.send(Message("orders", b"yes"))
        # She is at work nevertheless: heartbeats, positions, offsets, and reads, which are counted by themselves.
        (queue,) = await reader.queues("orders")
        await reader.assign([queue])
        reader.seek(queue, 1)
        async with asyncio.timeout(60):
            got: list[bytes] = []
            while len(got) < 3:
                got += [message.body for message in await reader.poll(1.0)]
        await reader.commit()
        assert got == [b"yes"] * 3
    assert await asyncio.to_thread(refusals, guarded.broker) == {"user bytes": 3.0}
    await set_quotas(guarded, ADMIN, quotaUserBytesPerSecond=0, quotaUsers="")
    async with Producer("p", guarded.address, credentials=ALICE, retries=0) as producer:
        await producer.send(Message("orders", b"again"))


async def test_an_address_over_its_quota_and_another_one(open_to_all: LocalCluster, dial: Dial) -> None:
    broker = open_to_all.broker
    before = await dial(broker.address, ONE)
    assert codes(await before.ask(send("orders") for _ in range(200))) == [0] * 200, "off unless it is set"
    await set_quotas(open_to_all, quotaAddressRequestsPerSecond=50, quotaAddressTopicsPerHour=3)
    again, other = await dial(broker.address, ONE), await dial(broker.address, OTHER)
    flood = await before.ask(send("orders") for _ in range(2000))
    assert 50 <= codes(flood).count(0) < 1000
    assert set(codes(flood)) == {0, 2}
    remark = str(next(answer.remark for answer in flood if answer.code == 2))
    assert re.fullmatch(
        r"\[OVERLOAD\]address 127\.0\.0\.2: 50 sends a second are the quota \(quotaAddressRequestsPerSecond\); "
        r"try again in 0\.0\d+ s",
        remark,
    )
    more = codes(await again.ask(send("orders") for _ in range(500)))
    assert more.count(2) > 10, "another connection of the same address"
    assert codes(await other.ask(send("orders") for _ in range(40))) == [0] * 40
    heartbeat = {"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    beats = (Command.request(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode()) for _ in range(100))
    assert codes(await again.ask(beats)) == [0] * 100
    made = await other.ask(send(f"made-{number}") for number in range(5))
    assert codes(made) == [0, 0, 0, 2, 2]
    assert (
        "address 127.0.0.3: 3 new topics an hour are the quota (quotaAddressTopicsPerHour); made-3 is not created"
        in (str(made[3].remark))
    )
    told = await asyncio.to_thread(refusals, broker)
    assert told == {"address requests": float(codes(flood).count(2) + more.count(2)), "address topics": 2.0}
    await set_quotas(open_to_all, quotaAddressRequestsPerSecond=0, quotaAddressTopicsPerHour=0)
    assert codes(await before.ask(send("orders") for _ in range(200))) == [0] * 200


async def test_connections_of_an_address(open_to_all: LocalCluster, dial: Dial) -> None:
    broker = open_to_all.broker
    await set_quotas(open_to_all, quotaAddressConnections=2)
    try:
        first, second, third = [await dial(broker.address, ONE) for _ in range(3)]
        other = await dial(broker.address, OTHER)
        for wire in (first, second, other):
            assert codes(await wire.ask([send("orders")])) == [0]
        (answer,) = await third.ask([send("orders"), send("orders")])
        assert answer.code == 2, "and closed, so that there is no second answer"
        assert "address 127.0.0.2: 2 connections at a time are the quota" in str(answer.remark)
        await second.close()
        async with asyncio.timeout(60):
            while True:
                next_one = await dial(broker.address, ONE)
                if codes(await next_one.ask([send("orders")])) == [0]:
                    break
                await asyncio.sleep(0.02)
    finally:
        await set_quotas(open_to_all, quotaAddressConnections=0)


async def test_pops_are_counted_by_what_they_bring(open_to_all: LocalCluster, dial: Dial) -> None:
    wire = await dial(open_to_all.broker.address, ONE)
    assert codes(await wire.ask([send("letters", bytes(200_000)), send("letters", bytes(200_000))])) == [0, 0]
    simple = SimpleConsumer("pops", open_to_all.address, from_where=ConsumeFrom.FIRST_OFFSET)
    simple.subscribe("letters")
    async with simple, asyncio.timeout(60):
        await set_quotas(open_to_all, quotaAddressBytesPerSecond=2000)
        try:
            (big,) = await simple.receive(1, invisible=60.0)
            with pytest.raises(RequestFailed, match=r"address 127\.0\.0\.1: 2000 bytes of reads a second"):
                await simple.receive(1, wait=0.5)
            await big.ack()
        finally:
            await set_quotas(open_to_all, quotaAddressBytesPerSecond=0)
        (big,) = await simple.receive(1, invisible=60.0)
        await big.ack()


async def test_a_name_servers_routes(open_to_all: LocalCluster, dial: Dial) -> None:
    async with AdminClient(open_to_all.address) as admin:
        await admin.update_namesrv_config({"quotaAddressRequestsPerSecond": 20})
    try:
        one, other = await dial(open_to_all.namesrv.address, ONE), await dial(open_to_all.namesrv.address, OTHER)

        def routes(count: int) -> list[Command]:
            header = GetRouteInfoRequestHeader(topic="TBW102")
            return [Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header) for _ in range(count)]

        asked = await one.ask(routes(500))
        assert 20 <= codes(asked).count(0) < 400
        refused = next(answer for answer in asked if answer.code)
        assert (refused.code, str(refused.remark)[:37]) == (2, "[OVERLOAD]address 127.0.0.2: 20 reads")
        assert codes(await other.ask(routes(10))) == [0] * 10
        told = await asyncio.to_thread(refusals, open_to_all.namesrv)
        assert told == {"address requests": float(codes(asked).count(2))}
    finally:
        async with AdminClient(open_to_all.address) as admin:
            await admin.update_namesrv_config({"quotaAddressRequestsPerSecond": 0})


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[RaftCluster]:
    quotas = {"quotaAddressRequestsPerSecond": "30", "quotaAddressTopicsPerHour": "3"}
    made = RaftCluster(tmp_path, 3, {**CALM, "shutdownForwardMs": "50", **quotas})
    try:
        await made.start()
        yield made
    finally:
        await made.close()


async def test_what_a_member_passes_on_is_counted_once_and_makes_topics_in_its_clients_name(
    group: RaftCluster, dial: Dial
) -> None:
    leader = group.brokers[await group.leader()]
    follower = next(broker for broker in group.brokers.values() if broker is not leader)
    # What the leader counted of what others pass on, it would refuse.
    leader.live.update({"quotaAddressRequestsPerSecond": "1", "quotaAddressConnections": "1"})
    one, other = await dial(follower.address, ONE), await dial(follower.address, OTHER)
    made = await one.ask(send(f"made-{number}") for number in range(5))
    assert codes(made) == [0, 0, 0, 2, 2]
    assert "address 127.0.0.2: 3 new topics an hour" in str(made[3].remark)
    assert codes(await other.ask([send("made-3"), send("made-4")])) == [0, 0]
    flood = await one.ask(send("made-0") for _ in range(200))
    assert set(codes(flood)) == {0, 2}
    by_follower, by_leader = (broker._parts.quotas.refused for broker in (follower, leader))
    assert by_follower["address", Quota.REQUESTS] == codes(flood).count(2) > 0
    assert by_follower["address", Quota.TOPICS] == 0
    assert by_leader == {**dict.fromkeys(by_leader, 0), ("address", Quota.TOPICS): 2}
