"""The tables of `format("raftmq-log")`: their columns, and how a part of a store folder becomes Arrow batches of them.

records, entries, gaps and configs are the rows of artefact_rows.py; messages is for people, with the names that
`format("raftmq")` has. keys: the hashes under which an index should know the messages. index: what it does know, and
in the columns begin and end what the header of the file says; of a file that cannot be told there is one row, number
-1. chunks: BLAKE2b-16 of each MiB of the log, at multiples of a MiB, cut where files end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from client.compression import CompressionError, decompress
from pipeline.logs.frames import Ints, Segment, list_spans
from pipeline.logs.log import keyed_rows
from pipeline.logs.member_files import CHUNK_BYTES, MemberLogBytes
from pipeline.logs.messages import Messages
from pipeline.logs.queues import hash_keys, queue_columns, read_index
from pipeline.logs.reader import LogPiece, LogReader, last_chain
from pipeline.logs.rows import Config, EntryRow, GapRow
from pipeline.spark.topic.arrow import slices
from pipeline.spark.topic.properties import Properties, properties_of
from remoting.codes import MessageSysFlag
from remoting.msgid import offset_msg_id
from remoting.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from remoting.record import BLANK_BYTES, BORNHOST_AT, BORNHOST_V6, STOREHOST_V6

_LONG, _TEXT, _YES = pa.int64(), pa.string(), pa.bool_()
_DIGEST_BYTES = 16
ROWS_A_BATCH = 65_536


def _table(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("member", _TEXT), *(pa.field(name, kind) for name, kind in columns.items())])


def _longs(names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names.split(), _LONG)


SCHEMAS: dict[str, pa.Schema] = {
    "messages": _table(
        topic=_TEXT, queueId=pa.int32(), queueOffset=_LONG, position=_LONG, size=pa.int32(), bornTimestamp=_LONG,
        storeTimestamp=_LONG, sysFlag=pa.int32(), flag=pa.int32(), reconsumeTimes=pa.int32(),
        preparedTransactionOffset=_LONG, keys=_TEXT, tags=_TEXT, properties=pa.map_(_TEXT, _TEXT), body=pa.binary(),
        msgId=_TEXT, entryIndex=_LONG, entryTerm=_LONG,
    ),
    "records": _table(
        topic=_TEXT,
        **_longs("queue offset position size tags_code timestamp crc index term"),
        **_longs("writer counter attempt digest sys_flag"),
        transaction=_TEXT, prepared=_LONG, refers=pa.list_(_LONG),
    ),
    "entries": _table(
        **_longs("index term position size crc kind"), classic=_YES,
        **_longs("head records previous_term commit config chain"), follows=_YES,
    ),
    "gaps": _table(start=_LONG, end=_LONG, reason=_TEXT, empty=_YES),
    "configs": _table(index=_LONG, members=pa.list_(_TEXT), voters=pa.list_(_TEXT)),
    "queues": _table(topic=_TEXT, **_longs("queue offset position size tags_code")),
    "keys": _table(topic=_TEXT, position=_LONG, key=_TEXT, hash=_LONG),
    "index": _table(file=_TEXT, **_longs("number hash position seconds older begin end")),
    "chunks": _table(start=_LONG, end=_LONG, digest=pa.binary()),
}  # fmt: skip
# What a partition is: a file of the log, a queue's folder, an index file; of other schemas a whole store folder.
PER_FILE = frozenset({"messages", "records", "entries", "keys", "chunks"})
PER_QUEUE = frozenset({"queues"})
PER_INDEX = frozenset({"index"})

Column = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class LogSlice:
    """A partition: the log's file of that number, or the queue or index file `item`."""

    member: str
    folder: Path
    number: int = 0
    item: Path = field(default_factory=Path)


