"""Bodies: what is written, and how leniently they are read."""

import tracemalloc
import zlib

import pytest

from remoting.bodies.registry import (
    BrokerData,
    ConsumerOffsetTable,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStats,
    ConsumeStatsList,
    DataVersion,
    HeartbeatData,
    KVTable,
    LockBatchBody,
    MessageQueue,
    OffsetWrapper,
    QueueData,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from remoting.errors import HeaderError

QUEUE = MessageQueue("t", "b", 3)


def registration() -> RegisterBrokerBody:
    topics = {
        "plain": TopicConfig("plain", 4, 8, 6),
        "attributes": TopicConfig("attributes", attributes={"message.type": "DELAY", "with space": "a b"}),
        "multi": TopicConfig("multi", 1, 1, 4, "MULTI_TAG"),
    }
    wrapper = TopicConfigTable(
        DataVersion(3, 2, 1),
        topicConfigTable=topics,
        topicQueueMappingInfoMap={"plain": {"topic": "plain", "totalQueues": 2, "currIdMap": {"0": 0}}},
    )
    return RegisterBrokerBody(["10.0.0.1:1"], wrapper)


def test_integer_keys_are_written_quoted_and_read_either_way() -> None:
    group = BrokerData({0: "a:1", 2: "b:1"}, "b", "c")
    assert group.encode() == (
        b'{"brokerAddrs":{"0":"a:1","2":"b:1"},"brokerName":"b","cluster":"c","enableActingMaster":false}'
    )
    assert BrokerData.decode(group.encode()) == group
    assert BrokerData.decode(b'{"brokerAddrs":{0:"a:1",2:"b:1"},"brokerName":"b","cluster":"c"}\n') == group


def test_absent_optional_fields_are_left_out_and_null_means_absent() -> None:
    assert b"orderTopicConf" not in TopicRouteData().encode()
    assert TopicRouteData(orderTopicConf="b:4").encode().count(b"orderTopicConf") == 1
    route = TopicRouteData.decode(b'{"orderTopicConf":null,"queueDatas":null,"brokerDatas":[{"cluster":null}]}')
    assert route == TopicRouteData(brokerDatas=[BrokerData()])


def test_text_that_looks_like_null_is_kept() -> None:
    assert KVTable.decode(KVTable({"k": '":null'}).encode()).table == {"k": '":null'}


def test_numbers_and_booleans_may_come_as_strings_and_unknown_fields_are_ignored() -> None:
    config = TopicConfig.decode(b'{"topicName":"t","readQueueNums":"4","order":"true","perm":"6","new":{"x":1}}')
    assert config == TopicConfig("t", 4, 16, 6, order=True)
    assert SubscriptionData.decode(b'{"topic":"t","subVersion":"1795218486350"}').subVersion == 1795218486350


def test_topic_filter_type_may_be_an_ordinal_and_attributes_other_than_strings() -> None:
    config = TopicConfig.decode(b'{"topicName":"t","topicFilterType":1,"attributes":{"a":5,"b":true}}')
    assert config == TopicConfig("t", topicFilterType="MULTI_TAG", attributes={"a": "5", "b": "true"})


def test_a_heartbeat_with_ordinals_and_missing_sets() -> None:
    heartbeat = HeartbeatData.decode(
        b'{"clientID":"1-a@D","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":"5","topic":"t"}]}]}\n'
    )
    (consumer,) = heartbeat.consumerDataSet
    assert consumer.consumeFromWhere == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.consumeType == "CONSUME_ACTIVELY"
    assert consumer.messageModel == "BROADCASTING"
    assert consumer.subscriptionDataSet == [SubscriptionData(subString="*", subVersion=5, topic="t")]
    assert heartbeat.producerDataSet == []


@pytest.mark.parametrize("value", ["99", "-1", "[]", "true"])
def test_an_impossible_ordinal_is_refused(value: str) -> None:
    with pytest.raises(HeaderError):
        HeartbeatData.decode(f'{{"consumerDataSet":[{{"consumeType":{value}}}]}}'.encode())


def test_maps_keyed_by_queues_go_both_ways() -> None:
    stats = TopicStatsTable({QUEUE: TopicOffset(1, 20, 10)}, 0.5)
    assert stats.encode().startswith(b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:{')
    assert TopicStatsTable.decode(stats.encode()) == stats
    lag = ConsumeStats(1.0, {QUEUE: OffsetWrapper(10, 4), MessageQueue("t", "b", 4): OffsetWrapper(5, 9)})
    assert ConsumeStats.decode(lag.encode()) == lag
    assert lag.total_diff() == 6
    reset = ResetOffsetBody({QUEUE: 7})
    assert ResetOffsetBody.decode(reset.encode()) == reset
    status = ConsumerStatusBody({"client": {QUEUE: 5}}, {QUEUE: 6})
    assert ConsumerStatusBody.decode(status.encode()) == status
    running = ConsumerRunningInfo(properties={"a": "b"}, mqTable={QUEUE: {"commitOffset": 5, "locked": True}})
    assert ConsumerRunningInfo.decode(running.encode()) == running
    listed = ConsumeStatsList("b:1", [{"g": [lag]}], 6)
    assert ConsumeStatsList.decode(listed.encode()) == listed


def test_queue_keys_may_be_strings_that_hold_the_object() -> None:
    text = b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"t\\"}":7}}'
    assert ResetOffsetBody.decode(text) == ResetOffsetBody({QUEUE: 7})


def test_offsets_with_bare_queue_numbers() -> None:
    table = ConsumerOffsetTable.decode(b'{"offsetTable":{"t@g":{0:2,1:0}},"dataVersion":{"counter":1}}')
    assert table.offsetTable == {"t@g": {0: 2, 1: 0}}
    assert table.dataVersion == DataVersion(1)
    assert ConsumerOffsetTable.decode(table.encode()) == table


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (TopicList, b""),
        (TopicList, b"[]"),
        (TopicList, b"not json"),
        (TopicList, b'{"topicList":"t"}'),
        (TopicList, b'{"topicList":[null]}'),
        (TopicConfig, b'{"readQueueNums":"four"}'),
        (DataVersion, b'{"counter":{}}'),
        (TopicStatsTable, b'{"offsetTable":{"no key":{}}}'),
        (TopicStatsTable, b'{"offsetTable":[]}'),
        (ResetOffsetBody, b'{"offsetTable":{{"topic":"t"}:1}}'),
        (ConsumeStatsList, b'{"consumeStatsList":[{"g":[{"offsetTable":{"x":{}}}]}]}'),
        (ConsumeStatsList, b'{"consumeStatsList":7}'),
        (LockBatchBody, b'{"mqSet":[{"topic":"t"}]}'),
        (RegisterBrokerBody, b'{"topicConfigSerializeWrapper":' + b"[" * 900 + b"]" * 900 + b"}"),
    ],
)
def test_a_body_of_another_kind_is_a_header_error(kind: type[TopicList], data: bytes) -> None:
    with pytest.raises(HeaderError):
        kind.decode(data)


