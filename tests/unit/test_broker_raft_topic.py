"""R10: the system topic that entries stand in is nobody's to write to, read, change, delete or clean, in any mode."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from broker.admin.clients import AdminClients
from broker.admin.messages import AdminMessages
from broker.messages.send_back import SendBackHandlers
from broker.replication import Replication
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import CommandError
from remoting.headers.registry import (
    ConsumeMessageDirectlyResultRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    Header,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.msgid import offset_msg_id
from remoting.topics import RAFT_TOPIC
from store.types import PendingRecord
from tests.parts.broker_parts import HOST, Parts, Peer, broker_parts, serve_topics
from tests.parts.send_parts import Setting


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    """A single broker whose log was once a group's."""
    async with broker_parts(tmp_path) as made:
        serve_topics(made)
        made.put(RAFT_TOPIC, 0)
        yield made


@pytest.mark.parametrize("by", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_R10_sends_to_it_are_refused(by: int) -> None:
    setting = Setting()
    with pytest.raises(CommandError, match="forbidden") as error:
        setting.do(topic=RAFT_TOPIC, queue_id=0, by=by)
    assert error.value.code == ResponseCode.NO_PERMISSION
    assert setting.log.records == []


async def test_R10_it_is_neither_changed_nor_deleted_nor_cleaned(parts: Parts) -> None:
    create = CreateTopicRequestHeader(
        topic=RAFT_TOPIC,
        defaultTopic="TBW102",
        readQueueNums=1,
        writeQueueNums=1,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
    for code, header in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC, create),
        (RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=RAFT_TOPIC)),
    ):
        answer = await parts.ask(code, header)
        assert answer.code != ResponseCode.SUCCESS, answer
    assert (await parts.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
    assert parts.store.max_offset(RAFT_TOPIC, 0) == 1
    assert parts.topics.get(RAFT_TOPIC) is None
    assert parts.topics.adopt(parts.store.topics()) == []


def put_meta(parts: Parts) -> int:
    """Store a record as a group's META entries are, with a user's secret key in it; return its position."""
    payload = bytes(58) + b"secretKey"
    put = parts.store.put(PendingRecord(RAFT_TOPIC, 0, 0, 0, parts.clock.now_ms(), HOST, 0, 0, payload, b""))
    parts.store.write()
    assert parts.store.any_record_at(put.physical_offset) is not None
    return put.physical_offset


class Appended:
    """What would be stored."""

    def __init__(self) -> None:
        self.records: list[PendingRecord] = []

    def append(self, record: PendingRecord, _done: object, **_: object) -> None:
        self.records.append(record)


@pytest.mark.parametrize("authorized", [False, True])
async def test_R10_nothing_of_it_is_read_by_its_position(parts: Parts, authorized: bool) -> None:
    if authorized:
        parts.config.update({"authenticationEnabled": "true", "authorizationEnabled": "true"})
    at, peer, appended = put_meta(parts), Peer(), Appended()
    parts.groups.update(SubscriptionGroupConfig(groupName="g"))
    parts.join(peer, "c", "g", RAFT_TOPIC)
    send_back = SendBackHandlers(parts.context(), parts.tables, cast(Replication, appended), lambda _below: 0)
    parts.handlers = {
        **AdminMessages(parts.config, parts.store, parts.clients).table(),
        **AdminClients(parts.config, parts.tables, parts.store).table(),
        **send_back.table(),
    }
    asked: list[tuple[int, Header]] = [
        (RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=at)),
        (RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=at, topic=RAFT_TOPIC)),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(offset=at, group="g", delayLevel=0)),
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackRequestHeader(offset=at, group="g", delayLevel=-1, originTopic=RAFT_TOPIC),
        ),
        (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader(consumerGroup="g", clientId="c", msgId=offset_msg_id(HOST, at)),
        ),
        (
            RequestCode.QUERY_CONSUME_QUEUE,
            QueryConsumeQueueRequestHeader(topic=RAFT_TOPIC, queueId=0, index=0, count=9),
        ),
        (
            RequestCode.QUERY_MESSAGE,
            QueryMessageRequestHeader(topic=RAFT_TOPIC, key="", maxNum=9, beginTimestamp=0, endTimestamp=1 << 60),
        ),
    ]
    for code, header in asked:
        answer = await parts.ask(code, header)
        assert answer.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND}, answer
        assert b"secretKey" not in bytes(answer.body)
    assert (appended.records, peer.sent) == ([], [])
