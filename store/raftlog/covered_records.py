"""Reads the records that an entry covers: what followers do for every message, so in one loop.

The bytes have passed the entry's CRC and chain: they are what the leader wrote. What is checked here is that the leader
wrote records, whole, in their places, as many as it said.
"""

import struct
from functools import partial
from itertools import repeat
from typing import Any

from remoting.compiled.door import COMPILED, hotpath
from remoting.javahash import java_hash
from remoting.properties import indexed_columns
from remoting.record import BORNHOST_V6, FIXED_BYTES, MAGIC_V1, MAGIC_V2, STOREHOST_V6, SYSFLAG_AT, RecordError
from store.log.dispatch import SCHEDULE_TOPIC, queue_code
from store.types import Dispatched

_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
# Size, magic, physical offset: at the same place in all records.
_FRAME = struct.Struct(">iI20xq")
# A head as remoting.record.HEADS has it, of which only what is dispatched is read: size, magic, queue id, queue offset,
# physical offset, sysFlag, store timestamp, body size.
_HEADS = {
    bits: struct.Struct(f">iI4xi4xqqi8x{20 if bits & BORNHOST_V6 else 8}xq{20 if bits & STOREHOST_V6 else 8}x12xi")
    for bits in (0, BORNHOST_V6, STOREHOST_V6, _HOST_BITS)
}
# The byte of the sysFlag that holds the host bits.
_FLAGS_AT = SYSFLAG_AT + 3
_dispatched = partial(tuple.__new__, Dispatched)
# Topics whose names are kept; when they are that many, the table starts anew.
NAMES_MAX = 65_536


def check_covered(view: memoryview, position: int, count: int) -> None:
    """Raise RecordError unless `view` holds `count` records back to back, the first of them at `position`."""
    if COMPILED:
        wrong = hotpath.check_covered(view, position, count, FIXED_BYTES, MAGIC_V1, MAGIC_V2)
        if wrong < 0:
            return
    at = 0
    end = len(view)
    unpack = _FRAME.unpack_from
    for _ in range(count):
        if end - at < FIXED_BYTES:
            raise RecordError(f"fewer records than the {count} that it claims")
        size, magic, physical = unpack(view, at)
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
        # Those whose records are read all the same way.
        self._usual: dict[bytes, str] = {}

    def read(self, data: bytes | memoryview, start: int, count: int) -> list[Dispatched]:
        """Return what is dispatched of the `count` records in `data` from `start` on. Raises RecordError."""
        data = bytes(data)
        if COMPILED:
            usual = hotpath.read_covered(Dispatched, data, start, count, self._usual, MAGIC_V1)
            if usual is not None:
                return usual
        return self._read(data, start, count)

    def _read(self, data: bytes, start: int, count: int) -> list[Dispatched]:
        rows: list[tuple[Any, ...]] = []
        all_properties: list[bytes] = []
        topics, heads = self._topics, _HEADS
        at = start
        try:
            for _ in range(count):
                head = heads[data[at + _FLAGS_AT] & _HOST_BITS]
                size, magic, queue_id, offset, physical, sys_flag, timestamp, body_size = head.unpack_from(data, at)
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
                all_properties.append(properties)
                rows.append((topic, queue_id, offset, physical, size, timestamp, sys_flag))
                at = end
        except (struct.error, IndexError) as error:
            raise RecordError(f"the records of an entry contradict themselves at byte {at}") from error
        if not rows:
            return []
        tags, uniq_keys, keys = indexed_columns(all_properties)
        names, queue_ids, offsets, positions, sizes, timestamps, flags = zip(*rows, strict=True)
        codes = [java_hash(tag) if tag else 0 for tag in tags]
        if SCHEDULE_TOPIC in names:
            levels_ms = self._levels_ms
            codes = list(map(queue_code, names, tags, all_properties, timestamps, repeat(levels_ms)))
        return list(map(_dispatched, zip(
            names, queue_ids, offsets, positions, sizes, codes, timestamps, uniq_keys, keys, flags, tags, strict=True,
        )))  # fmt: skip

    def _learn(self, name: bytes) -> str:
        try:
            topic = str(name, "utf-8")
        except UnicodeDecodeError as error:
            raise RecordError("the topic is not UTF-8") from error
        if not topic:
            raise RecordError("a record without a topic")
        if len(self._topics) >= NAMES_MAX:
            self._topics.clear()
            self._usual.clear()
        self._topics[name] = topic
        if topic != SCHEDULE_TOPIC:
            self._usual[name] = topic
        return topic
