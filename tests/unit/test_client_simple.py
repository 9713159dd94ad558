"""SimpleConsumer.receive: whom it asks, what it returns, when it ends, and what it says when it cannot."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.consume import popping
from client.consume.simple import SimpleConsumer
from client.errors import (
    ArgumentRefused,
    ClientClosed,
    ClientError,
    ConsumeError,
    RequestFailed,
    RequestRefused,
    RouteError,
)
from client.message import ConsumeFrom
from remoting.codes import RequestCode, ResponseCode
from tests.parts.pop_brokers import PopSite


@asynccontextmanager
async def consuming(site: PopSite, *topics: str, **options: Any) -> AsyncIterator[SimpleConsumer]:
    consumer = SimpleConsumer("readers", site.namesrv, **options)
    for topic in topics or ("Orders",):
        consumer.subscribe(topic)
    async with consumer:
        yield consumer


def bodies(messages: Any) -> list[bytes]:
    return [bytes(message.body) for message in messages]


async def test_messages_are_received_with_handles_and_acknowledged() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        site.broker.give("Orders", b"1", b"2", b"3", TAGS="T")
        first = await consumer.receive(2)
        assert bodies(first) == [b"1", b"2"]
        assert [message.tags for message in first] == ["T", "T"]
        assert first[1].handle.text == first[1].properties["POP_CK"]
        assert first[1].handle[4:] == ("0", "b", 0, 1)
        await first[1].ack()
        assert site.broker.acks[0].extraInfo == first[1].handle.text
        asked = site.broker.pops[0]
        assert (asked.consumerGroup, asked.queueId, asked.maxMsgNums, asked.invisibleTime, asked.initMode) == (
            "readers", -1, 2, 30_000, 1,
        )  # fmt: skip
        assert bodies(await consumer.receive()) == [b"3"]


async def test_a_receive_waits_for_a_message_and_ends_when_none_comes() -> None:
    async with PopSite() as site, consuming(site, wait=20) as consumer:
        waiting = asyncio.create_task(consumer.receive())
        await site.broker.until(lambda: site.broker.parked == 1)
        site.broker.give("Orders", b"late")
        assert bodies(await waiting) == [b"late"]
        began = time.monotonic()
        assert await consumer.receive(wait=0.2) == []
        # Not the 20 s that this consumer waits otherwise.
        assert 0.15 < time.monotonic() - began < 10
        assert site.broker.pops[-1].pollTime <= 200
        assert await consumer.receive(wait=0) == []


async def test_brokers_and_topics_have_their_turn() -> None:
    async with PopSite("a", "b") as site:
        site.topics.add("Bills")
        for name in ("a", "b"):
            site.leader(name).give("Orders", *[b"o"] * 4)
            site.leader(name).give("Bills", *[b"b"] * 4)
        async with consuming(site, "Orders", "Bills") as consumer:
            came = [message for _ in range(16) for message in await consumer.receive(1)]
            places = [(message.broker_name, message.topic) for message in came]
            assert all(len(set(places[start : start + 4])) == 4 for start in range(0, 16, 4))
            assert set(Counter(places).values()) == {4}


async def test_a_message_comes_from_any_broker_while_another_one_is_waited_at() -> None:
    async with PopSite("a", "b") as site, consuming(site, wait=20) as consumer:
        for name in ("a", "b"):
            waiting = asyncio.create_task(consumer.receive())
            other = site.leader("b" if name == "a" else "a")
            await other.until(lambda other=other: other.parked == 1)  # type: ignore[misc]
            site.leader(name).give("Orders", name.encode())
            assert bodies(await waiting) == [name.encode()]


async def test_a_cancelled_receive_loses_nothing_and_leaves_one_pop_behind() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        for _ in range(3):
            waiting = asyncio.create_task(consumer.receive(wait=20))
            await site.broker.until(lambda: site.broker.parked == 1)
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert len(site.broker.pops) == 1
        site.broker.give("Orders", b"1", b"2", b"3")
        assert bodies(await consumer.receive(2, wait=5)) == [b"1", b"2"]
        assert bodies(await consumer.receive(2, wait=5)) == [b"3"]


async def test_what_came_for_a_cancelled_receive_is_not_returned_once_its_time_is_over() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        waiting = asyncio.create_task(consumer.receive(invisible=0.01, wait=20))
        await site.broker.until(lambda: site.broker.parked == 1)
        waiting.cancel()
        site.broker.give("Orders", b"1")
        while not consumer._poller._kept:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert await consumer.receive(wait=0) == []


async def test_closing_ends_a_receive_at_once_and_gives_back_what_was_kept() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait=60))
        await site.broker.until(lambda: site.broker.parked == 1)
        await consumer.close()
        assert await asyncio.wait_for(waiting, 20) == []
        with pytest.raises(ClientClosed):
            await consumer.receive()
        await consumer.close()
    async with PopSite() as site, consuming(site) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait=60))
        await site.broker.until(lambda: site.broker.parked == 1)
        waiting.cancel()
        site.broker.give("Orders", b"1")
        while not consumer._poller._kept:
            await asyncio.sleep(0.001)
        await consumer.close()
        assert [change.invisibleTime for change in site.broker.changes] == [0]


async def test_a_change_of_the_leader_is_followed() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        site.broker.give("Orders", b"1")
        assert bodies(await consumer.receive()) == [b"1"]
        old, site.leaders["b"] = site.broker, 1
        old.refusals[RequestCode.POP_MESSAGE] = (ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not lead")
        site.broker.give("Orders", b"2")
        assert bodies(await consumer.receive(wait=5)) == [b"2"]


async def test_a_broker_that_dies_while_a_pop_waits_is_replaced_by_the_next_leader() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait=20))
        old = site.broker
        await old.until(lambda: old.parked == 1)
        site.leaders["b"] = 1
        site.broker.give("Orders", b"2")
        await old.kill()
        assert bodies(await waiting) == [b"2"]


async def test_nobody_there_is_told_when_the_time_is_over() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        for broker in site.brokers["b"]:
            await broker.kill()
        began = time.monotonic()
        with pytest.raises(RequestFailed, match="no connection"):
            await consumer.receive(wait=0.5)
        assert time.monotonic() - began < 10


async def test_one_broker_of_two_is_enough() -> None:
    async with PopSite("a", "b") as site, consuming(site) as consumer:
        for broker in site.brokers["a"]:
            await broker.kill()
        assert await consumer.receive(wait=0.3) == []
        site.leader("b").give("Orders", b"1")
        assert bodies(await consumer.receive(wait=5)) == [b"1"]


async def test_a_broker_that_does_not_answer_neither_holds_up_others_nor_the_end() -> None:
    async with PopSite("a", "b") as site, consuming(site) as consumer:
        for broker in site.brokers["a"]:
            broker.silent.add(RequestCode.POP_MESSAGE)
        site.leader("b").give("Orders", b"1")
        assert bodies(await consumer.receive(wait=5)) == [b"1"]
        began = time.monotonic()
        assert await consumer.receive(wait=0.2) == []
        # The pop itself is given up 5 s after its own wait.
        assert time.monotonic() - began < 5


async def test_a_silent_broker_is_told_by_each_receive_that_waited_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(popping, "ANSWER_S", 0.2)
    async with PopSite() as site, consuming(site) as consumer:
        for broker in site.brokers["b"]:
            broker.silent.add(RequestCode.POP_MESSAGE)
        for _ in range(2):
            with pytest.raises(RequestFailed, match="no answer from b") as told:
                await consumer.receive(wait=0.1)
            assert told.value.sent


async def test_a_receive_beside_a_pop_that_waits_in_order_is_no_error() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait=20))
        await site.broker.until(lambda: site.broker.parked == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await consumer.receive(wait=0.1) == []


async def test_a_refusal_that_stays_is_raised_at_once() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        refused = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [readers] does not exist")
        site.broker.refusals[RequestCode.POP_MESSAGE] = refused
        with pytest.raises(RequestRefused, match="does not exist") as told:
            await asyncio.wait_for(consumer.receive(wait=60), 20)
        assert told.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_topic_without_a_route_is_waited_for_and_told() -> None:
    async with PopSite() as site, consuming(site, "Bills") as consumer:
        with pytest.raises(RouteError, match="Bills"):
            await consumer.receive(wait=0.1)
        site.broker.give("Bills", b"1")
        waiting = asyncio.create_task(consumer.receive(wait=20))
        asked = site.routes_asked
        while site.routes_asked == asked:
            await asyncio.sleep(0.01)
        site.topics.add("Bills")
        assert bodies(await waiting) == [b"1"]


@pytest.mark.parametrize("ahead_ms", [7_000, -7_000, 60_000])
async def test_a_broker_whose_clock_is_another_gives_all_the_same(ahead_ms: int) -> None:
    async with PopSite() as site, consuming(site) as consumer:
        site.broker.ahead_ms = ahead_ms
        site.broker.give("Orders", b"1")
        assert bodies(await consumer.receive(wait=20)) == [b"1"]
        assert await consumer.receive(wait=0) == []
        now_ms = time.time_ns() // 1_000_000 + ahead_ms
        assert abs(site.broker.pops[-1].bornTime - now_ms) < 5_000


@pytest.mark.parametrize("code", [ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT])
async def test_answers_without_waiting_are_no_tight_loop(code: int) -> None:
    async with PopSite() as site, consuming(site) as consumer:
        asked = 0

        def answer(_request: object) -> Any:
            nonlocal asked
            asked += 1
            return (code, "full")

        site.broker.refusals = Answering(answer)
        assert await consumer.receive(wait=0.5) == []
        assert 2 <= asked <= 7


class Answering(dict[int, tuple[int, str]]):
    """Answers pops as `act` says."""

    def __init__(self, act: Callable[[object], tuple[int, str]]) -> None:
        super().__init__({RequestCode.POP_MESSAGE: (0, "")})
        self._act = act

    def __getitem__(self, code: int) -> tuple[int, str]:
        return self._act(code)


async def test_an_answer_that_cannot_be_read_is_an_error_of_ours() -> None:
    async with PopSite() as site, consuming(site) as consumer:
        site.broker.refusals[RequestCode.POP_MESSAGE] = (0, "FOUND")
        with pytest.raises(RequestFailed, match="popTime"):
            await consumer.receive(wait=1)


async def test_tags_are_compared_here_too_and_what_is_not_wanted_is_done_with() -> None:
    async with PopSite() as site:
        consumer = SimpleConsumer("readers", site.namesrv)
        consumer.subscribe("Orders", "A || B")
        async with consumer:
            site.broker.give("Orders", b"1", TAGS="A")
            site.broker.give("Orders", b"2", TAGS="C")
            assert bodies(await consumer.receive()) == [b"1"]
            await site.broker.until(lambda: site.broker.acknowledged() == {1})
            assert (site.broker.pops[0].expType, site.broker.pops[0].exp) == ("TAG", "A || B")


async def test_a_filter_by_properties_goes_to_the_brokers_and_a_wrong_one_fails_the_start() -> None:
    async with PopSite() as site:
        consumer = SimpleConsumer("readers", site.namesrv)
        consumer.subscribe("Orders", sql="price > 5")
        refused = (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no such grammar")
        site.broker.refusals[RequestCode.CHECK_CLIENT_CONFIG] = refused
        with pytest.raises(ConsumeError, match="no such grammar"):
            await consumer.start()
        site.broker.refusals.clear()
        consumer = SimpleConsumer("readers", site.namesrv)
        consumer.subscribe("Orders", sql="price > 5")
        async with consumer:
            site.broker.give("Orders", b"1", TAGS="any")
            assert bodies(await consumer.receive()) == [b"1"]
            assert (site.broker.pops[0].expType, site.broker.pops[0].exp) == ("SQL92", "price > 5")


async def test_brokers_know_the_group_by_its_heartbeat() -> None:
    async with PopSite() as site, consuming(site, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        told = site.broker.beats[-1].consumerDataSet[0]
        assert (told.groupName, told.consumeType, told.messageModel) == ("readers", "CONSUME_POP", "CLUSTERING")
        assert [data.topic for data in told.subscriptionDataSet] == ["Orders"]
        site.topics.add("Bills")
        consumer.subscribe("Bills", "A")
        await site.broker.until(lambda: len(site.broker.beats[-1].consumerDataSet[0].subscriptionDataSet) == 2)
        consumer.unsubscribe("Orders")
        assert await consumer.receive(wait=0) == []
        assert (site.broker.pops[-1].topic, site.broker.pops[-1].initMode) == ("Bills", 0)
        assert consumer.running_info().properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"


ABSURD: tuple[Any, ...] = (math.nan, math.inf, -math.inf, -1, "1", None, True, 10**400, b"", [])


@pytest.mark.parametrize("value", ABSURD, ids=lambda value: repr(value)[:10])
async def test_absurd_arguments_are_refused_at_the_door(value: Any) -> None:
    for name in ("invisible", "wait", "ack_timeout"):
        with pytest.raises(ArgumentRefused, match="seconds"):
            SimpleConsumer("readers", "127.0.0.1:1", **{name: value})
    if value is not True:
        with pytest.raises(ArgumentRefused, match="number"):
            SimpleConsumer("readers", "127.0.0.1:1", buffer=value)
    consumer = SimpleConsumer("readers", "127.0.0.1:1")
    with pytest.raises((ArgumentRefused, ClientClosed)):
        await consumer.receive(value)
    if value is not None:
        for name in ("invisible", "wait"):
            with pytest.raises(ArgumentRefused):
                await consumer.receive(**{name: value})
    for wrong in ({"group": value if value != "1" else "no group"}, {"from_where": value}):
        with pytest.raises(ClientError):
            SimpleConsumer(**({"group": "readers", "namesrv": "127.0.0.1:1"} | wrong))
    if not isinstance(value, str):
        with pytest.raises(ConsumeError):
            consumer.subscribe(value)


async def test_bounds_of_arguments() -> None:
    consumer = SimpleConsumer("readers", "127.0.0.1:1")
    for most in (0, 33):
        with pytest.raises(ArgumentRefused, match="1 to 32"):
            await consumer.receive(most)
    with pytest.raises(ArgumentRefused, match=r"0\.001"):
        await consumer.receive(invisible=0)
    with pytest.raises(ClientClosed):
        await consumer.receive()
    with pytest.raises(ConsumeError, match="illegal"):
        consumer.subscribe("no topic")
    async with PopSite() as site, SimpleConsumer("readers", site.namesrv) as started:
        with pytest.raises(ConsumeError, match="subscribe to one"):
            await started.receive()


async def test_in_order_who_had_no_answer_asks_by_the_same_name() -> None:
    async with PopSite() as site, consuming(site, wait=0, ordered=True) as consumer:
        broker = site.broker
        broker.refusals[RequestCode.POP_MESSAGE] = (ResponseCode.SYSTEM_ERROR, "it is not known whether it was taken")
        for _ in range(2):
            with pytest.raises(ClientError):
                await consumer.receive()
        broker.refusals.clear()
        broker.give("Orders", b"1")
        assert bodies(await consumer.receive()) == [b"1"]
        tried = len(broker.attempts)
        assert tried >= 3
        assert len(set(broker.attempts)) == 1
        assert broker.attempts[0]
        assert [asked.order for asked in broker.pops] == [True]
        # It was answered: the next one is another one.
        for _ in range(2):
            assert await consumer.receive() == []
        assert len(set(broker.attempts)) == 3


async def test_a_pop_without_order_has_no_name() -> None:
    async with PopSite() as site, consuming(site, wait=0) as consumer:
        await consumer.receive()
        assert {(asked.order, asked.attemptId) for asked in site.broker.pops} == {(False, None)}
        with pytest.raises(ConsumeError, match="ordered is 1"):
            SimpleConsumer("readers", site.namesrv, ordered=1)  # type: ignore[arg-type]
