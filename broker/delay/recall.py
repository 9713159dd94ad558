"""Recall (370): a timer message is called back before its time.

A message of the same slot is stored that names it. The answer is SUCCESS once that is safe and known to stand in the
log before the slot was closed: then whoever delivers the slot, now or after a failover, sees it first.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker.context import BrokerContext
from broker.messages.send_answers import Elsewhere
from broker.messages.send_checks import remark_of
from broker.messages.timed_record import DELETES, read_handle, timed, timer_limits
from broker.replication import Replication
from broker.settings.config import BrokerConfig
from remoting.codes import Perm, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import RecallMessageRequestHeader, RecallMessageResponseHeader
from remoting.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_TIMER_DELIVER_MS, encode_properties
from remoting.server import Connection, Handler
from store.types import PendingRecord, PutResult, PutStatus

_TAG = "_RECALL_TAG_"
_NOT_AVAILABLE = "recall failed, broker service not available"
_TOO_LATE = "recall failed, timestamp invalid"
# What RocketMQ says when all is well.
_WELL = "not set any response code"


class TopicLookup(Protocol):
    """What is needed of the topic table."""

    def get(self, topic: str) -> object | None:
        """Return a topic."""
        ...


class RecallHandlers:
    """The handler of RECALL_MESSAGE."""

    def __init__(
        self,
        context: BrokerContext,
        topics: TopicLookup,
        replication: Replication,
        verdict: Callable[[int, Callable[[bool], None]], None],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`verdict`: see TimerFeed; `elsewhere` as of SendHandlers."""
        self._context = context
        self._topics = topics
        self._append = replication.append
        self._verdict = verdict
        self._elsewhere = elsewhere

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, request: Command) -> None:
        """Store that a message is not to be delivered; answers when that is safe."""
        config = self._context.live.broker
        try:
            header = request.header(RecallMessageRequestHeader)
            key, record = self._record(connection, header, config)
        except CommandError as error:
            error.ext = {"MSG_REGION": config.regionId}
            raise
        self._append(record, partial(self._stored, connection, request, key), until=request.until)

    def _record(
        self, connection: Connection, header: RecallMessageRequestHeader, config: BrokerConfig
    ) -> tuple[str, PendingRecord]:
        context = self._context
        now_ms, limits = context.clock.now_ms(), timer_limits(context.live.store)
        if not config.recallMessageEnable or not limits.enabled:
            raise CommandError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not context.role.leads:
            raise CommandError(ResponseCode.SLAVE_NOT_AVAILABLE, _NOT_AVAILABLE)
        shut = not config.brokerPermission & Perm.WRITE and not config.allowRecallWhenBrokerNotWriteable
        if now_ms < config.startAcceptSendRequestTimeStamp or shut:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_AVAILABLE)
        topic = header.topic
        if self._topics.get(topic) is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        handle = read_handle(header.recallHandle)
        if topic != handle.topic:
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker != config.name():
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, _NOT_AVAILABLE)
        if not 0 < handle.deliver_ms - now_ms < limits.max_delay_ms:
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, _TOO_LATE)
        told = {
            "TAGS": _TAG,
            DELETES: handle.uniq_key,
            "UNIQ_KEY": handle.uniq_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.deliver_ms),
            "BORN_TIMESTAMP": str(now_ms),
        }
        if header.producerGroup:
            told[PROPERTY_PRODUCER_GROUP] = header.producerGroup
        try:
            properties = encode_properties(told)
        except ValueError as error:
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {error}") from None
        record = PendingRecord(topic, 0, 0, 0, now_ms, connection.peer_host, 0, 0, b"0", properties)
        # The slot that the handle was made of, also when timerPrecisionMs has changed since.
        return handle.uniq_key, timed(record, handle.deliver_ms - 1, now_ms, limits)

    def _stored(self, connection: Connection, request: Command, key: str, result: PutResult, code: int) -> None:
        region = {"MSG_REGION": self._context.live.broker.regionId}
        if code == ResponseCode.NOT_LEADER_FOR_QUEUE and self._elsewhere is not None:
            self._elsewhere(connection, request)
        elif result.status is not PutStatus.PUT_OK:
            remark = f"recall failed, execute error: {remark_of(result.status)}"
            connection.reply(request, Command.response(ResponseCode.SYSTEM_ERROR, remark, ext=region))
        else:
            self._verdict(result.queue_offset, partial(self._answer, connection, request, key, region))

    def _answer(
        self, connection: Connection, request: Command, key: str, region: dict[str, str], in_time: bool
    ) -> None:
        if in_time:
            header = RecallMessageResponseHeader(msgId=key)
            answer = Command.response(ResponseCode.SUCCESS, _WELL, header=header, ext=region)
        else:
            answer = Command.response(ResponseCode.ILLEGAL_OPERATION, _TOO_LATE, ext=region)
        connection.reply(request, answer)
