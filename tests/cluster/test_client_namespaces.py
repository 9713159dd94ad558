"""Namespaces are prefixes of names, as official clients put them there: what is sent in one is consumed in it alone."""

import asyncio

from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, ConsumeResult, Message
from client.produce.producer import Producer
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster


async def test_names_with_a_namespace_are_sent_consumed_and_tried_again_within_it(cluster: Cluster) -> None:
    seen: list[tuple[str, bytes, int]] = []
    done = asyncio.Event()

    async def callback(messages: list[MessageExt]) -> ConsumeResult:
        seen.extend((message.topic, bytes(message.body), message.reconsume_times) for message in messages)
        if len(seen) < 2:
            return ConsumeResult.RECONSUME_LATER
        done.set()
        return ConsumeResult.SUCCESS

    async with Producer("shop%makers", cluster.namesrv) as producer:
        await producer.send(Message("shop%Orders", b"ours"))
        await producer.send(Message("Orders", b"elsewhere"))
    consumer = PushConsumer("shop%takers", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("shop%Orders")
    consumer.on_message(callback)
    async with consumer, asyncio.timeout(30):
        await done.wait()
    assert seen == [("shop%Orders", b"ours", 0), ("shop%Orders", b"ours", 1)]
    async with AdminClient(cluster.namesrv) as admin:
        assert {"shop%Orders", "Orders", "%RETRY%shop%takers"} <= set(await admin.topics())
