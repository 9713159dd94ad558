"""Rows of a history as Parquet files, and back. The only file that imports pyarrow.

Columns are the fields of the NamedTuple, int64 or string, compressed by zstd. The version of the format stands in the
file's metadata: what a newer program wrote is refused, what an older one left out gets the fields' defaults.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.history.rows import FORMAT

_VERSION = b"raftmq.history"
_KIND = b"raftmq.kind"
_TYPES = {int: pa.int64(), str: pa.string()}
# Rows that are turned into columns at a time: what a writer keeps in memory.
ROWS_AT_A_TIME = 65_536

Row = TypeVar("Row", bound=tuple[Any, ...])


class HistoryError(Exception):
    """A file of a history cannot be read; the text says which and why."""


def write_rows(path: Path, rows: Iterable[tuple[Any, ...]], kind: type[tuple[Any, ...]]) -> int:
    """Write rows of a NamedTuple, replacing the file as a whole; returns how many."""
    names = list(_columns(kind))
    return write_columns(path, kind, (dict(zip(names, columns, strict=True)) for columns in _in_columns(rows)))


def write_columns(path: Path, kind: type[tuple[Any, ...]], parts: Iterable[Mapping[str, Any]]) -> int:
    """Write parts of a table, each a mapping from field to its values (lists or numpy arrays); returns the rows."""
    schema = _schema(kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    count = 0
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for part in parts:
            arrays = [pa.array(part[field.name], field.type) for field in schema]
            table = pa.Table.from_arrays(arrays, schema=schema)
            writer.write_table(table)
            count += table.num_rows
    partial.replace(path)
    return count


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Return all rows of a file; raises HistoryError for one that is not there, is newer or holds something else."""
    columns = _columns(kind)
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            _check(path, metadata, kind)
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    there = set(table.column_names)
    lacking = [name for name in columns if name not in there and name not in defaults]
    if lacking:
        raise HistoryError(f"{path} lacks the columns {', '.join(lacking)}")
    values = [_values(table.column(name)) if name in there else [defaults[name]] * table.num_rows for name in columns]
    # As kind._make does, without a call in Python for each row: there are millions.
    return list(map(partial(tuple.__new__, kind), zip(*values, strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; texts that are equal are one object, since few differ."""
    found: list[Any] = []
    if pa.types.is_integer(column.type) and not column.null_count:
        found += column.to_numpy().tolist()
        return found
    if column.null_count or not pa.types.is_string(column.type):
        found += column.to_pylist()
        return found
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        found += [words[number] for number in encoded.indices.to_numpy().tolist()]
    return found


def count_rows(path: Path, kind: type) -> int:
    """Return how many rows a file holds; raises HistoryError unless they are of that kind, in a known format."""
    try:
        with pq.ParquetFile(path) as file:
            _check(path, file.schema_arrow.metadata or {}, kind)
            return int(file.metadata.num_rows)
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error


def count_kept(folder: Path) -> int:
    """Return how many rows the files of a folder hold that Spark has written, by their footers. Raises OSError."""
    return sum(int(pq.read_metadata(path).num_rows) for path in folder.glob("*.parquet"))


def _check(path: Path, metadata: Mapping[bytes, bytes], kind: type) -> None:
    version = metadata.get(_VERSION)
    if version is None or metadata.get(_KIND) != kind.__name__.encode():
        raise HistoryError(f"{path} holds no {kind.__name__} rows of a history")
    if int(version) > FORMAT:
        raise HistoryError(f"{path} has format {int(version)}, this program reads up to {FORMAT}: take a newer one")


def _columns(kind: type) -> dict[str, type]:
    return get_type_hints(kind)


def _schema(kind: type) -> pa.Schema:
    fields = [pa.field(name, _TYPES[type_], nullable=False) for name, type_ in _columns(kind).items()]
    return pa.schema(fields, metadata={_VERSION: str(FORMAT), _KIND: kind.__name__})


def _in_columns(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[list[Any], ...]]:
    """Turn rows into columns, some at a time."""
    left = iter(rows)
    while some := list(islice(left, ROWS_AT_A_TIME)):
        yield tuple(list(column) for column in zip(*some, strict=True))
