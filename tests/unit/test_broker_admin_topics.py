"""Codes 17, 18, 21, 202, 215, 300, 305, 316, 351: what they change, what they show, what they refuse."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker import reply as admin_reply
from remoting.bodies.registry import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicStatsTable,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.registry import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from tests.parts.broker_parts import Parts, Peer, broker_parts, serve_topics


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with broker_parts(tmp_path) as made:
        serve_topics(made)
        yield made


def create(topic: str, queues: int = 4, perm: int = 6, attributes: str | None = None) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=perm,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=True,
        attributes=attributes,
    )


async def test_a_created_topic_is_durable_and_announced_before_the_answer(parts: Parts, tmp_path: Path) -> None:
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("T", 3, 4, "+message.type=FIFO"))
    assert answer.code == ResponseCode.SUCCESS
    table = json.loads((tmp_path / "store" / "config" / "topics.json").read_bytes())["topicConfigTable"]
    assert table["T"] == {
        "topicName": "T",
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": True,
        "attributes": {"message.type": "FIFO"},
    }
    assert parts.announced == 1


async def test_the_same_again_changes_nothing(parts: Parts) -> None:
    await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("T"))
    version = parts.topics.data_version
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("T"))
    assert answer.code == ResponseCode.SUCCESS
    assert parts.topics.data_version == version
    assert parts.announced == 1


async def test_attributes_are_changes(parts: Parts) -> None:
    await parts.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, create("T", attributes="+message.type=DELAY,+queue.type=SimpleCQ")
    )
    await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("T", attributes="-message.type"))
    topic = parts.topics.get("T")
    assert topic is not None
    assert topic.attributes == {"queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    "header",
    [
        create(""),
        create("with space"),
        create("x" * 200),
        create("TBW102"),
        create("DefaultCluster"),
        create("rmq_sys_anything"),
        create("T", queues=-1),
        create("T", perm=9),
    ],
)
async def test_what_cannot_be_created(parts: Parts, header: CreateTopicRequestHeader) -> None:
    before = dict(parts.topics.tables)
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark
    assert parts.topics.tables == before


@pytest.mark.parametrize(
    "header",
    [
        create("T", attributes="message.type=FIFO"),
        create("T", attributes="+no.such=1"),
        create("T", attributes="+queue.type=BatchCQ"),
        create("T", attributes="+message.type"),
        create("T", attributes="-message.type"),
        create("T", attributes="+message.type=FIFO,-message.type"),
    ],
)
async def test_attributes_that_there_are_not(parts: Parts, header: CreateTopicRequestHeader) -> None:
    """RocketMQ's code for them is 1, unlike for other values."""
    before = dict(parts.topics.tables)
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "attribute" in (answer.remark or "")
    assert parts.topics.tables == before


async def test_a_list_is_created_whole_or_not_at_all(parts: Parts) -> None:
    body = TopicConfigList([TopicConfig("A", attributes={"+message.type": "FIFO"}), TopicConfig("B", 2, 2)])
    assert (await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())).code == 0
    created = parts.topics.get("A")
    assert created is not None
    assert created.attributes == {"message.type": "FIFO"}
    body = TopicConfigList([TopicConfig("C", attributes={"+no.such": "1"})])
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    body = TopicConfigList([TopicConfig("C"), TopicConfig("not allowed")])
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert parts.topics.get("C") is None
    assert (await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=b"[1")).code == ResponseCode.SYSTEM_ERROR


async def test_a_deleted_topic_leaves_nothing_behind(parts: Parts) -> None:
    await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("T"))
    parts.put("T", 0)
    parts.offsets.assign("g", "T", 0, 1)
    parts.groups.set_readable("g", "T", readable=False)
    answer = await parts.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert answer.code == ResponseCode.SUCCESS
    assert parts.topics.get("T") is None
    assert parts.store.max_offset("T", 0) == 0
    assert parts.offsets.query("g", "T", 0) == -1
    assert parts.groups.readable("g", "T")
    assert parts.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert (parts.announced, parts.persisted) == (2, 1)
    again = await parts.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert again.code == ResponseCode.SUCCESS
    assert parts.announced == 2