def read_part(part: LogSlice, schema: str, columns: pa.Schema, *, check_crc: bool) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one partition, with the given columns of the schema. Raises OSError."""
    if schema in PER_QUEUE:
        yield from _batches(part, columns, *_queue(part))
    elif schema in PER_INDEX:
        yield from _batches(part, columns, *_index(part))
    elif schema == "chunks":
        yield from _batches(part, columns, *_chunks(part))
    else:
        yield from _log(part, schema, columns, check_crc)


def _batches(part: LogSlice, columns: pa.Schema, rows: int, values: Mapping[str, Column]) -> Iterator[pa.RecordBatch]:
    """Make batches of columns that are computed when they are asked for."""
    if not rows:
        return
    arrays = []
    for wanted in columns:
        if wanted.name == "member":
            arrays.append(pa.repeat(pa.scalar(part.member, _TEXT), rows))
            continue
        value = values[wanted.name]()
        arrays.append(value if isinstance(value, pa.Array) else pa.array(value, wanted.type))
    batch = pa.RecordBatch.from_arrays(arrays, schema=columns)
    for start in range(0, rows, ROWS_A_BATCH):
        yield batch.slice(start, ROWS_A_BATCH)


def _queue(part: LogSlice) -> tuple[int, Mapping[str, Column]]:
    numbers, rows = queue_columns(part.item)
    return len(numbers), {
        "topic": lambda: pa.repeat(part.item.parent.name, len(numbers)),
        "queue": lambda: np.full(len(numbers), int(part.item.name)),
        "offset": lambda: numbers,
        "position": lambda: rows["physical"].astype(np.int64),
        "size": lambda: rows["size"].astype(np.int64),
        "tags_code": lambda: rows["tags"].astype(np.int64),
    }


def _index(part: LogSlice) -> tuple[int, Mapping[str, Column]]:
    header, rows = read_index(part.item)
    count = len(rows)
    numbers = np.arange(1, count + 1)
    if not count and header.next_entry > 1:
        count, numbers = 1, np.array([-1])
        rows = np.zeros(1, rows.dtype)
    return count, {
        "file": lambda: pa.repeat(part.item.name, count),
        "number": lambda: numbers,
        "hash": lambda: rows["hash"].astype(np.int64),
        "position": lambda: rows["physical"].astype(np.int64),
        "seconds": lambda: rows["seconds"].astype(np.int64),
        "older": lambda: rows["older"].astype(np.int64),
        "begin": lambda: np.full(count, header.begin_physical),
        "end": lambda: np.full(count, header.end_physical),
    }


def _chunks(part: LogSlice) -> tuple[int, Mapping[str, Column]]:
    segment = Segment(list_spans(part.folder)[part.number])
    begin, end = segment.span.start, segment.end
    starts = [begin, *range(begin - begin % CHUNK_BYTES + CHUNK_BYTES, end, CHUNK_BYTES)]
    ends = [*starts[1:], end]
    # Most of a file may not be written yet.
    zeros, of_zeros = bytes(CHUNK_BYTES), _hash(bytes(CHUNK_BYTES))

    def digests() -> list[bytes]:
        pieces = (segment.view[start - begin : stop - begin] for start, stop in zip(starts, ends, strict=True))
        return [of_zeros if piece == zeros else _hash(piece) for piece in pieces]

    return len(starts), {"start": lambda: starts, "end": lambda: ends, "digest": digests}


def _hash(piece: bytes | memoryview) -> bytes:
    return blake2b(piece, digest_size=_DIGEST_BYTES).digest()


def _log(part: LogSlice, schema: str, columns: pa.Schema, check_crc: bool) -> Iterator[pa.RecordBatch]:
    spans = list_spans(part.folder)
    if not spans:
        return
    file_bytes = max(span.size for span in spans)
    crcs = schema == "entries" and "crc" in columns.names
    if schema in PER_FILE:
        follows = schema == "entries" and "follows" in columns.names
        chain = last_chain(spans[: part.number], file_bytes) if follows else None
        span = spans[part.number :][:1]
        reader = LogReader(
            span, file_bytes=file_bytes, chain=chain, messages=schema != "entries", entry_crcs=crcs, check_crc=check_crc
        )
    else:
        reader = LogReader(spans, messages=False, entry_crcs=False, check_crc=check_crc)
    log = MemberLogBytes(spans)
    for piece in reader.pieces():
        yield from _of_piece(part, piece, schema, columns, log)


def _of_piece(
    part: LogSlice, piece: LogPiece, schema: str, columns: pa.Schema, log: MemberLogBytes
) -> Iterator[pa.RecordBatch]:
    if schema == "entries":
        yield from _batches(part, columns, *_rows(piece.entries, EntryRow))
    elif schema == "configs":
        yield from _batches(part, columns, *_rows(piece.configs, Config))
    elif schema == "gaps":
        gaps = [gap._replace(empty=not any(log.read(gap.start, gap.start + BLANK_BYTES))) for gap in piece.gaps]
        yield from _batches(part, columns, *_rows(gaps, GapRow))
    elif piece.messages is not None and len(piece.messages):
        make = {"messages": _messages, "records": _records, "keys": _keys}[schema]
        yield from _batches(part, columns, *make(piece.messages))


def read_log(member: str, folder: Path, schemas: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield batches of several schemas of one log, each with its schema: the log is read once. Raises OSError."""
    spans, part = list_spans(folder), LogSlice(member, folder)
    log = MemberLogBytes(spans)
    for piece in LogReader(spans).pieces():
        for schema in schemas:
            for batch in _of_piece(part, piece, schema, SCHEMAS[schema], log):
                yield schema, batch


def _rows(rows: list[Any], kind: Any) -> tuple[int, Mapping[str, Column]]:
    """Return the columns of some NamedTuples."""

    def column(at: int) -> list[Any]:
        return [row[at] for row in rows]

    return len(rows), {name: partial(column, at) for at, name in enumerate(kind._fields)}


def _topics(messages: Messages) -> pa.Array:
    names = pa.array([name.decode("utf-8", "replace") for name in messages.topics.names], _TEXT)
    return names.take(pa.array(messages.topic))


