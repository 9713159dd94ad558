"""The evidence of a run as DataFrames; or of many small runs at once, told apart by the column `run`.

Every frame has `run` (int) and, beside it, the fields of a noun of pipeline/history or pipeline/evidence, with their
names and types (long and string). A check partitions by `run`, and by a queue or a message within it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, get_type_hints

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from pipeline.history.folder import RunFolder
from pipeline.history.parquet import count_kept, count_rows
from pipeline.history.promises import Promises
from pipeline.history.rows import Beat, Fault, Look, Op, Read
from pipeline.plain.evidence import HeldMessage, History

RUN = "run"
_ARROW = {int: pa.int64(), str: pa.string()}
_SPARK = {int: LongType(), str: StringType()}


def _new_folder() -> Path:
    return Path(mkdtemp(prefix="raftmq-checker-"))


@dataclass(frozen=True)
class World:
    """The evidence of one or many runs that promised the same; has a folder of its own until `close`."""

    spark: SparkSession
    promises: Promises
    runs: tuple[int, ...]
    ops: DataFrame
    reads: DataFrame
    faults: DataFrame
    looks: DataFrame
    beats: DataFrame | None = None
    """When the harness's loop had its turn; None where nobody watched it."""
    held: DataFrame | None = None
    """The merged log's messages, evidence.HeldMessage; None where no store folder was read."""
    complete: Mapping[int, bool] = field(default_factory=dict)
    """Run → whether all its replicas were read up to one common end; runs without a merged log are not in it."""
    folder: Path = field(default_factory=_new_folder)
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def of_folder(cls, spark: SparkSession, run: RunFolder, promises: Promises | None = None) -> "World":
        """Return that of a run's folder, without its stores. Raises HistoryError for what is missing or too new."""
        ops, reads, faults, looks = (_read(spark, run.file(kind), kind) for kind in (Op, Read, Fault, Look))
        beats = _read(spark, run.file(Beat), Beat) if run.file(Beat).exists() else None
        return cls(spark, promises or run.promises(), (0,), ops, reads, faults, looks, beats)

    @classmethod
    def of_histories(cls, spark: SparkSession, histories: Sequence[History]) -> "World":
        """Return that of some histories with equal promises, numbered from 0."""
        promises = histories[0].promises
        assert all(history.promises == promises for history in histories), "one world, one set of promises"
        numbered = list(enumerate(histories))
        ops = frame_of(spark, Op, ((number, history.ops) for number, history in numbered))
        reads = frame_of(spark, Read, ((number, history.reads) for number, history in numbered))
        faults = frame_of(spark, Fault, ((number, history.faults) for number, history in numbered))
        looks = frame_of(spark, Look, ((number, history.looks) for number, history in numbered))
        beats = frame_of(spark, Beat, ((number, history.beats) for number, history in numbered))
        merged = [(number, history.merged) for number, history in numbered if history.merged is not None]
        held = frame_of(spark, HeldMessage, ((number, log.messages) for number, log in merged)) if merged else None
        complete = {number: log.complete for number, log in merged}
        runs = tuple(range(len(histories)))
        return cls(spark, promises, runs, ops, reads, faults, looks, beats, held=held, complete=complete)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Have a frame computed once, now: it stays until `close`, as a file. One job."""
        return self.keep_counted(frame)[0]

    def keep_counted(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """Do as `keep`, and tell how many rows there are."""
        # Not persisted: what is built on such a frame is analysed and planned with all that it came from, over and
        # over, and that costs more than most checks do; and it would take memory as the run grows.
        path = self.folder / f"kept-{next(self._numbers)}"
        frame.write.parquet(str(path))
        rows = count_kept(path)
        kept = self.spark.read.schema(frame.schema).parquet(str(path))
        # Of a frame that is known as empty Spark plans nothing that is joined to it: most are, of a run that is well.
        return (kept if rows else kept.limit(0)), rows

    def close(self) -> None:
        """Remove what was kept; its frames are of no use any more."""
        rmtree(self.folder, ignore_errors=True)

    @property
    def several_groups(self) -> bool:
        """Whether there are several broker groups: only then a queue is one of a group."""
        return len(self.promises.group_members) > 1

    @cached_property
    def lossy(self) -> Mapping[int, bool]:
        """Run → whether acknowledged messages may be missing after it, as evidence.History.lossy."""
        promises = self.promises
        if promises.may_lose_acknowledged:
            matters = F.lit(True)
        elif promises.may_lose_after_power_loss:
            matters = F.col("name").contains("power") | F.col("name").contains("part-kill")
        else:
            return dict.fromkeys(self.runs, False)
        broken = {row[RUN] for row in self.faults.where(matters).select(RUN).distinct().collect()}
        return {run: run in broken for run in self.runs}

    def is_strict(self, run: int) -> bool:
        """Return whether nothing acknowledged may be missing after a run."""
        return not self.lossy[run]


def frame_of(spark: SparkSession, kind: type, parts: Iterable[tuple[int, Iterable[tuple[Any, ...]]]]) -> DataFrame:
    """Return rows of a NamedTuple as a frame: `parts` are the number of a run and its rows."""
    hints = get_type_hints(kind)
    rows = [(number, *row) for number, some in parts for row in some]
    columns = list(zip(*rows, strict=True)) or [()] * (len(hints) + 1)
    arrays = [pa.array(columns[0], pa.int32())]
    arrays += [pa.array(column, _ARROW[type_]) for column, type_ in zip(columns[1:], hints.values(), strict=True)]
    return spark.createDataFrame(pa.table(dict(zip([RUN, *hints], arrays, strict=True))), _schema(kind))


def _schema(kind: type) -> StructType:
    fields = [StructField(name, _SPARK[type_]) for name, type_ in get_type_hints(kind).items()]
    return StructType([StructField(RUN, IntegerType()), *fields])


def _read(spark: SparkSession, path: Path, kind: type) -> DataFrame:
    """Read a Parquet file of a history; columns that an older program left out get the field's default."""
    count_rows(path, kind)
    found = spark.read.parquet(str(path))
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    columns = [
        (F.col(name) if name in found.columns else F.lit(defaults[name])).cast(_SPARK[type_]).alias(name)
        for name, type_ in get_type_hints(kind).items()
    ]
    return found.select(F.lit(0).alias(RUN), *columns)
