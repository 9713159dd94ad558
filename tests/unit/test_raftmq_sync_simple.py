"""SimpleConsumer without asyncio: messages are received, looped over and settled by calls that block."""

import asyncio
import threading

import pytest

from client.errors import ArgumentRefused, ClientClosed
from raftmq import sync
from remoting.message import MessageExt
from tests.parts.pop_brokers import PopSite


async def test_messages_are_received_and_settled() -> None:
    async with PopSite() as site:
        broker = site.broker
        broker.give("Orders", b"1", b"2", TAGS="T")

        def work() -> None:
            consumer = sync.SimpleConsumer("readers", site.namesrv)
            consumer.subscribe("Orders")
            with pytest.raises(ClientClosed):
                consumer.receive()
            with consumer:
                first, second = consumer.receive(wait=5)
                assert isinstance(first, MessageExt)
                assert (first.body, first.tags, first.origin, first.acknowledged) == (b"1", "T", "Orders", False)
                first.ack(timeout=3)
                assert first.acknowledged
                before = second.handle
                second.nak(delay=1.5)
                assert second.handle != before
                assert second.properties["POP_CK"] == second.handle.text
                second.change_invisible(60)
                assert consumer.receive(wait=0) == []
                with pytest.raises(ArgumentRefused):
                    consumer.receive(99)
            with pytest.raises(ClientClosed):
                second.ack()

        await asyncio.to_thread(work)
        assert [ack.offset for ack in broker.acks] == [0]
        assert [change.invisibleTime for change in broker.changes] == [1_500, 60_000]


async def test_a_loop_ends_by_break_and_gives_back() -> None:
    async with PopSite() as site:
        broker = site.broker
        broker.give("Orders", b"1", b"2", b"3")

        def work() -> None:
            with sync.SimpleConsumer("readers", site.namesrv) as consumer:
                consumer.subscribe("Orders")
                for message in consumer:
                    message.ack()
                    if message.body == b"2":
                        break

        await asyncio.to_thread(work)
        assert broker.acknowledged() == {0, 1}
        assert [change.offset for change in broker.changes] == [2]


async def test_closing_ends_a_loop_in_another_thread() -> None:
    async with PopSite() as site:
        consumer = sync.SimpleConsumer("readers", site.namesrv, wait=20)
        consumer.subscribe("Orders")
        consumer.start()
        seen: list[bytes] = []
        looping = threading.Thread(target=lambda: seen.extend(bytes(message.body) for message in consumer))
        looping.start()
        await site.broker.until(lambda: site.broker.parked == 1)
        site.broker.give("Orders", b"1")
        await site.broker.until(lambda: len(site.broker.pops) > 1 and site.broker.parked == 1)
        await asyncio.to_thread(consumer.close)
        await asyncio.to_thread(looping.join, 5)
        assert not looping.is_alive()
        assert seen == [b"1"]
