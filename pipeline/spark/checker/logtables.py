"""Turns store folders into Parquet tables, all of a member's in a few tasks: its log is read once, whatever is asked.

`format("raftmq-log")` reads one schema at a time, which suits people; the checker needs all of them. Tasks write their
files themselves, below WORK/SCHEMA, so that nothing of what they read goes through the JVM twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.logs.frames import list_spans
from pipeline.spark.log.logbatches import SCHEMAS, LogSlice, read_log, read_part

OF_LOG = ("records", "entries", "gaps", "configs")
DERIVED = ("queues", "chunks")
KEYED = ("index", "keys")
# What stands in front of a schema's columns: see Logs.
OWNER_FIELDS = (pa.field("run", pa.int32()), pa.field("copy", pa.int32()), pa.field("broker", pa.string()))
GROUP_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class Task:
    """A member's folder of one moment, and the schemas that a task reads of it; their files go below `work`."""

    copy: int
    broker: str
    member: str
    folder: Path
    schemas: tuple[str, ...]
    work: Path


def table_schema(name: str) -> pa.Schema:
    """Return the columns of a table."""
    return pa.schema([*OWNER_FIELDS, *SCHEMAS[name]])


def write_tables(spark: SparkSession, tasks: Sequence[Task]) -> None:
    """Carry all tasks out on the workers. Raises PySparkException with the words of what failed."""
    if tasks:
        # The longest first: logs before what is derived from them.
        order = sorted(tasks, key=lambda task: "records" not in task.schemas)
        spark.sparkContext.parallelize(order, len(order)).foreach(_run)


def _run(task: Task) -> None:
    with ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for schema in task.schemas:
            path = task.work / schema / f"{task.copy}-{quote(task.member, safe='')}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            writers[schema] = stack.enter_context(pq.ParquetWriter(path, table_schema(schema), compression="lz4"))
        for schema, batches in _gathered(_batches(task)):
            rows = sum(batch.num_rows for batch in batches)
            owner = [pa.repeat(pa.scalar(value, field.type), rows) for value, field in zip(
                (0, task.copy, task.broker), OWNER_FIELDS, strict=True)]  # fmt: skip
            table = pa.Table.from_batches(batches, schema=SCHEMAS[schema])
            writers[schema].write_table(pa.Table.from_arrays([*owner, *table.columns], schema=table_schema(schema)))


def _batches(task: Task) -> Iterator[tuple[str, pa.RecordBatch]]:
    of_log = [schema for schema in task.schemas if schema in OF_LOG or schema == "keys"]
    if of_log:
        yield from read_log(task.member, task.folder, of_log)
    for schema, parts in (
        ("queues", _items(task, "consumequeue/*/*")),
        ("index", _items(task, "index/*")),
        ("chunks", [LogSlice(task.member, task.folder, number) for number in range(len(list_spans(task.folder)))]),
    ):
        if schema in task.schemas:
            for part in parts:
                for batch in read_part(part, schema, SCHEMAS[schema], check_crc=True):
                    yield schema, batch


def _items(task: Task, pattern: str) -> list[LogSlice]:
    found = sorted(path for path in task.folder.glob(pattern) if path.name.isdecimal())
    return [LogSlice(task.member, task.folder, item=path) for path in found]


def _gathered(batches: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Put small batches of a schema together, up to what makes a good row group."""
    held: dict[str, list[pa.RecordBatch]] = {}
    rows: dict[str, int] = {}
    for schema, batch in batches:
        held.setdefault(schema, []).append(batch)
        rows[schema] = rows.get(schema, 0) + batch.num_rows
        if rows[schema] >= GROUP_ROWS:
            yield schema, held.pop(schema)
            rows[schema] = 0
    yield from held.items()