async def test_system_topics_are_not_deleted(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="TBW102"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert parts.topics.get("TBW102") is not None


async def test_the_whole_table_for_those_who_ask_without_pages(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigTable.decode(answer.body)
    assert table.topicConfigTable == parts.topics.tables
    assert table.dataVersion == parts.topics.data_version
    assert answer.ext["totalTopicNum"] == str(len(parts.topics.tables))


async def test_a_table_too_large_for_a_frame_is_refused_with_advice(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_reply, "TABLE_BYTES_MAX", 100)
    answer = await parts.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "pages" in (answer.remark or "")


async def test_pages_and_a_table_that_changes_between_them(parts: Parts) -> None:
    found: dict[str, TopicConfig] = {}
    version = ""
    while True:
        ext = {"topicSeq": str(len(found)), "maxTopicNum": "5", "dataVersion": version}
        answer = await parts.ask(RequestCode.GET_ALL_TOPIC_CONFIG, ext=ext)
        page = TopicConfigTable.decode(answer.body)
        assert 0 < len(page.topicConfigTable) <= 5
        assert not found.keys() & page.topicConfigTable.keys()
        found.update(page.topicConfigTable)
        version = page.dataVersion.encode().decode()
        if len(found) >= int(answer.ext["totalTopicNum"]):
            break
    assert found == parts.topics.tables
    parts.topics.update(TopicConfig("new"))
    ext = {"topicSeq": "5", "maxTopicNum": "5", "dataVersion": version}
    answer = await parts.ask(RequestCode.GET_ALL_TOPIC_CONFIG, ext=ext)
    first = list(TopicConfigTable.decode(answer.body).topicConfigTable)
    assert first == list(parts.topics.tables)[:5], "from the start again"


async def test_one_topic(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="BenchmarkTest"))
    assert TopicConfig.decode(answer.body) == parts.topics.get("BenchmarkTest")
    answer = await parts.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="none"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_system_topic_list(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    names = TopicList.decode(answer.body).topicList
    assert {"TBW102", "BenchmarkTest", "DefaultCluster", "broker-a"} <= set(names)


async def test_topic_stats_are_keyed_by_queues_as_java_writes_them(parts: Parts) -> None:
    parts.topics.update(TopicConfig("T", 2, 2))
    stored = parts.put("T", 1)
    parts.put("T", 1)
    parts.clock.advance(10)
    parts.stats.tick()
    answer = await parts.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="T"))
    assert b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{' in bytes(answer.body)
    table = TopicStatsTable.decode(answer.body)
    empty = table.offsetTable[MessageQueue("T", "broker-a", 0)]
    assert (empty.minOffset, empty.maxOffset, empty.lastUpdateTimestamp) == (0, 0, 0)
    full = table.offsetTable[MessageQueue("T", "broker-a", 1)]
    assert (full.minOffset, full.maxOffset, full.lastUpdateTimestamp) == (0, 2, stored.store_timestamp)
    assert table.topicPutTps == pytest.approx(0.2)
    answer = await parts.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="none"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_who_consumes_a_topic(parts: Parts) -> None:
    parts.offsets.assign("offline", "T", 0, 1)
    parts.join(Peer(), "c1", "online", "T")
    parts.join(Peer(), "c2", "elsewhere", "U")
    header = QueryTopicConsumeByWhoRequestHeader(topic="T")
    answer = await parts.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    assert GroupList.decode(answer.body).groupList == ["offline", "online"]


async def test_queues_of_unknown_topics_are_cleaned(parts: Parts) -> None:
    parts.topics.update(TopicConfig("kept"))
    parts.put("kept", 0)
    parts.put("gone", 0)
    assert (await parts.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
    assert parts.store.max_offset("kept", 0) == 1
    assert parts.store.max_offset("gone", 0) == 0


async def test_a_disk_that_refuses_is_told_to_the_administrator(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.metadata.table_file.replace_file", full)
    with pytest.raises(OSError, match="No space left"):
        await parts.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("T"))
    monkeypatch.undo()
