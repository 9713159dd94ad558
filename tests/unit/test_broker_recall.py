"""recall.py, figures.py, send.py: who may recall what, what is stored of it, and what is told of timer messages."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker.context import BrokerContext
from broker.delay import figures, index
from broker.delay.figures import TimerFigures
from broker.delay.recall import RecallHandlers
from broker.messages.timed_record import read_handle, recall_handle
from broker.replication import Done
from broker.role import Standalone
from broker.settings.config import LiveConfig, load_broker_config
from remoting.bodies.registry import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import RecallMessageRequestHeader
from remoting.msgid import pack_host
from remoting.properties import decode_properties
from remoting.server import Connection
from runtime.clock import ManualClock
from runtime.timings import Timings
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.send_parts import Setting as SendSetting
from tests.parts.timer_parts import TimerSetting

NOBODY = cast(Connection, None)
NOT_AVAILABLE = "recall failed, broker service not available"


class Recalling:
    """The handler of recalls, a producer's connection, and a log that answers at once."""

    peer_host = pack_host("192.0.2.7", 5000)

    def __init__(self, **config: str) -> None:
        values = {"brokerName": "b", "recallMessageEnable": "true", **config}
        live = LiveConfig(*load_broker_config(values)[:2])
        self.clock, self.role = ManualClock(), Standalone()
        self.answers: list[Command] = []
        self.records: list[PendingRecord] = []
        self.waiting: list[Callable[[bool], None]] = []
        self.elsewhere: list[Command] = []
        self.result, self.code = PutResult(PutStatus.PUT_OK, 0, 7), 0
        context = BrokerContext(live, cast(Any, None), self.role, self.clock, "", b"", cast(Any, None))
        self.handlers = RecallHandlers(
            context, {"T": TopicConfig("T")}, cast(Any, self), self.verdict, lambda _peer, it: self.elsewhere.append(it)
        )

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        assert wait
        assert not until, "nobody is waited for here"
        self.records.append(record)
        done(self.result, self.code)

    def verdict(self, offset: int, tell: Callable[[bool], None]) -> None:
        assert offset == 7
        self.waiting.append(tell)

    def reply(self, _request: Command, response: Command) -> None:
        self.answers.append(response)

    def ask(self, *, topic: str = "T", broker: str = "b", seconds: float = 100, handle: str | None = None) -> None:
        made = recall_handle("T", broker, int(self.clock.now_ms() + seconds * 1000), "K")
        header = RecallMessageRequestHeader(producerGroup="P", topic=topic, recallHandle=handle or made or "")
        made_request = Command.request(RequestCode.RECALL_MESSAGE, header)
        request = Command(code=RequestCode.RECALL_MESSAGE, raw_ext=dict(made_request.ext))
        self.handlers.table()[RequestCode.RECALL_MESSAGE](cast(Connection, self), request)

    def refused(self, **asked: Any) -> tuple[int, str | None]:
        with pytest.raises(CommandError) as refused:
            self.ask(**asked)
        assert refused.value.ext == {"MSG_REGION": "DefaultRegion"}
        assert self.records == []
        return refused.value.code, refused.value.remark


def test_what_is_stored_of_a_recall_and_when_it_is_answered() -> None:
    setting = Recalling()
    setting.ask()
    [record] = setting.records
    assert (record.topic, record.queue_id, record.body) == ("rmq_sys_wheel_timer", 0, b"0")
    found = decode_properties(record.properties)
    slot = setting.clock.now_ms() + 100_000
    assert found == {
        "TIMER_DEL_UNIQKEY": "K", "UNIQ_KEY": "K", "TAGS": "_RECALL_TAG_", "PGROUP": "P", "REAL_TOPIC": "T",
        "REAL_QID": "0", "TIMER_DELIVER_MS": str(slot + 1), "TIMER_OUT_MS": str(slot),
        "BORN_TIMESTAMP": str(setting.clock.now_ms()),
    }  # fmt: skip
    assert setting.answers == [], "whether it came in time is not known yet"
    setting.waiting[0](True)
    assert (setting.answers[0].code, setting.answers[0].ext["msgId"]) == (0, "K")
    setting.waiting[0](False)
    assert (setting.answers[1].code, setting.answers[1].remark) == (604, "recall failed, timestamp invalid")


