"""From the bytes of pull answers to Arrow batches, without a Python step per message but the walk over their lengths.

Columns of fixed width are gathered by numpy at the records' places. A column of variable width is first a view of the
whole answer as 2n-1 slices (value, gap, value, …), of which Arrow takes every other one: one memcpy per value. What is
rare goes the long way round: compressed bodies, properties that are not well-formed, text that is not UTF-8, messages
without a unique key.
"""

import logging
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from client.compression import CompressionError, decompress
from pipeline.spark.topic.properties import Properties, properties_of
from remoting.codes import MessageSysFlag
from remoting.msgid import offset_msg_id
from remoting.record import (
    BORNHOST_AT,
    BORNHOST_V6,
    FIXED_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    STOREHOST_V6,
    SYSFLAG_AT,
)

_log = logging.getLogger(__name__)

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Longs = np.ndarray[Any, np.dtype[np.int64]]

_SIZE = struct.Struct(">i")
_QUEUE_OFFSET_AT = 20
_PHYSICAL_AT = 28
_BORN_AT = 40
_V6_EXTRA = 12
_PROPERTY_COLUMNS = frozenset({"keys", "tags", "properties", "msgId"})


class PullBodyError(Exception):
    """A broker sent bytes that are no records; the text says where."""


def record_starts(data: bytes) -> Longs:
    """Return the places of the records that stand back to back in `data`; raises PullBodyError."""
    starts: list[int] = []
    position, end = 0, len(data)
    add, size_at = starts.append, _SIZE.unpack_from
    # What is shorter than a record cannot be one, and its size must not be read behind the end.
    while position <= end - FIXED_BYTES:
        (size,) = size_at(data, position)
        if size < FIXED_BYTES:
            raise PullBodyError(f"no record starts at byte {position} of {end}: it says {size} bytes")
        add(position)
        position += size
    if position != end:
        raise PullBodyError(f"the last record ends at byte {position}, the answer at {end}")
    return np.array(starts, dtype=np.int64)


