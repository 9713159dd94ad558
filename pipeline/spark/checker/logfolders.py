"""Reads store folders into Logs: each table once, kept as Parquet in a working folder (logtables.py).

What stands beside the logs is read as the plain reader does. Of the logs a row for each member comes to the driver.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline.history.folder import named_folders
from pipeline.history.promises import Promises
from pipeline.logs.member_files import NEVER_SYNCED, NO_ENTRIES, Artefact, read_beside
from pipeline.logs.rows import Config
from pipeline.spark.checker.logs import (
    END,
    ENTRY_FIELDS,
    GAP_FIELDS,
    KEY_FIELDS,
    MESSAGE_FIELDS,
    OWNER,
    QUEUE_FIELDS,
    Logs,
    MemberFacts,
    empty_frame,
    groups_of,
)
from pipeline.spark.checker.logtables import DERIVED, KEYED, OF_LOG, Task, table_schema, write_tables
from store.errors import StoreError

_CHUNK_FIELDS: Mapping[str, pa.DataType] = {"start": pa.int64(), "end": pa.int64(), "digest": pa.binary()}
_OF_MEMBER = ("copy", "member")


@dataclass(frozen=True)
class _Moment:
    """The folders of one moment that are stores: END, or the number of an earlier copy."""

    copy: int
    paths: Mapping[str, Path]
    beside: Mapping[str, Artefact]
    brokers: Mapping[str, str]


def logs_of_folders(
    spark: SparkSession,
    folders: Sequence[Path],
    promises: Promises,
    work: Path,
    earlier: Sequence[Sequence[Path]] = (),
) -> Logs:
    """Read the store folders of one run; members are called as their folders. Tables go below `work`.

    A folder that is no store counts as missing. Raises OSError.
    """
    moments = [_moment(copy, some, promises) for copy, some in [(END, folders), *enumerate(earlier)]]
    tables = _Tables(spark, work, moments)
    entries = tables.read("entries", ENTRY_FIELDS)
    messages = tables.read("records", MESSAGE_FIELDS)
    gaps = tables.read("gaps", GAP_FIELDS)
    unindexed, misindexed, unreadable = tables.compare_index(messages)
    torn = _torn(moments, entries, gaps)
    entries, messages, gaps = _without_torn(spark, torn, entries, messages, gaps)
    facts = _facts(moments, torn, entries, messages, tables.configs())
    for (copy, member), name in unreadable:
        # Of the same value that the facts hold.
        moment = next(one for one in moments if one.copy == copy)
        moment.beside[member].damage[f"index/{name}"] = NO_ENTRIES
    return Logs(
        facts,
        entries,
        messages,
        gaps,
        tables.read("queues", QUEUE_FIELDS),
        unindexed,
        misindexed,
        {(0, name): found.log for name, found in moments[0].beside.items()},
        tables.read("chunks", _CHUNK_FIELDS),
    )


def _moment(copy: int, folders: Sequence[Path], promises: Promises) -> _Moment:
    beside: dict[str, Artefact] = {}
    named = named_folders(folders)
    for name, path in named.items():
        with suppress(StoreError):
            beside[name] = read_beside(path, name)
    brokers = groups_of(promises, beside)
    known = {name: path for name, path in named.items() if name in beside and name in brokers}
    return _Moment(copy, known, {name: beside[name] for name in known}, {name: brokers[name] for name in known})


class _Tables:
    """Tables of all members' folders, with OWNER in front, read once and kept as Parquet."""

    def __init__(self, spark: SparkSession, work: Path, moments: Sequence[_Moment]) -> None:
        self._spark = spark
        self._work = work
        self._moments = [moment for moment in moments if moment.paths]
        self._has_index = any(any(path.glob("index/*")) for moment in self._moments for path in moment.paths.values())
        keys = KEYED[1:] if self._has_index else ()
        index = KEYED[:1] if self._has_index else ()
        tasks = [
            Task(moment.copy, moment.brokers[member], member, path, schemas, work)
            for moment in self._moments
            for member, path in moment.paths.items()
            for schemas in ((*OF_LOG, *keys), (*DERIVED, *index))
        ]
        write_tables(spark, tasks)

    def table(self, schema: str) -> DataFrame:
        """Return a table of the log source, of all members."""
        path = self._work / schema
        if not path.exists():
            return self._spark.createDataFrame(table_schema(schema).empty_table())
        return self._spark.read.parquet(str(path))

    def read(self, schema: str, fields: Mapping[str, pa.DataType]) -> DataFrame:
        """Return columns of a table."""
        return self.table(schema).select(*OWNER, *fields)

    def configs(self) -> list[Row]:
        """Return the configurations in the logs, with their owners."""
        return self.table("configs").orderBy("copy", "member", "index").collect()

    def compare_index(self, messages: DataFrame) -> tuple[DataFrame, DataFrame, list[tuple[tuple[int, str], str]]]:
        """Return what the key indexes lack, what they have wrong, and files that cannot be read: as the plain one."""
        places: Mapping[str, pa.DataType] = {"position": pa.int64()}
        if not self._has_index:
            return empty_frame(self._spark, KEY_FIELDS), empty_frame(self._spark, places), []
        index, keys = self.table("index"), self.table("keys")
        bounds = index.groupBy(*OWNER).agg(
            F.min_by("begin", "file").alias("first"),
            F.max_by("end", "file").alias("last"),
            F.collect_set(F.when(F.col("number") < 0, F.col("file"))).alias("closed"),
        )
        rows = bounds.collect()
        closed = [((row.copy, row.member), name) for row in rows for name in sorted(row.closed)]
        bounds = F.broadcast(bounds.where(F.size("closed") == 0).drop("closed"))
        due = keys.join(bounds, list(OWNER)).where("position >= first and position < last")
        lacking = due.join(index.select(*OWNER, "position", "hash"), [*OWNER, "position", "hash"], "left_anti")
        within = messages.join(bounds, list(OWNER)).where("position >= first and position <= last")
        told = index.join(bounds.select(*OWNER), list(OWNER)).select(*OWNER, "position").distinct()
        wrong = told.join(within.select(*OWNER, "position"), [*OWNER, "position"], "left_anti")
        return (
            self._kept("unindexed", lacking.select(*OWNER, "position", "key")),
            self._kept("misindexed", wrong),
            closed,
        )

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        path = str(self._work / name)
        frame.write.parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)


