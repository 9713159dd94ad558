"""send.py and send_checks.py: what is stored of a send, what is answered, and what is refused with which code."""

from typing import cast

import pytest

from remoting.bodies.registry import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ROCKETMQ, Command
from remoting.errors import CommandError
from remoting.properties import decode_properties
from remoting.record import encode_batch
from remoting.server import Connection
from runtime.clock import ManualClock
from store.types import PutResult, PutStatus
from tests.parts.send_parts import Peer, Setting


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_a_send_whose_turn_comes_too_late_is_refused_as_by_a_full_queue(code: int) -> None:
    body = encode_batch([(0, b"one", b"")]) if code == RequestCode.SEND_BATCH_MESSAGE else b"body"
    setting = Setting(waitTimeMillsInSendQueue="200")
    setting.do(by=code, body=body, waited=0.2)
    with pytest.raises(CommandError) as refused:
        setting.do(by=code, body=body, waited=0.201)
    assert len(setting.log.records) == 1
    words = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 201ms, size of queue: "
    assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_BUSY, f"{words}1234 bytes")
    assert refused.value.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    Setting().do(by=code, body=body, waited=2.5)
    patient = Setting(waitTimeMillsInSendQueue="200", brokerFastFailureEnable="false")
    patient.do(by=code, body=body, waited=30.0)
    assert len(patient.log.records) == 1


def test_what_is_stored() -> None:
    setting = Setting()
    setting.do(properties="KEYS\x01k\x02UNIQ_KEY\x01U1\x02TAGS\x01A\x02", reconsume_times=3)
    [record] = setting.log.records
    assert (record.topic, record.queue_id, record.flag, record.born_timestamp) == ("T", 1, 7, 99)
    assert (record.body, record.born_host, record.reconsume_times) == (b"body", Peer.peer_host, 3)
    assert decode_properties(record.properties) == {
        "KEYS": "k",
        "UNIQ_KEY": "U1",
        "TAGS": "A",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert setting.log.waits == [True]


@pytest.mark.parametrize("kind", [0, ROCKETMQ])
def test_nothing_is_answered_before_it_is_safe(kind: int) -> None:
    setting = Setting()
    setting.do(properties="UNIQ_KEY\x01U1\x02", kind=kind)
    assert setting.peer.answers == []
    setting.log.answers[0](0)
    [answer] = setting.peer.answers
    assert (answer.code, answer.opaque) == (0, 42)
    assert answer.is_response
    assert answer.ext == {
        "queueId": "1",
        "transactionId": "U1",
        "msgId": "C000020100002A9F0000000000001000",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "queueOffset": "0",
    }


def test_a_message_that_is_stored_but_not_yet_on_disk_has_its_ids() -> None:
    setting = Setting()
    setting.do()
    setting.log.answers[0](ResponseCode.FLUSH_DISK_TIMEOUT)
    assert setting.peer.answers[0].code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert setting.peer.answers[0].ext["queueOffset"] == "0"


@pytest.mark.parametrize("key", ['a"b', "ü", "a b"])
def test_a_strange_unique_key_breaks_no_answer(key: str) -> None:
    setting = Setting(regionId='r"%d')
    setting.do(properties=f"UNIQ_KEY\x01{key}\x02")
    setting.log.answers[0](0)
    assert setting.peer.answers[0].ext["transactionId"] == key
    setting.do(properties="UNIQ_KEY\x01U1\x02")
    setting.log.answers[1](0)
    assert setting.peer.answers[1].ext["MSG_REGION"] == 'r"%d'


def test_a_one_way_send_is_never_answered() -> None:
    setting = Setting()
    setting.do(oneway=True)
    setting.log.answers[0](0)
    assert setting.peer.answers == []


@pytest.mark.parametrize("properties", [None, "", "TAGS\x01A", "TAGS\x01A\x02"])
def test_a_message_without_unique_key_gets_one(properties: str | None) -> None:
    setting = Setting()
    setting.do(properties=properties)
    stored = decode_properties(setting.log.records[0].properties)
    assert stored["UNIQ_KEY"] == "NEW"
    assert stored.get("TAGS") == ("A" if properties else None)


def test_properties_that_the_broker_writes_are_not_believed() -> None:
    setting = Setting(traceOn="false", regionId="R")
    setting.do(
        properties="MSG_REGION\x01x\x02TRACE_ON\x01x\x02CLUSTER\x01x\x02POP_CK\x01x\x02__RMQ.TRANSIENT.a\x01x\x02"
    )
    stored = decode_properties(setting.log.records[0].properties)
    assert stored == {"UNIQ_KEY": "NEW", "MSG_REGION": "R", "TRACE_ON": "false", "CLUSTER": "DefaultCluster"}


def test_a_producer_may_choose_not_to_wait_for_the_disk() -> None:
    setting = Setting()
    setting.do(properties="WAIT\x01false\x02")
    assert setting.log.waits == [False]
    assert decode_properties(setting.log.records[0].properties)["WAIT"] == "false"


def test_flags_of_the_store_are_not_a_producers_to_set() -> None:
    setting = Setting()
    setting.do(sys_flag=0x1 | 0x10 | 0x20 | 0x80 | 0x100)
    assert setting.log.records[0].sys_flag == 0x101


def refused(setting: Setting, code: int, match: str = ".", **request: object) -> None:
    with pytest.raises(CommandError, match=match) as error:
        setting.do(**request)  # type: ignore[arg-type] # keyword by keyword they fit, together mypy cannot tell
    assert error.value.code == code
    assert error.value.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}, "as RocketMQ's refusals have"
    assert setting.log.records == []