def test_a_recall_meets_its_message_also_when_the_precision_was_changed_between() -> None:
    setting = Recalling(timerPrecisionMs="700")
    setting.ask()
    slot = setting.clock.now_ms() + 100_000
    assert slot % 700
    assert decode_properties(setting.records[0].properties)["TIMER_OUT_MS"] == str(slot)


def test_who_is_refused() -> None:
    assert Recalling(recallMessageEnable="false").refused() == (16, "recall failed, operation is forbidden")
    assert Recalling(timerWheelEnable="false").refused()[0] == ResponseCode.NO_PERMISSION
    follower = Recalling()
    follower.role.leads = False
    assert follower.refused() == (ResponseCode.SLAVE_NOT_AVAILABLE, NOT_AVAILABLE)
    shut = {"brokerPermission": "4", "allowRecallWhenBrokerNotWriteable": "false"}
    assert Recalling(**shut).refused() == (ResponseCode.SERVICE_NOT_AVAILABLE, NOT_AVAILABLE)
    assert Recalling(startAcceptSendRequestTimeStamp=str(2**50)).refused() == (14, NOT_AVAILABLE)
    assert Recalling().refused(broker="another") == (ResponseCode.ILLEGAL_OPERATION, NOT_AVAILABLE)
    assert Recalling().refused(topic="New")[0] == ResponseCode.TOPIC_NOT_EXIST
    for seconds in (-1, 4 * 86_400):
        assert Recalling().refused(seconds=seconds) == (604, "recall failed, timestamp invalid")
    still_open = Recalling(brokerPermission="4")
    still_open.ask()
    assert len(still_open.records) == 1


def test_a_recall_that_is_not_stored_is_answered_with_an_error_or_sent_on() -> None:
    setting = Recalling()
    setting.result, setting.code = PutResult(PutStatus.SERVICE_NOT_AVAILABLE), 14
    setting.ask()
    assert setting.answers[0].code == ResponseCode.SYSTEM_ERROR
    assert str(setting.answers[0].remark).startswith("recall failed, execute error")
    setting.code = ResponseCode.NOT_LEADER_FOR_QUEUE
    setting.ask()
    assert len(setting.elsewhere) == 1
    assert setting.waiting == []


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_the_answer_to_a_timer_message_says_by_what_it_is_recalled(enabled: str) -> None:
    setting = SendSetting(recallMessageEnable=enabled, brokerName="b")
    setting.do(properties="TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01K\x02")
    [record] = setting.log.records
    assert (record.topic, record.queue_id) == ("rmq_sys_wheel_timer", 0)
    found = decode_properties(record.properties)
    slot = int(found["TIMER_OUT_MS"])
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["TIMER_DELAY_SEC"]) == ("T", "1", "10")
    setting.log.answers[0](0)
    [answer] = setting.peer.answers
    assert (answer.ext["queueId"], answer.ext["transactionId"]) == ("1", "K")
    if enabled == "false":
        assert "recallHandle" not in answer.ext
    else:
        assert read_handle(answer.ext["recallHandle"]) == ("T", "b", slot + 1, "K")


def test_a_level_counts_for_more_than_a_time_and_a_dead_letter_has_neither() -> None:
    setting = SendSetting()
    setting.do(properties="DELAY\x013\x02TIMER_DELAY_SEC\x0110\x02TIMER_DELIVER_MS\x015\x02")
    setting.do(topic="%RETRY%G", queue_id=0, properties="TIMER_DELAY_SEC\x0110\x02", reconsume_times=5)
    assert [record.topic for record in setting.log.records] == ["SCHEDULE_TOPIC_XXXX", "%DLQ%G"]
    assert all("TIMER" not in record.properties.decode() for record in setting.log.records)


def test_what_was_a_timer_message_once_is_none_when_it_is_sent_again() -> None:
    setting = SendSetting()
    setting.do(properties="TIMER_DELAY_SEC\x0110\x02TIMER_OUT_MS\x015000\x02REAL_TOPIC\x01T\x02")
    assert setting.log.records[0].topic == "T"


METRICS = Command(code=RequestCode.GET_TIMER_METRICS)


