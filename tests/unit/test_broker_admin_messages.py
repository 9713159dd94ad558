"""Codes 12, 33, 321."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.admin.messages import AdminMessages
from remoting.bodies.registry import QueryConsumeQueueBody, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.registry import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.javahash import java_hash
from remoting.message import MessageExt
from remoting.record import decode_records
from tests.parts.broker_parts import Parts, Peer, broker_parts

FOREVER = 2**62


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with broker_parts(tmp_path) as made:
        made.handlers = AdminMessages(made.config, made.store, made.clients).table()
        yield made


async def query(parts: Parts, key: str, *, most: int = 32, begin: int = 0, end: int = FOREVER) -> list[MessageExt]:
    header = QueryMessageRequestHeader(topic="T", key=key, maxNum=most, beginTimestamp=begin, endTimestamp=end)
    answer = await parts.ask(RequestCode.QUERY_MESSAGE, header)
    assert "indexLastUpdateTimestamp" in answer.ext
    assert "indexLastUpdatePhyoffset" in answer.ext
    content = b"".join(bytes(part) for part in answer.parts) or bytes(answer.body)
    assert (answer.code == ResponseCode.SUCCESS) == bool(content)
    assert answer.code in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}
    return decode_records(content)


async def test_messages_are_found_by_key_and_time(parts: Parts) -> None:
    first = parts.put("T", 0, b"one", KEYS="order-1 buyer-7")
    parts.clock.advance(100)
    second = parts.put("T", 0, b"two", KEYS="order-2 buyer-7")
    parts.put("U", 0, b"other topic", KEYS="buyer-7")
    assert [message.body for message in await query(parts, "order-1")] == [b"one"]
    assert {message.body for message in await query(parts, "buyer-7")} == {b"one", b"two"}
    assert len(await query(parts, "buyer-7", most=1)) == 1
    late = await query(parts, "buyer-7", begin=first.store_timestamp + 50_000, end=second.store_timestamp + 1000)
    assert [message.body for message in late] == [b"two"]
    assert await query(parts, "nobody") == []


async def test_messages_are_found_by_unique_id(parts: Parts) -> None:
    parts.put("T", 0, b"one", UNIQ_KEY="0A" * 16)
    header = QueryMessageRequestHeader(topic="T", key="0A" * 16, maxNum=1, beginTimestamp=0, endTimestamp=FOREVER)
    answer = await parts.ask(RequestCode.QUERY_MESSAGE, header, ext={"_UNIQUE_KEY_QUERY": "true"})
    assert [message.msg_id for message in decode_records(bytes(answer.parts[0]))] == ["0A" * 16]


async def test_an_absurd_number_of_messages_is_cut_down(parts: Parts) -> None:
    for _ in range(70):
        parts.put("T", 0, b"x", KEYS="k")
    assert len(await query(parts, "k", most=2**31 - 1)) == 64
    assert await query(parts, "k", most=-5) == []


async def test_a_message_by_position(parts: Parts) -> None:
    parts.put("T", 0, b"one")
    stored = parts.put("T", 0, b"two")
    answer = await parts.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=stored.physical_offset))
    assert [message.body for message in decode_records(answer.body)] == [b"two"]


async def test_where_permissions_count_a_message_is_of_the_topic_that_was_named(parts: Parts) -> None:
    stored = parts.put("T", 0, b"one")
    named = [ViewMessageRequestHeader(offset=stored.physical_offset, topic=topic) for topic in ("T", "U", None)]

    async def codes() -> list[int]:
        return [(await parts.ask(RequestCode.VIEW_MESSAGE_BY_ID, header)).code for header in named]

    assert await codes() == [0, 0, 0]
    parts.config.update({"authenticationEnabled": "true", "authorizationEnabled": "true"})
    assert await codes() == [0, 16, 0]


@pytest.mark.parametrize("offset", [-1, 3, 10_000_000])
async def test_no_message_there(parts: Parts, offset: int) -> None:
    parts.put("T", 0)
    answer = await parts.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"can not find message by the offset, {offset}"


def entries(index: int, count: int, group: str | None = None) -> QueryConsumeQueueRequestHeader:
    return QueryConsumeQueueRequestHeader(topic="T", queueId=0, index=index, count=count, consumerGroup=group)


async def test_queue_entries_and_what_a_subscription_lets_through(parts: Parts) -> None:
    stored = [parts.put("T", 0, TAGS=tag) for tag in ("TagA", "TagB", "TagA")]
    parts.join(Peer(), "c", "g", "T")
    answer = await parts.ask(RequestCode.QUERY_CONSUME_QUEUE, entries(0, 10, "g"))
    body = QueryConsumeQueueBody.decode(answer.body)
    assert (body.minQueueIndex, body.maxQueueIndex) == (0, 3)
    assert [entry.physicOffset for entry in body.queueData] == [put.physical_offset for put in stored]
    assert [entry.physicSize for entry in body.queueData] == [put.size for put in stored]
    assert [entry.tagsCode for entry in body.queueData] == [java_hash(tag) for tag in ("TagA", "TagB", "TagA")]
    assert [entry.eval for entry in body.queueData] == [True, False, True]
    assert body.subscriptionData is not None


@pytest.mark.parametrize(
    ("kind", "expression", "through"),
    [
        ("SQL92", "n > 1 AND TAGS = 'TagA'", [False, False, True]),
        ("SQL92", "n > > 1", [False, False, False]),
        ("SQL93", "n > 1", [False, False, False]),
        ("TAG", "*", [True, True, True]),
        ("TAG", "||", [False, False, False]),
    ],
)
async def test_queue_entries_by_every_kind_of_filter(
    parts: Parts, kind: str, expression: str, through: list[bool]
) -> None:
    for number, tag in enumerate(("TagA", "TagB", "TagA")):
        parts.put("T", 0, TAGS=tag, n=str(number))
    parts.join(Peer(), "c", "g", "T")
    group = parts.clients.consumer_group("g")
    assert group is not None
    group.subscriptions["T"] = SubscriptionData(topic="T", subString=expression, expressionType=kind)
    answer = await parts.ask(RequestCode.QUERY_CONSUME_QUEUE, entries(0, 10, "g"))
    assert [entry.eval for entry in QueryConsumeQueueBody.decode(answer.body).queueData] == through


async def test_queue_entries_for_a_group_that_is_away(parts: Parts) -> None:
    parts.put("T", 0)
    body = QueryConsumeQueueBody.decode((await parts.ask(RequestCode.QUERY_CONSUME_QUEUE, entries(0, 1, "g"))).body)
    assert body.filterData == "g@T is not online!"
    assert not body.queueData[0].eval


async def test_queue_entries_that_are_not_there(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.QUERY_CONSUME_QUEUE, entries(0, 1))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "0@T is not exist" in (answer.remark or "")
    parts.put("T", 0)
    for index in (-1, 1, 99):
        answer = await parts.ask(RequestCode.QUERY_CONSUME_QUEUE, entries(index, 1))
        assert answer.code == ResponseCode.SYSTEM_ERROR, index
