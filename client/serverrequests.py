"""Answers to the requests that brokers send to clients: rebalance now, offsets reset, what are you doing."""

import logging
from collections.abc import Mapping
from typing import Protocol

from client.api import decode_messages
from remoting.bodies.registry import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from remoting.client import ClientHandler
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import CommandError, HeaderError
from remoting.headers.registry import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from remoting.message import MessageExt
from remoting.properties import PROPERTY_PRODUCER_GROUP

_log = logging.getLogger(__name__)


class ConsumerMember(Protocol):
    """What a consumer shows to the instance that it belongs to."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """Return the consumer's part of the heartbeat."""
        ...

    def topics(self) -> set[str]:
        """Return the subscribed topics."""
        ...

    def rebalance_soon(self) -> None:
        """Share the queues anew, now."""
        ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, and store them."""
        ...

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets that would be stored now."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Tell what the consumer is doing."""
        ...

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Hand one message to the application and tell how it went."""
        ...


class TransactionChecker(Protocol):
    """What a producer of transactions shows to the instance that it belongs to."""

    def check(self, asker: Connection, asked: CheckTransactionStateRequestHeader, half: MessageExt) -> None:
        """Find out what became of a transaction, and tell the broker that asked; returns at once."""
        ...


class ServerRequests:
    """The handlers of one client instance."""

    def __init__(
        self, consumers: Mapping[str, ConsumerMember], checkers: Mapping[str, TransactionChecker] | None = None
    ) -> None:
        """Both are the instance's own tables, by group."""
        self._consumers = consumers
        self._checkers = checkers if checkers is not None else {}

    def table(self) -> dict[int, ClientHandler]:
        """Return request code → handler."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._positions,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
        }

    def _members_changed(self, _connection: object, request: Command) -> Command:
        group = request.header(NotifyConsumerIdsChangedRequestHeader).consumerGroup
        consumer = self._consumers.get(group)
        if consumer is not None:
            consumer.rebalance_soon()
        return Command.response(ResponseCode.SUCCESS)

    async def _reset_offsets(self, _connection: object, request: Command) -> Command:
        header = request.header(ResetOffsetRequestHeader)
        consumer = self._consumer(header.group)
        offsets = {queue: at for queue, at in _reset_table(request).items() if queue.topic == header.topic}
        _log.warning("group %s: the broker sets the offsets of topic %s to %s", header.group, header.topic, offsets)
        await consumer.reset_offsets(offsets)
        return Command.response(ResponseCode.SUCCESS)

    def _positions(self, _connection: object, request: Command) -> Command:
        header = request.header(GetConsumerStatusRequestHeader)
        table = self._consumer(header.group).positions(header.topic)
        return Command.response(ResponseCode.SUCCESS, body=ConsumerStatusBody(messageQueueTable=table).encode())

    def _running_info(self, _connection: object, request: Command) -> Command:
        group = request.header(GetConsumerRunningInfoRequestHeader).consumerGroup
        return Command.response(ResponseCode.SUCCESS, body=self._consumer(group).running_info().encode())

    async def _consume_directly(self, _connection: object, request: Command) -> Command:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        consumer = self._consumer(header.consumerGroup)
        messages = decode_messages(request.body, header.brokerName or "")
        if len(messages) != 1:
            raise HeaderError(f"one message was expected in the body, not {len(messages)}")
        result = await consumer.consume_directly(messages[0])
        return Command.response(ResponseCode.SUCCESS, body=result.encode())

    def _check_transaction(self, connection: Connection, request: Command) -> None:
        """Hand a half message to its producer; whatever hinders that leaves the broker to ask again."""
        header = request.header(CheckTransactionStateRequestHeader)
        for half in decode_messages(request.body, header.bname or ""):
            group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
            checker = self._checkers.get(group)
            if checker is None:
                _log.warning(
                    "%s asks for transaction %s of producer group %s, of which no producer here answers checks",
                    connection.address, half.msg_id, group,
                )  # fmt: skip
            else:
                checker.check(connection, header, half)

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in the consumer")
        return consumer


def _reset_table(request: Command) -> dict[MessageQueue, int]:
    try:
        return ResetOffsetBody.decode(request.body).offsetTable
    except HeaderError:
        # The form for clients that are not Java: a list.
        entries = ResetOffsetBodyForC.decode(request.body).offsetTable
        return {MessageQueue(entry.topic, entry.brokerName, entry.queueId): entry.offset for entry in entries}
