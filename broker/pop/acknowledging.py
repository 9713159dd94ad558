"""Codes 200051, 200151, 200053: what was taken is acknowledged, or is to stay invisible for another while."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from broker.context import BrokerContext, Tables
from broker.pop.asking import SEE, check_invisible
from broker.pop.check_points import CheckPoint, CheckPointKey, CheckPointTable, PutOff
from broker.pop.reading import Place
from broker.pop.records import (
    ORDERED_QUEUE,
    TAKEN_MAX,
    BatchAckBody,
    Handle,
    ack_record,
    check_point_record,
    put_off_record,
    read_handle,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from remoting.server import Connection, Handler
from store.types import PendingRecord

_log = logging.getLogger(__name__)

# Entries of one batch acknowledgement.
BATCH_MAX = 1024
_WELL = "not set any response code"

Acks = Sequence[tuple[CheckPoint, list[int]]]
AppendFor = Callable[[Connection, Command, Sequence[PendingRecord]], Awaitable[bool | None]]
"""Stores records for a request: True when they are safe, False when not, None when another broker answers."""


class AckHandlers:
    """Handlers of the requests about what was taken."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        topic: str,
        append: AppendFor,
        loaded: Callable[[], Awaitable[CheckPointTable]],
        busy: Collection[Place],
        freed: Callable[[str, str], None],
    ) -> None:
        """`topic`: of check points; `loaded` waits until it is known which ones are open.

        `busy`: the queues that are being taken from; `freed` is told of a topic and a group when what was taken in
        order of a queue may hold it up no more.
        """
        self._live, self._store, self._clock = context.live, context.store, context.clock
        self._store_host = context.store_host
        self._topics = tables.topics
        self._topic = topic
        self._append = append
        self._loaded = loaded
        self._busy, self._freed = busy, freed
        self.acknowledged = 0

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.ACK_MESSAGE: self.acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self.acknowledge_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    async def acknowledge(self, connection: Connection, request: Command) -> Command | None:
        """200051: the message is done with; answers when that is safe. One that is over already is answered alike."""
        header = request.header(AckMessageRequestHeader)
        handle = self._handle(connection, header)
        low, end = self._bounds(header.topic, header.queueId)
        if not low <= header.offset <= end:
            key = f"{header.topic}@{header.queueId}"
            raise CommandError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{key}, commit:{header.offset}, store:{low}~{end}",
            )
        table = await self._loaded()
        found = self._find(table, _key(header, handle), header.offset, in_order=handle.revive_queue == ORDERED_QUEUE)
        if found is None or header.offset not in found.open_offsets():
            return Command.response(ResponseCode.SUCCESS)
        return await self._store_acks(connection, request, [(found, [header.offset])], table)

    async def acknowledge_batch(self, connection: Connection, request: Command) -> Command | None:
        """200151: many at once, all or none."""
        if not request.body:
            return Command.response(ResponseCode.NO_MESSAGE)
        try:
            body = msgspec.json.decode(request.body, type=BatchAckBody)
            if len(body.acks) > BATCH_MAX:
                raise ValueError(f"one request acknowledges at most {BATCH_MAX} check points")
            wanted = [
                (CheckPointKey(ack.topic(), ack.c, ack.q, ack.so, ack.pt), ack.offsets(), ack.rq == ORDERED_QUEUE)
                for ack in body.acks
            ]
        except (msgspec.MsgspecError, ValueError) as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"batch acknowledgement: {error}") from None
        table = await self._loaded()
        acks: dict[CheckPoint, set[int]] = {}
        for key, offsets, in_order in wanted:
            for offset in offsets:
                found = self._find(table, key, offset, in_order=in_order)
                if found is not None and offset in found.open_offsets():
                    acks.setdefault(found, set()).add(offset)
        if not acks:
            return Command.response(ResponseCode.SUCCESS)
        ordered = [(found, sorted(offsets)) for found, offsets in acks.items()]
        return await self._store_acks(connection, request, ordered, table)

    async def change(self, connection: Connection, request: Command) -> Command | None:
        """200053: the message is to be had again so long from now, and has a new handle until then."""
        header = request.header(ChangeInvisibleTimeRequestHeader)
        handle = self._handle(connection, header)
        check_invisible(header.invisibleTime)
        low, end = self._bounds(header.topic, header.queueId)
        if not low <= header.offset <= end:
            said = ChangeInvisibleTimeResponseHeader(popTime=0, invisibleTime=0, reviveQid=0)
            return Command.response(ResponseCode.NO_MESSAGE, _WELL, said)
        table = await self._loaded()
        if handle.revive_queue == ORDERED_QUEUE:
            return await self._put_off(connection, request, header, handle, table)
        found = table.find(_key(header, handle))
        now_ms = self._clock.now_ms()
        if found is not None:
            # Another check point than the first one, also within a millisecond.
            coming = found.key._replace(start=header.offset, pop_ms=max(now_ms, found.key.pop_ms + 1))
            (coming,) = table.fresh([coming])
            now_ms = coming.pop_ms
        said = ChangeInvisibleTimeResponseHeader(
            popTime=now_ms, invisibleTime=header.invisibleTime, reviveQid=handle.revive_queue
        )
        if found is None or header.offset not in found.open_offsets():
            # It is acknowledged, or to be had again already: there is nothing to put off.
            return Command.response(ResponseCode.SUCCESS, _WELL, said)
        made = CheckPoint(
            coming, header.invisibleTime, found.broker, found.revive_queue, (header.offset,),
        )  # fmt: skip
        records = [
            check_point_record(self._topic, made, self._store_host),
            ack_record(self._topic, found, [header.offset], now_ms, self._store_host),
        ]
        done = await self._append(connection, request, records)
        if done is None:
            return None
        if not done:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the change cannot be stored: try again")
        table.add(made)
        table.acknowledge(found.key, [header.offset])
        return Command.response(ResponseCode.SUCCESS, _WELL, said)

    async def _put_off(
        self,
        connection: Connection,
        request: Command,
        header: ChangeInvisibleTimeRequestHeader,
        handle: Handle,
        table: CheckPointTable,
    ) -> Command | None:
        """Change the time of a message that was taken in order: its handle stays, and holds up its queue until then."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + header.invisibleTime
        said = ChangeInvisibleTimeResponseHeader(
            popTime=handle.pop_ms, invisibleTime=until_ms - handle.pop_ms, reviveQid=ORDERED_QUEUE
        )
        found = self._find(table, _key(header, handle), header.offset, in_order=True)
        if found is None or header.offset not in found.open_offsets():
            return Command.response(ResponseCode.SUCCESS, _WELL, said)
        found.changes += 1
        change = PutOff(found.key, header.offset, found.changes, until_ms)
        with self.settling([found]):
            record = put_off_record(self._topic, found, change, now_ms, self._store_host)
            done = await self._append(connection, request, [record])
            if done is None:
                return None
            if not done:
                raise CommandError(ResponseCode.SYSTEM_ERROR, "the change cannot be stored: try again")
            table.put_off(change)
        return Command.response(ResponseCode.SUCCESS, _WELL, said)

    def _find(self, table: CheckPointTable, key: CheckPointKey, offset: int, *, in_order: bool) -> CheckPoint | None:
        """Return the check point that a handle is of, None when it is over.

        What was taken in order has a handle that says no more than the queue and the time: its message is that of a
        check point of this time. While a pop takes anew from the queue, older handles are of nothing. Raises
        CommandError for a message that was not taken then.
        """
        if not in_order:
            return table.find(key)
        if (key.group, key.topic, key.queue_id) in self._busy:
            return None
        then = [point for point in table.in_order(*key[:3]) if point.key.pop_ms == key.pop_ms]
        found = next((point for point in then if offset in point.offsets), None)
        if then and all(offset > point.offsets[-1] for point in then):
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{key.topic}@{key.queue_id}, {offset} was not taken at {key.pop_ms}",
            )
        return found

    @contextmanager
    def settling(self, points: Iterable[CheckPoint]) -> Iterator[None]:
        """Have nobody take anew what is being settled."""
        in_order = [point for point in points if point.order is not None]
        for point in in_order:
            point.settling += 1
        try:
            yield
        finally:
            for point in in_order:
                point.settling -= 1
                self._freed(point.key.topic, point.key.group)

    async def _store_acks(
        self,
        connection: Connection,
        request: Command,
        acks: Sequence[tuple[CheckPoint, list[int]]],
        table: CheckPointTable,
    ) -> Command | None:
        now_ms = self._clock.now_ms()
        records = [
            ack_record(self._topic, found, offsets[at : at + TAKEN_MAX], now_ms, self._store_host)
            for found, offsets in acks
            for at in range(0, len(offsets), TAKEN_MAX)
        ]
        with self.settling(found for found, _offsets in acks):
            done = await self._append(connection, request, records)
            if done is None:
                return None
            if not done:
                raise CommandError(ResponseCode.SYSTEM_ERROR, "the acknowledgement cannot be stored: try again")
            for found, offsets in acks:
                table.acknowledge(found.key, offsets)
                self.acknowledged += len(offsets)
        return Command.response(ResponseCode.SUCCESS)

    def _handle(
        self, connection: Connection, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader
    ) -> Handle:
        """Check what is asked about; raises CommandError."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {SEE}"
            )
        if not 0 <= header.queueId < topic.readQueueNums:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.readQueueNums}] consumer:[/{connection.address}]",
            )
        try:
            handle = read_handle(header.extraInfo)
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"extraInfo: {error}") from None
        return handle

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)


def _key(header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, handle: Handle) -> CheckPointKey:
    return CheckPointKey(header.topic, header.consumerGroup, header.queueId, handle.start, handle.pop_ms)
