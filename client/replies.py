"""Request-reply, seen by a client: the reply that answers a request, and the requests that wait for theirs.

A request says in its properties which client asked (REPLY_TO_CLIENT) and under which number (CORRELATION_ID). Its
reply goes to the reply topic of the cluster; the broker that takes it pushes it (326) to the client that asked.
"""

import asyncio
import inspect
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from client.compression import CompressionError, decompress
from client.errors import ArgumentRefused, ClientClosed, ClientError, MessageRefused, SendBacklogFull
from client.message import REPLY, Message
from remoting.address import parse_address
from remoting.client import ClientHandler
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import ReplyMessageRequestHeader
from remoting.message import MessageExt
from remoting.properties import (
    PROPERTY_ARRIVE_TIME,
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    decode_properties,
)
from remoting.topics import REPLY_TOPIC_SUFFIX

_log = logging.getLogger(__name__)

# Requests of one client that wait for a reply, some KiB each. Beyond it: SendBacklogFull.
WAITING_MAX = 10_000
# Without these nobody could be replied to.
_OF_A_REQUEST = (PROPERTY_CLUSTER, PROPERTY_REPLY_TO_CLIENT, PROPERTY_CORRELATION_ID)


@dataclass(slots=True)
class ReplyMessage(Message):
    """The reply to a request: sent like any message, and pushed to the client that asked.

    `broker` is the one that its request came from: it is tried first.
    """

    broker: str = ""


def reply_to(request: MessageExt, body: bytes) -> ReplyMessage:
    """Return the reply to a request that was consumed: ``await producer.send(reply_to(request, body))``.

    Raises MessageRefused when the message is no request: nobody waits for a reply to it.
    """
    if not isinstance(request, MessageExt):
        raise MessageRefused(f"{type(request).__name__} cannot be replied to: it takes a message that was consumed")
    missing = [name for name in _OF_A_REQUEST if not request.properties.get(name)]
    if missing:
        raise MessageRefused(
            f"message {request.msg_id} of topic {request.topic} is no request, it has no {' and no '.join(missing)}: "
            "nobody waits for a reply to it"
        )
    properties = {
        PROPERTY_MESSAGE_TYPE: REPLY,
        PROPERTY_CORRELATION_ID: request.properties[PROPERTY_CORRELATION_ID],
        PROPERTY_REPLY_TO_CLIENT: request.properties[PROPERTY_REPLY_TO_CLIENT],
    }
    if ttl := request.properties.get(PROPERTY_TTL):
        properties[PROPERTY_TTL] = ttl
    topic = request.properties[PROPERTY_CLUSTER] + REPLY_TOPIC_SUFFIX
    return ReplyMessage(topic, body, properties=properties, broker=request.broker_name)


def is_request(message: MessageExt) -> bool:
    """Tell whether somebody waits for a reply to a message."""
    return all(message.properties.get(name) for name in _OF_A_REQUEST)


class Replies:
    """The requests of one client that wait for their replies: bounded, and nothing is left of one that is given up."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._waiting: dict[str, tuple[asyncio.Future[MessageExt], object]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, owner: object) -> tuple[str, asyncio.Future[MessageExt]]:
        """Return a new correlation id and the future of its reply; raises SendBacklogFull."""
        if len(self._waiting) >= self._waiting_max:
            raise SendBacklogFull(f"{len(self._waiting)} requests of this client wait for replies: await some of them")
        number = str(uuid.uuid4())
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future, owner
        return number, future

    def forget(self, number: str) -> None:
        """Wait for that reply no more."""
        self._waiting.pop(number, None)

    def close(self, owner: object) -> None:
        """End what an owner waits for."""
        for future, whose in self._waiting.values():
            if whose is owner and not future.done():
                future.set_exception(ClientClosed("the producer was closed before the reply came"))

    def table(self) -> dict[int, ClientHandler]:
        """Return request code → handler."""
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._came}

    def _came(self, _connection: object, request: Command) -> Command:
        """Take a reply (326); one that nobody waits for any more is none of the broker's concern."""
        message = _message(request)
        number = message.properties.get(PROPERTY_CORRELATION_ID, "")
        future, _owner = self._waiting.get(number, (None, None))
        if future is None:
            _log.warning("a reply came that nobody waits for (any more): correlation id %s", number[:64])
        elif not future.done():
            future.set_result(message)
        return Command.response(ResponseCode.SUCCESS)


def _message(request: Command) -> MessageExt:
    """Return the reply that a broker pushed; HeaderError when it cannot be read."""
    header = request.header(ReplyMessageRequestHeader)
    properties = decode_properties((header.properties or "").encode())
    properties[PROPERTY_ARRIVE_TIME] = str(time.time_ns() // 1_000_000)
    body = bytes(request.body)
    if header.sysFlag & MessageSysFlag.COMPRESSED:
        try:
            body = decompress(body, header.sysFlag)
        except CompressionError as error:
            _log.error("the reply %s: %s", properties.get(PROPERTY_CORRELATION_ID, ""), error)
    return MessageExt(
        topic=header.topic,
        queue_id=header.queueId,
        queue_offset=0,
        physical_offset=0,
        flag=header.flag,
        sys_flag=header.sysFlag,
        born_timestamp=header.bornTimestamp,
        born_host=_host(header.bornHost),
        store_timestamp=header.storeTimestamp,
        store_host=_host(header.storeHost),
        reconsume_times=header.reconsumeTimes or 0,
        prepared_transaction_offset=0,
        body=body,
        body_crc=0,
        properties=properties,
    )


def _host(text: str) -> tuple[str, int]:
    """Return an address as records have it; brokers before 5.0 write "/host:port"."""
    try:
        return parse_address(text.removeprefix("/"))
    except ValueError:
        return "0.0.0.0", 0


# What an application answers a request with: None for no reply.
Answer = Callable[[MessageExt], Coroutine[Any, Any, bytes | None]]
Send = Callable[[Message], Awaitable[object]]


def answering(producer: Any, answer: Answer) -> Callable[[list[MessageExt]], Coroutine[Any, Any, None]]:
    """Return a consumer's callback that replies to requests: ``consumer.on_message(answering(producer, answer))``.

    `answer` is a coroutine function: it gets each message, and returns the reply's body, or None for no reply. What it
    raises counts as not consumed: the message comes again. A reply that cannot be sent is logged and the request
    counts as consumed: who asked has given up by the time that it would come again. Raises ArgumentRefused for a
    plain function.
    """
    if not inspect.iscoroutinefunction(answer) and not inspect.iscoroutinefunction(type(answer).__call__):
        raise ArgumentRefused(f"answering() takes a coroutine function (async def), not {answer!r}")
    send: Send = producer.send

    async def callback(messages: list[MessageExt]) -> None:
        for message in messages:
            body = await answer(message)
            if body is None or not is_request(message):
                continue
            reply = reply_to(message, body)
            try:
                await send(reply)
            except MessageRefused:
                raise
            except ClientError as error:
                _log.warning("the reply to %s was not sent: %s", message.msg_id, error)

    return callback
