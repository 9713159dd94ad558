"""Finding messages: by id, unique key, key, or place in a queue."""

import contextlib
import heapq
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from client.admin.base import AdminBase
from client.api import PullRequest, PullStatus, decode_messages
from client.errors import RouteError
from remoting.bodies.registry import ConsumeDirectlyResult, MessageQueue
from remoting.codes import Perm, RequestCode, ResponseCode
from remoting.errors import ResponseError
from remoting.headers.registry import ConsumeMessageDirectlyResultRequestHeader, QueryMessageRequestHeader
from remoting.message import MessageExt
from remoting.msgid import parse_offset_msg_id

TOOLS_GROUP = "TOOLS_CONSUMER"
FOUND_MAX = 64
# What a list of messages holds unless more is asked for, and how many are fetched at a time.
LISTED_MAX = 1000
PAGE = 32
FOREVER_MS = 2**63 - 1


@dataclass(slots=True, eq=False)
class _Reading:
    """How far a queue was read: `page` has what was fetched, the rest stands in [offset, end)."""

    address: str
    queue: MessageQueue
    offset: int
    end: int
    page: deque[MessageExt] = field(default_factory=deque)


class MessageAdmin(AdminBase):
    """Messages."""

    async def message_by_id(self, msg_id: str, topic: str | None = None) -> MessageExt | None:
        """Return the message of an id: the offset id of a send, or (with its topic) the unique key; None if not there.

        Raises ValueError for what is no id, ConnectError when the broker named by an offset id cannot be reached.
        """
        if topic is not None:
            found = await self.messages_by_unique_key(topic, msg_id)
            if found:
                return found[0]
        (host, port), offset = parse_offset_msg_id(msg_id)
        self._open()
        try:
            return await self._api.view(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", offset, topic)
        except ResponseError as error:
            # What brokers say when no message begins at that position.
            if error.code == ResponseCode.SYSTEM_ERROR:
                return None
            raise

    async def messages_by_key(
        self, topic: str, key: str, *, most: int = FOUND_MAX, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Return messages with a key, stored in that span, at most `most` per broker, oldest first."""
        found = await self._query(topic, key, most, begin_ms, end_ms, unique=False)
        # The index finds by hash: keep those that really have the key.
        return [message for message in found if key in message.keys]

    async def messages_by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Return the messages whose client-made id this is (several when a send was repeated), oldest first."""
        found = await self._query(topic, unique_key, FOUND_MAX, 0, FOREVER_MS, unique=True)
        return [message for message in found if message.msg_id == unique_key]

    async def message_by_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at a place in a queue, None when there is none."""
        address = (await self._topic_brokers(queue.topic)).get(queue.brokerName)
        if address is None:
            raise RouteError(f"topic {queue.topic} has no broker {queue.brokerName}", retriable=False)
        answer = await self._api.pull(address, _page(queue, offset, count=1))
        if answer.status is not PullStatus.FOUND or answer.messages[0].queue_offset != offset:
            return None
        return answer.messages[0]

    async def messages_by_time(
        self, topic: str, begin_ms: int = 0, end_ms: int | None = None, *, most: int = LISTED_MAX
    ) -> list[MessageExt]:
        """Return the messages of all queues stored in [begin_ms, end_ms), the `most` oldest, in their order.

        `begin_ms` < 0 is the end of each queue. Offsets are found by the time of storage, as RocketMQ's brokers do.
        """
        found: list[MessageExt] = []
        async with contextlib.aclosing(self.each_message(topic, begin_ms, end_ms)) as messages:
            async for message in messages:
                if len(found) >= most:
                    break
                found.append(message)
        return found

    async def each_message(
        self, topic: str, begin_ms: int = 0, end_ms: int | None = None
    ) -> AsyncGenerator[MessageExt, None]:
        """Yield messages as messages_by_time returns them, however many there are; what comes meanwhile is none."""
        readings = []
        for queue, address in (await self._readable(topic)).items():
            end = await self._api.max_offset(address, queue)
            offset = end if begin_ms < 0 else await self._api.offset_by_time(address, queue, begin_ms)
            readings.append(_Reading(address, queue, offset, end))
        heads = [(age(each.page[0]), each) for each in readings if await self._read_on(each, begin_ms, end_ms)]
        heapq.heapify(heads)
        while heads:
            _oldest, reading = heads[0]
            yield reading.page.popleft()
            if reading.page or await self._read_on(reading, begin_ms, end_ms):
                heapq.heapreplace(heads, (age(reading.page[0]), reading))
            else:
                heapq.heappop(heads)

    async def _readable(self, topic: str) -> dict[MessageQueue, str]:
        """Return a topic's queues that may be read, and who answers for each."""
        brokers = await self._topic_brokers(topic)
        route = await self.route(topic)
        return {
            MessageQueue(topic, data.brokerName, number): brokers[data.brokerName]
            for data in (route.queueDatas if route is not None else ())
            if data.brokerName in brokers and data.perm & Perm.READ
            for number in range(data.readQueueNums)
        }

    async def _read_on(self, reading: "_Reading", begin_ms: int, end_ms: int | None) -> bool:
        """Fetch what comes next of a queue; False when nothing does."""
        # A delayed message has the time of its delivery; those of one queue stand in the order of their times.
        while not reading.page and reading.offset < reading.end:
            answer = await self._api.pull(reading.address, _page(reading.queue, reading.offset))
            if answer.next_offset <= reading.offset:
                break
            reading.offset = answer.next_offset
            for message in answer.messages:
                if message.queue_offset >= reading.end or (end_ms is not None and message.store_timestamp >= end_ms):
                    reading.offset = reading.end
                    break
                if message.store_timestamp >= begin_ms:
                    reading.page.append(message)
        return bool(reading.page)

    async def consume_directly(self, group: str, client_id: str, message: MessageExt) -> ConsumeDirectlyResult:
        """Have a member of a group consume one message now; asks the broker that keeps the message."""
        brokers = await self._topic_brokers(message.topic)
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumerGroup=group,
            clientId=client_id,
            msgId=message.offset_msg_id,
            brokerName=message.broker_name or next(iter(brokers), ""),
            topic=message.topic,
        )
        address = brokers.get(message.broker_name) or next(iter(brokers.values()))
        answer = await self._call(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        return ConsumeDirectlyResult.decode(answer.body)

    async def _query(
        self, topic: str, key: str, most: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageExt]:
        header = QueryMessageRequestHeader(
            topic=topic, key=key, maxNum=most, beginTimestamp=begin_ms, endTimestamp=end_ms, uniqueKeyQuery=unique
        )
        found: list[MessageExt] = []
        for name, address in (await self._topic_brokers(topic)).items():
            try:
                answer = await self._call(address, RequestCode.QUERY_MESSAGE, header)
            except ResponseError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            found += decode_messages(answer.body, name)
        return sorted((message for message in found if message.topic == topic), key=age)


def _page(queue: MessageQueue, offset: int, count: int = PAGE) -> PullRequest:
    return PullRequest(
        group=TOOLS_GROUP,
        queue=queue,
        offset=offset,
        count=count,
        expression="*",
        version=0,
        suspend_ms=0,
        bytes_max=16 * 1024 * 1024,
    )


def age(message: MessageExt) -> tuple[int, str, int]:
    """Return what tells which of two messages is older."""
    # Of one broker's many may be stored within a millisecond: their order is that of its log, whatever their queues.
    return message.store_timestamp, message.broker_name, message.physical_offset
