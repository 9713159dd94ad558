"""Codes 29 to 32, 43, 208, 222, 303, 308, 314, 317."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from broker.admin.offsets import AdminOffsets
from broker.admin.positions import AdminPositions
from remoting.bodies.registry import (
    ConsumerOffsetTable,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpanBody,
    CorrectionOffsets,
    MessageQueue,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionGroupConfig,
    TopicConfig,
)
from remoting.codes import LanguageCode, RequestCode, ResponseCode
from remoting.headers.registry import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from tests.parts.broker_parts import ADDRESS, Parts, Peer, broker_parts

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with broker_parts(tmp_path) as made:
        offsets = AdminOffsets(made.context(address=ADDRESS), made.tables, made.persist)
        made.handlers = {**offsets.table(), **AdminPositions(made.store).table()}
        made.topics.update(TopicConfig("T", 2, 2))
        made.groups.update(SubscriptionGroupConfig("g"))
        yield made


def fill(parts: Parts, count: int, queue_id: int = 0) -> list[int]:
    """Store messages a second apart; returns their times."""
    times = []
    for _ in range(count):
        parts.clock.advance(1)
        times.append(parts.put("T", queue_id).store_timestamp)
    return times


async def test_positions_of_a_queue(parts: Parts) -> None:
    times = fill(parts, 3)

    async def offset(code: int, header: SearchOffsetRequestHeader | GetMaxOffsetRequestHeader) -> int:
        return int((await parts.ask(code, header)).ext["offset"])

    assert await offset(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queueId=0)) == 3
    answer = await parts.ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="T", queueId=0))
    assert answer.ext["offset"] == "0"
    header = GetEarliestMsgStoretimeRequestHeader(topic="T", queueId=0)
    assert (await parts.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)).ext["timestamp"] == str(times[0])
    header = GetEarliestMsgStoretimeRequestHeader(topic="T", queueId=1)
    assert (await parts.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)).ext["timestamp"] == "-1"
    for moment, boundary, expected in [
        (times[1], None, 1),
        (times[1] - 1, "LOWER", 1),
        (times[1] + 1, "LOWER", 2),
        (times[1] + 1, "UPPER", 1),
        (times[2] + 1, "LOWER", 3),
    ]:
        search = SearchOffsetRequestHeader(topic="T", queueId=0, timestamp=moment, boundaryType=boundary)
        assert await offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search) == expected, (moment - times[0], boundary)


async def test_a_queue_that_is_not_there_is_empty(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="none", queueId=7))
    assert (answer.code, answer.ext["offset"]) == (ResponseCode.SUCCESS, "0")


async def test_consume_stats_of_a_group(parts: Parts) -> None:
    times = fill(parts, 3)
    parts.offsets.assign("g", "T", 0, 2)
    answer = await parts.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumerGroup="g"))
    assert b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{' in bytes(answer.body)
    stats = ConsumeStats.decode(answer.body)
    assert set(stats.offsetTable) == {Q0, Q1}
    first = stats.offsetTable[Q0]
    assert (first.brokerOffset, first.consumerOffset, first.lastTimestamp) == (3, 2, times[1])
    assert stats.total_diff() == 1


@pytest.mark.parametrize(
    "header",
    [
        GetConsumeStatsRequestHeader(consumerGroup="unknown"),
        GetConsumeStatsRequestHeader(consumerGroup="g", topic="unknown"),
    ],
)
async def test_nothing_to_tell_is_an_empty_table(parts: Parts, header: GetConsumeStatsRequestHeader) -> None:
    answer = await parts.ask(RequestCode.GET_CONSUME_STATS, header)
    assert answer.code == ResponseCode.SUCCESS
    assert ConsumeStats.decode(answer.body).offsetTable == {}


async def test_a_topic_that_the_group_left_does_not_count(parts: Parts) -> None:
    parts.topics.update(TopicConfig("U", 1, 1))
    parts.offsets.assign("g", "T", 0, 0)
    parts.offsets.assign("g", "U", 0, 0)
    parts.join(Peer(), "c", "g", "U")
    header = GetConsumeStatsRequestHeader(consumerGroup="g", topicList="T;U")
    stats = ConsumeStats.decode((await parts.ask(RequestCode.GET_CONSUME_STATS, header)).body)
    assert {queue.topic for queue in stats.offsetTable} == {"U"}


async def test_consume_stats_of_the_broker(parts: Parts) -> None:
    fill(parts, 3)
    parts.offsets.assign("g", "T", 0, 1)
    header = GetConsumeStatsInBrokerHeader(isOrder=False)
    report = ConsumeStatsList.decode((await parts.ask(RequestCode.GET_BROKER_CONSUME_STATS, header)).body)
    assert (report.totalDiff, report.brokerAddr) == (2, ADDRESS)
    assert [list(entry) for entry in report.consumeStatsList] == [["g"]]
    assert report.consumeStatsList[0]["g"][0].offsetTable[Q0].consumerOffset == 1
    header = GetConsumeStatsInBrokerHeader(isOrder=True)
    report = ConsumeStatsList.decode((await parts.ask(RequestCode.GET_BROKER_CONSUME_STATS, header)).body)
    assert report.consumeStatsList == []


def reset(timestamp: int, *, force: bool = True, **fields: int) -> ResetOffsetRequestHeader:
    return ResetOffsetRequestHeader(group="g", topic="T", timestamp=timestamp, isForce=force, **fields)


async def test_offsets_are_reset_to_a_time(parts: Parts) -> None:
    times = fill(parts, 3)
    parts.offsets.assign("g", "T", 0, 3)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(times[1]))
    assert ResetOffsetBody.decode(answer.body).offsetTable == {Q0: 1, Q1: 0}
    assert parts.offsets.query("g", "T", 0) == 1
    assert parts.persisted == 1


async def test_offsets_are_reset_to_the_end(parts: Parts) -> None:
    fill(parts, 3)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(-1))
    assert ResetOffsetBody.decode(answer.body).offsetTable == {Q0: 3, Q1: 0}


async def test_one_queue_is_reset_to_a_number(parts: Parts) -> None:
    fill(parts, 3)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(0, queueId=0, offset=2))
    assert ResetOffsetBody.decode(answer.body).offsetTable == {Q0: 2}
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(0, queueId=0, offset=4))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(0, queueId=2, offset=0))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert parts.offsets.query("g", "T", 0) == 2


async def test_without_force_nothing_is_skipped(parts: Parts) -> None:
    times = fill(parts, 3)
    parts.offsets.assign("g", "T", 0, 1)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(times[2], force=False))
    assert ResetOffsetBody.decode(answer.body).offsetTable[Q0] == 1


async def test_a_consumer_that_is_online_is_told_at_its_next_pull(parts: Parts) -> None:
    fill(parts, 3)
    parts.offsets.assign("g", "T", 0, 3)
    peer = Peer()
    parts.join(peer, "c", "g", "T")
    await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(0))
    assert peer.sent == []
    assert not parts.offsets.commit("g", "T", 0, 3, 3, None), "a late commit must not undo the reset"
    assert parts.offsets.take_reset("g", "T", 0) == 0


async def test_with_resets_by_clients_they_are_told(parts: Parts) -> None:
    fill(parts, 3)
    parts.config.update({"useServerSideResetOffset": "false"})
    java, cpp = Peer(1), Peer(2)
    parts.join(java, "java", "g", "T")
    parts.join(cpp, "cpp", "g", "T", language=LanguageCode.CPP)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(0))
    assert answer.code == ResponseCode.SUCCESS
    assert [request.code for request in java.sent] == [RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert ResetOffsetBody.decode(java.sent[0].body).offsetTable == {Q0: 0, Q1: 0}
    assert ResetOffsetBodyForC.decode(cpp.sent[0].body).offsetTable[0].queueId == 0
    assert parts.offsets.query("g", "T", 0) == -1, "the clients commit what they were told"


async def test_resets_of_what_is_not_there(parts: Parts) -> None:
    unknown_topic = ResetOffsetRequestHeader(group="g", topic="none", timestamp=0, isForce=True)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, unknown_topic)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    unknown_group = ResetOffsetRequestHeader(group="none", topic="T", timestamp=0, isForce=True)
    answer = await parts.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, unknown_group)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_time_span(parts: Parts) -> None:
    times = fill(parts, 3)
    parts.offsets.assign("g", "T", 0, 1)
    parts.clock.advance(5)
    header = QueryConsumeTimeSpanRequestHeader(topic="T", group="g")
    answer = await parts.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
    first, second = ConsumeTimeSpanBody.decode(answer.body).consumeTimeSpanSet
    assert first.messageQueue == Q0
    assert (first.minTimeStamp, first.maxTimeStamp, first.consumeTimeStamp) == (times[0], times[2], times[0])
    assert first.delayTime == parts.clock.now_ms() - times[1]
    texts = (first.minTimeStampStr, first.maxTimeStampStr, first.consumeTimeStampStr)
    for text, moment in zip(texts, (times[0], times[2], times[0]), strict=True):
        shown = datetime.strptime(f"{text}000", "%Y-%m-%d %H:%M:%S,%f").astimezone()
        assert shown.timestamp() * 1000 == pytest.approx(moment, abs=0.5)
    assert second.minTimeStampStr[-4:] == ",999", "RocketMQ shows the millisecond before 1970"
    assert (second.minTimeStamp, second.maxTimeStamp, second.delayTime) == (-1, -1, 0)


async def test_correction_offsets(parts: Parts) -> None:
    fill(parts, 5)
    for group, offset in {"a": 4, "b": 3, "slow": 1}.items():
        parts.offsets.assign(group, "T", 0, offset)
    header = QueryCorrectionOffsetHeader(topic="T", compareGroup="b", filterGroups="slow")
    body = CorrectionOffsets.decode((await parts.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)).body)
    assert body.correctionOffsets == {0: 3}
    header = QueryCorrectionOffsetHeader(topic="T", compareGroup="slow", filterGroups="slow")
    body = CorrectionOffsets.decode((await parts.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)).body)
    assert body.correctionOffsets == {0: 2**63 - 1}


async def test_clone(parts: Parts) -> None:
    parts.groups.update(SubscriptionGroupConfig("copy"))
    parts.offsets.assign("g", "T", 0, 2)
    header = CloneGroupOffsetRequestHeader(srcGroup="g", destGroup="copy", topic="T")
    assert (await parts.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code == ResponseCode.SUCCESS
    assert parts.offsets.query("copy", "T", 0) == 2
    assert parts.persisted == 1


async def test_offsets_are_cloned_to_a_group_that_is_new(parts: Parts) -> None:
    parts.offsets.assign("g", "T", 0, 2)
    header = CloneGroupOffsetRequestHeader(srcGroup="g", destGroup="new")
    assert (await parts.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code == ResponseCode.SUCCESS
    assert parts.offsets.query("new", "T", 0) == 2
    assert parts.groups.get("new") is not None, "offsets are bounded by the groups that there are"
    header = CloneGroupOffsetRequestHeader(srcGroup="g", destGroup="no name")
    answer = await parts.ask(RequestCode.CLONE_GROUP_OFFSET, header)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert parts.offsets.query("no name", "T", 0) == -1


async def test_the_whole_table(parts: Parts) -> None:
    parts.offsets.assign("g", "T", 1, 7)
    answer = await parts.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert ConsumerOffsetTable.decode(answer.body).offsetTable == {"T@g": {1: 7}}
