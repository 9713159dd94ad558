"""Check points and acknowledgements as records, and the handles that consumers have of what they took.

The JSON is that of RocketMQ's PopCheckPoint, AckMsg and BatchAckMsg, of which only what is needed is read.
"""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import orjson

from broker.pop.check_points import CheckPoint, CheckPointKey, PutOff, TakenInOrder
from remoting.properties import PROPERTY_TIMER_DELIVER_MS, encode_properties
from remoting.record import RecordError, decode_record
from remoting.topics import pop_retry_topic
from store.types import PendingRecord

CHECK_POINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
# Ours: a message that was taken in order is put off. RocketMQ passes over what it does not know.
PUT_OFF = "putOff"
# The revive queue that is told of what is taken in order; its check points stand in the other ones.
ORDERED_QUEUE = 999
# Characters of the name of an attempt: it stands in the check point.
ATTEMPT_MAX = 255
# Messages of one check point, and of one answer: RocketMQ's own bound.
TAKEN_MAX = 32
# RocketMQ has a check point come this long before what it says is due, so that acknowledgements come after it.
_AHEAD_MS = 1000
# Bytes of the bits of a batch acknowledgement: more than TAKEN_MAX messages that a filter has spread out.
_BITS_BYTES_MAX = 4096
# Messages of a check point that is read: RocketMQ's have no more than ours.
_TOGETHER_MAX = 1024
# Set when a record came out of RocketMQ's timer wheel.
_OF_WHEEL = "TIMER_DEQUEUE_MS"


class Handle(NamedTuple):
    """What a consumer shows of a message that it took (POP_CK, extraInfo)."""

    start: int
    """The offset of the first message of its check point."""
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    """0: the topic itself, 1: its retry topic of the group, 2: the same with a name of another form."""
    broker: str
    queue_id: int


class Ack(NamedTuple):
    """An acknowledgement."""

    key: CheckPointKey
    offsets: tuple[int, ...]


class _OrderBody(msgspec.Struct):
    a: str = ""
    n: list[int] = []


class _CheckPointBody(msgspec.Struct):
    so: int
    pt: int
    it: int
    q: int
    t: str
    c: str
    bn: str = ""
    n: int = 0
    bm: int = 0
    d: list[int] | None = None
    order: _OrderBody | None = None


class _PutOffBody(msgspec.Struct):
    so: int
    pt: int
    q: int
    t: str
    c: str
    o: int
    n: int
    u: int


class _AckBody(msgspec.Struct):
    so: int
    pt: int
    q: int
    t: str
    c: str
    ao: int = -1
    aol: list[int] | None = None


class BatchAckEntry(msgspec.Struct):
    """One entry of BATCH_ACK_MESSAGE: messages of one check point, as bits from its start on."""

    c: str
    t: str
    so: int
    q: int
    rq: int
    pt: int
    it: int
    b: str
    r: str = "0"

    def offsets(self) -> list[int]:
        """Return the offsets of the messages. Raises ValueError."""
        if len(self.b) > 2 * _BITS_BYTES_MAX:
            raise ValueError(f"the bits of one acknowledgement have at most {_BITS_BYTES_MAX} bytes")
        try:
            bits = b64decode(self.b, validate=True)
        except binascii.Error as error:
            raise ValueError(f"the bits of an acknowledgement are no Base64: {error}") from None
        if int.from_bytes(bits, "little").bit_count() > TAKEN_MAX:
            raise ValueError(f"one pop takes at most {TAKEN_MAX} messages")
        return [
            self.so + 8 * place + bit for place, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1
        ]

    def topic(self) -> str:
        """Return the topic that the messages are in."""
        if self.r == "0":
            return self.t
        return pop_retry_topic(self.t, self.c, v2=self.r != "1")


class BatchAckBody(msgspec.Struct):
    """The body of BATCH_ACK_MESSAGE."""

    acks: list[BatchAckEntry]
    brokerName: str = ""


def read_handle(text: str) -> Handle:
    """Return what a handle says; raises ValueError."""
    parts = text.split(" ")
    if not 7 <= len(parts) <= 8:
        raise ValueError(f"{text[:100]!r} is no handle of a message that was taken")
    start, pop_ms, invisible_ms, revive_queue, kind, broker, queue_id = parts[:7]
    return Handle(int(start), int(pop_ms), int(invisible_ms), int(revive_queue), kind, broker, int(queue_id))


