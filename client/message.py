"""What an application sends, and what it gets back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache

from client.errors import ConsumeError, MessageRefused
from client.timers import TIMER_PROPERTIES, check_timer, timer_property
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from remoting.properties import PROPERTY_MESSAGE_TYPE
from remoting.record import encode_batch
from remoting.topics import RETRY_PREFIX, check_topic

BODY_BYTES_MAX = 4 * 1024 * 1024
# The record keeps the length of the properties in a signed int16.
PROPERTIES_BYTES_MAX = 32_767
INT32_MAX = 2**31 - 1
# How long a queue that is consumed in order may pause: whatever has its lock must not hold it up for ever.
RETRY_PAUSE_S_MAX = 30.0
# What MSG_TYPE says of a reply.
REPLY = "reply"
# What code 320 puts around each message: total size, magic, CRC, flag, body length, properties length.
BATCH_ENTRY_BYTES = 22

# Set from the message's own fields, or by brokers: an application's property of that name would be taken for theirs.
# fmt: off
RESERVED_PROPERTIES = frozenset({
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
    "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
    "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME", "INNER_NUM", "INNER_BASE", "DUP_INFO", "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__", "TRANSACTION_CHECK_TIMES", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME",
    "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_QUEUE_OFFSET", "__BORNHOST", "BORN_TIMESTAMP",
    "__CRC32#", "_SYS_MSG_PRIORITY_", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID",
})
# fmt: on


@dataclass(slots=True)
class Message:
    """One message to send.

    `keys` are what it can be looked up by (one text, blanks separate several; or a sequence); `tags` is one tag, what
    consumers filter by; `flag` an int32 that RocketMQ only carries; `delay_level` 1 to 18 (1 s … 2 h), 0 for at once;
    with `wait` False a SYNC_FLUSH broker answers before its disk did. `deliver_at` (a datetime, or milliseconds since
    the epoch) or `delay` (seconds, or a timedelta) make it a timer message: delivered then, to the second. `priority`,
    from 0 on, sends it to the queue of that number, or the highest one: consumers by POP get those first, where the
    topic's message.type is PRIORITY.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    delay_level: int = 0
    wait: bool = True
    deliver_at: datetime | int | None = None
    delay: float | timedelta | None = None
    priority: int | None = None

    @property
    def delayed(self) -> bool:
        """Whether it is to be delivered later than it is sent."""
        timed = (
            self.deliver_at is not None or self.delay is not None or not TIMER_PROPERTIES.isdisjoint(self.properties)
        )
        return timed or bool(self.delay_level)

    def properties_text(self, uniq_key: str) -> str:
        """Return the properties as the send header carries them; raises MessageRefused when they cannot be written."""
        parts = [f"UNIQ_KEY\x01{uniq_key}\x02WAIT\x01{'true' if self.wait else 'false'}\x02"]
        if self.tags:
            parts.append(f"TAGS\x01{_plain('the tag', self.tags)}\x02")
        if self.keys:
            keys = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
            parts.append(f"KEYS\x01{_plain('a key', keys)}\x02")
        if self.delay_level:
            parts.append(f"DELAY\x01{self.delay_level}\x02")
        if self.priority is not None:
            parts.append(f"_SYS_MSG_PRIORITY_\x01{self.priority}\x02")
        if self.deliver_at is not None or self.delay is not None:
            parts.append("{}\x01{}\x02".format(*timer_property(self.deliver_at, self.delay)))
        for name, value in self.properties.items():
            if name in RESERVED_PROPERTIES:
                raise MessageRefused(f"the property name {name} is RocketMQ's own; use another (or the field for it)")
            if not name or not value:
                raise MessageRefused(f"the property {name or value!r} has an empty name or value; leave it out")
            parts.append(f"{_plain('a property name', name)}\x01{_plain('a property', value)}\x02")
        text = "".join(parts)
        # Four bytes a character at most, so the exact length matters only for long ones.
        if len(text) * 4 > PROPERTIES_BYTES_MAX and len(text.encode()) > PROPERTIES_BYTES_MAX:
            raise MessageRefused(
                f"the properties take {len(text.encode())} bytes, {PROPERTIES_BYTES_MAX} at most: put data in the body"
            )
        return text


