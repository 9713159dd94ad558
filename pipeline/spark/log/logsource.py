"""`format("raftmq-log")`: what store folders hold, of RaftMQ and of RocketMQ itself, read-only and damage or not.

spark.read.format("raftmq-log").option("schema", "messages").load("n1/store,n2/store")

* path      store folders, by commas; or a folder of which each subfolder is one
* members   what they are called, by commas; by default the folders' names
* schema    messages (the default), or one of logbatches.SCHEMAS
* columns   those that are wanted, by commas: there is no pruning otherwise
* crc       false: CRCs are neither compared nor computed (-1 stands in their columns)

Times are ms and positions bytes of the log, both bigint. A file of the CommitLog is a partition.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.history.folder import named_folders
from pipeline.history.parquet import HistoryError
from pipeline.logs.frames import list_spans
from pipeline.spark.log.logbatches import PER_FILE, PER_INDEX, PER_QUEUE, SCHEMAS, LogSlice, read_part
from pipeline.spark.topic.options import OptionError

_OPTIONS = frozenset({"path", "members", "schema", "columns", "crc"})
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What was asked for: member → its store folder, and of which schema which columns."""

    folders: Mapping[str, Path]
    schema: str
    columns: tuple[str, ...]
    check_crc: bool

    @property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([SCHEMAS[self.schema].field(name) for name in self.columns])


def log_options(given: Mapping[str, str]) -> LogOptions:
    """Read options, whose names come in small letters; raises OptionError."""
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise OptionError(f'format("raftmq-log") knows no option {unknown[0]}: it takes {", ".join(sorted(_OPTIONS))}')
    paths = [folder for part in _parts(given.get("path", "")) for folder in _stores(Path(part))]
    if not paths:
        raise OptionError('format("raftmq-log") needs the option path: store folders, by commas')
    try:
        names = _parts(given.get("members", "")) or list(named_folders(paths))
    except HistoryError as error:
        raise OptionError(str(error)) from error
    if len(names) != len(paths) or len(set(names)) < len(names):
        raise OptionError(f"members takes a name for each of the {len(paths)} folders, all different; not {names}")
    schema = given.get("schema", "messages").strip().lower()
    if schema not in SCHEMAS:
        raise OptionError(f"schema takes one of {', '.join(SCHEMAS)}; not {schema!r}")
    by_name = {name.lower(): name for name in SCHEMAS[schema].names}
    asked = _parts(given.get("columns", "")) or list(by_name)
    wrong = [name for name in asked if name.lower() not in by_name]
    if wrong or len({name.lower() for name in asked}) < len(asked):
        known = ", ".join(by_name.values())
        raise OptionError(f"columns of the schema {schema} takes each of these at most once: {known}; not {asked}")
    crc = given.get("crc", "true").strip().lower()
    if crc not in _TRUTH:
        raise OptionError(f"crc takes true or false, not {crc!r}")
    folders = dict(zip(names, paths, strict=True))
    return LogOptions(folders, schema, tuple(by_name[name.lower()] for name in asked), _TRUTH[crc])


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _stores(path: Path) -> list[Path]:
    """Return the store folders that a path names; raises OptionError."""
    # Spark may make addresses of paths.
    path = Path(str(path).removeprefix("file:"))
    if (path / "commitlog").is_dir():
        return [path]
    found = [folder for folder in sorted(path.iterdir()) if (folder / "commitlog").is_dir()] if path.is_dir() else []
    if not found:
        raise OptionError(f"{path} is no store folder: it has no commitlog, and no subfolder that has one")
    return found


class LogPartition(InputPartition):
    """One part of the reading: what, and of whom."""

    def __init__(self, part: LogSlice) -> None:
        super().__init__(part.number)
        self.part = part


class LogSourceReader(DataSourceReader):
    """Plans by the files that are there, and reads them."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """List the files. Raises OSError."""
        schema = self._options.schema
        found: list[InputPartition] = []
        for member, folder in self._options.folders.items():
            parts = [LogSlice(member, folder)]
            if schema in PER_FILE:
                parts = [LogSlice(member, folder, number) for number in range(len(list_spans(folder)))]
            elif schema in PER_QUEUE | PER_INDEX:
                named = sorted(folder.glob("index/*" if schema in PER_INDEX else "consumequeue/*/*"))
                parts = [LogSlice(member, folder, item=path) for path in named if path.name.isdecimal()]
            found += [LogPartition(part) for part in parts]
        # Spark would read a partition that is not there, were there none.
        return found or [LogPartition(LogSlice("", Path(), -1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition. Raises OSError."""
        assert isinstance(partition, LogPartition), "one of those that partitions() made"
        options = self._options
        if partition.part.number >= 0:
            yield from read_part(partition.part, options.schema, options.arrow, check_crc=options.check_crc)


class LogDataSource(DataSource):
    """Store folders as tables; see the head of this file."""

    @classmethod
    def name(cls) -> str:
        """Return what format(...) takes."""
        return "raftmq-log"

    def schema(self) -> StructType:
        """Return the columns that are asked for."""
        found: StructType = from_arrow_schema(log_options(self.options).arrow)
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads."""
        options = log_options(self.options)
        if schema.names != list(options.columns):
            raise OptionError("the columns are those of the options schema and columns: leave .schema(...) out")
        return LogSourceReader(options)
