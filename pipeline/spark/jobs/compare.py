"""The logs of a group's members against one another, also while the group serves: up to what all of them have."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SHOWN = 10


def compare(spark: SparkSession, folders: Mapping[str, str]) -> dict[str, Any]:
    """Compare store folders, member → folder; returns each member's state, and the first places where they differ.

    Raft groups are compared entry by entry, up to the highest index that a member knows as committed: an index that
    two members hold with another term, CRC, size or position is a difference. Logs of the classic modes are compared
    record by record where all have one. What a member has not got yet is its lag, no difference. A log that is being
    written may end in what looks torn: `torn` says where, and what lies below the others' ends is to be looked at.
    """
    entries = _read(spark, folders, "entries").persist()
    records = _read(spark, folders, "records").select("member", "position", "size", "crc", "index").persist()
    try:
        states = _states(entries, records, _read(spark, folders, "gaps"), folders)
        is_raft = any(state["last"] for state in states)
        apart = _entries_apart(entries) if is_raft else _records_apart(records)
        shown = apart.orderBy("at").limit(SHOWN).collect()
        return {
            "members": states,
            "raft": is_raft,
            "differences": apart.count(),
            "first": [{"at": row.at, "members": [one.asDict() for one in row.members]} for row in shown],
        }
    finally:
        entries.unpersist()
        records.unpersist()


def _read(spark: SparkSession, folders: Mapping[str, str], schema: str) -> DataFrame:
    given = {"path": ",".join(folders.values()), "members": ",".join(folders), "schema": schema}
    return spark.read.format("raftmq-log").options(**given).load()


def _states(
    entries: DataFrame, records: DataFrame, gaps: DataFrame, folders: Mapping[str, str]
) -> list[dict[str, Any]]:
    ends = entries.groupBy("member").agg(
        F.max("index").alias("last"),
        F.max("commit").alias("committed"),
        F.max_by("term", "index").alias("term"),
        F.max(F.col("position") + F.col("size")).alias("end"),
    )
    counts = records.groupBy("member").agg(
        F.count(F.lit(1)).alias("messages"), F.max(F.col("position") + F.col("size")).alias("behind")
    )
    torn = gaps.groupBy("member").agg(F.min("start").alias("torn"))
    rows = {row.member: row for row in ends.join(counts, "member", "full").join(torn, "member", "full").collect()}
    return [
        {
            "member": member,
            "last": row["last"] or 0 if row else 0,
            "term": row.term or 0 if row else 0,
            "committed": row.committed or 0 if row else 0,
            "end": max(row.end or 0, row.behind or 0) if row else 0,
            "messages": row.messages or 0 if row else 0,
            "torn": row.torn if row else None,
        }
        for member, row in ((member, rows.get(member)) for member in folders)
    ]


def _entries_apart(entries: DataFrame) -> DataFrame:
    committed = entries.agg(F.max("commit").alias("committed"))
    known = entries.crossJoin(F.broadcast(committed)).where(F.col("index") <= F.col("committed"))
    return _apart(known, "index", ("term", "crc", "size", "position"))


def _records_apart(records: DataFrame) -> DataFrame:
    return _apart(records, "position", ("size", "crc"))


def _apart(rows: DataFrame, at: str, says: tuple[str, ...]) -> DataFrame:
    """Return the places at which members say different things, with what each says."""
    told = F.struct("member", *says)
    groups = rows.groupBy(F.col(at).alias("at")).agg(
        F.count_distinct(F.struct(*says)).alias("ways"), F.sort_array(F.collect_list(told)).alias("members")
    )
    return groups.where(F.col("ways") > 1).select("at", "members")
