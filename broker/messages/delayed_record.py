"""The two forms of a delayed message: as it waits in SCHEDULE_TOPIC_XXXX, and as it will be.

Properties are handled as bytes: what a producer wrote comes out as it went in. The three about the delay stay with the
delivered message, as RocketMQ's do: a consumer may ask how long its message waited.
"""

from collections.abc import Callable, Collection

import msgspec

from remoting.msgid import pack_host
from remoting.properties import (
    PAIR_END,
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    find_property,
)
from remoting.record import HEADS, MAGIC_AT, MAGIC_V2, RecordError, decode_record, host_flags
from remoting.topics import SCHEDULE_TOPIC
from store.errors import RecordDamaged
from store.types import PendingRecord

_REAL_TOPIC = f"{PROPERTY_REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID = f"{PROPERTY_REAL_QUEUE_ID}\x01".encode()
# Names of the properties that a message gets when it has to wait; of an earlier delay, when it has them before.
OF_DELAY = frozenset({PROPERTY_DELAY.encode(), PROPERTY_REAL_TOPIC.encode(), PROPERTY_REAL_QUEUE_ID.encode()})


def waiting(record: PendingRecord, level: int) -> PendingRecord:
    """Return the record that waits for `level` (from 1 on, at most the highest) to pass before `record` is stored."""
    assert level > 0, "a message without a delay waits nowhere"
    told = f"{PROPERTY_DELAY}\x01{level}\x02{PROPERTY_REAL_TOPIC}\x01{record.topic}\x02{PROPERTY_REAL_QUEUE_ID}\x01"
    properties = without(record.properties, OF_DELAY) + f"{told}{record.queue_id}\x02".encode()
    return msgspec.structs.replace(record, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties)


def real(view: bytes | memoryview) -> PendingRecord:
    """Return the message that the record of a waiting one stands for; RecordError when the record does not say it."""
    record = pending(view)
    topic = find_property(record.properties, _REAL_TOPIC)
    queue_id = find_property(record.properties, _REAL_QUEUE_ID)
    if not topic or not queue_id.isdigit():
        raise RecordError(f"{PROPERTY_REAL_TOPIC} or {PROPERTY_REAL_QUEUE_ID} is missing")
    return msgspec.structs.replace(
        record,
        topic=topic.decode("utf-8", "replace"),
        queue_id=int(queue_id),
    )


def real_at(
    record_at: Callable[[int], memoryview | None], position: int, *, mends: bool
) -> tuple[PendingRecord | None, str]:
    """Return the message that waits at a position, or None and why it cannot be had.

    Raises RecordDamaged when that will change: the bytes are not what was written, and `mends` says that they will be.
    """
    try:
        view = record_at(position)
        return (real(view), "") if view is not None else (None, "its record is gone")
    except RecordDamaged as error:
        if mends:
            raise
        return None, str(error)
    except RecordError as error:
        return None, str(error)


def pending(view: bytes | memoryview) -> PendingRecord:
    """Return a stored record as one that can be stored again; RecordError when it is damaged."""
    stored = decode_record(view)
    born_host = pack_host(*stored.born_host)
    head = HEADS[host_flags(0, born_host, pack_host(*stored.store_host))]
    wide = int.from_bytes(view[MAGIC_AT : MAGIC_AT + 4], "big") == MAGIC_V2
    properties_at = head.size + len(stored.body) + (2 if wide else 1) + len(stored.topic.encode()) + 2
    return PendingRecord(
        stored.topic,
        stored.queue_id,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp,
        born_host,
        stored.reconsume_times,
        stored.prepared_transaction_offset,
        stored.body,
        bytes(view[properties_at : stored.size]),
    )


def without(properties: bytes, names: Collection[bytes]) -> bytes:
    """Return encoded properties without those of these names; ends in a separator unless nothing is left."""
    kept = [pair for pair in properties.split(PAIR_END) if pair and pair.partition(b"\x01")[0] not in names]
    return b"".join([pair + PAIR_END for pair in kept])