def _plain(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise MessageRefused(f"{what} is {text!r}: it takes a str")
    if "\x01" in text or "\x02" in text:
        raise MessageRefused(f"{what} contains the character \\x01 or \\x02, which separate properties on the wire")
    return text


# Most sends go to few topics; their names are looked at once.
_topic_fault = lru_cache(maxsize=1024)(check_topic)


def check_message(message: Message, body_bytes_max: int) -> None:
    """Raise MessageRefused when the message cannot be sent as it is."""
    if type(message.topic) is not str or type(message.body) is not bytes or type(message.properties) is not dict:
        _check_types(message)
    if (
        message.flag
        or message.delay_level
        or message.priority is not None
        or type(message.tags) is not str
        or message.keys
    ):
        _check_fields(message)
    if message.deliver_at is not None or message.delay is not None:
        check_timer(message.deliver_at, message.delay, message.delay_level, message.properties)
    wrong = _topic_fault(message.topic)
    if wrong is not None:
        raise MessageRefused(wrong)
    if not message.body:
        raise MessageRefused("the message body is empty: RocketMQ's clients refuse such messages")
    if len(message.body) > body_bytes_max:
        raise MessageRefused(f"the message body has {len(message.body)} bytes, {body_bytes_max} at most")


def _check_types(message: Message) -> None:
    if not isinstance(message.topic, str):
        raise MessageRefused(f"the topic is {message.topic!r}: it takes a str")
    if isinstance(message.body, str):
        raise MessageRefused("the message body is a str: encode it, as in body.encode()")
    if not isinstance(message.body, bytes):
        raise MessageRefused(f"the message body is of type {type(message.body).__name__}: it takes bytes")
    if not isinstance(message.properties, dict):
        raise MessageRefused(
            f"the properties are of type {type(message.properties).__name__}: it takes a dict of texts"
        )


def _check_fields(message: Message) -> None:
    priority = message.priority
    if priority is not None and (type(priority) is not int or not 0 <= priority <= INT32_MAX):
        raise MessageRefused(f"the priority is {priority!r}: it takes a number from 0 on, or None")
    flag, level, keys = message.flag, message.delay_level, message.keys
    if not isinstance(flag, int) or not -INT32_MAX - 1 <= flag <= INT32_MAX:
        raise MessageRefused(f"the flag is {flag!r}: it takes a signed number of 32 bits")
    if not isinstance(level, int) or not 0 <= level <= INT32_MAX:
        raise MessageRefused(f"the delay level is {level!r}: it takes 1 to 18, or 0 for none")
    if message.tags is not None and not isinstance(message.tags, str):
        raise MessageRefused(f"the tag is {message.tags!r}: it takes one text, or None")
    if not isinstance(keys, str) and not (isinstance(keys, Sequence) and all(isinstance(key, str) for key in keys)):
        raise MessageRefused(f"the keys are {keys!r}: it takes one text or a sequence of texts")


def is_reply(message: Message) -> bool:
    """Tell whether a broker is to push a message to the client that asked, as RocketMQ's clients tell it."""
    return message.properties.get(PROPERTY_MESSAGE_TYPE) == REPLY


def alone_because(message: Message) -> str | None:
    """Return why a message cannot be part of a batch, whatever the others are; None when it can."""
    if message.delayed:
        return "a message with a delay cannot be part of a batch: send it alone"
    if message.priority is not None:
        return "a message with a priority cannot be part of a batch: send it alone"
    if is_reply(message):
        return "a reply cannot be part of a batch: send it alone"
    if message.topic.startswith(RETRY_PREFIX):
        return f"a batch cannot go to the retry topic {message.topic}"
    return None


def check_batch(messages: Sequence[Message], body_bytes_max: int) -> None:
    """Raise MessageRefused when the messages cannot travel as one batch."""
    if not messages:
        raise MessageRefused("a batch holds at least one message")
    first = messages[0]
    for message in messages:
        check_message(message, body_bytes_max)
        if message.topic != first.topic or bool(message.wait) != bool(first.wait):
            raise MessageRefused("the messages of a batch have one topic and one `wait`: send them in several batches")
        wrong = alone_because(message)
        if wrong is not None:
            raise MessageRefused(wrong)


def batch_body(messages: Sequence[Message], uniq_keys: Sequence[str], body_bytes_max: int) -> bytes:
    """Return the body of a SEND_BATCH_MESSAGE (320); raises MessageRefused when it is too long."""
    body: bytes = encode_batch(
        [
            (message.flag, message.body, message.properties_text(key).encode())
            for message, key in zip(messages, uniq_keys, strict=True)
        ]
    )
    if len(body) > body_bytes_max:
        raise MessageRefused(
            f"the batch takes {len(body)} bytes, {body_bytes_max} at most: `split_batch(messages)` makes smaller ones"
        )
    return body


def split_batch(messages: Sequence[Message], bytes_max: int = BODY_BYTES_MAX) -> Iterator[list[Message]]:
    """Cut messages of one topic into batches that each fit `bytes_max`, in order.

    A message that is too long alone makes a batch of its own, which sending then refuses.
    """
    batch: list[Message] = []
    size = 0
    placeholder = "0" * 56  # as long as the longest unique key
    for message in messages:
        taken = BATCH_ENTRY_BYTES + len(message.body) + len(message.properties_text(placeholder).encode())
        if batch and size + taken > bytes_max:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += taken
    if batch:
        yield batch


class SendStatus(Enum):
    """How an acknowledged send ended. All of them mean: stored. The last three: not as safely as configured."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


STATUS_BY_CODE = {int(status.value): status for status in SendStatus}


@dataclass(slots=True)
class SendResult:
    """Where a message went. For a batch the ids are joined by commas and `queue_offset` is that of the first.

    `recall_handle` is what `Producer.recall` takes, of a timer message that its broker keeps.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None


class ConsumeResult(Enum):
    """What a concurrent or orderly callback says of the messages it was given. None means SUCCESS."""

    SUCCESS = "SUCCESS"
    # Concurrent: again later, through the retry topic. Orderly: the queue pauses, then the same messages again.
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class RetryLater:
    """What a callback returns of a message that failed, when it says how long it takes until it comes again.

    `level`: the delay level, 1 to 18 (1 s … 2 h; a higher one is the highest), 0 as the broker has it (10 s, and longer
    each time), -1 a dead letter at once. In order the level does not count (but for -1): the queue pauses for `pause` s
    (30 at most; None: 1 s), then its messages come again.
    """

    level: int = 0
    pause: float | None = None

    def __post_init__(self) -> None:
        """Raise ConsumeError for what cannot be meant."""
        if type(self.level) is not int or not -1 <= self.level <= INT32_MAX:
            raise ConsumeError(f"a retry has level {self.level!r}: it takes 1 to 18, 0 (the broker's) or -1 (no retry)")
        if self.pause is not None and not 0 <= self.pause <= RETRY_PAUSE_S_MAX:
            raise ConsumeError(f"a queue pauses for {self.pause!r} s: it takes 0 to {RETRY_PAUSE_S_MAX:g}, or None")


class ConsumeFrom(Enum):
    """Where a group starts that has no offset stored; the names are those of the heartbeat."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(Enum):
    """Whether the members of a group share the messages or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"
