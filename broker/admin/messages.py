"""Single messages: 12 finds them by key or unique id, 33 by position, 321 shows a ConsumeQueue's entries."""

from collections.abc import Callable

from broker.clients import ClientTable
from broker.filters.sql import SqlFilter
from broker.filters.tokens import SqlError
from broker.messages.pull_checks import sql_of
from broker.messages.tag_filter import ExpressionError, is_tag_type, tag_codes
from broker.reply import ok
from broker.settings.config import LiveConfig
from remoting.bodies.registry import ConsumeQueueData, QueryConsumeQueueBody, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from remoting.record import RecordError, decode_record, peek
from remoting.server import Connection, Handler
from remoting.topics import RAFT_TOPIC
from store.errors import RecordDamaged
from store.messagestore import MessageStore
from store.types import QueueEntry

# Entries of a ConsumeQueue that one answer shows; whoever wants more asks again further on.
QUEUE_ENTRIES_MAX = 1000


class AdminMessages:
    """Handlers about single messages."""

    def __init__(self, config: LiveConfig, store: MessageStore, clients: ClientTable) -> None:
        self._config = config
        self._store = store
        self._clients = clients

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue_entries,
        }

    def query(self, _connection: Connection, request: Command) -> Command:
        """12: the messages of a topic that carry a key, or a unique id, stored between two times (ms)."""
        header = request.header(QueryMessageRequestHeader)
        settings = self._config.store
        most = settings.defaultQueryMaxNum if header.uniqueKeyQuery else header.maxNum
        most = max(0, min(most, settings.maxMsgsNumBatch))
        found = self._store.query(header.topic, header.key, most, header.beginTimestamp, header.endTimestamp)
        told = QueryMessageResponseHeader(
            indexLastUpdateTimestamp=found.last_timestamp, indexLastUpdatePhyoffset=found.last_physical
        )
        if not found.records:
            return Command.response(
                ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", told
            )
        return ok(told, found.records)

    def view(self, _connection: Connection, request: Command) -> Command:
        """33: the message that begins at a position of the log, which its offset id carries."""
        header = request.header(ViewMessageRequestHeader)
        offset = header.offset
        try:
            record = self._store.record_at(offset)
        except RecordDamaged as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if record is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        # Permission was asked for the topic that the request names.
        named = header.topic if self._config.broker.authorizationEnabled else None
        if named and decode_record(record).topic != named:
            raise CommandError(ResponseCode.NO_PERMISSION, f"the message at offset {offset} is none of topic {named}")
        return ok(None, record)

    def queue_entries(self, _connection: Connection, request: Command) -> Command:
        """321: entries of a ConsumeQueue, and whether a group's subscription lets each through."""
        header = request.header(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic or "", header.queueId
        first, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if end <= 0 or topic == RAFT_TOPIC:
            # What a group agrees on is no message, so its queue is shown to nobody.
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueBody(maxQueueIndex=end, minQueueIndex=first)
        if header.consumerGroup:
            body.subscriptionData = self._clients.subscription(header.consumerGroup, topic)
            if body.subscriptionData is None:
                body.filterData = f"{header.consumerGroup}@{topic} is not online!"
        lets_through = self._lets_through(body.subscriptionData)
        count = max(0, min(header.count, QUEUE_ENTRIES_MAX))
        entries = self._store.queue_entries(topic, queue_id, header.index, count) if first <= header.index else []
        if not entries and count:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"Index {header.index} of {queue_id}@{topic} is not exist!")
        body.queueData = [
            ConsumeQueueData(
                eval=lets_through(entry),
                physicOffset=entry.physical_offset,
                physicSize=entry.size,
                tagsCode=entry.tags_code,
            )
            for entry in entries
        ]
        return ok(None, body.encode())

    def _lets_through(self, subscription: SubscriptionData | None) -> Callable[[QueueEntry], bool]:
        """Return what tells whether a subscription lets an entry through; what it cannot be read of lets none."""
        if subscription is None:
            return lambda _entry: False
        try:
            if is_tag_type(subscription.expressionType):
                codes = tag_codes(subscription.subString)
                return lambda entry: codes is None or entry.tags_code in codes
            wants = sql_of(subscription.subString, subscription.expressionType)
        except (ExpressionError, SqlError):
            return lambda _entry: False
        return lambda entry: self._takes(wants, entry.physical_offset)

    def _takes(self, wants: SqlFilter, position: int) -> bool:
        try:
            record = self._store.record_at(position)
            return record is not None and wants.matches(peek(record, 0)[2])
        except (RecordDamaged, RecordError):
            return False