def check_point_record(topic: str, made: CheckPoint, store_host: bytes) -> PendingRecord:
    """Return the record of a check point, for the topic of these."""
    body = {
        "bm": 0,
        "bn": made.broker,
        "c": made.key.group,
        "d": [offset - made.key.start for offset in made.offsets],
        "it": made.invisible_ms,
        "n": len(made.offsets),
        "pt": made.key.pop_ms,
        "q": made.key.queue_id,
        "reviveTime": made.revive_ms,
        "ro": 0,
        "so": made.key.start,
        "sp": False,
        "t": made.key.topic,
    }
    if made.order is not None:
        # Besides what RocketMQ knows; it would have these messages come again in the retry topic.
        body["order"] = {"a": made.order.attempt, "n": made.order.times}
    key = made.key
    named = f"{key.topic}@{key.queue_id}@{key.start}@{key.group}@{key.pop_ms}@{made.broker}@ck"
    due = made.revive_ms - _AHEAD_MS
    return _record(topic, made.revive_queue, CHECK_POINT, orjson.dumps(body), named, due, key.pop_ms, store_host)


def ack_record(topic: str, made: CheckPoint, offsets: Sequence[int], now_ms: int, store_host: bytes) -> PendingRecord:
    """Return the record that acknowledges some messages of a check point."""
    key, one = made.key, len(offsets) == 1
    first = offsets[0] if one else -1
    body = {"ao": first, "bn": made.broker, "c": key.group, "pt": key.pop_ms, "q": key.queue_id, "so": key.start}
    body["t"] = key.topic
    if not one:
        body["aol"] = list(offsets)
    named = f"{key.topic}@{key.queue_id}@{first}@{key.group}@{key.pop_ms}@{made.broker}@ack"
    tag, due = ACK if one else BATCH_ACK, made.revive_ms
    return _record(topic, made.revive_queue, tag, orjson.dumps(body), named, due, now_ms, store_host)


def put_off_record(topic: str, made: CheckPoint, change: PutOff, now_ms: int, store_host: bytes) -> PendingRecord:
    """Return the record of a change of one message's time."""
    key = made.key
    body = {"c": key.group, "n": change.number, "o": change.offset, "pt": key.pop_ms, "q": key.queue_id}
    body |= {"so": key.start, "t": key.topic, "u": change.until_ms}
    named = f"{key.topic}@{key.queue_id}@{change.offset}@{key.group}@{key.pop_ms}@{made.broker}@{PUT_OFF}"
    return _record(
        topic, made.revive_queue, PUT_OFF, orjson.dumps(body), named, change.until_ms, now_ms, store_host
    )  # fmt: skip


def _record(
    topic: str, queue_id: int, tag: str, body: bytes, key: str, due_ms: int, now_ms: int, store_host: bytes
) -> PendingRecord:
    told = encode_properties({PROPERTY_TIMER_DELIVER_MS: str(due_ms), "UNIQ_KEY": key, "TAGS": tag})
    return PendingRecord(topic, queue_id, 0, 0, now_ms, store_host, 0, 0, body, told)


def read_record(view: memoryview, queue_id: int, at: int) -> CheckPoint | Ack | PutOff:
    """Return what a record of the topic says; `queue_id` and `at` are its place. Raises RecordError."""
    record = decode_record(view)
    tag = record.properties.get("TAGS", "")
    try:
        if tag == CHECK_POINT:
            told = msgspec.json.decode(record.body, type=_CheckPointBody)
            differences = told.d if told.d is not None else range(min(told.n, _TOGETHER_MAX + 1))
            if not 0 < len(differences) <= _TOGETHER_MAX:
                raise ValueError(f"a check point of {len(differences)} messages")
            made = CheckPoint(
                CheckPointKey(told.t, told.c, told.q, told.so, told.pt),
                told.it,
                told.bn,
                queue_id,
                tuple(told.so + difference for difference in differences),
                of_wheel=_OF_WHEEL in record.properties,
                order=None if told.order is None else _order(told.order, len(differences)),
            )
            made.at = at
            return made
        if tag in {ACK, BATCH_ACK}:
            answer = msgspec.json.decode(record.body, type=_AckBody)
            key = CheckPointKey(answer.t, answer.c, answer.q, answer.so, answer.pt)
            return Ack(key, tuple(answer.aol) if answer.aol is not None else (answer.ao,))
        if tag == PUT_OFF:
            change = msgspec.json.decode(record.body, type=_PutOffBody)
            key = CheckPointKey(change.t, change.c, change.q, change.so, change.pt)
            return PutOff(key, change.o, change.n, change.u)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RecordError(f"a record of POP's cannot be read: {error}") from None
    raise RecordError(f"a record of POP's has the tag {tag[:20]!r}")


def _order(told: _OrderBody, count: int) -> TakenInOrder:
    if len(told.n) != count:
        raise ValueError(f"{len(told.n)} counts of {count} messages")
    return TakenInOrder(told.a, tuple(told.n))
