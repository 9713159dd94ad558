import asyncio
import sys
import threading
import time
from collections.abc import Callable

import pytest

from client.errors import ClientClosed, ClientError, MessageRefused
from client.message import ConsumeFrom, Message, SendStatus
from raftmq import sync
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster


async def in_thread(work: Callable[[], None]) -> None:
    """Run blocking code beside the loop that the servers run in."""
    await asyncio.to_thread(work)


async def test_the_classes_work_without_asyncio(cluster: Cluster) -> None:
    def work() -> None:
        with sync.Producer("producers", cluster.namesrv) as producer:
            assert producer.send(Message("T", b"0")).status is SendStatus.SEND_OK
            futures = [producer.send_async(Message("T", b"%d" % n)) for n in range(1, 10)]
            assert len({future.result(20).offset_msg_id for future in futures}) == 9
            with pytest.raises(MessageRefused):
                producer.send(Message("T", b""))
        with sync.LitePullConsumer("lite", cluster.namesrv) as consumer:
            queues = consumer.queues("T")
            consumer.assign(queues)
            for queue in queues:
                consumer.seek_to_begin(queue)
            found: list[MessageExt] = []
            deadline = time.monotonic() + 30
            while len(found) < 10 and time.monotonic() < deadline:
                found += consumer.poll(0.5)
            assert sorted(message.body for message in found) == [b"%d" % n for n in range(10)]
        with sync.AdminClient(cluster.namesrv) as admin:
            assert "T" in admin.topics()

    await in_thread(work)


async def test_what_was_polled_before_an_exception_comes_again(cluster: Cluster) -> None:
    def polled(consumer: sync.LitePullConsumer) -> list[bytes]:
        consumer.assign(consumer.queues("Raised"))
        deadline = time.monotonic() + 30
        while not (messages := consumer.poll(0.5)) and time.monotonic() < deadline:
            pass
        return [message.body for message in messages]

    def failing(consumer: sync.LitePullConsumer) -> None:
        assert polled(consumer) == [b"0"]
        raise ZeroDivisionError

    def member() -> sync.LitePullConsumer:
        return sync.LitePullConsumer("raised", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)

    def work() -> None:
        with sync.Producer("producers", cluster.namesrv) as producer:
            producer.send(Message("Raised", b"0"))
        with pytest.raises(ZeroDivisionError), member() as consumer:
            failing(consumer)
        with member() as consumer:
            assert polled(consumer) == [b"0"]
        with member() as consumer:
            assert sum(consumer.committed(queue) or 0 for queue in consumer.queues("Raised")) == 1

    await in_thread(work)


async def test_a_plain_callback_consumes(cluster: Cluster) -> None:
    def work() -> None:
        enough = threading.Event()
        seen: list[bytes] = []

        def callback(messages: list[MessageExt]) -> None:
            seen.extend(message.body for message in messages)
            if len(seen) == 5:
                enough.set()

        with sync.Producer("producers", cluster.namesrv) as producer:
            for number in range(5):
                producer.send(Message("T", b"%d" % number))
        consumer = sync.PushConsumer("push", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("T")
        consumer.on_message(callback)
        with consumer:
            assert enough.wait(30)
        assert sorted(seen) == [b"%d" % number for number in range(5)]

    await in_thread(work)


async def test_the_thread_ends_with_its_last_user(cluster: Cluster) -> None:
    def threads() -> int:
        return sum(thread.name == "raftmq" for thread in threading.enumerate())

    def work() -> None:
        first = sync.Producer("one", cluster.namesrv)
        second = sync.Producer("two", cluster.namesrv)
        first.start()
        second.start()
        assert threads() == 1
        first.close()
        assert threads() == 1
        second.close()
        assert threads() == 0
        with pytest.raises(ClientClosed):
            first.send(Message("T", b"x"))
        with pytest.raises(ClientClosed):
            first.send_async(Message("T", b"x"))

    await in_thread(work)


async def test_a_second_start_is_refused_and_harms_nothing(cluster: Cluster) -> None:
    def work() -> None:
        producer = sync.Producer("twice", cluster.namesrv)
        producer.start()
        with pytest.raises(ClientError, match="this producer is started already"):
            producer.start()
        assert producer.send(Message("T", b"x")).status is SendStatus.SEND_OK
        producer.close()
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("raftmq")]

    await in_thread(work)


async def test_a_failed_start_leaves_nothing_behind(cluster: Cluster) -> None:
    def work() -> None:
        with pytest.raises(Exception, match="needs a callback"):
            sync.PushConsumer("push", cluster.namesrv).start()
        assert not [thread for thread in threading.enumerate() if thread.name == "raftmq"]

    await in_thread(work)


FORKS = """
import os, sys
from raftmq import ClientClosed, Message, sync
producer = sync.Producer("producers", sys.argv[1])
producer.start()
producer.send(Message("Forked", b"parent"))
child = os.fork()
if child == 0:
    try:
        producer.send(Message("Forked", b"never"))
    except ClientClosed as error:
        print("refused:", error, flush=True)
    producer.close()
    with sync.Producer("producers", sys.argv[1]) as another:
        another.send(Message("Forked", b"child"))
    print("sent", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.send(Message("Forked", b"parent again"))
producer.close()
"""


async def test_a_forked_child_has_a_loop_of_its_own(cluster: Cluster) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORKS, cluster.namesrv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(30):
        told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert b"started before this process was forked" in told
    assert b"sent" in told
