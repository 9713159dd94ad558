"""The handlers of sends around a log that answers when the test says so."""

from collections.abc import Callable, Sequence
from typing import cast

from broker.messages.send import SendHandlers
from broker.messages.send_answers import SendAnswers
from broker.messages.send_checks import MessageChecks
from broker.replication import BatchDone, Done
from broker.settings.config import LiveConfig, load_broker_config
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.msgid import pack_host
from remoting.server import Connection
from runtime.clock import ManualClock
from store.types import PendingRecord, PutResult, PutStatus


class Log:
    """A replication that stores nothing and answers when the test says so."""

    def __init__(self) -> None:
        self.records: list[PendingRecord] = []
        self.answers: list[Callable[[int], None]] = []
        self.waits: list[bool] = []

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        assert until == 0.0, "it came through no gate"
        number = len(self.records)
        self.records.append(record)
        self.waits.append(wait)
        self.answers.append(lambda code: done(PutResult(PutStatus.PUT_OK, 0x1000, number, 10, 0, 0), code))

    def append_batch(
        self, records: Sequence[PendingRecord], done: BatchDone, *, wait: bool = True, until: float = 0.0
    ) -> None:
        assert until == 0.0
        self.records.extend(records)
        self.waits.append(wait)
        results = [PutResult(PutStatus.PUT_OK, 16 * n, n, 16, 0, 0) for n in range(len(records))]
        self.answers.append(lambda code: done(results, code))


class Topics:
    def __init__(self) -> None:
        self.creator: object | None = None
        self.table = {"T": TopicConfig("T", 4, 4), "Pattern": TopicConfig("Pattern", 8, 8, 7)}

    def get(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def create_for_send(
        self,
        topic: str,
        default_topic: str,
        default_queue_nums: int,
        topic_sys_flag: int = 0,
        creator: object | None = None,
    ) -> TopicConfig | None:
        self.creator = creator
        pattern = self.table.get(default_topic)
        if pattern is None:
            return None
        return self.table.setdefault(
            topic, TopicConfig(topic, default_queue_nums, default_queue_nums, 6, topicSysFlag=topic_sys_flag)
        )

    def create_for_retry(self, topic: str, queue_nums: int) -> TopicConfig:
        return self.table.setdefault(topic, TopicConfig(topic, queue_nums, queue_nums, 6))


class Peer:
    """The connection of a producer: decodes what it is sent."""

    peer_host = pack_host("192.0.2.7", 5000)
    closed = False
    unserved = 1234

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def write(self, *pieces: bytes) -> None:
        self.answers.append(decode(b"".join(pieces)[4:]))

    def reply(self, request: Command, response: Command) -> None:
        if not request.is_oneway:
            response.opaque = request.opaque
            self.answers.append(response)


class Setting:
    def __init__(self, **values: str) -> None:
        config, store_config, _ = load_broker_config(values)
        self.live = LiveConfig(config, store_config)
        self.log, self.topics, self.peer, self.clock = Log(), Topics(), Peer(), ManualClock()
        self.groups = {"G": SubscriptionGroupConfig(groupName="G", retryMaxTimes=2)}
        self.failures = 0
        self.elsewhere: list[Command] = []
        checks = MessageChecks(
            self.live, self.topics, lambda name, _: self.groups.get(name), self.clock, lambda below: below - 1
        )
        host = pack_host("192.0.2.1", 10911)
        self.answers = SendAnswers(host, self._failed, lambda _peer, send: self.elsewhere.append(send))
        self.send = SendHandlers(
            self.live,
            checks,
            self.log,
            self.answers,
            lambda: "NEW",
        )

    def _failed(self) -> None:
        self.failures += 1

    def do(
        self,
        *,
        topic: str = "T",
        properties: str | None = "TAGS\x01A\x02",
        queue_id: int = 1,
        body: bytes = b"body",
        by: int = RequestCode.SEND_MESSAGE_V2,
        sys_flag: int = 0,
        reconsume_times: int | None = None,
        max_reconsume_times: int | None = None,
        default_topic: str = "Pattern",
        kind: int = 0,
        oneway: bool = False,
        waited: float = 0.0,
    ) -> Command:
        header = SendMessageRequestHeaderV2(
            producerGroup="P",
            topic=topic,
            defaultTopic=default_topic,
            defaultTopicQueueNums=4,
            queueId=queue_id,
            sysFlag=sys_flag,
            bornTimestamp=99,
            flag=7,
            properties=properties,
            reconsumeTimes=reconsume_times,
            maxReconsumeTimes=max_reconsume_times,
        )
        request = Command.request(by, header, body, oneway=oneway)
        request.opaque, request.serialize_type, request.waited = 42, kind, waited
        self.send.table()[by](cast("Connection", self.peer), request)
        return request
