"""R10: the system topic that entries stand in is nobody's to write to, change, delete or clean, in any mode."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoting.codes import RequestCode, ResponseCode
from remoting.errors import CommandError
from remoting.headers.registry import CreateTopicRequestHeader, DeleteTopicRequestHeader
from remoting.topics import RAFT_TOPIC
from tests.parts.broker_parts import Parts, broker_parts, serve_topics
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