_Torn = Mapping[tuple[int, str], tuple[int, int]]
"""(copy, member) → where its log ends, since what stands there is torn and was never synced, and where its files do."""


def _torn(moments: Sequence[_Moment], entries: DataFrame, gaps: DataFrame) -> _Torn:
    """Tell which logs end in what was never synced, and where: as the plain reader."""
    may_be = {
        (moment.copy, member): one for moment in moments for member, one in moment.beside.items() if one.may_be_torn
    }
    if not may_be:
        return {}
    broken = entries.where(~F.col("follows")).select(*_OF_MEMBER, F.col("position").alias("start"))
    starts = gaps.select(*_OF_MEMBER, "start").unionByName(broken)
    first = starts.groupBy(*_OF_MEMBER).agg(F.min("start").alias("start")).collect()
    rows = [((row.copy, row.member), row.start) for row in first]
    return {key: (start, may_be[key].log.end) for key, start in rows if key in may_be and start >= may_be[key].vouched}


def _without_torn(
    spark: SparkSession, torn: _Torn, entries: DataFrame, messages: DataFrame, gaps: DataFrame
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """End logs where they are torn; one gap of each stands there."""
    if not torn:
        return entries, messages, gaps
    rows = [(*key, start, max(start, end)) for key, (start, end) in torn.items()]
    table = F.broadcast(spark.createDataFrame(rows, "copy int, member string, torn bigint, stop bigint"))

    def kept(frame: DataFrame, name: str) -> DataFrame:
        both = frame.join(table, list(_OF_MEMBER), "left")
        return both.where(F.col("torn").isNull() | (F.col(name) < F.col("torn"))).select(*frame.columns)

    owners = entries.select(*OWNER).unionByName(gaps.select(*OWNER)).distinct()
    ends = owners.join(table, list(_OF_MEMBER)).select(
        *OWNER, F.col("torn").alias("start"), F.col("stop").alias("end"),
        F.lit(NEVER_SYNCED).alias("reason"), F.expr("false AS empty"),
    )  # fmt: skip
    return kept(entries, "position"), kept(messages, "position"), kept(gaps, "start").unionByName(ends)


def _facts(
    moments: Sequence[_Moment], torn: _Torn, entries: DataFrame, messages: DataFrame, configs: Sequence[Row]
) -> list[MemberFacts]:
    stop = F.col("position") + F.col("size")
    last = F.max_by(F.struct("index", "term", "classic"), "position").alias("last")
    of_entries = entries.groupBy(*_OF_MEMBER).agg(F.count(F.lit(1)).alias("rows"), last, F.max(stop).alias("end"))
    counted: dict[tuple[int, str], Any] = {(row.copy, row.member): row for row in of_entries.collect()}
    ends = messages.groupBy(*_OF_MEMBER).agg(F.max(stop).alias("end")).collect()
    end_of = {(row.copy, row.member): row.end for row in ends}
    found = []
    for moment in moments:
        for member, one in moment.beside.items():
            key = (moment.copy, member)
            row = counted.get(key)
            # Behind where a log is torn stands nothing; that is where its entries end.
            last_index = row["last"]["index"] if row else 0
            own = [Config(item["index"], tuple(item.members), tuple(item.voters)) for item in configs
                   if (item.copy, item.member) == key and (item["index"] <= last_index or key not in torn)]  # fmt: skip
            is_raft = row is not None and not row["last"].classic
            found.append(
                MemberFacts(
                    0, moment.copy, moment.brokers[member], member, begin=one.begin,
                    end=max(end_of.get(key, 0), row.end if row else 0), last=last_index,
                    last_term=row["last"]["term"] if row else 0, entries=row.rows if row else 0, is_raft=is_raft,
                    file_bytes=one.log.file_bytes, dispatched=one.dispatched, flushed=one.flushed, floor=one.floor,
                    vote=one.vote, stamps=one.stamps, offsets=one.offsets, offsets_before=one.offsets_before,
                    damage=one.damage, configs=own,
                )
            )  # fmt: skip
    return found
