"""Requests and replies between clients of ours, with a real broker: every request has its reply, or one clear error."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

import raftmq
import raftmq.sync
from client.consume.push import PushConsumer
from client.errors import (
    ClientClosed,
    ClientError,
    MessageRefused,
    RequestTimedOut,
    RouteError,
    SendBacklogFull,
    SendFailed,
)
from client.message import ConsumeFrom, Message
from client.produce.batching import Batching
from client.produce.producer import Producer
from client.replies import Answer, answering, reply_to
from raftmq.cli.main import app
from remoting.message import MessageExt
from remoting.server import Connection
from tests.cluster.conftest import Cluster
from tests.cluster.test_client_producer import everything

FIRST = ConsumeFrom.FIRST_OFFSET
REPLIES = "DefaultCluster_REPLY_TOPIC"


async def shout(request: MessageExt) -> bytes | None:
    return None if bytes(request.body) == b"silence" else bytes(request.body).upper()


@asynccontextmanager
async def replier(
    namesrv: str, answer: Answer = shout, batching: Batching | None = None
) -> AsyncIterator[PushConsumer]:
    """Somebody who answers what comes to topic T."""
    async with Producer("repliers", namesrv, batching=batching) as producer:
        # A list goes at once, whatever waits for others.
        await producer.send([Message("T", b"silence")])
        consumer = PushConsumer("answering", namesrv, from_where=FIRST)
        consumer.subscribe("T")
        consumer.on_message(answering(producer, answer))
        async with consumer:
            yield consumer


async def test_a_request_gets_its_reply(cluster: Cluster) -> None:
    async with replier(cluster.namesrv), Producer("askers", cluster.namesrv) as producer:
        for number in range(3):
            reply = await producer.request(Message("T", b"hello %d" % number, keys="k"), timeout=20)
            assert bytes(reply.body) == b"HELLO %d" % number
        assert reply.topic == REPLIES
        properties = reply.properties
        assert properties["MSG_TYPE"] == "reply"
        assert properties["REPLY_TO_CLIENT"] == producer.instance.client_id
        assert properties["TTL"] == "20000"
        assert int(properties["ARRIVE_TIME"]) >= int(properties["PUSH_REPLY_TIME"]) > 0
        assert not producer.instance.replies
        # They are stored too, one each.
        stored = await everything(cluster.namesrv, REPLIES, 3)
        assert [bytes(message.body) for message in stored] == [b"HELLO %d" % number for number in range(3)]
        assert properties["CORRELATION_ID"] == stored[-1].properties["CORRELATION_ID"]


async def test_many_at_once_each_get_their_own(cluster: Cluster) -> None:
    async with replier(cluster.namesrv), Producer("askers", cluster.namesrv) as producer:
        bodies = [b"n%d" % number for number in range(200)]
        replies = await asyncio.gather(*(producer.request(Message("T", body), timeout=30) for body in bodies))
        assert [bytes(reply.body) for reply in replies] == [body.upper() for body in bodies]
        assert not producer.instance.replies


async def test_replies_go_alone_where_other_messages_wait_for_each_other(cluster: Cluster) -> None:
    batching = Batching(linger_ms=30_000)
    async with (
        replier(cluster.namesrv, batching=batching),
        Producer("askers", cluster.namesrv) as producer,
        asyncio.timeout(20),
    ):
        replies = await asyncio.gather(*(producer.request(Message("T", b"n%d" % n), timeout=20) for n in range(4)))
    assert [bytes(reply.body) for reply in replies] == [b"N0", b"N1", b"N2", b"N3"]


async def test_a_long_reply_comes_unpacked(cluster: Cluster) -> None:
    async def long(request: MessageExt) -> bytes:
        return bytes(request.body) * 10

    body = b"compressible " * 10_000
    async with replier(cluster.namesrv, long), Producer("askers", cluster.namesrv) as producer:
        reply = await producer.request(Message("T", body), timeout=20)
        assert reply.sys_flag & 1
        assert reply.body == body * 10


async def test_no_reply_is_one_error_in_time(cluster: Cluster) -> None:
    async with replier(cluster.namesrv), Producer("askers", cluster.namesrv) as producer:
        await producer.request(Message("T", b"x"), timeout=20)
        for _ in range(2):
            with pytest.raises(RequestTimedOut, match=r"no reply .* came within 5 s; it was stored") as failed:
                await producer.request(Message("T", b"silence"), timeout=5)
            assert failed.value.sent
        assert not producer.instance.replies
        # It goes on as before.
        assert bytes((await producer.request(Message("T", b"y"), timeout=20)).body) == b"Y"


async def test_a_cancelled_request_leaves_nothing(cluster: Cluster) -> None:
    async with Producer("askers", cluster.namesrv) as producer:
        tasks = [asyncio.create_task(producer.request(Message("T", b"x"), timeout=60)) for _ in range(20)]
        async with asyncio.timeout(20):
            while len(producer.instance.replies) < 20:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True)
        )
        assert not producer.instance.replies


async def test_a_closed_producer_gives_its_requests_up(cluster: Cluster) -> None:
    async with Producer("askers", cluster.namesrv) as producer:
        await producer.send(Message("T", b"so that there is a route"))
        waiting = asyncio.create_task(producer.request(Message("T", b"x"), timeout=60))
        async with asyncio.timeout(20):
            while not producer.instance.replies:
                await asyncio.sleep(0.01)
    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await producer.request(Message("T", b"x"))


async def test_only_so_many_wait(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Producer("askers", cluster.namesrv) as producer:
        monkeypatch.setattr(producer.instance.replies, "_waiting_max", 2)
        # Long enough to be stored on a busy machine: what is not says so with another error.
        tasks = [asyncio.create_task(producer.request(Message("T", b"x"), timeout=6)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(SendBacklogFull, match="2 requests of this client wait"):
            await producer.request(Message("T", b"x"), timeout=1)
        assert all(isinstance(end, RequestTimedOut) for end in await asyncio.gather(*tasks, return_exceptions=True))


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "soon", True, 10**9])
async def test_an_absurd_timeout_is_refused(cluster: Cluster, timeout: float) -> None:
    async with Producer("askers", cluster.namesrv) as producer:
        with pytest.raises(MessageRefused, match="timeout"):
            await producer.request(Message("T", b"x"), timeout=timeout)


async def test_what_cannot_be_asked_or_replied_is_refused(cluster: Cluster) -> None:
    async with Producer("askers", cluster.namesrv) as producer:
        with pytest.raises(MessageRefused, match="one Message"):
            await producer.request([Message("T", b"x")])  # type: ignore[arg-type] # what is tested
        with pytest.raises(MessageRefused, match="body"):
            await producer.request(Message("T", b""))
        with pytest.raises(MessageRefused, match="properties"):
            await producer.request(Message("T", b"x", properties=["a"]))  # type: ignore[arg-type] # what is tested
        await producer.send(Message("T", b"no request"))
        (plain,) = await everything(cluster.namesrv, "T", 1)
        with pytest.raises(MessageRefused, match="no REPLY_TO_CLIENT and no CORRELATION_ID"):
            reply_to(plain, b"x")
        with pytest.raises(MessageRefused, match="Message cannot be replied to"):
            reply_to(Message("T", b"x"), b"x")  # type: ignore[arg-type] # what is tested


async def test_a_reply_to_who_has_gone_fails_with_the_brokers_words(cluster: Cluster) -> None:
    requests: list[MessageExt] = []
    came = asyncio.Event()

    async def keep(messages: list[MessageExt]) -> None:
        requests.extend(messages)
        came.set()

    consumer = PushConsumer("answering", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(keep)
    async with Producer("askers", cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        with pytest.raises(RequestTimedOut):
            await producer.request(Message("T", b"x", tags="asked"), timeout=5)
    async with consumer, asyncio.timeout(20):
        while not any(message.tags for message in requests):
            came.clear()
            await came.wait()
    (request,) = [message for message in requests if message.tags]
    async with Producer("repliers", cluster.namesrv) as producer:
        with pytest.raises(SendFailed, match=r"push reply message fail, channel of <.*> not found"):
            await producer.send(reply_to(request, b"late"))
        with pytest.raises(MessageRefused, match="part of a batch"):
            await producer.send([reply_to(request, b"late")])


async def test_who_reconnected_is_found(cluster: Cluster) -> None:
    async with replier(cluster.namesrv), Producer("askers", cluster.namesrv) as producer:
        for _ in range(3):
            assert bytes((await producer.request(Message("T", b"x"), timeout=20)).body) == b"X"
            for server in cluster.broker._servers if cluster.broker is not None else ():
                for connection in list(server.connections):
                    connection.abort()
        await cluster.stop_broker()
        await cluster.start_broker()
        assert bytes((await producer.request(Message("T", b"x"), timeout=20)).body) == b"X"


async def test_who_loses_its_connection_while_it_waits_gets_the_reply_when_it_is_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than all attempts of who replies take.
    monkeypatch.setattr("client.instance.REJOIN_PAUSES_S", (0.5, 0.1, 0.1, 0.1))

    async def cut(request: MessageExt) -> bytes:
        assert cluster.broker is not None
        asker = cluster.broker._parts.clients.reach(request.properties["REPLY_TO_CLIENT"])
        assert isinstance(asker, Connection)
        asker.abort()
        return bytes(request.body).upper()

    async with replier(cluster.namesrv, cut), Producer("askers", cluster.namesrv) as producer:
        for _ in range(3):
            assert bytes((await producer.request(Message("T", b"x"), timeout=20)).body) == b"X"
    assert cluster.broker is not None
    assert cluster.broker._parts._replies.outcomes == {"pushed": 3, "absent": 0, "failed": 0}


@pytest.mark.parametrize("timeout", [0.3, 1.0])
async def test_nobody_there_is_one_error_in_time(cluster: Cluster, timeout: float) -> None:
    async with Producer("askers", cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        await cluster.stop_broker()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(ClientError) as failed:
                await producer.request(Message("T", b"x"), timeout=timeout)
            assert time.monotonic() - began < timeout + 5
            # Nobody can have it, and that is said.
            assert isinstance(failed.value, SendFailed | RouteError | RequestTimedOut)
            assert not getattr(failed.value, "sent", False), failed.value
            assert not producer.instance.replies
        await cluster.start_broker()
        with pytest.raises(RequestTimedOut, match="it was stored"):
            await producer.request(Message("T", b"x"), timeout=6)


async def test_the_command(cluster: Cluster) -> None:
    async def typed(*arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["request", *arguments, "-n", cluster.namesrv])
        return done.exit_code, done.output

    async with replier(cluster.namesrv):
        assert await typed("T", "hello", "--timeout", "20") == (0, "HELLO\n")
        code, output = await typed("T", "hello", "--json", "--timeout", "20")
        assert (code, json.loads(output)["body"]) == (0, "HELLO")
        code, output = await typed("T", "silence", "--timeout", "5")
        assert code == 1
        assert output.count("\n") == 1
        assert "no reply to the request to topic T came within 5 s" in output
        code, output = await typed("T", "hello", "--timeout", "0")
        assert (code, output.count("\n")) == (1, 1)


async def test_a_priority_chooses_the_queue(cluster: Cluster) -> None:
    async with Producer("senders", cluster.namesrv) as producer:
        for priority, queue in ((0, 0), (3, 3), (1, 1), (7, 3)):
            result = await producer.send(Message("P", b"x", priority=priority))
            assert result.queue.queueId == queue
        typed = ["send", "P", "x", "--priority", "2", "--json", "-n", cluster.namesrv]
        done = await asyncio.to_thread(CliRunner().invoke, app, typed)
        assert (done.exit_code, json.loads(done.output)["queue"]) == (0, 2)
        found = await everything(cluster.namesrv, "P", 5)
        assert sorted((message.properties["_SYS_MSG_PRIORITY_"], message.queue_id) for message in found) == [
            ("0", 0),
            ("1", 1),
            ("2", 2),
            ("3", 3),
            ("7", 3),
        ]


def test_without_asyncio(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same by raftmq.sync, with the servers in a loop of their own."""
    ready, stop = threading.Event(), threading.Event()
    address = ""

    async def serve() -> None:
        nonlocal address
        running = Cluster(tmp_path_factory.mktemp("sync"))
        try:
            await running.start()
            address = running.namesrv
            ready.set()
            await asyncio.to_thread(stop.wait)
        finally:
            await running.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        with raftmq.sync.Producer("both", address) as producer:
            producer.send(Message("T", b"first"))
            consumer = raftmq.sync.PushConsumer("answering", address, from_where=FIRST)
            consumer.subscribe("T")

            def answer(message: MessageExt) -> bytes | None:
                return None if bytes(message.body) == b"silence" else bytes(message.body).upper()

            consumer.on_message(raftmq.sync.answering(producer, answer))
            with consumer:
                assert bytes(producer.request(Message("T", b"hello"), timeout=20).body) == b"HELLO"
                with pytest.raises(raftmq.RequestTimedOut):
                    producer.request(Message("T", b"silence"), timeout=5)
            with pytest.raises(raftmq.RequestTimedOut):
                producer.request(Message("T", b"hello"), timeout=5)
    finally:
        stop.set()
        thread.join()
