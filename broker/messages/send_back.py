"""Code 36: a consumer could not use a message and wants it again later.

The broker stores it anew, as a delayed message of the group's retry topic, or, when it was tried often enough, in the
group's dead-letter topic. A dead letter of a group that pops goes to the retry topic that pops read. The consumer does
not send its copy: the record is read where it stands.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from broker.context import BrokerContext, Tables
from broker.messages.delayed_record import OF_DELAY, pending, waiting, without
from broker.messages.held import HeldRequests
from broker.messages.send_answers import Elsewhere
from broker.messages.send_checks import DLQ_QUEUES, UNIT_TOPIC, remark_of
from broker.replication import Replication
from remoting import topics as names
from remoting.bodies.registry import TopicConfig
from remoting.codes import Perm, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import ConsumerSendMsgBackRequestHeader
from remoting.msgid import offset_msg_id
from remoting.properties import (
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
    find_property,
)
from remoting.record import RecordError
from remoting.server import Connection, Handler
from store.errors import RecordDamaged
from store.log.dispatch import is_hidden, parse_delay_levels
from store.types import PendingRecord, PutResult, PutStatus

# The level of the first retry when the consumer leaves it to the broker; each further one takes the next.
FIRST_RETRY_LEVEL = 3

_ORIGIN_ID = f"{PROPERTY_ORIGIN_MESSAGE_ID}\x01".encode()
_RETRY_TOPIC = f"{PROPERTY_RETRY_TOPIC}\x01".encode()
_DLQ_ORIGIN = f"{PROPERTY_DLQ_ORIGIN_TOPIC}\x01".encode()
_FIRST_POP = f"{PROPERTY_FIRST_POP_TIME}\x01".encode()
# Properties that are written anew.
_WRITTEN = OF_DELAY | {
    name.encode()
    for name in (
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_RETRY_TOPIC,
        PROPERTY_WAIT,
        PROPERTY_RECONSUME_TIME,
        PROPERTY_DLQ_ORIGIN_TOPIC,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    )
}


class SendBackHandlers:
    """The handler of CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        replication: Replication,
        random_below: Callable[[int], int],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`random_below(n)` returns a number in 0..n-1; `elsewhere` as of SendHandlers."""
        self._live, self._store, self._store_host = context.live, context.store, context.store_host
        self._topics, self._stats, self._clients = tables.topics, tables.stats, tables.clients
        self._find_group = tables.groups.find
        self._append = replication.append
        self._random_below = random_below
        self._elsewhere = elsewhere
        self._held = HeldRequests()
        self._levels = len(parse_delay_levels(context.live.store.messageDelayLevel))

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, connection: Connection, request: Command) -> Command | None:
        """36: store a message to be tried again, or as a dead letter; answers when it is safe."""
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group = self._find_group(header.group, connection)
        if group is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}: create it first",
            )
        if not self._live.broker.brokerPermission & Perm.WRITE:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._live.broker.advertised_ip()}] sending message is forbidden",
            )
        if group.retryQueueNums <= 0:
            # The group wants no retries.
            return Command.response(ResponseCode.SUCCESS)
        # The retry topic comes into being even for a dead letter: consumers of the group subscribe to it anyway.
        retry = self._topic(names.retry_topic(header.group), group.retryQueueNums, header)
        stored = self._read(header.offset)
        self._check_permitted(stored, header)
        popped = _popped_of(stored, header.group)
        record, origin = self._again(stored, header, popped)
        most = header.maxReconsumeTimes
        if most is None or most < 0:
            most = group.retryMaxTimes
        if header.delayLevel < 0 or stored.reconsume_times >= most or not self._levels:
            letters = self._topic(names.dlq_topic(header.group), DLQ_QUEUES, header)
            record = self._dead(record, stored, origin, letters)
        else:
            if popped:
                name = names.pop_retry_topic(popped, header.group, v2=self._live.broker.enableRetryTopicV2)
                retry = self._topic(name, DLQ_QUEUES, header)
            record.topic, record.queue_id = retry.topicName, self._queue(retry)
            level = header.delayLevel or FIRST_RETRY_LEVEL + stored.reconsume_times
            record = waiting(record, min(level, self._levels))
        done = self._held.hold(
            len(request.body) + request.header_bytes,
            partial(self._stored, connection, request, header.group, header.originTopic or stored.topic),
        )
        self._append(record, done, until=request.until)
        return None

    def _topic(self, name: str, queues: int, header: ConsumerSendMsgBackRequestHeader) -> TopicConfig:
        config = self._topics.create_for_retry(name, queues, topic_sys_flag=UNIT_TOPIC if header.unitMode else 0)
        if not config.perm & Perm.WRITE:
            raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return config

    def _queue(self, topic: TopicConfig) -> int:
        return self._random_below(topic.writeQueueNums) if topic.writeQueueNums > 1 else 0

    def _read(self, offset: int) -> PendingRecord:
        """Return the record at a position; raises CommandError when no consumer can have got one from there."""
        try:
            view = self._store.record_at(offset)
            record = pending(view) if view is not None else None
        except RecordDamaged as error:
            # The consumer keeps its copy and tries again.
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except RecordError:
            record = None
        if record is None or is_hidden(record.sys_flag):
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        return record

    def _check_permitted(self, stored: PendingRecord, header: ConsumerSendMsgBackRequestHeader) -> None:
        """Refuse, where permissions count, a message that the group cannot have got: it would be read by its retry."""
        topic, group = stored.topic, header.group
        if not self._live.broker.authorizationEnabled or topic in {header.originTopic, names.retry_topic(group)}:
            return
        # Old clients do not say of which topic it is; what a heartbeat subscribes to was permitted.
        if header.originTopic or self._clients.subscription(group, topic) is None:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the message at offset {header.offset} is neither of originTopic nor a retry of {group}",
            )

    def _again(
        self, stored: PendingRecord, header: ConsumerSendMsgBackRequestHeader, popped: str
    ) -> tuple[PendingRecord, tuple[str, str]]:
        """Return the record to be stored, still without a topic, and (topic, offset id) of the very first one."""
        topic = popped or find_property(stored.properties, _RETRY_TOPIC).decode("utf-8", "replace") or stored.topic
        msg_id = find_property(stored.properties, _ORIGIN_ID).decode("utf-8", "replace")
        msg_id = msg_id or offset_msg_id(self._store_host, header.offset)
        told = f"{PROPERTY_ORIGIN_MESSAGE_ID}\x01{msg_id}\x02{PROPERTY_RETRY_TOPIC}\x01{topic}\x02"
        told += f"{PROPERTY_WAIT}\x01false\x02"
        record = msgspec.structs.replace(
            stored,
            reconsume_times=stored.reconsume_times + 1,
            properties=told.encode() + without(stored.properties, _WRITTEN),
        )
        return record, (topic, msg_id)

    def _dead(
        self, record: PendingRecord, stored: PendingRecord, origin: tuple[str, str], letters: TopicConfig
    ) -> PendingRecord:
        """Return the dead letter."""
        topic, msg_id = origin
        told = (
            f"{PROPERTY_RECONSUME_TIME}\x01{record.reconsume_times}\x02"
            f"{PROPERTY_DLQ_ORIGIN_TOPIC}\x01{topic}\x02{PROPERTY_DLQ_ORIGIN_MESSAGE_ID}\x01{msg_id}\x02"
        )
        if names.is_retry_topic(stored.topic):
            # Where it comes from, as RocketMQ's dead letters say; how long it waited there last is of no more use.
            told += f"{PROPERTY_REAL_TOPIC}\x01{stored.topic}\x02{PROPERTY_REAL_QUEUE_ID}\x01{stored.queue_id}\x02"
        return msgspec.structs.replace(
            record,
            topic=letters.topicName,
            queue_id=self._queue(letters),
            properties=record.properties + told.encode(),
        )

    def _stored(
        self, connection: Connection, request: Command, group: str, topic: str, result: PutResult, code: int
    ) -> None:
        if code == ResponseCode.NOT_LEADER_FOR_QUEUE and self._elsewhere is not None:
            self._elsewhere(connection, request)
        elif result.status is PutStatus.PUT_OK:
            self._stats.sent_back(group, topic)
            # Written, if perhaps not yet synced: a refusal would have the client send it a second time.
            connection.reply(request, Command.response(ResponseCode.SUCCESS))
        else:
            connection.reply(request, Command.response(code, remark_of(result.status)))


def _popped_of(stored: PendingRecord, group: str) -> str:
    """Return the topic of which a group's dead letter was popped, "" for any other message.

    Pops do not read the retry topic of the group, but one for each of its topics.
    """
    if stored.topic != names.dlq_topic(group) or not find_property(stored.properties, _FIRST_POP):
        return ""
    # What RocketMQ's proxy made a dead letter of has the name of the retry topic here.
    first = find_property(stored.properties, _DLQ_ORIGIN) or find_property(stored.properties, _RETRY_TOPIC)
    topic = names.origin_of(first.decode("utf-8", "replace"), group)
    return "" if names.is_retry_topic(topic) else topic
