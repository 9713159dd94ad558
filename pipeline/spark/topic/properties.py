"""The properties of many messages at once: one column by name, or all of them as a map.

Properties are ``name 0x01 value 0x02`` repeated; the last 0x02 may be missing. Where both separators alternate, all
pairs of a column are found by one search for them; a column in which they do not is read row by row.
"""

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from remoting.properties import decode_properties

Longs = np.ndarray[Any, np.dtype[np.int64]]

_NAME_END, _PAIR_END = 1, 2


class Properties(Protocol):
    """The properties of a column of messages."""

    def text(self, name: str) -> pa.Array:
        """Return the values of one property; null where a message does not have it."""
        ...

    def map(self, kind: pa.MapType) -> pa.Array:
        """Return all properties as an array of `kind`, a map of text to text."""
        ...


def properties_of(raw: pa.Array) -> Properties:
    """Read a binary array that has a message's properties in each row."""
    indexed = IndexedProperties()
    return indexed if indexed.index(_closed(raw)) else DecodedProperties(raw)


class DecodedProperties:
    """Read row by row, with all that reading forgives."""

    def __init__(self, raw: pa.Array) -> None:
        self._rows = [decode_properties(row) for row in raw.to_pylist()]

    def text(self, name: str) -> pa.Array:
        """Return the values of one property."""
        return pa.array([row.get(name) for row in self._rows], type=pa.string())

    def map(self, kind: pa.MapType) -> pa.Array:
        """Return all properties."""
        return pa.array([list(row.items()) for row in self._rows], type=kind)


class IndexedProperties:
    """All pairs of the column, by their places in its bytes."""

    def __len__(self) -> int:
        return len(self._row_at) - 1

    def text(self, name: str) -> pa.Array:
        """Return the values of one property; null where a message does not have it."""
        wanted = name.encode()
        found = np.flatnonzero(self._name_ends - self._name_starts == len(wanted))
        if len(found):
            windows = sliding_window_view(self._bytes, len(wanted))[self._name_starts[found]]
            found = found[(windows == np.frombuffer(wanted, dtype=np.uint8)).all(axis=1)]
        rows = self._rows()[found]
        if len(rows) == len(self) and (len(rows) < 2 or bool(np.all(np.diff(rows) == 1))):
            return _utf8(self._cut(self._name_ends[found] + 1, self._value_ends[found]))
        # Of a name that stands twice in a row the last counts, as it does in an assignment with repeated places.
        place = np.full(len(self), -1, dtype=np.int64)
        place[rows] = np.arange(len(found))
        taken = pa.array(place, mask=place < 0)
        return _utf8(self._cut(self._name_ends[found] + 1, self._value_ends[found])).take(taken)

    def map(self, kind: pa.MapType) -> pa.Array:
        """Return all properties as an array of `kind`, a map of text to text."""
        keys = _utf8(self._cut(self._name_starts, self._name_ends))
        values = _utf8(self._cut(self._name_ends + 1, self._value_ends))
        offsets = self._row_at.astype(np.int32)
        repeated = self._repeated(keys)
        if repeated is not None:
            keys, values = keys.filter(pa.array(repeated)), values.filter(pa.array(repeated))
            kept = np.concatenate(([0], np.cumsum(repeated)))
            offsets = kept[offsets].astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets, type=pa.int32()), keys, values, type=kind)

    def _repeated(self, keys: pa.Array) -> Any | None:
        """Return which pairs are left when of each name only the last of a row counts; None when all are."""
        names = keys.dictionary_encode()
        marks = self._rows() * (len(names.dictionary) + 1) + names.indices.to_numpy().astype(np.int64)
        _, last = np.unique(marks[::-1], return_index=True)
        if len(last) == len(marks):
            return None
        keep = np.zeros(len(marks), dtype=bool)
        keep[len(marks) - 1 - last] = True
        return keep

    def _rows(self) -> Longs:
        """Return the row of each pair."""
        pairs: Longs = np.diff(self._row_at)
        return np.repeat(np.arange(len(self)), pairs)

    def index(self, raw: pa.Array) -> bool:
        """Find all pairs; False when some row's separators do not alternate."""
        _, edges, data = raw.buffers()
        offsets = np.frombuffer(edges, dtype=np.int32, count=len(raw) + 1)
        assert raw.offset == 0, "the column was just made"
        assert offsets[0] == 0, "its bytes too"
        self._bytes = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
        self._bytes = self._bytes[: offsets[-1]]
        marks = np.flatnonzero((self._bytes == _NAME_END) | (self._bytes == _PAIR_END))
        kinds = self._bytes[marks]
        if len(marks) % 2 or np.any(kinds[0::2] != _NAME_END) or np.any(kinds[1::2] != _PAIR_END):
            return False
        filled = offsets[1:] > offsets[:-1]
        if np.any(self._bytes[offsets[1:][filled] - 1] != _PAIR_END):
            return False
        self._name_ends: Longs = marks[0::2]
        self._value_ends: Longs = marks[1::2]
        self._name_starts: Longs = np.concatenate(([0], self._value_ends + 1))[:-1]
        # An empty name with an empty value counts as nothing.
        if np.any(self._value_ends - self._name_starts == 1):
            return False
        self._row_at: Longs = np.searchsorted(self._value_ends, offsets)
        return True

    def _cut(self, starts: Longs, ends: Longs) -> pa.Array:
        if not len(starts):
            return pa.array([], type=pa.binary())
        edges = np.empty(2 * len(starts), dtype=np.int32)
        edges[0::2], edges[1::2] = starts, ends
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self._bytes)]
        view = pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, buffers)
        return view.take(pa.array(np.arange(0, len(edges), 2)))


def _closed(raw: pa.Array) -> pa.Array:
    """Return the rows with the last separator where a writer left it out."""
    mark = bytes([_PAIR_END])
    done = pc.or_(pc.ends_with(raw, mark), pc.equal(pc.binary_length(raw), 0))
    if pc.all(done).as_py() in {True, None}:
        return raw
    return pc.if_else(done, raw, pc.binary_join_element_wise(raw, pa.scalar(b"", pa.binary()), mark))


def _utf8(values: pa.Array) -> pa.Array:
    """Return bytes as text; what is no UTF-8 becomes U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], type=pa.string())
