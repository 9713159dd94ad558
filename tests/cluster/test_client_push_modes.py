import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from client.consume.push import PushConsumer
from client.errors import ConsumeError
from client.message import ConsumeFrom, ConsumeResult, MessageModel, RetryLater
from remoting.bodies.registry import MessageQueue
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.headers.registry import ResetOffsetRequestHeader
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster
from tests.cluster.consuming import Seen, offset_of, send

FIRST = ConsumeFrom.FIRST_OFFSET


async def test_in_order_each_queue_comes_one_by_one_even_after_a_failure(cluster: Cluster) -> None:
    await send(cluster, 20, one_queue=True)
    order: list[bytes] = []
    running = failures = 0
    done = asyncio.Event()

    async def consume(messages: list[MessageExt]) -> ConsumeResult:
        nonlocal running, failures
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        if messages[0].body == b"7" and failures < 1:
            failures += 1
            return ConsumeResult.RECONSUME_LATER
        order.extend(message.body for message in messages)
        if len(order) == 20:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer("orderly", cluster.namesrv, from_where=FIRST, orderly=True)
    consumer.subscribe("T")
    consumer.on_message(consume)
    async with consumer, asyncio.timeout(30):
        await done.wait()
    assert failures == 1
    assert order == [b"%d" % number for number in range(20)]
    # The lock was given back: the next member does not wait for its end.
    seen = Seen()
    following = PushConsumer("orderly", cluster.namesrv, orderly=True)
    following.subscribe("T")
    following.on_message(seen)
    async with following:
        await send(cluster, 1, start=20, one_queue=True)
        await seen.reaches(1, within=15)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_callback_says_when_a_message_comes_again_and_when_it_does_not(cluster: Cluster, orderly: bool) -> None:
    await send(cluster, 2, one_queue=True)
    tries: list[tuple[bytes, float]] = []
    letter = asyncio.Event()

    async def consume(messages: list[MessageExt]) -> RetryLater | None:
        body = messages[0].body
        tries.append((body, time.monotonic()))
        if body == b"1":
            return None
        # A level of 1 s where brokers begin with 10 s; in order a pause of its own.
        return RetryLater(1, pause=0.1) if len([at for each, at in tries if each == body]) < 2 else RetryLater(-1)

    group = f"later-{orderly}"
    consumer = PushConsumer(group, cluster.namesrv, from_where=FIRST, orderly=orderly, attempts_max=16)
    # In order it is a second otherwise, which a busy machine adds to any pause.
    consumer._options = replace(consumer._options, suspend_s=600.0)
    consumer.subscribe("T")
    consumer.on_message(consume)
    dead: list[bytes] = []

    async def keep(messages: list[MessageExt]) -> None:
        dead.extend(message.body for message in messages)
        letter.set()

    reader = PushConsumer(f"letters-{orderly}", cluster.namesrv, from_where=FIRST)
    reader.subscribe(f"%DLQ%{group}")
    reader.on_message(keep)
    async with consumer, reader:
        async with asyncio.timeout(60):
            await letter.wait()
    assert dead == [b"0"]
    first, second = (at for body, at in tries if body == b"0")
    assert second - first >= (0.1 if orderly else 0.9)
    assert [body for body, _at in tries].count(b"1") == 1


async def test_broadcasting_gives_everything_to_everybody(cluster: Cluster, tmp_path: Path) -> None:
    await send(cluster, 10)
    both = [Seen(), Seen()]
    consumers = [
        PushConsumer(
            "broadcast",
            cluster.namesrv,
            from_where=FIRST,
            model=MessageModel.BROADCASTING,
            offset_dir=tmp_path,
            instance_name=f"member-{number}",
        )
        for number in range(2)
    ]
    for consumer, seen in zip(consumers, both, strict=True):
        consumer.subscribe("T")
        consumer.on_message(seen)
        await consumer.start()
    for seen in both:
        assert sorted(map(int, await seen.reaches(10))) == list(range(10))
    for consumer in consumers:
        await consumer.close()
    assert (tmp_path / "member-0" / "broadcast" / "offsets.json").read_bytes().startswith(b'{"offsetTable":{{')
    # The file says where to go on.
    await send(cluster, 5, start=10)
    seen = Seen()
    again = PushConsumer(
        "broadcast",
        cluster.namesrv,
        model=MessageModel.BROADCASTING,
        offset_dir=tmp_path,
        instance_name="member-0",
        from_where=FIRST,
    )
    again.subscribe("T")
    again.on_message(seen)
    async with again:
        assert sorted(map(int, await seen.reaches(5))) == list(range(10, 15))


async def test_the_broker_can_ask_what_a_member_does_and_reset_it(cluster: Cluster) -> None:
    await send(cluster, 6, one_queue=True)
    seen = Seen()
    consumer = PushConsumer("asked", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(6)
        info = consumer.running_info()
        queue = MessageQueue("T", "broker-a", 0)
        assert info.mqTable[queue]["commitOffset"] == 6
        assert info.statusTable["T"]["consumeFailedMsgs"] == 0
        assert consumer.positions("T")[queue] == 6
        await consumer.reset_offsets({queue: 2})
        assert await offset_of(cluster, "asked", queue) == 2
        assert (await seen.reaches(10))[6:] == [b"2", b"3", b"4", b"5"]
        result = await consumer.consume_directly(seen.messages[0])
        assert result.consumeResult == "CR_SUCCESS"


async def test_an_offset_reset_at_the_broker_reaches_the_member(cluster: Cluster) -> None:
    await send(cluster, 6, one_queue=True)
    seen = Seen()
    consumer = PushConsumer("reset", cluster.namesrv, from_where=FIRST)
    consumer.subscribe("T")
    consumer.on_message(seen)
    async with consumer:
        await seen.reaches(6)
        await consumer.commit()
        admin = RemotingClient()
        header = ResetOffsetRequestHeader(group="reset", topic="T", timestamp=0, isForce=True)
        await admin.call(cluster.broker_address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        await admin.close()
        # The broker tells it with the next pull; a new message ends the one that waits.
        await send(cluster, 1, start=6, one_queue=True)
        async with asyncio.timeout(20):
            while set(seen.bodies[6:]) != {b"%d" % number for number in range(7)}:
                await asyncio.sleep(0.01)


async def test_misuse_is_said(cluster: Cluster) -> None:
    consumer = PushConsumer("misuse", cluster.namesrv)
    with pytest.raises(ConsumeError, match="needs a callback"):
        await consumer.start()
    with pytest.raises(ConsumeError, match="illegal characters"):
        consumer.subscribe("no blanks")
    with pytest.raises(ConsumeError, match="illegal characters"):
        PushConsumer("no blanks", cluster.namesrv)