def test_message_queues_sort_by_topic_broker_number() -> None:
    queues = [
        MessageQueue("b", "a", 0),
        MessageQueue("a", "b", 0),
        MessageQueue("a", "a", 10),
        MessageQueue("a", "a", 2),
    ]
    assert sorted(queues) == [queues[3], queues[2], queues[1], queues[0]]
    assert len({QUEUE, MessageQueue("t", "b", 3)}) == 1


def test_queue_data_is_a_value() -> None:
    assert {QueueData("b", 6, 4, 0, 4), QueueData("b", 6, 4, 0, 4)} == {QueueData("b", 6, 4, 0, 4)}


def test_defaults_are_rocketmqs() -> None:
    assert SubscriptionGroupConfig.decode(b'{"groupName":"g"}') == SubscriptionGroupConfig("g")
    config = SubscriptionGroupConfig("g")
    assert (config.retryQueueNums, config.retryMaxTimes, config.whichBrokerWhenConsumeSlowly) == (1, 16, 1)
    assert config.consumeEnable
    assert config.groupRetryPolicy.encode() == b'{"type":"CUSTOMIZED"}'


def test_bodies_do_not_share_their_defaults() -> None:
    first, second = TopicList(), TopicList()
    first.topicList.append("t")
    assert second.topicList == []


def test_a_registration_goes_both_ways_plain() -> None:
    body = registration()
    assert RegisterBrokerBody.decode(body.encode()) == body


def test_a_registration_goes_both_ways_compressed_but_for_order_and_sys_flag() -> None:
    body = registration()
    compressed = body.encode_compressed()
    assert RegisterBrokerBody.decode_compressed(compressed) == body
    assert RegisterBrokerBody.decode_compressed(memoryview(compressed)) == body


def test_a_compressed_registration_of_before_5_0_ends_without_mappings() -> None:
    body = registration()
    body.topicConfigSerializeWrapper.topicQueueMappingInfoMap = {}
    plain = zlib.decompress(body.encode_compressed())
    assert plain.endswith(b"\0\0\0\0")
    assert RegisterBrokerBody.decode_compressed(zlib.compress(plain[:-4])) == body


@pytest.mark.parametrize("cut", [1, 5, 30, -1, -20])
def test_a_cut_compressed_registration_is_a_header_error(cut: int) -> None:
    compressed = registration().encode_compressed()
    with pytest.raises(HeaderError):
        RegisterBrokerBody.decode_compressed(compressed[:cut])
    with pytest.raises(HeaderError):
        RegisterBrokerBody.decode_compressed(zlib.compress(zlib.decompress(compressed)[:cut]))


