"""The forms of a transactional message: half, copy of a half, real message, discarded one; and the op message.

Properties are handled as bytes: what a producer wrote comes out as it went in.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from broker.messages.delayed_record import pending, waiting, without
from remoting.codes import TRANSACTION_MASK, MessageSysFlag
from remoting.msgid import pack_host
from remoting.properties import (
    PROPERTY_DELAY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    decode_properties,
    find_property,
)
from remoting.record import RecordError, decode_record, encode_record
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.types import PendingRecord

PROPERTY_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_ROOT = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECKS = "TRANSACTION_CHECK_TIMES"
# The tag of an op message whose body names halves that are over.
OP_TAG = "d"
# A number of more digits is no offset, no count and no time.
DIGITS_MAX = 18

_REAL_TOPIC = f"{PROPERTY_REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID = f"{PROPERTY_REAL_QUEUE_ID}\x01".encode()
_UNIQ_KEY = f"{PROPERTY_UNIQ_KEY}\x01".encode()
_DELAY = f"{PROPERTY_DELAY}\x01".encode()
_OF_REAL = frozenset({PROPERTY_REAL_TOPIC.encode(), PROPERTY_REAL_QUEUE_ID.encode()})
_CHECKS = frozenset({PROPERTY_CHECKS.encode()})
_ROOT = frozenset({PROPERTY_ROOT.encode()})
# What a half gets here, and no producer writes.
_OURS = _OF_REAL | _CHECKS | _ROOT | {PROPERTY_TRANSACTION_ID.encode()}
_COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)


class HalfView(NamedTuple):
    """What the record of a half, or of a copy of one, says."""

    offset: int
    """In the half queue."""
    position: int
    """In the log."""
    root: int
    """What it says is the first copy's offset; -1 when it says nothing."""
    checks: int
    """How often its producer was asked; 0 of a first copy."""
    immunity_ms: int
    """For so long its producer is not asked; -1: as long as the broker's transactionTimeOut says."""
    born_ms: int
    stored_ms: int
    group: str
    topic: str
    """Where the real message goes."""
    queue_id: int
    key: str
    """UNIQ_KEY, which is the transaction's id."""


def half(record: PendingRecord) -> PendingRecord:
    """Return the half message of a prepared one. Its UNIQ_KEY becomes the transaction's id; a delay waits with it."""
    key = find_property(record.properties, _UNIQ_KEY)
    told = b"".join(
        (
            f"{PROPERTY_TRANSACTION_ID}\x01".encode(), key,
            f"\x02{PROPERTY_REAL_TOPIC}\x01{record.topic}\x02{PROPERTY_REAL_QUEUE_ID}\x01{record.queue_id}\x02".encode(),
        )
    )  # fmt: skip
    return msgspec.structs.replace(
        record,
        topic=TRANS_HALF_TOPIC,
        queue_id=0,
        sys_flag=record.sys_flag & ~TRANSACTION_MASK,
        properties=without(record.properties, _OURS) + told,
    )


def view_of(record: PendingRecord, offset: int, position: int, stored_ms: int) -> HalfView:
    """Return what a half says that was stored there."""
    said = decode_properties(record.properties)
    topic, queue_id = said.get(PROPERTY_REAL_TOPIC, ""), _number(said.get(PROPERTY_REAL_QUEUE_ID, ""), -1)
    if not topic or queue_id < 0:
        raise RecordError(f"{PROPERTY_REAL_TOPIC} or {PROPERTY_REAL_QUEUE_ID} is missing")
    return HalfView(
        offset,
        position,
        _number(said.get(PROPERTY_ROOT, ""), -1),
        max(0, _number(said.get(PROPERTY_CHECKS, ""), 0)),
        immunity_ms(said),
        record.born_timestamp,
        stored_ms,
        said.get(PROPERTY_PRODUCER_GROUP, ""),
        topic,
        queue_id,
        said.get(PROPERTY_UNIQ_KEY, ""),
    )


def read_half(view: bytes | memoryview, *topics: str) -> HalfView:
    """Return what a half says; RecordError when it is none, or stands in none of the topics (by default the half's)."""
    stored = decode_record(view)
    if stored.topic not in (topics or (TRANS_HALF_TOPIC,)):
        raise RecordError("no half message stands here")
    return view_of(pending(view), stored.queue_offset, stored.physical_offset, stored.store_timestamp)


def immunity_ms(properties: Mapping[str, str]) -> int:
    """Return what CHECK_IMMUNITY_TIME_IN_SECONDS says in milliseconds; -1 when it says nothing that is a time."""
    seconds = _number(properties.get(PROPERTY_IMMUNITY, ""), -1)
    return seconds * 1000 if seconds >= 0 else -1


