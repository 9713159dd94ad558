"""One place that tells queues and index of new records, whether they were just put or found by scanning the log."""

import struct
from collections.abc import Sequence

from remoting.codes import MessageSysFlag
from remoting.javahash import java_hash
from remoting.properties import PROPERTY_DELAY, find_property, indexed_properties
from remoting.record import BORNHOST_V6, HEADS, MAGIC_V2, STOREHOST_V6, SYSFLAG_AT, RecordError
from remoting.topics import RAFT_TOPIC
from store.controlrecord import control_term
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.types import Dispatched

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# messageDelayLevel's default: ms of level 1, 2, …
DELAY_LEVELS_MS = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_DELAY = f"{PROPERTY_DELAY}\x01".encode()
_SYSFLAG = struct.Struct(">i")
# Set in prepared (0x4) and rolled-back (0xC) records, not in plain (0) and committed (0x8) ones.
_HIDDEN = int(MessageSysFlag.TRANSACTION_PREPARED)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the ms of each level of a messageDelayLevel ("1s 5s 1m 2h"); ValueError when a level is no such time."""
    levels = []
    for level in text.split():
        if level[-1] not in _UNIT_MS or not level[:-1].isdecimal():
            raise ValueError(f"messageDelayLevel: {level!r} is no number followed by s, m, h or d")
        levels.append(int(level[:-1]) * _UNIT_MS[level[-1]])
    return tuple(levels)


def queue_code(
    topic: str, tags: bytes, properties: bytes, store_timestamp: int, levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
) -> int:
    """Return the tags code of a record's ConsumeQueue entry.

    It is the hash of TAGS, and for a delayed message that waits in SCHEDULE_TOPIC_XXXX the time when it is due, ms.
    """
    if topic == SCHEDULE_TOPIC:
        level = find_property(properties, _DELAY)
        if levels_ms and level.isdigit() and int(level) > 0:
            return store_timestamp + levels_ms[min(int(level), len(levels_ms)) - 1]
    return java_hash(tags) if tags else 0


def dispatched_from_record(
    view: bytes | memoryview, position: int = 0, levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
) -> Dispatched:
    """Return what is dispatched of the whole record that starts at `position` of `view`.

    The record's frame has been checked (size, magic, CRC); RecordError when its inner lengths contradict each other.
    """
    (flags,) = _SYSFLAG.unpack_from(view, position + SYSFLAG_AT)
    head = HEADS[flags & (BORNHOST_V6 | STOREHOST_V6)]
    (total, magic, _, queue_id, _, queue_offset, physical, sys_flag, _, _, store_timestamp, _, _, _, body_size) = (
        head.unpack_from(view, position)
    )
    end = position + total
    wide = 2 if magic == MAGIC_V2 else 1
    at = position + head.size + body_size
    if body_size < 0 or at + wide + 2 > end:
        raise RecordError(f"the body's length {body_size} does not fit into the record's {total} bytes")
    topic_end = at + wide + int.from_bytes(view[at : at + wide], "big")
    if topic_end + 2 > end:
        raise RecordError(f"the topic does not fit into the record's {total} bytes")
    properties = bytes(view[topic_end + 2 : end])
    try:
        topic = str(view[at + wide : topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError("the topic is not UTF-8") from error
    tags, uniq_key, keys = indexed_properties(properties)
    if topic == RAFT_TOPIC:
        code = control_term(view, position + head.size, body_size)
    else:
        code = queue_code(topic, tags, properties, store_timestamp, levels_ms)
    return Dispatched(
        topic,
        queue_id,
        queue_offset,
        physical,
        total,
        code,
        store_timestamp,
        uniq_key,
        keys,
        sys_flag,
        tags,
    )


def is_hidden(sys_flag: int) -> bool:
    """Tell whether a record stands in no queue: prepared and rolled-back transaction messages do not."""
    return bool(sys_flag & _HIDDEN)


class Dispatcher:
    """Feeds the queues and, when there is one, the index."""

    def __init__(self, queues: ConsumeQueues, index: MessageIndex | None) -> None:
        self._queues = queues
        self._index = index

    def dispatch(self, batch: Sequence[Dispatched], *, rebuilding: bool = False) -> None:
        """Tell queues and index of records in log order; what they have already is skipped.

        Prepared and rolled-back transaction records stand in no queue. `rebuilding`: the records come from a scan of
        the log, which may hold topics that were deleted and made anew (ConsumeQueues.append_many). Raises
        QueueOrderError.
        """
        visible = batch
        for each in batch:
            if each[9] & _HIDDEN:
                visible = [entry for entry in batch if not entry[9] & _HIDDEN]
                break
        self._queues.append_many(visible, rebuilding=rebuilding)
        if self._index is not None:
            self._index.append_many(batch)
