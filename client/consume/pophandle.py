"""Handles of popped messages: by what the broker finds again what it gave to whom, until when. Pure.

A handle is text on the wire (the property POP_CK, the field extraInfo): "start popTime invisibleTime reviveQueue retry
broker queue offset". Brokers send its parts for all messages of an answer together, and clients put them together.
"""

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from remoting.errors import HeaderError
from remoting.headers.registry import PopMessageResponseHeader
from remoting.message import MessageExt
from remoting.properties import PROPERTY_POP_CK
from remoting.topics import is_retry_topic, pop_retry_topic

# Where a message was read: the topic itself, or the group's retry topic of the first or second form of name.
PLAIN, RETRY, RETRY_PLUS = "0", "1", "2"
_RETRIES = {PLAIN, RETRY, RETRY_PLUS}
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
# A bit of a batch acknowledgement stands for an offset past the first of its pop; a filter may spread them out.
BIT_MAX = 8191

_Queue = tuple[str, int]


class PopHandle(NamedTuple):
    """One message in the hands of one consumer; `start` is the first offset of its pop, `offset` its own."""

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker: str
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """The handle as it travels."""
        return " ".join(map(str, self))

    def topic(self, topic: str, group: str) -> str:
        """Return the topic in whose queue the message is, of the one that was subscribed."""
        if self.retry == PLAIN:
            return topic
        return pop_retry_topic(topic, group, v2=self.retry != RETRY)


def read_pop_handle(text: str) -> PopHandle:
    """Read a handle with all its parts; raises HeaderError."""
    parts = text.split(" ")
    if len(parts) != len(PopHandle._fields) or parts[4] not in _RETRIES:
        raise HeaderError(f"{text[:100]!r} is no handle of a popped message")
    start, pop_ms, invisible_ms, revive_queue, retry, broker, queue_id, offset = parts
    return PopHandle(
        _number(start), _number(pop_ms), _number(invisible_ms), _number(revive_queue), retry, broker,
        _number(queue_id), _number(offset),
    )  # fmt: skip


def pop_handles(answer: PopMessageResponseHeader, broker: str, messages: Sequence[MessageExt]) -> list[PopHandle]:
    """Return the handle of each message of an answer, in their order; raises HeaderError when a part is missing.

    A message from the retry topic that a broker shows under its first topic carries its handle already.
    """
    starts = {queue: _number(rest) for queue, rest in _infos(answer.startOffsetInfo or "")}
    listed = {
        queue: [_number(offset) for offset in rest.split(",")] for queue, rest in _infos(answer.msgOffsetInfo or "")
    }
    came: defaultdict[_Queue, list[int]] = defaultdict(list)
    for message in messages:
        if PROPERTY_POP_CK not in message.properties:
            came[_queue_of(message)].append(message.queue_offset)
    # Each message's place among those of its queue.
    places = {
        queue: {offset: place for place, offset in enumerate(sorted(set(offsets)))} for queue, offsets in came.items()
    }
    found = []
    for message in messages:
        told = message.properties.get(PROPERTY_POP_CK)
        if told is not None:
            found.append(read_pop_handle(told))
            continue
        queue = _queue_of(message)
        if starts:
            place = places[queue][message.queue_offset]
            if queue not in starts or place >= len(listed.get(queue, ())):
                raise HeaderError(f"the pop's answer does not say where message {message.msg_id} is from")
            start, offset = starts[queue], listed[queue][place]
        else:
            # Brokers before 4.9.4 say nothing.
            start, offset = min(places[queue]), message.queue_offset
        found.append(
            PopHandle(start, answer.popTime, answer.invisibleTime, answer.reviveQid, queue[0], broker, queue[1], offset)
        )
    return found


def order_counts(answer: PopMessageResponseHeader) -> dict[tuple[str, int, int], int]:
    """Return how often messages had been taken in order before, by (retry, queue, offset); those that never were lack.

    "retry qoQUEUE%OFFSET count;…", and between them "retry queue count" for clients that know no better.
    """
    found = {}
    for part in (answer.orderCountInfo or "").split(";"):
        words = part.split(" ")
        if len(words) != 3 or not words[1].startswith("qo"):
            continue
        queue, _, offset = words[1][2:].partition("%")
        found[words[0], _number(queue), _number(offset)] = _number(words[2])
    return found


def batch_body(broker: str, group: str, acks: Iterable[tuple[str, PopHandle]]) -> bytes:
    """Return the body of BATCH_ACK_MESSAGE for messages of (subscribed topic, handle), their pops in order.

    The messages of a pop are bits, the lowest its first offset; they must not be past BIT_MAX.
    """
    pops: defaultdict[tuple[str, PopHandle], int] = defaultdict(int)
    for topic, handle in acks:
        bit = handle.offset - handle.start
        assert 0 <= bit <= BIT_MAX, f"{handle} does not fit into a batch"
        pops[topic, handle._replace(offset=0)] |= 1 << bit
    entries: list[dict[str, Any]] = [
        {
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
            "c": group,
            "it": pop.invisible_ms,
            "pt": pop.pop_ms,
            "q": pop.queue_id,
            "r": pop.retry,
            "rq": pop.revive_queue,
            "so": pop.start,
            "t": topic,
        }
        for (topic, pop), bits in pops.items()
    ]
    return msgspec.json.encode({"acks": entries, "brokerName": broker})


def fits_batch(handle: PopHandle) -> bool:
    """Tell whether a batch can name the message."""
    return 0 <= handle.offset - handle.start <= BIT_MAX


def _infos(text: str) -> Iterable[tuple[_Queue, str]]:
    """Read "retry queue rest;…"."""
    for part in text.split(";") if text else ():
        words = part.split(" ")
        if len(words) != 3 or words[0] not in _RETRIES:
            raise HeaderError(f"{part[:100]!r} in a pop's answer is no place of messages")
        yield (words[0], _number(words[1])), words[2]


def _queue_of(message: MessageExt) -> _Queue:
    if not is_retry_topic(message.topic):
        return PLAIN, message.queue_id
    return RETRY_PLUS if "+" in message.topic else RETRY, message.queue_id


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise HeaderError(f"{text[:32]!r} in a pop's answer is no number")
    return int(text)
