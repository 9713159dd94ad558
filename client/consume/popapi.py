"""One method per request of POP consumption. Knows headers and handles; decides nothing. Errors as in client/api.py."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from client.api import BrokerApi, decode_messages
from client.consume.pophandle import PopHandle, batch_body, order_counts, pop_handles
from client.consume.subscription import Subscription
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ResponseError
from remoting.headers.registry import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from remoting.message import MessageExt
from remoting.properties import PROPERTY_FIRST_POP_TIME, PROPERTY_POP_CK

# How much longer than its waiting a pop may take before it counts as lost.
ANSWER_S = 5.0
ANY_QUEUE = -1
FROM_BEGIN, FROM_END = 0, 1
# What a broker says of a pop that reached it after its time: its clock is ahead of this one's.
_LATE = "timeout too much"


class PopStatus(Enum):
    """How a pop ended."""

    FOUND = "found"
    NOTHING = "nothing"
    FULL = "full"
    """As many wait at the broker as it allows."""
    LATE = "late"
    """Over when it came, by the broker's clock."""


@dataclass(frozen=True, slots=True)
class PopRequest:
    """What is asked of a broker; `poll_ms` 0 does not wait, `born_ms` is now by the broker's clock."""

    group: str
    subscription: Subscription
    count: int
    invisible_ms: int
    poll_ms: int
    born_ms: int
    from_end: bool
    attempt: str | None = None
    """Messages are taken in the order of their queues; who asks again by the same name has the same again."""


class PopAnswer(NamedTuple):
    """What came; `pop_ms` is when, by the broker's clock, 0 when it did not say."""

    status: PopStatus
    messages: list[tuple[MessageExt, PopHandle]]
    pop_ms: int


class PopApi:
    """Typed calls over a client's BrokerApi."""

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    async def pop(self, address: str, broker: str, request: PopRequest) -> PopAnswer:
        """Take messages of any queue of a topic; waits up to `poll_ms` when there are none."""
        subscription = request.subscription
        header = PopMessageRequestHeader(
            consumerGroup=request.group,
            topic=subscription.topic,
            queueId=ANY_QUEUE,
            maxMsgNums=request.count,
            invisibleTime=request.invisible_ms,
            pollTime=request.poll_ms,
            bornTime=request.born_ms,
            initMode=FROM_END if request.from_end else FROM_BEGIN,
            expType=subscription.data().expressionType,
            exp=subscription.expression,
            order=request.attempt is not None,
            attemptId=request.attempt,
        )
        timeout = request.poll_ms / 1000 + ANSWER_S
        answer = await self._api.remoting.invoke(address, Command.request(RequestCode.POP_MESSAGE, header), timeout)
        self._api.look_at_way(address, answer)
        if answer.code == ResponseCode.SUCCESS:
            return _found(answer, broker)
        said = answer.ext.get("popTime", "")
        pop_ms = int(said) if said.isdecimal() and len(said) < 19 else 0
        if answer.code in {ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND}:
            late = _LATE in (answer.remark or "") and not pop_ms
            return PopAnswer(PopStatus.LATE if late else PopStatus.NOTHING, [], pop_ms)
        if answer.code == ResponseCode.POLLING_FULL:
            return PopAnswer(PopStatus.FULL, [], pop_ms)
        raise ResponseError(answer.code, answer.remark, address)

    async def acknowledge(self, address: str, group: str, topic: str, handle: PopHandle) -> None:
        """Have done with one message of a subscribed topic."""
        header = AckMessageRequestHeader(
            consumerGroup=group,
            topic=handle.topic(topic, group),
            queueId=handle.queue_id,
            extraInfo=handle.text,
            offset=handle.offset,
        )
        answer = await self._api.remoting.call(address, RequestCode.ACK_MESSAGE, header)
        self._api.look_at_way(address, answer)

    async def acknowledge_batch(self, address: str, broker: str, group: str, acks: list[tuple[str, PopHandle]]) -> None:
        """Have done with several messages, each (subscribed topic, handle), of one broker."""
        body = batch_body(broker, group, acks)
        answer = await self._api.remoting.call(address, RequestCode.BATCH_ACK_MESSAGE, body=body)
        self._api.look_at_way(address, answer)

    async def change_invisible(
        self, address: str, group: str, topic: str, handle: PopHandle, invisible_ms: int
    ) -> PopHandle:
        """Have a message come again so long from now; returns the handle that it has until then."""
        header = ChangeInvisibleTimeRequestHeader(
            consumerGroup=group,
            topic=handle.topic(topic, group),
            queueId=handle.queue_id,
            extraInfo=handle.text,
            offset=handle.offset,
            invisibleTime=invisible_ms,
        )
        answer = await self._api.remoting.call(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        self._api.look_at_way(address, answer)
        said = answer.header(ChangeInvisibleTimeResponseHeader)
        return handle._replace(
            start=handle.offset, pop_ms=said.popTime, invisible_ms=said.invisibleTime, revive_queue=said.reviveQid
        )


def _found(answer: Command, broker: str) -> PopAnswer:
    header = answer.header(PopMessageResponseHeader)
    messages = decode_messages(answer.body, broker)
    handles = pop_handles(header, broker, messages)
    counts = order_counts(header)
    for message, handle in zip(messages, handles, strict=True):
        message.properties[PROPERTY_POP_CK] = handle.text
        message.properties.setdefault(PROPERTY_FIRST_POP_TIME, str(header.popTime))
        # What is taken in order comes again as it is stored: how often that was its broker says beside it.
        message.reconsume_times = max(
            message.reconsume_times, counts.get((handle.retry, handle.queue_id, handle.offset), 0)
        )
    return PopAnswer(PopStatus.FOUND, list(zip(messages, handles, strict=True)), header.popTime)
