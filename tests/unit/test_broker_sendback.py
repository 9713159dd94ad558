"""Code 36: where a message that was sent back goes, what it says then, and what is refused with which code."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from broker.messages.delayed_record import real
from broker.messages.send_back import SendBackHandlers
from broker.replication import Done
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import ConsumerSendMsgBackRequestHeader
from remoting.message import MessageExt
from remoting.msgid import offset_msg_id
from remoting.record import decode_record
from remoting.server import Connection
from remoting.topics import SCHEDULE_TOPIC
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.broker_parts import HOST, Parts, Peer, broker_parts


class Consumer:
    """The connection of a consumer."""

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def reply(self, _request: Command, response: Command) -> None:
        self.answers.append(response)


class Setting:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.peer = Consumer()
        self.status, self.code = PutStatus.PUT_OK, ResponseCode.SERVICE_NOT_AVAILABLE
        self.elsewhere: list[Command] = []
        parts.groups.update(SubscriptionGroupConfig(groupName="G", retryQueueNums=4, retryMaxTimes=2))
        self.handlers = SendBackHandlers(
            parts.context(),
            parts.tables,
            self,
            lambda below: below - 1,
            lambda _peer, request: self.elsewhere.append(request),
        )

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        assert wait
        assert until == 0.0, "it came through no gate"
        if self.status is not PutStatus.PUT_OK:
            done(PutResult(self.status), self.code)
            return
        result = self.parts.store.put(record)
        self.parts.store.write()
        done(result, ResponseCode.SUCCESS)

    def append_batch(self, *_: object, **__: object) -> None:
        raise AssertionError("a message comes back alone")

    def back(
        self,
        offset: int,
        level: int = 0,
        most: int | None = None,
        group: str = "G",
        unit: bool = False,
        topic: str | None = "T",
    ) -> Command:
        header = ConsumerSendMsgBackRequestHeader(
            offset=offset, group=group, delayLevel=level, maxReconsumeTimes=most, originTopic=topic, unitMode=unit
        )
        request = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        try:
            answer = self.handlers.table()[RequestCode.CONSUMER_SEND_MSG_BACK](cast(Connection, self.peer), request)
        except CommandError as error:
            return Command.response(error.code, error.remark)
        if answer is None:
            answer = self.peer.answers.pop()
        assert isinstance(answer, Command)
        return answer

    def last(self, topic: str, queue_id: int) -> MessageExt:
        end = self.parts.store.max_offset(topic, queue_id)
        [entry] = self.parts.store.queue_entries(topic, queue_id, end - 1, 1)
        view = self.parts.store.record_at(entry.physical_offset)
        assert view is not None
        return decode_record(view)

    def deliver(self, level: int) -> int:
        """Store the newest message of a level as what it is; returns its position."""
        view = self.parts.store.record_at(self.last(SCHEDULE_TOPIC, level - 1).physical_offset)
        assert view is not None
        result = self.parts.store.put(real(view))
        self.parts.store.write()
        return result.physical_offset


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with broker_parts(tmp_path) as parts:
        yield Setting(parts)


async def test_where_permissions_count_nobody_gets_a_message_by_sending_back_anothers(setting: Setting) -> None:
    other, own = setting.parts.put("U", 0, b"secret"), setting.parts.put("T", 0, b"own")
    retried = setting.parts.put("%RETRY%G", 0, b"again")
    setting.parts.config.update({"authenticationEnabled": "true", "authorizationEnabled": "true"})
    assert setting.back(own.physical_offset).code == ResponseCode.SUCCESS
    assert setting.back(retried.physical_offset).code == ResponseCode.SUCCESS
    refused = setting.back(other.physical_offset)
    assert (refused.code, "neither of originTopic" in str(refused.remark)) == (ResponseCode.NO_PERMISSION, True)
    # Of a client that does not say the topic, the group's subscriptions count.
    assert setting.back(own.physical_offset, topic=None).code == ResponseCode.NO_PERMISSION
    setting.parts.join(Peer(), "c", "G", "T")
    assert setting.back(own.physical_offset, topic=None).code == ResponseCode.SUCCESS
    assert setting.back(other.physical_offset, topic=None).code == ResponseCode.NO_PERMISSION


async def test_a_message_waits_for_its_next_try_in_the_retry_topic(setting: Setting) -> None:
    put = setting.parts.put("T", 1, b"body", TAGS="A", KEYS="k", WAIT="true")
    assert setting.back(put.physical_offset).code == ResponseCode.SUCCESS
    found = setting.last(SCHEDULE_TOPIC, 2)
    assert (found.body, found.reconsume_times) == (b"body", 1)
    assert found.properties == {
        "ORIGIN_MESSAGE_ID": offset_msg_id(HOST, put.physical_offset),
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "UNIQ_KEY": found.properties["UNIQ_KEY"],
        "TAGS": "A",
        "KEYS": "k",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "3",
    }
    topic = setting.parts.topics.get("%RETRY%G")
    assert topic is not None
    assert (topic.writeQueueNums, topic.readQueueNums, topic.perm) == (4, 4, 6)
    assert setting.parts.stats.view("SNDBCK_PUT_NUMS", "T@G") is not None


async def test_each_try_waits_longer_until_the_message_is_a_dead_letter(setting: Setting) -> None:
    first = setting.parts.put("T", 1, b"body", TAGS="A")
    setting.back(first.physical_offset)
    setting.back(setting.deliver(3))
    second = setting.last(SCHEDULE_TOPIC, 3)
    assert (second.reconsume_times, second.properties["RETRY_TOPIC"], second.properties["DELAY"]) == (2, "T", "4")
    assert setting.back(setting.deliver(4)).code == ResponseCode.SUCCESS
    letter = setting.last("%DLQ%G", 0)
    origin = offset_msg_id(HOST, first.physical_offset)
    assert (letter.body, letter.reconsume_times) == (b"body", 3)
    assert letter.properties == {
        "ORIGIN_MESSAGE_ID": origin,
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "UNIQ_KEY": letter.properties["UNIQ_KEY"],
        "TAGS": "A",
        "RECONSUME_TIME": "3",
        "DLQ_ORIGIN_TOPIC": "T",
        "DLQ_ORIGIN_MESSAGE_ID": origin,
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "3",
    }
    topic = setting.parts.topics.get("%DLQ%G")
    assert topic is not None
    assert (topic.writeQueueNums, topic.perm) == (1, 6)


@pytest.mark.parametrize("v2", ["false", "true"])
@pytest.mark.parametrize("origin", ["T", "%RETRY%G_T"], ids=["ours", "of RocketMQ's proxy"])
async def test_a_dead_letter_that_was_popped_goes_where_pops_read(setting: Setting, origin: str, v2: str) -> None:
    setting.parts.config.update({"enableRetryTopicV2": v2})
    marks = {"1ST_POP_TIME": "5", "ORIGIN_GROUP": "G", "DLQ_ORIGIN_TOPIC": origin, "RECONSUME_TIME": "3"}
    letter = setting.parts.put("%DLQ%G", 0, b"body", **marks)
    assert setting.back(letter.physical_offset, 1, 2**31 - 1, topic="%DLQ%G").code == ResponseCode.SUCCESS
    found = setting.last(SCHEDULE_TOPIC, 0)
    retry = "%RETRY%G+T" if v2 == "true" else "%RETRY%G_T"
    assert (found.properties["REAL_TOPIC"], found.properties["REAL_QID"]) == (retry, "0")
    assert (found.properties["RETRY_TOPIC"], found.properties["1ST_POP_TIME"]) == ("T", "5")
    assert setting.parts.topics.get(retry) is not None
    # One of another group, or one that was never popped, goes to the group's own retry topic.
    for dead, properties in (("%DLQ%H", marks), ("%DLQ%G", {"DLQ_ORIGIN_TOPIC": origin})):
        letter = setting.parts.put(dead, 0, b"body", **properties)
        setting.back(letter.physical_offset, 1, 2**31 - 1, topic=dead)
        assert setting.last(SCHEDULE_TOPIC, 0).properties["REAL_TOPIC"] == "%RETRY%G"


@pytest.mark.parametrize(("level", "most"), [(-1, None), (-1, 16), (0, 0), (5, 0)])
async def test_a_dead_letter_at_once(setting: Setting, level: int, most: int | None) -> None:
    put = setting.parts.put("T", 0)
    assert setting.back(put.physical_offset, level, most).code == ResponseCode.SUCCESS
    assert setting.last("%DLQ%G", 0).reconsume_times == 1


@pytest.mark.parametrize(("level", "most", "queue"), [(1, -1, 0), (7, 16, 6), (99, None, 17)])
async def test_the_consumer_may_choose_the_level(setting: Setting, level: int, most: int | None, queue: int) -> None:
    put = setting.parts.put("T", 0)
    assert setting.back(put.physical_offset, level, most, unit=True).code == ResponseCode.SUCCESS
    assert setting.last(SCHEDULE_TOPIC, queue).properties["DELAY"] == str(queue + 1)


async def test_a_message_that_is_gone(setting: Setting) -> None:
    setting.parts.put("T", 0)
    for offset in (-1, 3, 1 << 40):
        answer = setting.back(offset)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")


async def test_an_unknown_group(setting: Setting) -> None:
    setting.parts.config.update({"autoCreateSubscriptionGroup": "false"})
    put = setting.parts.put("T", 0)
    assert setting.back(put.physical_offset, group="Nobody").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert setting.parts.topics.get("%RETRY%Nobody") is None


async def test_a_broker_or_a_topic_that_takes_no_writes(setting: Setting) -> None:
    put = setting.parts.put("T", 0)
    retry = setting.parts.topics.create_for_retry("%RETRY%G", 1)
    setting.parts.topics.update(msgspec.structs.replace(retry, perm=4))
    assert setting.back(put.physical_offset).code == ResponseCode.NO_PERMISSION
    setting.parts.topics.update(retry)
    setting.parts.config.update({"brokerPermission": "4"})
    assert setting.back(put.physical_offset).code == ResponseCode.NO_PERMISSION


async def test_a_group_that_wants_no_retries_is_answered_and_nothing_stored(setting: Setting) -> None:
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="G", retryQueueNums=0))
    put = setting.parts.put("T", 0)
    assert setting.back(put.physical_offset).code == ResponseCode.SUCCESS
    assert setting.parts.store.written == put.end


async def test_a_store_that_takes_nothing_is_told(setting: Setting) -> None:
    put = setting.parts.put("T", 0)
    setting.status = PutStatus.SERVICE_NOT_AVAILABLE
    answer = setting.back(put.physical_offset)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "disk is full" in (answer.remark or "")


async def test_R8_what_is_in_no_log_goes_elsewhere_as_it_came(setting: Setting) -> None:
    put = setting.parts.put("T", 0)
    setting.status, setting.code = PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.NOT_LEADER_FOR_QUEUE
    with pytest.raises(IndexError):
        setting.back(put.physical_offset)
    assert [request.code for request in setting.elsewhere] == [RequestCode.CONSUMER_SEND_MSG_BACK]
    assert setting.peer.answers == []