def real(view: bytes | memoryview, levels: int, root: int = -1) -> PendingRecord:
    """Return the message that a committed half becomes: in its queue, or with one of the delay levels on its way there.

    `root` is named in it when it is given, as in that of every copy. RecordError when nothing says where it belongs.
    """
    stored = decode_record(view)
    record = pending(view)
    topic, queue_id = find_property(record.properties, _REAL_TOPIC), find_property(record.properties, _REAL_QUEUE_ID)
    if not topic or not queue_id.isdigit():
        raise RecordError(f"{PROPERTY_REAL_TOPIC} or {PROPERTY_REAL_QUEUE_ID} is missing")
    properties = without(record.properties, _OF_REAL)
    if root >= 0:
        properties = without(properties, _ROOT) + f"{PROPERTY_ROOT}\x01{root}\x02".encode()
    committed = msgspec.structs.replace(
        record,
        topic=topic.decode("utf-8", "replace"),
        queue_id=int(queue_id),
        sys_flag=record.sys_flag & ~TRANSACTION_MASK | _COMMIT,
        prepared_transaction_offset=stored.physical_offset,
        properties=properties,
    )
    level = min(_number(find_property(record.properties, _DELAY).decode("ascii", "replace"), 0), levels)
    return waiting(committed, level) if level > 0 else committed


def again(view: bytes | memoryview, root: int, checks: int) -> PendingRecord:
    """Return the next copy of a half, or of a discarded one, in the half queue; below 0 no root is known."""
    record = pending(view)
    told = f"{PROPERTY_CHECKS}\x01{checks}\x02" + (f"{PROPERTY_ROOT}\x01{root}\x02" if root >= 0 else "")
    return msgspec.structs.replace(
        record,
        topic=TRANS_HALF_TOPIC,
        queue_id=0,
        properties=without(record.properties, _CHECKS | _ROOT) + told.encode(),
    )


def discarded(view: bytes | memoryview, root: int) -> PendingRecord:
    """Return what stands for a half that nobody ended, for an administrator to look at."""
    record = pending(view)
    return msgspec.structs.replace(
        record,
        topic=TRANS_CHECK_MAX_TIME_TOPIC,
        queue_id=0,
        properties=without(record.properties, _ROOT) + f"{PROPERTY_ROOT}\x01{root}\x02".encode(),
    )


def asked(view: bytes | memoryview, copy: PendingRecord, offset: int, position: int) -> bytes:
    """Return the record that a producer is asked about: as it was, where its copy stands, in its real queue."""
    stored = decode_record(view)
    said = decode_properties(copy.properties)
    properties = (
        without(copy.properties, frozenset({PROPERTY_WAIT.encode()})) + f"{PROPERTY_WAIT}\x01false\x02".encode()
    )
    return encode_record(
        said[PROPERTY_REAL_TOPIC],
        int(said[PROPERTY_REAL_QUEUE_ID]),
        copy.body,
        properties,
        queue_offset=offset,
        physical_offset=position,
        flag=copy.flag,
        sys_flag=copy.sys_flag,
        born_timestamp=copy.born_timestamp,
        born_host=copy.born_host,
        store_timestamp=stored.store_timestamp,
        store_host=pack_host(*stored.store_host),
        reconsume_times=copy.reconsume_times,
    )


def op(offsets: Iterable[int], store_host: bytes, now_ms: int) -> PendingRecord:
    """Return the op message that says that these halves are over."""
    body = "".join([f"{offset}," for offset in offsets]).encode()
    return PendingRecord(
        TRANS_OP_HALF_TOPIC, 0, 0, 0, now_ms, store_host, 0, 0, body, f"WAIT\x01true\x02TAGS\x01{OP_TAG}\x02".encode()
    )


def over(view: bytes | memoryview) -> Iterator[int]:
    """Yield the offsets of the halves that an op message says are over; what is none of these says nothing."""
    stored = decode_record(view)
    if stored.properties.get("TAGS") != OP_TAG:
        return
    for part in bytes(stored.body).split(b","):
        offset = _number(part.strip().decode("ascii", "replace"), -1)
        if offset >= 0:
            yield offset


def commit_of(view: bytes | memoryview) -> tuple[int, int] | None:
    """Return of a committed real message the position of its half, and the root that it names (-1: none)."""
    stored = decode_record(view)
    if stored.sys_flag & TRANSACTION_MASK != _COMMIT:
        return None
    return stored.prepared_transaction_offset, _number(stored.properties.get(PROPERTY_ROOT, ""), -1)


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else otherwise
