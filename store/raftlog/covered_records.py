"""Reads the records that an entry covers: what followers do for every message, so in one loop.

The bytes have passed the entry's CRC and chain: they are what the leader wrote. What is checked here is that the leader
wrote records, whole, in their places, as many as it said.
"""

import struct

from remoting.javahash import java_hash
from remoting.properties import indexed_properties
from remoting.record import BORNHOST_V6, FIXED_BYTES, HEADS, MAGIC_V1, MAGIC_V2, STOREHOST_V6, SYSFLAG_AT, RecordError
from store.log.dispatch import SCHEDULE_TOPIC, queue_code
from store.types import Dispatched

_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
# Size, magic, CRC, queue id, flag, queue offset, physical offset, sysFlag: at the same place in all records.
_FRAME = struct.Struct(">iIIiiqqi")
# The byte of the sysFlag that holds the host bits.
_FLAGS_AT = SYSFLAG_AT + 3
_new = tuple.__new__
# Topics whose names are kept; when they are that many, the table starts anew.
NAMES_MAX = 65_536


def check_covered(view: memoryview, position: int, count: int) -> None:
    """Raise RecordError unless `view` holds `count` records back to back, the first of them at `position`."""
    at = 0
    end = len(view)
    unpack = _FRAME.unpack_from
    for _ in range(count):
        if end - at < FIXED_BYTES:
            raise RecordError(f"fewer records than the {count} that it claims")
        size, magic, _, _, _, _, physical, _ = unpack(view, at)
        if (magic not in {MAGIC_V1, MAGIC_V2}) or not FIXED_BYTES <= size <= end - at or physical != position + at:
            raise RecordError(f"no record of position {position + at} where one is to stand")
        at += size
    if at != end:
        raise RecordError(f"more bytes than its {count} records")


class CoveredReader:
    """Makes of covered records what is dispatched. Keeps the topics' names between calls."""

    def __init__(self, levels_ms: tuple[int, ...]) -> None:
        self._levels_ms = levels_ms
        self._topics: dict[bytes, str] = {}

    def read(self, data: bytes | memoryview, start: int, count: int) -> list[Dispatched]:
        """Return what is dispatched of the `count` records in `data` from `start` on. Raises RecordError."""
        data = bytes(data)
        batch: list[Dispatched] = []
        topics, heads = self._topics, HEADS
        at = start
        try:
            for _ in range(count):
                head = heads[data[at + _FLAGS_AT] & _HOST_BITS]
                size, magic, _, queue_id, _, offset, physical, sys_flag, _, _, timestamp, _, _, _, body_size = (
                    head.unpack_from(data, at)
                )
                name_at = at + head.size + body_size
                if magic == MAGIC_V1:
                    name_end = name_at + 1 + data[name_at]
                    name = data[name_at + 1 : name_end]
                else:
                    name_end = name_at + 2 + int.from_bytes(data[name_at : name_at + 2], "big")
                    name = data[name_at + 2 : name_end]
                topic = topics.get(name) or self._learn(name)
                end = at + size
                properties = data[name_end + 2 : end]
                if name_end + 2 > end:
                    raise RecordError(f"the record at {physical} contradicts itself")
                tags, uniq_key, keys = indexed_properties(properties)
                if topic == SCHEDULE_TOPIC:
                    code = queue_code(topic, tags, properties, timestamp, self._levels_ms)
                else:
                    code = java_hash(tags) if tags else 0
                batch.append(_new(Dispatched, (
                    topic, queue_id, offset, physical, size, code, timestamp, uniq_key, keys, sys_flag, tags,
                )))  # fmt: skip
                at = end
        except (struct.error, IndexError) as error:
            raise RecordError(f"the records of an entry contradict themselves at byte {at}") from error
        return batch

    def _learn(self, name: bytes) -> str:
        try:
            topic = str(name, "utf-8")
        except UnicodeDecodeError as error:
            raise RecordError("the topic is not UTF-8") from error
        if not topic:
            raise RecordError("a record without a topic")
        if len(self._topics) >= NAMES_MAX:
            self._topics.clear()
        self._topics[name] = topic
        return topic