def test_refusals() -> None:
    setting = Setting(maxMessageSize="100")
    refused(setting, ResponseCode.INVALID_PARAMETER, topic="")
    refused(setting, ResponseCode.INVALID_PARAMETER, topic="a b")
    refused(setting, ResponseCode.INVALID_PARAMETER, topic="a" * 128)
    refused(setting, ResponseCode.NO_PERMISSION, "forbidden", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    refused(setting, ResponseCode.TOPIC_NOT_EXIST, "New", topic="New", default_topic="TBW102")
    refused(setting, ResponseCode.INVALID_PARAMETER, "queueId", queue_id=4)
    refused(setting, ResponseCode.MESSAGE_ILLEGAL, "101 bytes", body=b"x" * 101)
    refused(setting, ResponseCode.MESSAGE_ILLEGAL, "properties", properties=f"a\x01{'x' * 32_800}\x02")
    refused(setting, ResponseCode.MESSAGE_ILLEGAL, "delay", properties="DELAY\x01soon\x02")
    refused(setting, ResponseCode.MESSAGE_ILLEGAL, "timer", properties="TIMER_DELIVER_MS\x01soon\x02")
    refused(setting, ResponseCode.NO_PERMISSION, "forbidden", topic="rmq_sys_wheel_timer")
    refused(setting, ResponseCode.NO_PERMISSION, "TRAN_MSG", sys_flag=4)


def test_properties_that_only_look_special() -> None:
    setting = Setting()
    setting.do(properties="DELAY\x010\x02TRAN_MSG\x01false\x02MY_DELAY\x013\x02")
    assert decode_properties(setting.log.records[0].properties)["MY_DELAY"] == "3"


@pytest.mark.parametrize(("asked", "level"), [("1", 1), ("3", 3), ("18", 18), ("19", 18), ("4000000000", 18)])
def test_a_delayed_message_waits_in_the_queue_of_its_level(asked: str, level: int) -> None:
    setting = Setting()
    setting.do(properties=f"REAL_TOPIC\x01Other\x02DELAY\x01{asked}\x02TAGS\x01A\x02")
    [record] = setting.log.records
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    found = decode_properties(record.properties)
    assert (found["DELAY"], found["REAL_TOPIC"], found["REAL_QID"]) == (str(level), "T", "1")
    assert found["TAGS"] == "A"
    setting.log.answers[0](0)
    assert setting.peer.answers[0].ext["queueId"] == "1"


def test_a_negative_delay_is_none() -> None:
    setting = Setting()
    setting.do(properties="DELAY\x01-1\x02")
    assert setting.log.records[0].topic == "T"


def test_without_levels_nothing_can_be_delayed() -> None:
    refused(Setting(messageDelayLevel=""), ResponseCode.MESSAGE_ILLEGAL, "levels", properties="DELAY\x011\x02")


def test_an_unknown_topic_is_made_after_the_pattern() -> None:
    setting = Setting()
    setting.do(topic="New", queue_id=-1)
    assert setting.log.records[0].queue_id == 3
    assert setting.topics.table["New"].writeQueueNums == 4


def test_a_topic_without_queues_takes_nothing() -> None:
    setting = Setting()
    setting.topics.table["T"] = TopicConfig("T", 0, 0)
    refused(setting, ResponseCode.INVALID_PARAMETER, "queueId", queue_id=-1)


def test_a_topic_that_changed_is_checked_again() -> None:
    setting = Setting()
    setting.do(queue_id=3)
    setting.topics.table["T"] = TopicConfig("T", 1, 1)
    with pytest.raises(CommandError):
        setting.do(queue_id=3)
    del setting.topics.table["T"]
    with pytest.raises(CommandError):
        setting.do(default_topic="gone")


def test_an_ordered_topic_on_a_broker_that_takes_no_writes() -> None:
    setting = Setting(brokerPermission="4")
    setting.topics.table["T"] = TopicConfig("T", 1, 1, order=True)
    refused(setting, ResponseCode.NO_PERMISSION, "forbidden", queue_id=0)
    setting.live.update({"brokerPermission": "6"})
    setting.do(queue_id=0)


def test_before_the_hour_of_service() -> None:
    clock_ms = ManualClock().now_ms()
    setting = Setting(startAcceptSendRequestTimeStamp=str(clock_ms + 1000))
    refused(setting, ResponseCode.SYSTEM_ERROR, "until")
    setting.clock.advance(2)
    setting.do()


def test_a_message_tried_too_often_becomes_a_dead_letter() -> None:
    setting = Setting()
    setting.do(topic="%RETRY%G", reconsume_times=2, queue_id=0)
    setting.do(topic="%RETRY%G", reconsume_times=3, queue_id=0, properties="DELAY\x013\x02")
    setting.do(topic="%RETRY%G", reconsume_times=3, max_reconsume_times=5, queue_id=0)
    assert [record.topic for record in setting.log.records] == ["%RETRY%G", "%DLQ%G", "%RETRY%G"]
    assert "DELAY" not in decode_properties(setting.log.records[1].properties)


def test_the_retry_topic_of_an_unknown_group() -> None:
    refused(Setting(), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, topic="%RETRY%Nobody", queue_id=0)


def test_a_batch() -> None:
    setting = Setting()
    body = encode_batch([(0, b"one", b"TAGS\x01A"), (5, b"two", b"POP_CK\x01x\x02KEYS\x01k\x02")])
    setting.do(by=RequestCode.SEND_BATCH_MESSAGE, properties="UNIQ_KEY\x01A,B\x02WAIT\x01false\x02", body=body)
    assert [(bytes(record.body), record.flag) for record in setting.log.records] == [(b"one", 0), (b"two", 5)]
    assert [record.properties for record in setting.log.records] == [b"TAGS\x01A\x02", b"KEYS\x01k\x02"]
    assert setting.log.waits == [False]
    setting.log.answers[0](0)
    answer = setting.peer.answers[0]
    assert answer.ext["transactionId"] == "A,B"
    assert answer.ext["msgId"] == "C000020100002A9F0000000000000000,C000020100002A9F0000000000000010"


@pytest.mark.parametrize("body", [b"", b"rubbish", encode_batch([(0, b"one", b"")])[:-1]])
def test_a_malformed_batch(body: bytes) -> None:
    refused(Setting(), ResponseCode.MESSAGE_ILLEGAL, "batch", by=RequestCode.SEND_BATCH_MESSAGE, body=body)


def test_a_batch_may_not_smuggle_what_a_message_may_not() -> None:
    body = encode_batch([(0, b"one", b""), (0, b"two", b"DELAY\x013\x02")])
    refused(Setting(), ResponseCode.MESSAGE_ILLEGAL, "delay", by=RequestCode.SEND_BATCH_MESSAGE, body=body)
    refused(Setting(), ResponseCode.MESSAGE_ILLEGAL, topic="%RETRY%G", by=RequestCode.SEND_BATCH_MESSAGE, body=body)


def test_a_refusal_of_the_store_says_why() -> None:
    setting = Setting()
    setting.do()
    setting.answers.stored(
        cast("Connection", setting.peer),
        Command.request(RequestCode.SEND_MESSAGE_V2),
        0,
        "U",
        PutResult(PutStatus.SERVICE_NOT_AVAILABLE),
        ResponseCode.SERVICE_NOT_AVAILABLE,
    )
    [answer] = setting.peer.answers
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark is not None
    assert "disk is full" in answer.remark
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert setting.failures == 1


@pytest.mark.parametrize("by", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
@pytest.mark.parametrize("oneway", [False, True])
def test_R8_what_is_in_no_log_goes_elsewhere_as_it_came(by: int, oneway: bool) -> None:
    setting = Setting()
    body = encode_batch([(0, b"1", b""), (0, b"2", b"")]) if by == RequestCode.SEND_BATCH_MESSAGE else b"body"
    request = setting.do(by=by, body=body, oneway=oneway)
    setting.log.answers[0](ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert setting.elsewhere == [request]
    assert (setting.peer.answers, setting.failures) == ([], 0)


def test_a_prepared_message_goes_the_way_of_halves() -> None:
    setting = Setting()
    setting.do(properties="TRAN_MSG\x01true\x02UNIQ_KEY\x01U\x02DELAY\x0130\x02", sys_flag=5)
    [record] = setting.log.records
    assert (record.topic, record.sys_flag) == ("T", 1)
    found = decode_properties(record.properties)
    # Its producer group is known in any case, and a delay waits until the commit.
    assert (found["PGROUP"], found["DELAY"], found["TRAN_MSG"]) == ("P", "18", "true")


def test_what_was_a_transaction_once_is_tried_again_like_any_other() -> None:
    """Consumers before 4.6.1 send it back with all the properties that it had."""
    setting = Setting()
    setting.do(
        properties="TRAN_MSG\x01true\x02DELAY\x013\x02", sys_flag=4, reconsume_times=1, topic="%RETRY%G", queue_id=0
    )
    [record] = setting.log.records
    assert (record.topic, record.queue_id, record.sys_flag) == ("SCHEDULE_TOPIC_XXXX", 2, 0)


def test_a_prepared_message_in_a_batch_is_refused() -> None:
    setting = Setting()
    body = encode_batch([(0, b"x", b"TRAN_MSG\x01true\x02")])
    refused(setting, ResponseCode.NO_PERMISSION, "TRAN_MSG", body=body, by=RequestCode.SEND_BATCH_MESSAGE)


def test_a_broker_that_wants_no_transactions_says_so() -> None:
    setting = Setting(rejectTransactionMessage="true")
    refused(setting, ResponseCode.NO_PERMISSION, "forbidden", properties="TRAN_MSG\x01true\x02")
