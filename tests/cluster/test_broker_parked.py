"""Ten thousand parked pulls at one broker: what they cost it in memory, and that each is answered and none is left."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chaos.host.local import LocalCluster
from chaos.host.processes import ServerProcess
from client.admin.client import AdminClient
from client.message import Message
from client.produce.producer import Producer
from raftmq.bench.group import until_done
from remoting.bodies.registry import MessageQueue
from remoting.client import RemotingClient
from remoting.codes import PullSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import PullMessageRequestHeader, PullMessageResponseHeader

CONNECTIONS, EACH, QUEUES = 20, 500, 8
PULLS = CONNECTIONS * EACH
TOPIC = "parked"
BYTES_A_PULL = 5 * 1024
ROUNDS = 5
LONG_MS, WAIT_MS, ANSWERED_S = 60_000, 1_500, 60.0

Asked = list[asyncio.Future[Command]]


@asynccontextmanager
async def site(folder: Path, **settings: object) -> AsyncIterator[tuple[LocalCluster, list[RemotingClient]]]:
    """Run a broker with an empty topic, and so many clients of one connection each."""
    cluster = LocalCluster(folder, broker_settings=settings)
    with cluster:
        async with AdminClient(cluster.address) as admin:
            await until_done(lambda: admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES))
        clients = [RemotingClient() for _ in range(CONNECTIONS)]
        try:
            yield cluster, clients
        finally:
            await asyncio.gather(*(client.close() for client in clients))


def pull(number: int, offset: int, wait_ms: int) -> Command:
    """Return the question for a message that is not there yet, as of a consumer whose request names its filter."""
    header = PullMessageRequestHeader(
        consumerGroup=f"parked_group_{number % 50}",
        topic=TOPIC,
        queueId=number % QUEUES,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION),
        commitOffset=0,
        suspendTimeoutMillis=wait_ms,
        subVersion=number,
        subscription=f"tag-{number % 7} || all",
        expressionType="TAG",
    )
    return Command.request(RequestCode.PULL_MESSAGE, header)


def ask_all(cluster: LocalCluster, clients: list[RemotingClient], *, offset: int = 0, wait_ms: int = LONG_MS) -> Asked:
    """Have every client ask its share."""
    address = cluster.broker.address
    return [
        client.submit(address, pull(number, offset, wait_ms), ANSWERED_S + 30)
        for place, client in enumerate(clients)
        for number in range(place * EACH, (place + 1) * EACH)
    ]


def parked(broker: ServerProcess) -> int:
    state = broker.state("/v1/status")
    return -1 if state is None else int(state["traffic"]["parkedPulls"])


async def until_parked(broker: ServerProcess, count: int) -> None:
    deadline = time.monotonic() + ANSWERED_S
    while (found := await asyncio.to_thread(parked, broker)) != count:
        assert time.monotonic() < deadline, f"{found} pulls are parked, not {count}"
        await asyncio.sleep(0.05)


async def codes(asked: Asked) -> Counter[int]:
    """Wait for all answers; returns how many there were of each code."""
    async with asyncio.timeout(ANSWERED_S):
        return Counter(answer.code for answer in await asyncio.gather(*asked))


async def wake(cluster: LocalCluster) -> None:
    """Store one message in every queue that everybody wants."""
    async with Producer("parked_producer", cluster.address, send_timeout=30) as producer:
        for queue in range(QUEUES):
            await producer.send(Message(TOPIC, b"x", tags="all"), queue=MessageQueue(TOPIC, "broker-a", queue))


async def answered(cluster: LocalCluster, clients: list[RemotingClient], offset: int) -> None:
    """Have all wait and store a message for each: they get it."""
    asked = ask_all(cluster, clients, offset=offset)
    await until_parked(cluster.broker, PULLS)
    await wake(cluster)
    answers = await asyncio.gather(*asked)
    assert Counter(answer.code for answer in answers) == {ResponseCode.SUCCESS: PULLS}
    assert {answer.header(PullMessageResponseHeader).nextBeginOffset for answer in answers} == {offset + 1}
    await until_parked(cluster.broker, 0)


async def timed_out(cluster: LocalCluster, clients: list[RemotingClient], offset: int) -> None:
    """Have all wait until their time is over: they are told that there is nothing."""
    began = time.monotonic()
    asked = ask_all(cluster, clients, offset=offset, wait_ms=WAIT_MS)
    assert await codes(asked) == {ResponseCode.PULL_NOT_FOUND: PULLS}
    assert time.monotonic() - began > WAIT_MS / 1000 - 0.01
    await until_parked(cluster.broker, 0)


async def hung_up(cluster: LocalCluster, clients: list[RemotingClient], offset: int) -> None:
    """Have all wait and close their connections: nobody is left, and those who remain wait on."""
    asked = ask_all(cluster, clients, offset=offset)
    await until_parked(cluster.broker, PULLS)
    for client in clients[1:]:
        await client.close()
    await until_parked(cluster.broker, EACH)
    assert not any(answer.done() for answer in asked[:EACH])
    await clients[0].close()
    await until_parked(cluster.broker, 0)
    await asyncio.gather(*asked, return_exceptions=True)
    clients[:] = [RemotingClient() for _ in clients]


async def test_ten_thousand_parked_pulls_cost_little_and_none_is_left(tmp_path: Path) -> None:
    async with site(tmp_path) as (cluster, clients):
        broker = cluster.broker
        # Groups, connections, and what else is made once.
        first = [client.submit(broker.address, pull(number, 0, 1), 30) for client in clients for number in range(50)]
        assert await codes(first) == {ResponseCode.PULL_NOT_FOUND: len(first)}
        before = broker.anonymous_mb()
        asked = ask_all(cluster, clients)
        await until_parked(broker, PULLS)
        each = (broker.anonymous_mb() - before) * 1e6 / PULLS
        print(f"a parked pull takes {each:.0f} B")
        assert not any(answer.done() for answer in asked)
        assert 100 < each < BYTES_A_PULL

        await wake(cluster)
        assert await codes(asked) == {ResponseCode.SUCCESS: PULLS}
        # A leak grows in every round, by three times what a pull takes; room for ten thousand answers at once is made
        # now and then, and used again.
        growth: list[float] = []
        while not any(grown < each / 2 for grown in growth):
            assert len(growth) < ROUNDS, f"pulls that wait no more take memory: {growth} B each, a parked one {each}"
            before, offset = broker.anonymous_mb(), len(growth) + 1
            await answered(cluster, clients, offset)
            await timed_out(cluster, clients, offset + 1)
            await hung_up(cluster, clients, offset + 1)
            growth.append((broker.anonymous_mb() - before) * 1e6 / PULLS)


async def test_beyond_the_limit_pulls_are_answered_at_once(tmp_path: Path) -> None:
    async with site(tmp_path, pullThreadPoolQueueCapacity=PULLS // 2) as (cluster, clients):
        asked = ask_all(cluster, clients)
        await until_parked(cluster.broker, PULLS // 2)
        async with asyncio.timeout(ANSWERED_S):
            while sum(answer.done() for answer in asked) < PULLS // 2:
                await asyncio.sleep(0.02)
        assert {answer.result().code for answer in asked if answer.done()} == {ResponseCode.PULL_NOT_FOUND}
        await wake(cluster)
        assert await codes(asked) == {ResponseCode.PULL_NOT_FOUND: PULLS // 2, ResponseCode.SUCCESS: PULLS // 2}
