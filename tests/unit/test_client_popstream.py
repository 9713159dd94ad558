"""``async for message in consumer``: what is received ahead, and what becomes of it when the loop is left."""

import asyncio
from contextlib import aclosing

import pytest

from client.consume.popped import PoppedMessage
from client.consume.popping import PopWish
from client.consume.simple import SimpleConsumer
from client.errors import ArgumentRefused, ClientClosed, ClientError, RequestRefused
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import HeaderError, ResponseError
from tests.parts.pop_brokers import PopSite
from tests.unit.test_client_simple import consuming


async def test_messages_come_one_after_the_other_and_are_acknowledged() -> None:
    async with PopSite() as site, consuming(site, wait=20) as consumer:
        site.broker.give("Orders", *[b"%d" % number for number in range(40)])
        seen = []
        async for message in consumer:
            seen.append(bytes(message.body))
            await message.ack()
            if len(seen) == 40:
                break
        assert seen == [b"%d" % number for number in range(40)]
        assert site.broker.acknowledged() == set(range(40))
        assert max(asked.maxMsgNums for asked in site.broker.pops) == 16


async def test_what_was_received_ahead_is_given_back_when_the_loop_is_left() -> None:
    async with PopSite() as site, consuming(site, buffer=4, wait=20) as consumer:
        site.broker.give("Orders", *[b"x"] * 4)
        async with aclosing(consumer.__aiter__()) as messages:
            first = await anext(messages)
        await site.broker.until(lambda: len(site.broker.changes) == 3)
        assert {change.offset for change in site.broker.changes} == {1, 2, 3}
        assert {change.invisibleTime for change in site.broker.changes} == {0}
        await first.ack()


async def test_a_loop_that_is_left_by_break_gives_back_too() -> None:
    async with PopSite() as site, consuming(site, buffer=4, wait=20) as consumer:
        site.broker.give("Orders", *[b"x"] * 3)
        async for _ in consumer:
            break
        await site.broker.until(lambda: len(site.broker.changes) == 2)


async def test_closing_ends_a_loop_and_gives_back() -> None:
    async with PopSite() as site, consuming(site, buffer=4, wait=20) as consumer:
        site.broker.give("Orders", *[b"x"] * 4)
        seen = 0
        async for _ in consumer:
            seen += 1
            await consumer.close()
        assert seen == 1
        assert len(site.broker.changes) == 3

    async def waits(consumer: SimpleConsumer) -> int:
        return len([message async for message in consumer])

    async with PopSite() as site, consuming(site, wait=20) as consumer:
        waiting = asyncio.create_task(waits(consumer))
        await site.broker.until(lambda: site.broker.parked == 1)
        await consumer.close()
        assert await asyncio.wait_for(waiting, 10) == 0
        with pytest.raises(ClientClosed):
            consumer.__aiter__()


async def test_a_message_whose_time_is_over_before_its_turn_is_not_handed_out() -> None:
    async with PopSite() as site, consuming(site, buffer=2, invisible=3.0, wait=20) as consumer:
        site.broker.give("Orders", b"1", b"2")
        async with aclosing(consumer.__aiter__()) as messages:
            assert (await anext(messages)).body == b"1"
            await asyncio.sleep(3.1)
            site.broker.give("Orders", b"3")
            assert (await anext(messages)).body == b"3"


async def test_a_loop_outlives_what_passes_and_ends_by_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    async with PopSite() as site, consuming(site, wait=0.1) as consumer:
        for broker in site.brokers["b"]:
            broker.refusals[RequestCode.POP_MESSAGE] = (ResponseCode.SERVICE_NOT_AVAILABLE, "nobody leads")
        async with aclosing(consumer.__aiter__()) as messages:
            coming = asyncio.ensure_future(anext(messages))
            while "nothing can be received now" not in caplog.text:
                await asyncio.sleep(0.01)
            site.broker.give("Orders", b"1")
            for broker in site.brokers["b"]:
                broker.refusals.clear()
            assert (await coming).body == b"1"
            refused = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group")
            for broker in site.brokers["b"]:
                broker.refusals[RequestCode.POP_MESSAGE] = refused
            with pytest.raises(RequestRefused, match="no such group"):
                await anext(messages)


@pytest.mark.parametrize(
    ("below", "told"),
    [
        (ResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group", "b:1"), RequestRefused),
        (ValueError("no such number"), ArgumentRefused),
    ],
)
async def test_a_loop_gets_client_errors_alone(
    below: Exception, told: type[ClientError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_wish: PopWish, _wait_s: float) -> list[PoppedMessage]:
        raise below

    async with PopSite() as site, consuming(site) as consumer:
        monkeypatch.setattr(consumer._poller, "receive", fails)
        async with asyncio.timeout(20), aclosing(consumer.__aiter__()) as messages:
            with pytest.raises(ClientError) as caught:
                await anext(messages)
    assert type(caught.value) is told
    assert caught.value.__cause__ is below


@pytest.mark.parametrize("below", [HeaderError("a pop's answer without a handle"), KeyError("brokerDatas")])
async def test_a_loop_waits_out_an_answer_that_cannot_be_read(
    below: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with PopSite() as site, consuming(site, wait=20) as consumer:
        receive, calls = consumer._poller.receive, 0

        async def fails_once(wish: PopWish, wait_s: float) -> list[PoppedMessage]:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise below
            return await receive(wish, wait_s)

        monkeypatch.setattr(consumer._poller, "receive", fails_once)
        site.broker.give("Orders", b"1")
        async with asyncio.timeout(20), aclosing(consumer.__aiter__()) as messages:
            assert (await anext(messages)).body == b"1"
    assert "nothing can be received now" in caplog.text


async def test_a_cancelled_loop_loses_nothing() -> None:
    async with PopSite() as site, consuming(site, wait=20) as consumer:

        async def work() -> None:
            async for _ in consumer:
                pass

        task = asyncio.create_task(work())
        await site.broker.until(lambda: site.broker.parked == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        site.broker.give("Orders", b"1")
        assert [message.body for message in await consumer.receive(wait=5)] == [b"1"]


async def test_several_loops_share_what_comes() -> None:
    async with PopSite() as site, consuming(site, buffer=1, wait=20) as consumer:
        seen: list[int] = []

        async def work() -> None:
            async for message in consumer:
                seen.append(message.queue_offset)
                await message.ack()

        loops = [asyncio.create_task(work()) for _ in range(3)]
        site.broker.give("Orders", *[b"x"] * 30)
        await site.broker.until(lambda: len(site.broker.acknowledged()) == 30)
        await consumer.close()
        await asyncio.gather(*loops)
        assert sorted(seen) == list(range(30))