@pytest.mark.parametrize(
    "topic", [b"", b"a", b"a 1 2 3", b"a x 2 3 SINGLE_TAG", b"\xff 1 2 3 SINGLE_TAG", b"a 1 2 3 SINGLE_TAG [1]"]
)
def test_a_bad_topic_line_is_a_header_error(topic: bytes) -> None:
    def sized(part: bytes) -> bytes:
        return len(part).to_bytes(4, "big") + part

    parts = sized(b"{}") + (1).to_bytes(4, "big") + sized(topic) + sized(b"[]")
    with pytest.raises(HeaderError):
        RegisterBrokerBody.decode_compressed(zlib.compress(parts))


def test_a_compressed_registration_may_not_unfold_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zlib.compress(bytes(2_000_000))
    with pytest.raises(HeaderError, match=f"registration of {len(bomb)} bytes unfolds to more than 1048576"):
        RegisterBrokerBody.decode_compressed(bomb)
    monkeypatch.setattr("remoting.bodies.route.INFLATED_BYTES_MAX", 1000)
    with pytest.raises(HeaderError, match="more than 1000"):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(1_000_000)))


def test_a_hundred_thousand_topics_are_within_the_bounds() -> None:
    topics = {f"topic-{n:06}": TopicConfig(f"topic-{n:06}") for n in range(100_000)}
    body = RegisterBrokerBody(topicConfigSerializeWrapper=TopicConfigTable(topicConfigTable=topics))
    compressed = body.encode_compressed()
    assert len(compressed) < 16 * 1024 * 1024
    back = RegisterBrokerBody.decode_compressed(compressed)
    assert back.topicConfigSerializeWrapper.topicConfigTable == topics


def mapped(*mappings: bytes) -> bytes:
    def sized(part: bytes) -> bytes:
        return len(part).to_bytes(4, "big") + part

    head = sized(b"{}") + (0).to_bytes(4, "big") + sized(b"[]")
    return zlib.compress(head + len(mappings).to_bytes(4, "big") + b"".join(sized(each) for each in mappings))


def test_queue_mappings_may_be_in_the_dialect_but_not_without_bound() -> None:
    one = b'{"topic":"t%d","currIdMap":{0:0,1:1}}'
    body = RegisterBrokerBody.decode_compressed(mapped(one % 1, one % 2))
    found = body.topicConfigSerializeWrapper.topicQueueMappingInfoMap
    assert found is not None
    assert found["t2"] == {"topic": "t2", "currIdMap": {"0": 0, "1": 1}}
    with pytest.raises(HeaderError, match="not JSON"):
        RegisterBrokerBody.decode_compressed(mapped(*(one % n for n in range(10_000))))


def test_the_next_data_version() -> None:
    assert DataVersion(4, 2, 10).next(99) == DataVersion(5, 2, 99)
    assert DataVersion(4, 2, 10).next(99, state_version=3) == DataVersion(5, 3, 99)


@pytest.mark.parametrize("data", [b'{"clientID":"\xff"}', b'{"a":' * 900 + b"\xff"])
def test_what_is_no_utf8_is_a_header_error(data: bytes) -> None:
    with pytest.raises(HeaderError):
        HeartbeatData.decode(data)


@pytest.mark.parametrize("item", [b"{}", b"[]", b'{"":0}', b"[[]]"])
def test_a_body_that_is_nearly_all_objects_is_refused_before_they_are_made(item: bytes) -> None:
    """Fifteen MiB of `{},` as a heartbeat were 880 MB; each object beyond one for 24 bytes is refused."""
    body = b'{"consumerDataSet":[' + b",".join([item] * (2 * 1024 * 1024 // (len(item) + 1))) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(HeaderError, match="too many"):
            HeartbeatData.decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(body)


def test_bodies_of_many_small_parts_are_read_as_ever() -> None:
    queues = [MessageQueue("t", "b", number) for number in range(20_000)]
    assert LockBatchBody.decode(LockBatchBody(mqSet=queues).encode()).mqSet == queues
    assert len(TopicConfigTable.decode(b'{"topicConfigTable":{%b}}' % b",".join(
        b'"t%d":{"attributes":{}}' % number for number in range(1500))).topicConfigTable) == 1500  # fmt: skip
    offsets = {f"t{number}@g": {0: number} for number in range(50_000)}
    assert ConsumerOffsetTable.decode(ConsumerOffsetTable(offsetTable=offsets).encode()).offsetTable == offsets


def test_a_registration_whose_parts_are_all_objects_is_refused() -> None:
    """24 KB of it took a NameServer to 3 GiB: 64 MiB of `{},` in the list of filter servers."""
    part = b"[" + b"{}," * 300_000 + b"0]"
    plain = (2).to_bytes(4, "big") + b"{}" + bytes(4) + len(part).to_bytes(4, "big") + part
    with pytest.raises(HeaderError, match="too many"):
        RegisterBrokerBody.decode_compressed(zlib.compress(plain))