def at_once(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
    try:
        found = work()
    except OSError as error:
        found = error
    then(found)


async def test_what_is_told_of_timer_messages(tmp_path: Path) -> None:
    setting = TimerSetting(tmp_path / "store")
    told = TimerFigures(setting.service, setting.clock, at_once)
    begun = setting.clock.now_ms()

    def check_point() -> tuple[int, ...]:
        body = bytes(told.check_point(NOBODY, Command(code=RequestCode.GET_TIMER_CHECK_POINT)).body)
        assert len(body) == 56
        return struct.unpack(">7q", body)

    assert check_point()[:4] == (begun // 1000 * 1000, 0, 0, 0)
    slot = setting.send("A", TIMER_DELAY_SEC=3)
    setting.send("B", TIMER_DELAY_SEC=60)
    setting.pass_time(10)
    assert check_point()[:4] == (slot, 0, 2, 2), "nobody delivers: it stands before the first"
    metrics = orjson.loads(bytes((await told.metrics(NOBODY, METRICS)).body))
    assert metrics["timingCount"] == {"T": {"count": 2, "timeStamp": setting.clock.now_ms()}}
    assert told.figures() == {"timerReadBehind": "7", "timerOffsetBehind": "0", "timerCongestNum": "2"}
    setting.service.start()
    setting.pass_time(1)
    assert check_point()[0] == setting.clock.now_ms() // 1000 * 1000
    shown = {figure.name: figure.values for figure in told.measures()}
    assert shown["rocketmq_timing_messages"] == [(("T",), 1)]
    assert shown["rocketmq_timer_dequeue_total"] == [((), 1)]
    assert shown["rocketmq_timer_dequeue_lag"] == shown["rocketmq_timer_dequeue_latency"] == [((), 0)]
    [(_, ahead)] = shown["rocketmq_delay_message_latency"]
    assert isinstance(ahead, Timings)
    assert (ahead.counts[:2], ahead.total) == ([2, 0], 2)
    setting.close()


async def test_metrics_count_by_topic_as_61_does_and_what_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 4)
    monkeypatch.setattr(figures, "TOPICS_SHOWN_MAX", 2)
    setting = TimerSetting(tmp_path / "store")
    held: list[Callable[[], None]] = []
    told = TimerFigures(setting.service, setting.clock, lambda work, then: held.append(lambda: at_once(work, then)))
    slot = 0
    for topic, count in (("T", 5), ("U", 3), ("V", 2), ("W", 1)):
        for number in range(count):
            slot = setting.send(f"{topic}{number}", topic, TIMER_DELAY_SEC=3)
    setting.recall("T0", slot)
    setting.pass_time(1)
    assert setting.service.index.runs

    def rows() -> dict[str, Any]:
        shown = {figure.name: figure.values for figure in told.measures()}
        assert "rmq_sys_wheel_timer" not in str(shown["rocketmq_timing_messages"])
        return {labels[0]: count for labels, count in shown["rocketmq_timing_messages"]}

    assert rows() == {}, "what stands in files is counted aside, for the next scrape"
    held.pop()()
    assert rows() == {"T": 4, "U": 3, "other": 3}
    setting.pass_time(8)
    values = {figure.name: figure.values[0][1] for figure in told.measures() if not figure.labels}
    assert values["rocketmq_timer_dequeue_lag"] == 12, "all that is due, recalls too; nobody delivers"
    assert values["rocketmq_timer_dequeue_latency"] == setting.clock.now_ms() - 1000 - slot
    assert values["rocketmq_timer_enqueue_latency"] == 0
    setting.close()


async def test_what_is_not_read_yet_has_an_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = TimerSetting(tmp_path / "store")
    told = TimerFigures(setting.service, setting.clock, at_once)
    monkeypatch.setattr(setting.feed, "step", lambda _count: False)
    setting.send("A", TIMER_DELAY_SEC=60)
    setting.pass_time(5)
    values = {figure.name: figure.values[0][1] for figure in told.measures() if not figure.labels}
    assert (values["rocketmq_timer_enqueue_lag"], values["rocketmq_timer_enqueue_latency"]) == (1, 5000)
    setting.close()
