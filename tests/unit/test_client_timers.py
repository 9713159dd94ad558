"""When a message is to be delivered, as an application may say it; and recalls by brokers that play their part."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import ClientError, MessageRefused, RequestFailed, RequestRefused, RouteError
from client.message import Message, check_batch, check_message
from client.produce.producer import Producer
from client.timers import read_handle, timer_property
from remoting.properties import decode_properties
from tests.parts.half_brokers import HalfSite

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
MOMENT_MS = 1_769_860_800_250


def timed(**fields: Any) -> dict[str, str]:
    message = Message("T", b"x", **fields)
    check_message(message, 100)
    found = decode_properties(message.properties_text("ID").encode())
    return {name: value for name, value in found.items() if name.startswith("TIMER_")}


@pytest.mark.parametrize(
    ("fields", "properties"),
    [
        ({"deliver_at": MOMENT}, {"TIMER_DELIVER_MS": str(MOMENT_MS)}),
        ({"deliver_at": MOMENT.astimezone(timezone(timedelta(hours=9)))}, {"TIMER_DELIVER_MS": str(MOMENT_MS)}),
        ({"deliver_at": MOMENT.astimezone().replace(tzinfo=None)}, {"TIMER_DELIVER_MS": str(MOMENT_MS)}),
        ({"deliver_at": MOMENT_MS}, {"TIMER_DELIVER_MS": str(MOMENT_MS)}),
        ({"delay": 90}, {"TIMER_DELAY_SEC": "90"}),
        ({"delay": 0}, {"TIMER_DELAY_SEC": "0"}),
        ({"delay": 1.5}, {"TIMER_DELAY_MS": "1500"}),
        ({"delay": timedelta(days=2)}, {"TIMER_DELAY_SEC": "172800"}),
        ({"delay": timedelta(milliseconds=40)}, {"TIMER_DELAY_MS": "40"}),
        ({"properties": {"TIMER_DELAY_SEC": "3"}}, {"TIMER_DELAY_SEC": "3"}),
        ({}, {}),
    ],
)
def test_a_moment_and_a_delay_are_rocketmq_s_properties(fields: dict[str, Any], properties: dict[str, str]) -> None:
    assert timed(**fields) == properties


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"deliver_at": MOMENT, "delay": 3}, "it takes one of them"),
        ({"deliver_at": MOMENT, "delay_level": 3}, "it takes one of them"),
        ({"delay": 3, "delay_level": 3}, "it takes one of them"),
        ({"delay": 3, "properties": {"TIMER_DELIVER_MS": "5"}}, "has the property TIMER_DELIVER_MS as well"),
        ({"deliver_at": "tomorrow"}, "a datetime or milliseconds"),
        ({"deliver_at": True}, "a datetime or milliseconds"),
        ({"deliver_at": 1.5}, "a datetime or milliseconds"),
        ({"deliver_at": 0}, "one after 1970"),
        ({"deliver_at": 2**63}, "one after 1970"),
        ({"deliver_at": datetime(1, 1, 1, tzinfo=UTC)}, "one after 1970"),
        ({"deliver_at": datetime.min}, "moment to be delivered at"),  # noqa: DTZ901 # as somebody may hand it in
        ({"delay": "3"}, "a number of seconds or a timedelta"),
        ({"delay": True}, "a number of seconds or a timedelta"),
        ({"delay": float("nan")}, "a number of seconds or a timedelta"),
        ({"delay": float("inf")}, "a number of seconds or a timedelta"),
        ({"delay": -1}, "0 seconds or more"),
        ({"delay": timedelta(seconds=-1)}, "0 seconds or more"),
        ({"delay": 1e300}, "0 seconds or more"),
        ({"delay": 10**400}, "0 seconds or more"),
    ],
)
def test_a_moment_that_is_none_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(MessageRefused, match=told):
        timed(**fields)


@pytest.mark.parametrize("fields", [{"delay": 3}, {"deliver_at": MOMENT}, {"properties": {"TIMER_DELAY_MS": "3"}}])
def test_a_batch_takes_no_timer_messages(fields: dict[str, Any]) -> None:
    with pytest.raises(MessageRefused, match="cannot be part of a batch"):
        check_batch([Message("T", b"x"), Message("T", b"x", **fields)], 100)


@given(st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.datetimes(), st.timedeltas(), st.binary()))
def test_whatever_is_handed_in_is_a_number_of_milliseconds_or_refused(value: Any) -> None:
    for deliver_at, delay in ((value, None), (None, value)):
        try:
            _name, text = timer_property(deliver_at, delay)
        except MessageRefused:
            continue
        assert 0 <= int(text) < 2**63


def handle(text: str = "v1 Orders b 1769860800250 ID") -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "ü", handle("v2 Orders b 1 ID"), handle("v1 Orders b 1"), handle("v1 Orders b 1 ID more"),
        handle("v1 Orders b soon ID"), handle("v1  b 1 ID"), handle("v1 Orders b -1 ID"), handle("v" * 2000), "====",
    ],
)  # fmt: skip
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(MessageRefused, match="is no recall handle"):
        read_handle(text)


@given(st.one_of(st.text(), st.binary(), st.none(), st.integers(), st.text().map(handle)))
def test_whatever_is_handed_in_is_a_handle_or_refused(value: Any) -> None:
    try:
        named = read_handle(value)
    except MessageRefused:
        return
    assert named.deliver_ms >= 0


@pytest.fixture
async def site() -> AsyncIterator[HalfSite]:
    async with HalfSite() as made:
        yield made


async def test_a_send_tells_the_handle_and_a_recall_takes_it_to_the_broker_that_keeps_the_message(
    site: HalfSite,
) -> None:
    async with Producer("P", site.namesrv) as producer:
        assert (await producer.send(Message("Orders", b"x", delay=3))).recall_handle == "handle"
        assert await producer.recall("Orders", handle()) == "ID"
    (asked,) = site.brokers[0].recalls
    assert (asked.producerGroup, asked.topic, asked.bname) == ("P", "Orders", "b")
    assert asked.recallHandle == handle()


async def test_a_recall_goes_to_who_leads_by_then(site: HalfSite) -> None:
    async with Producer("P", site.namesrv, send_timeout=10.0) as producer:
        await producer.recall("Orders", handle())
        await site.brokers[0].kill()
        site.master = 1
        assert await producer.recall("Orders", handle()) == "ID"
    assert len(site.brokers[1].recalls) == 1


async def test_a_recall_of_who_is_a_slave_now_asks_who_is_the_master(site: HalfSite) -> None:
    async with Producer("P", site.namesrv, send_timeout=10.0) as producer:
        await producer.recall("Orders", handle())
        site.brokers[0].recalled = (11, "recall failed, broker service not available")
        site.master = 1
        assert await producer.recall("Orders", handle()) == "ID"
    assert len(site.brokers[1].recalls) == 1


@pytest.mark.parametrize(
    ("code", "remark"), [(604, "recall failed, timestamp invalid"), (16, "recall is off"), (17, "no such topic")]
)
async def test_a_refused_recall_says_what_the_broker_said_and_is_not_repeated(
    site: HalfSite, code: int, remark: str
) -> None:
    site.brokers[0].recalled = (code, remark)
    async with Producer("P", site.namesrv) as producer:
        with pytest.raises(RequestRefused, match=remark) as refused:
            await producer.recall("Orders", handle())
    assert refused.value.code == code
    assert len(site.brokers[0].recalls) == 1


async def test_a_recall_without_an_answer_ends_by_its_deadline_and_says_that_it_may_have_been(site: HalfSite) -> None:
    site.brokers[0].recalled = None
    async with Producer("P", site.namesrv) as producer:
        began = time.monotonic()
        with pytest.raises(RequestFailed) as failed:
            await producer.recall("Orders", handle(), timeout=3)
        assert time.monotonic() - began < 10
    assert failed.value.sent


async def test_a_recall_that_nobody_can_take_ends_by_its_deadline(site: HalfSite) -> None:
    async with Producer("P", site.namesrv) as producer:
        for topic, text, told in (
            ("Orders", handle("v1 Orders gone 5 ID"), "broker gone, which keeps message ID"),
            ("Nowhere", handle("v1 Nowhere b 5 ID"), "No topic route info for topic Nowhere"),
        ):
            with pytest.raises(RouteError, match=told):
                await producer.recall(topic, text, timeout=3)
    async with Producer("P", "127.0.0.1:1") as producer:
        began = time.monotonic()
        with pytest.raises(ClientError):
            await producer.recall("Orders", handle(), timeout=0.3)
        assert time.monotonic() - began < 10


async def test_what_cannot_be_recalled_is_refused_in_words() -> None:
    wrong: Any
    async with asyncio.timeout(20), Producer("P", "127.0.0.1:1") as producer:
        for topic, wrong, told in (
            ("Orders", 7, "the recall handle is 7"),
            (7, handle(), "the topic is 7"),
            ("a b", handle(), "illegal characters"),
            ("Others", handle(), "of topic Orders, not of Others"),
            ("%RETRY%g", handle(), "no timer message goes there"),
        ):
            with pytest.raises(MessageRefused, match=told):
                await producer.recall(topic, wrong)  # type: ignore[arg-type] # the point of it
        with pytest.raises(MessageRefused, match="the timeout is '3'"):
            await producer.recall("Orders", handle(), timeout="3")  # type: ignore[arg-type] # as above
    with pytest.raises(ClientError, match="not started"):
        await Producer("P", "127.0.0.1:1").recall("Orders", handle())
