"""Positions of queues: 29 by time, 30 the end, 31 the first, 32 the first message's time."""

from broker.reply import ok
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from remoting.server import Connection, Handler
from store.messagestore import MessageStore


class AdminPositions:
    """Handlers about where a queue begins and ends. A queue that is not there is an empty one, as in RocketMQ."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.by_time,
            RequestCode.GET_MAX_OFFSET: self.end,
            RequestCode.GET_MIN_OFFSET: self.first,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.first_time,
        }

    def by_time(self, _connection: Connection, request: Command) -> Command:
        """29: the first message stored at or after a time (LOWER), or the last one until then (UPPER)."""
        header = request.header(SearchOffsetRequestHeader)
        upper = header.boundaryType is not None and header.boundaryType.upper() == "UPPER"
        offset = self._store.offset_by_time(header.topic, header.queueId, header.timestamp, upper=upper)
        return ok(SearchOffsetResponseHeader(offset=offset))

    def end(self, _connection: Connection, request: Command) -> Command:
        """30: one past the last message."""
        header = request.header(GetMaxOffsetRequestHeader)
        return ok(GetMaxOffsetResponseHeader(offset=self._store.max_offset(header.topic, header.queueId)))

    def first(self, _connection: Connection, request: Command) -> Command:
        """31: the first message that is still kept."""
        header = request.header(GetMinOffsetRequestHeader)
        return ok(GetMinOffsetResponseHeader(offset=self._store.min_offset(header.topic, header.queueId)))

    def first_time(self, _connection: Connection, request: Command) -> Command:
        """32: when the first message that is still kept was stored, -1 when there is none."""
        header = request.header(GetEarliestMsgStoretimeRequestHeader)
        first = self._store.min_offset(header.topic, header.queueId)
        timestamp = self._store.store_time(header.topic, header.queueId, first)
        return ok(GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))