class PulledRecords:
    """The records of some pull answers, back to back; columns are computed when they are asked for."""

    def __init__(self, data: bytes) -> None:
        """Raise PullBodyError for what is no sequence of records."""
        self._data = data
        self._bytes: Bytes = np.frombuffer(data, dtype=np.uint8)
        self._starts = record_starts(data)
        if not len(self):
            return
        magic = self._gather(self._starts + MAGIC_AT, ">u4")
        wide = magic == (MAGIC_V2 & 0xFFFFFFFF)
        if not np.all(wide | (magic == (MAGIC_V1 & 0xFFFFFFFF))):
            raise PullBodyError("a record's magic number is none of RocketMQ's two")
        self.sys_flags = self._gather(self._starts + SYSFLAG_AT, ">i4")
        born_v6 = np.where(self.sys_flags & BORNHOST_V6, _V6_EXTRA, 0)
        store_v6 = np.where(self.sys_flags & STOREHOST_V6, _V6_EXTRA, 0)
        self._stamp_at = self._starts + BORNHOST_AT + 8 + born_v6
        body_length_at = self._stamp_at + 28 + store_v6
        self._body_at = body_length_at + 4
        self._check(self._body_at)
        self._body_end = self._body_at + self._gather(body_length_at, ">i4")
        self._check(self._body_end)
        narrow_length = self._bytes[np.minimum(self._body_end, len(data) - 1)].astype(np.int64)
        topic_length = (
            np.where(wide, self._gather(self._body_end, ">i2"), narrow_length) if wide.any() else narrow_length
        )
        properties_length_at = self._body_end + np.where(wide, 2, 1) + topic_length
        self._check(properties_length_at)
        self._properties_at = properties_length_at + 2
        self._properties_end = self._properties_at + self._gather(properties_length_at, ">i2")
        ends = np.append(self._starts[1:], len(data))
        if not np.array_equal(self._properties_end, ends):
            raise PullBodyError("a record's lengths do not add up")
        self.queue_offsets = self._gather(self._starts + _QUEUE_OFFSET_AT, ">i8")

    def __len__(self) -> int:
        return len(self._starts)

    def batch(
        self, schema: pa.Schema, wanted: Sequence[bool] | Any | None, constants: dict[str, Any], tags: frozenset[str]
    ) -> pa.RecordBatch:
        """Return the columns of `schema`; of rows that `wanted` names (None: all), and whose tag is one of `tags`.

        `constants` are the columns that are the same for all: topic, queueId and brokerName.
        """
        properties = self._properties() if tags or _PROPERTY_COLUMNS & set(schema.names) else None
        columns = [self._column(field, constants, properties) for field in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        keep = None if wanted is None else pa.array(wanted)
        if tags:
            assert properties is not None
            tagged = pc.is_in(properties.text("TAGS"), pa.array(sorted(tags)))
            keep = tagged if keep is None else pc.and_(keep, tagged)
        return batch if keep is None else batch.filter(keep)

    def _column(self, field: pa.Field, constants: dict[str, Any], properties: Properties | None) -> pa.Array:
        name = field.name
        if name in constants:
            return pa.repeat(pa.scalar(constants[name], field.type), len(self))
        if name == "queueOffset":
            return pa.array(self.queue_offsets)
        if name in {"bornTimestamp", "storeTimestamp"}:
            at = self._starts + _BORN_AT if name == "bornTimestamp" else self._stamp_at
            # Spark's timestamps are microseconds.
            return pa.array(self._gather(at, ">i8") * 1000).view(field.type)
        if name == "body":
            return self._bodies()
        assert properties is not None, f"{name} is no column of a topic"
        if name == "properties":
            return properties.map(field.type)
        if name == "msgId":
            return self._ids(properties.text("UNIQ_KEY"))
        return properties.text({"keys": "KEYS", "tags": "TAGS"}[name])

    def _bodies(self) -> pa.Array:
        bodies = slices(self._data, self._body_at, self._body_end)
        packed = np.flatnonzero(self.sys_flags & MessageSysFlag.COMPRESSED)
        if not len(packed):
            return bodies
        values = bodies.to_pylist()
        for row in packed:
            try:
                values[row] = decompress(values[row], int(self.sys_flags[row]))
            except CompressionError as error:
                # As the client does: one bad message must not stop its queue.
                _log.error("the message at offset %d: %s", self.queue_offsets[row], error)
        return pa.array(values, type=pa.binary())

    def _ids(self, unique: pa.Array) -> pa.Array:
        """Return the unique keys, for messages that have none the ids of their places."""
        missing = np.flatnonzero(pc.or_kleene(pc.is_null(unique), pc.equal(unique, "")).to_numpy(zero_copy_only=False))
        if not len(missing):
            return unique
        values = unique.to_pylist()
        physical = self._gather(self._starts + _PHYSICAL_AT, ">i8")
        for row in missing:
            at = int(self._stamp_at[row]) + 8
            host = self._data[at : at + (20 if self.sys_flags[row] & STOREHOST_V6 else 8)]
            values[row] = offset_msg_id(host, int(physical[row]))
        return pa.array(values, type=pa.string())

    def _properties(self) -> Properties:
        return properties_of(slices(self._data, self._properties_at, self._properties_end))

    def _gather(self, at: Longs, kind: str) -> Longs:
        """Return the numbers that stand at these places."""
        width = np.dtype(kind).itemsize
        rows = sliding_window_view(self._bytes, width)[np.minimum(at, len(self._data) - width)]
        return rows.view(kind)[:, 0].astype(np.int64)

    def _check(self, at: Longs) -> None:
        """Refuse places outside of the record that they belong to."""
        ends = np.append(self._starts[1:], len(self._data))
        if np.any(at < self._starts) or np.any(at > ends):
            raise PullBodyError("a record's lengths lead out of it")


def slices(data: bytes | Any, starts: Longs, ends: Longs) -> pa.Array:
    """Return the slices of `data` (below 2 GiB) as a binary array; they must not overlap, in order."""
    edges = np.empty(2 * len(starts), dtype=np.int32)
    edges[0::2], edges[1::2] = starts, ends
    view = pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return view.take(pa.array(np.arange(0, len(edges), 2)))