def _sparse(rows: int, values: Mapping[int, Any], empty: Any, kind: pa.DataType) -> pa.Array:
    if not values:
        return pa.repeat(pa.scalar(empty, kind), rows)
    return pa.array([values.get(row, empty) for row in range(rows)], kind)


def _records(messages: Messages) -> tuple[int, Mapping[str, Column]]:
    frames, rows = messages.frames, len(messages)
    return rows, {
        "topic": lambda: _topics(messages),
        "queue": lambda: frames.queue,
        "offset": lambda: frames.offset,
        "position": lambda: frames.position,
        "size": lambda: frames.size,
        "tags_code": lambda: messages.notes.tags_code,
        "timestamp": lambda: frames.stored,
        "crc": messages.crcs,
        "index": lambda: messages.index,
        "term": lambda: messages.term,
        "writer": lambda: messages.notes.writer,
        "counter": lambda: messages.notes.counter,
        "attempt": lambda: messages.notes.attempt,
        "digest": lambda: messages.notes.digest,
        "sys_flag": lambda: frames.sys_flag,
        "transaction": lambda: _sparse(rows, messages.notes.transactions, "", _TEXT),
        "prepared": lambda: frames.prepared,
        "refers": lambda: _sparse(rows, messages.notes.refers, (), pa.list_(_LONG)),
    }


def _keys(messages: Messages) -> tuple[int, Mapping[str, Column]]:
    rows = [row._replace(keys=tuple(dict.fromkeys(row.keys))) for row in keyed_rows(messages)]
    counts = np.array([len(row.keys) for row in rows], np.int64)
    keys = [key for row in rows for key in row.keys]
    return len(keys), {
        "topic": lambda: pa.array([row.topic for row in rows], _TEXT).take(_owners(counts)),
        "position": lambda: np.repeat(messages.frames.position, counts),
        "key": lambda: keys,
        "hash": lambda: hash_keys([row.topic for row in rows], keys, counts),
    }


def _owners(counts: Ints) -> pa.Array:
    return pa.array(np.repeat(np.arange(len(counts)), counts))


class _Text:
    """The properties of a piece's messages, read once, when a column needs them."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._found: Properties | None = None

    @property
    def all(self) -> Properties:
        if self._found is None:
            frames = self._messages.frames
            ends = frames.properties_at + frames.properties_bytes
            self._found = properties_of(_slices(self._messages, frames.properties_at, ends))
        return self._found

    def ids(self) -> pa.Array:
        """Return the unique keys, for messages that have none the ids of their places."""
        found = self.all.text(PROPERTY_UNIQ_KEY)
        missing = np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))
        if not len(missing):
            return found
        frames, values = self._messages.frames, found.to_pylist()
        for row in missing.tolist():
            flags = int(frames.sys_flag[row])
            at = int(frames.at[row]) + BORNHOST_AT + (20 if flags & BORNHOST_V6 else 8) + 8
            host = bytes(frames.segment.view[at : at + (20 if flags & STOREHOST_V6 else 8)])
            values[row] = offset_msg_id(host, int(frames.position[row]))
        return pa.array(values, _TEXT)


def _slices(messages: Messages, starts: Ints, ends: Ints) -> pa.Array:
    """Return parts of the file; a piece is far below the 2 GiB that Arrow can point into."""
    first = int(messages.frames.at[0])
    return slices(messages.frames.segment.view[first:], starts - first, ends - first)


def _bodies(messages: Messages) -> pa.Array:
    frames = messages.frames
    bodies = _slices(messages, frames.body_at, frames.body_at + frames.body_bytes)
    packed = np.flatnonzero(frames.sys_flag & MessageSysFlag.COMPRESSED).tolist()
    if not packed:
        return bodies
    values = bodies.to_pylist()
    for row in packed:
        try:
            values[row] = decompress(values[row], int(frames.sys_flag[row]))
        except CompressionError:
            # Whoever consumes it gets it as it is, too.
            continue
    return pa.array(values, pa.binary())


def _messages(messages: Messages) -> tuple[int, Mapping[str, Column]]:
    frames, text = messages.frames, _Text(messages)
    return len(messages), {
        "topic": lambda: _topics(messages),
        "queueId": lambda: frames.queue,
        "queueOffset": lambda: frames.offset,
        "position": lambda: frames.position,
        "size": lambda: frames.size,
        "bornTimestamp": lambda: frames.born,
        "storeTimestamp": lambda: frames.stored,
        "sysFlag": lambda: frames.sys_flag,
        "flag": lambda: frames.flag,
        "reconsumeTimes": lambda: frames.reconsume,
        "preparedTransactionOffset": lambda: frames.prepared,
        "keys": lambda: text.all.text(PROPERTY_KEYS),
        "tags": lambda: text.all.text(PROPERTY_TAGS),
        "properties": lambda: text.all.map(SCHEMAS["messages"].field("properties").type),
        "body": lambda: _bodies(messages),
        "msgId": text.ids,
        "entryIndex": lambda: messages.index,
        "entryTerm": lambda: messages.term,
    }
