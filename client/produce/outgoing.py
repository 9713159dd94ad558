"""One send on its way: what stays the same over its attempts, and the request each attempt makes of it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from client.compression import Codec, compress, compressed_flag
from client.errors import ClientError, MessageRefused, SendFailed, may_be_stored
from client.hooks import SendCall
from client.message import Message, SendResult, SendStatus, batch_body, check_batch, check_message, is_reply
from client.produce.arguments import check_messages
from client.replies import ReplyMessage
from client.retry import retriable
from remoting.bodies.registry import MessageQueue
from remoting.codes import TRANSACTION_MASK, MessageSysFlag, RequestCode
from remoting.command import Command
from remoting.errors import InvokeError, RemotingError, ResponseError
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.msgid import UniqKeys
from remoting.topics import AUTO_CREATE_TOPIC

_IDEMPOTENT = int(MessageSysFlag.IDEMPOTENT)
# Of what is left of a send's time when an attempt's outcome is unknown, the part that belongs to the same broker group:
# it alone can tell a repetition. What is left then is for others, at the price of a message that may be stored twice.
STAY_SHARE = 0.75


class StoredWeakly(ResponseError):
    """An answer that says: stored, but less safely than configured (10, 11, 12)."""

    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(code, remark, address)
        self.retriable = True


class HookCaller(Protocol):
    """What hooks are called by, before and after a send."""

    def begin(self, message: Any) -> tuple[Any, tuple[SendCall, ...]]:
        """Call them before a send; returns what to send."""
        ...

    def end(
        self, sendings: Sequence[SendCall], result: SendResult | None = None, error: BaseException | None = None
    ) -> None:
        """Call them after it."""
        ...


Selector = Callable[[list[MessageQueue], Message, Any], MessageQueue]


class Outgoing:
    """A message or batch being sent. `queue` is set when it may go to that one only (asked for, or selected)."""

    __slots__ = (
        "address",
        "answer",
        "arg",
        "assumed",
        "attempted",
        "attempts",
        "avoid",
        "body",
        "born_ms",
        "code",
        "counted",
        "deadline",
        "failed_broker",
        "flag",
        "future",
        "may_be_stored",
        "message",
        "msg_id",
        "properties",
        "queue",
        "selector",
        "sendings",
        "started",
        "stay_until",
        "stay_with",
        "sys_flag",
        "topic",
        "weak",
    )

    def __init__(self, message: Message, code: int, msg_id: str, properties: str, body: bytes, sys_flag: int) -> None:
        self.message = message
        self.topic = message.topic
        self.code = code
        self.msg_id = msg_id
        self.properties = properties
        self.body = body
        self.sys_flag = sys_flag
        self.flag = message.flag
        self.born_ms = time.time_ns() // 1_000_000
        self.queue: MessageQueue | None = None
        self.selector: Selector | None = None
        self.arg: Any = None
        self.started = time.monotonic()
        self.deadline = 0.0
        self.future: asyncio.Future[SendResult] | None = None
        # Whether it is one of those that the bounds of what is on its way count.
        self.counted = True
        self.attempts = 0
        # When the last attempt began: how slow its broker is, is measured from there.
        self.attempted = 0.0
        self.failed_broker: str | None = None
        # Where the last attempt went, and whom the next one leaves alone: it did not answer, or leads no more.
        self.address = ""
        self.avoid: str | None = None
        # The topic did not exist when the last attempt began.
        self.assumed = False
        # Until then only this broker group is asked: it may have the message, and knows.
        self.stay_with = ""
        self.stay_until = 0.0
        # Some attempt had an unknown end: whatever the later ones say, a broker may have the message.
        self.may_be_stored = False
        # What hooks know of it, and what came with the broker's answer.
        self.sendings: tuple[SendCall, ...] = ()
        self.answer: Mapping[str, str] | None = None
        # Stored, but less safely than asked: the result, unless another attempt has a better one.
        self.weak: SendResult | None = None

    def request(self, group: str, queue: MessageQueue, default_queues: int, *, oneway: bool = False) -> Command:
        """Return the request of the next attempt, to the broker of `queue`."""
        header = SendMessageRequestHeaderV2(
            producerGroup=group,
            topic=self.topic,
            defaultTopic=AUTO_CREATE_TOPIC,
            defaultTopicQueueNums=default_queues,
            queueId=queue.queueId,
            # Nobody repeats what is sent one way.
            sysFlag=self.sys_flag & ~_IDEMPOTENT if oneway else self.sys_flag,
            bornTimestamp=self.born_ms,
            flag=self.flag,
            properties=self.properties,
            reconsumeTimes=0,
            unitMode=False,
            batch=self.code == RequestCode.SEND_BATCH_MESSAGE,
            bname=queue.brokerName,
        )
        return Command.request(self.code, header, self.body, oneway=oneway)

    def failed(self, queue: MessageQueue, error: BaseException) -> None:
        """Note how an attempt ended: an idempotent one of unknown outcome is repeated where it was made at first."""
        unknown = may_be_stored(error)
        self.failed_broker = queue.brokerName
        self.avoid = self.address if isinstance(error, InvokeError) and error.reroute else None
        self.may_be_stored |= unknown
        # One who has stored it weakly is not asked again for more.
        asks = self.sys_flag & _IDEMPOTENT and type(error) is not StoredWeakly
        if unknown and asks and not self.stay_until:
            now = time.monotonic()
            self.stay_with, self.stay_until = queue.brokerName, now + (self.deadline - now) * STAY_SHARE

    def choice(self, queues: Sequence[MessageQueue]) -> tuple[Sequence[MessageQueue], str | None]:
        """Return among which queues the next attempt chooses, and which broker it leaves alone.

        A reply first goes to the broker that its request came from.
        """
        own: Sequence[MessageQueue] = ()
        if self.stay_until > time.monotonic():
            if own := [queue for queue in queues if queue.brokerName == self.stay_with]:
                return own, None
        elif type(self.message) is ReplyMessage and not self.attempts:
            own = [queue for queue in queues if queue.brokerName == self.message.broker]
        return own or queues, self.failed_broker

    def again(self, error: BaseException) -> bool:
        """Tell whether another attempt is right after `error`.

        To one queue only when nothing can have been stored: its user cares about order, which a repetition breaks.
        """
        return retriable(error) and (self.queue is None or not may_be_stored(error))

    @property
    def half(self) -> bool:
        """Whether it is the half message of a transaction."""
        return self.sys_flag & TRANSACTION_MASK == MessageSysFlag.TRANSACTION_PREPARED

    def want_better(self, result: SendResult, broker: str) -> None:
        """Raise StoredWeakly when a result is worth an attempt at another broker."""
        # A second half message would be left to its broker's questions.
        if result.status is not SendStatus.SEND_OK and self.queue is None and not self.half:
            self.weak = result
            raise StoredWeakly(int(result.status.value), "stored, but not as safely as asked", broker)

    def explained(self, error: BaseException) -> BaseException:
        """Return what the application is told of a send that ended with `error`.

        Whatever the last attempt met: when an earlier one may have stored the message, SendFailed says so.
        """
        known = isinstance(error, RemotingError | ClientError)
        # Of what nobody thought of it is not known how far it had come.
        self.may_be_stored |= not known and self.attempts > 0
        if isinstance(error, ClientError) and not self.may_be_stored:
            return error
        took = time.monotonic() - self.started
        fate = "may have been stored all the same" if self.may_be_stored else "was not stored"
        told = str(error) if known else f"{type(error).__name__}: {error}"
        failed = SendFailed(
            f"send to topic {self.topic} failed after {self.attempts} attempt(s) in {took:.1f} s: {told}; "
            f"the message {fate}",
            sent=self.may_be_stored,
        )
        failed.__cause__ = error
        return failed


class Packer:
    """Makes an Outgoing of what the application sends: checks, ids, compression."""

    def __init__(
        self, keys: UniqKeys, *, compress_over: int, body_bytes_max: int, codec: Codec, idempotent: bool = True
    ) -> None:
        self._keys = keys
        self._asks = _IDEMPOTENT if idempotent else 0
        self._compress_over = compress_over
        self._body_bytes_max = body_bytes_max
        self._codec = codec

    def pack(self, message: Message | Sequence[Message], hooks: HookCaller | None = None) -> Outgoing:
        """Return what is to be sent, once the hooks have seen it; raises MessageRefused."""
        sendings: tuple[SendCall, ...] = ()
        try:
            if not isinstance(message, Message):
                check_messages(message)
            if hooks is not None:
                message, sendings = hooks.begin(message)
            out = self._pack(message)
        except Exception as error:
            if hooks is not None:
                hooks.end(sendings, error=error)
            if isinstance(error, ClientError):
                raise
            raise MessageRefused(f"the message cannot be sent as it is: {type(error).__name__}: {error}") from error
        out.sendings = sendings
        return out

    def _pack(self, message: Message | Sequence[Message]) -> Outgoing:
        if not isinstance(message, Message):
            return self._pack_batch(message)
        check_message(message, self._body_bytes_max)
        msg_id = self._keys.next()
        body, sys_flag = message.body, 0
        if len(body) > self._compress_over:
            packed = compress(body, self._codec)
            if len(packed) < len(body):
                body, sys_flag = packed, compressed_flag(self._codec)
        properties = message.properties_text(msg_id)
        if is_reply(message):
            return Outgoing(message, RequestCode.SEND_REPLY_MESSAGE_V2, msg_id, properties, body, sys_flag)
        return Outgoing(message, RequestCode.SEND_MESSAGE_V2, msg_id, properties, body, sys_flag | self._asks)

    def _pack_batch(self, messages: Sequence[Message]) -> Outgoing:
        check_batch(messages, self._body_bytes_max)
        ids = [self._keys.next() for _message in messages]
        body = batch_body(messages, ids, self._body_bytes_max)
        first = messages[0]
        # The header's properties are the whole batch's: only `wait` is.
        properties = f"WAIT\x01{'true' if first.wait else 'false'}\x02"
        return Outgoing(first, RequestCode.SEND_BATCH_MESSAGE, ",".join(ids), properties, body, self._asks)
