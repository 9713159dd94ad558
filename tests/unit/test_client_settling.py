"""What becomes of popped messages: acknowledged, given back, whoever leads; and what is said of failures."""

import asyncio
import time
from typing import Any

import pytest

from client.consume import settling
from client.consume.popped import PoppedMessage
from client.consume.simple import SimpleConsumer
from client.credentials import Credentials
from client.errors import ArgumentRefused, ClientClosed, ClientError, RequestFailed, RequestRefused, RouteError
from remoting.codes import RequestCode, ResponseCode
from tests.parts.pop_brokers import PopSite
from tests.unit.test_client_simple import ABSURD, consuming

ACKS = (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)
NOT_HERE = (ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not lead")


async def received(site: PopSite, consumer: SimpleConsumer, count: int = 1, **properties: Any) -> list[PoppedMessage]:
    site.broker.give("Orders", *[b"x"] * count, **properties)
    messages = await consumer.receive(count, wait=5)
    assert len(messages) == count
    return messages


async def test_a_second_acknowledgement_does_nothing() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        await asyncio.gather(message.ack(), message.ack())
        await message.ack()
        assert message.acknowledged
        assert len(site.broker.acks) == 1
        assert not site.broker.batches


async def test_acknowledgements_of_one_moment_go_together() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        messages = [message for _ in range(5) for message in await received(site, consumer, 32)]
        await asyncio.gather(*(message.ack() for message in messages))
        assert site.broker.acknowledged() == set(range(160))
        assert [sum(1 for _ in batch["acks"]) for batch in site.broker.batches] == [4, 1]
        assert not site.broker.acks
        assert all(message.acknowledged for message in messages)


async def test_acknowledgements_gather_while_one_is_on_its_way() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        first, *others = await received(site, consumer, 9)
        site.broker.refusals[RequestCode.ACK_MESSAGE] = NOT_HERE
        waiting = asyncio.create_task(first.ack())
        asked = site.routes_asked
        while site.routes_asked == asked:
            await asyncio.sleep(0.001)
        more = [asyncio.create_task(message.ack()) for message in others]
        await asyncio.sleep(0)
        site.broker.refusals.clear()
        await asyncio.gather(waiting, *more)
        pair = site.brokers["b"]
        assert sum(len(broker.acks) for broker in pair) == sum(len(broker.batches) for broker in pair) == 1


async def test_messages_that_a_filter_spread_out_too_far_are_acknowledged_one_by_one() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        messages = await received(site, consumer, 3)
        messages[2].handle = messages[2].handle._replace(offset=8192)
        await asyncio.gather(*(message.ack() for message in messages))
        assert len(site.broker.batches[0]["acks"]) == 1
        assert [ack.offset for ack in site.broker.acks] == [8192]


async def test_an_acknowledgement_follows_the_leader() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        first, *others = await received(site, consumer, 4)
        old = site.broker
        for code in ACKS:
            old.refusals[code] = NOT_HERE
        site.leaders["b"] = 1
        await first.ack()
        assert [ack.offset for ack in site.broker.acks] == [0]
        site.leaders["b"] = 0
        old.refusals.clear()
        for code in ACKS:
            site.brokers["b"][1].refusals[code] = NOT_HERE
        await asyncio.gather(*(message.ack() for message in others))
        assert old.acknowledged() == {1, 2, 3}


async def test_an_acknowledgement_outlives_the_death_of_the_leader() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        await site.broker.kill()
        waiting = asyncio.create_task(message.ack(timeout=20))
        await asyncio.sleep(0.05)
        site.leaders["b"] = 1
        await waiting
        assert [ack.extraInfo for ack in site.broker.acks] == [message.handle.text]


async def test_an_acknowledgement_that_gets_no_answer_may_have_been_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client.consume.simple.CLOSE_S", 0.1)
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        for broker in site.brokers["b"]:
            broker.silent.add(RequestCode.ACK_MESSAGE)
        began = time.monotonic()
        with pytest.raises(RequestFailed, match="not acknowledged within") as told:
            await message.ack(timeout=0.6)
        # A busy machine has its time; the answer itself would be waited for during 5 s.
        assert time.monotonic() - began < 4
        assert told.value.sent
        assert not message.acknowledged


async def test_an_acknowledgement_that_reached_nobody_was_not_made_and_may_be_tried_again() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        for broker in site.brokers["b"]:
            broker.refusals[RequestCode.ACK_MESSAGE] = NOT_HERE
        with pytest.raises(RequestFailed) as told:
            await message.ack(timeout=0.3)
        assert not told.value.sent or isinstance(told.value, RequestRefused)
        for broker in site.brokers["b"]:
            broker.refusals.clear()
        await message.ack()
        assert message.acknowledged


async def test_a_broker_that_is_in_no_route_is_told() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        message.handle = message.handle._replace(broker="gone")
        with pytest.raises((RouteError, RequestFailed)) as told:
            await message.ack(timeout=0.3)
        assert not getattr(told.value, "sent", False)


async def test_a_refusal_of_one_in_a_batch_is_not_that_of_the_others() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        messages = await received(site, consumer, 3)
        site.broker.refusals[RequestCode.BATCH_ACK_MESSAGE] = (ResponseCode.INVALID_PARAMETER, "batch: no")
        await asyncio.gather(*(message.ack() for message in messages))
        assert sorted(ack.offset for ack in site.broker.acks) == [0, 1, 2]
        (message,) = await received(site, consumer)
        site.broker.refusals[RequestCode.ACK_MESSAGE] = (ResponseCode.NO_MESSAGE, "offset is illegal")
        with pytest.raises(RequestRefused, match="offset is illegal"):
            await message.ack()


async def test_all_requests_are_signed_by_who_has_credentials() -> None:
    async with PopSite() as site, consuming(site, credentials=Credentials("alice", "a secret of hers")) as consumer:
        first, *others = await received(site, consumer, 4)
        await first.ack()
        await others[0].nak()
        await asyncio.gather(*(message.ack() for message in others))
        assert site.broker.batches
        assert set(site.broker.signers.values()) == {"alice"}
        assert len(site.broker.signers) == 5


async def test_a_message_is_settled_in_the_loop_of_its_consumer_only() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        for act in (message.ack, message.nak):
            with pytest.raises(ClientError, match="another event loop"):
                await asyncio.to_thread(lambda act=act: asyncio.run(act()))  # type: ignore[misc]
        await message.ack()


async def test_a_cancelled_acknowledgement_goes_on() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        waiting = asyncio.create_task(message.ack())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await site.broker.until(lambda: len(site.broker.acks) == 1)
        await message.ack()
        assert len(site.broker.acks) == 1


async def test_a_message_is_given_back_with_a_delay_and_has_a_new_handle() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        before = message.handle
        await message.nak(delay=25)
        asked = site.broker.changes[0]
        assert (asked.extraInfo, asked.invisibleTime, asked.offset) == (before.text, 25_000, 0)
        assert (message.handle.start, message.handle.invisible_ms, message.handle.revive_queue) == (0, 25_000, 5)
        assert message.properties["POP_CK"] == message.handle.text != before.text
        assert 10 < message.expires_at - time.monotonic() <= 25
        await message.change_invisible(60)
        await message.ack()
        assert site.broker.acks[0].extraInfo == message.handle.text
        with pytest.raises(ArgumentRefused, match="acknowledged"):
            await message.nak()


async def test_giving_back_follows_the_leader_and_ends_in_time() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        site.broker.refusals[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = NOT_HERE
        site.leaders["b"] = 1
        await message.nak()
        assert len(site.broker.changes) == 1
        for broker in site.brokers["b"]:
            broker.silent.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
            broker.refusals.clear()
        before = message.handle
        with pytest.raises(RequestFailed, match="no other invisible time") as told:
            await message.nak(timeout=2.5)
        assert told.value.sent
        assert message.handle == before


async def test_a_message_of_the_retry_topic_is_settled_there() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        told = "4 1700000000000 30000 2 1 b 0 4"
        (message,) = await received(site, consumer, POP_CK=told)
        assert message.topic == "Orders"
        await message.nak()
        assert (site.broker.changes[0].topic, site.broker.changes[0].extraInfo) == ("%RETRY%readers_Orders", told)
        others = [message, *await received(site, consumer, POP_CK="7 1700000000001 30000 2 2 b 0 7")]
        await asyncio.gather(*(one.ack() for one in others))
        assert [(entry["t"], entry["r"], entry["so"]) for entry in site.broker.batches[0]["acks"]] == [
            ("Orders", "1", 4), ("Orders", "2", 7),
        ]  # fmt: skip


async def test_more_acknowledgements_than_may_wait_fail_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PENDING_MAX", 2)
    async with PopSite() as site, consuming(site) as consumer:
        messages = await received(site, consumer, 3)
        ends = await asyncio.gather(*(message.ack() for message in messages), return_exceptions=True)
        assert ends[:2] == [None, None]
        assert isinstance(ends[2], RequestFailed)
        assert not ends[2].sent
        await messages[2].ack()


async def test_closing_lets_acknowledgements_end_and_refuses_later_ones() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        first, second = await received(site, consumer, 2)
        waiting = asyncio.create_task(first.ack())
        await asyncio.sleep(0)
        await consumer.close()
        await waiting
        assert site.broker.acknowledged() == {0}
        for act in (second.ack, second.nak):
            with pytest.raises(ClientClosed):
                await act()


async def test_closing_does_not_wait_for_a_broker_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client.consume.simple.CLOSE_S", 0.2)
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        for broker in site.brokers["b"]:
            broker.silent.update(ACKS)
        waiting = asyncio.create_task(message.ack(timeout=60))
        await site.broker.until(lambda: True)
        await asyncio.sleep(0.01)
        began = time.monotonic()
        await consumer.close()
        with pytest.raises(ClientClosed, match="before the message was acknowledged"):
            await waiting
        # A busy machine has its time; the answer itself would be waited for during 5 s.
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("value", ABSURD, ids=lambda value: repr(value)[:10])
async def test_absurd_times_are_refused_at_the_door(value: Any) -> None:
    async with PopSite() as site, consuming(site) as consumer:
        (message,) = await received(site, consumer)
        if value is not None:
            with pytest.raises(ArgumentRefused):
                await message.ack(timeout=value)
        for act in (message.nak, message.change_invisible):
            with pytest.raises(ArgumentRefused):
                await act(value)
        assert not site.broker.changes
        assert not site.broker.acks
