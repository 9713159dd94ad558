"""A producer's own ledger against a topic: what is missing, unexpected, there several times, or different."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.spark.jobs.audit import QUEUE, Window

SHOWN = 10
MISSING, UNEXPECTED, REPEATED, DIFFERENT = "missing", "unexpected", "repeated", "different"


class BadLedger(Exception):
    """A ledger that cannot be compared; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where a producer wrote down what was acknowledged: Parquet files, or a table by JDBC.

    A row for each message: `key`, its key or (with `by` "msgId") the id that send() returned; `crc32`, where there is
    such a column: the CRC-32 of the body.
    """

    path: str = ""
    jdbc_url: str = ""
    table: str = ""
    key: str = "key"
    crc32: str = "crc32"
    by: str = "keys"

    def read(self, spark: SparkSession) -> DataFrame:
        """Return (key, crc32) of all rows, crc32 null where there is none. Raises BadLedger."""
        if bool(self.path) == bool(self.jdbc_url):
            raise BadLedger("name the ledger by a path of Parquet files or by a JDBC URL and table, one of the two")
        if self.path:
            rows = spark.read.parquet(self.path)
        else:
            rows = spark.read.format("jdbc").options(url=self.jdbc_url, dbtable=self.table).load()
        if self.key not in rows.columns:
            raise BadLedger(f"the ledger has no column {self.key}: it has {', '.join(rows.columns)}; name it by --key")
        crc = F.col(self.crc32).cast("long") if self.crc32 in rows.columns else F.lit(None).cast("long")
        return rows.select(F.col(self.key).cast("string").alias("key"), crc.alias("told"))


def reconcile(spark: SparkSession, ledger: Ledger, window: Window, out: str = "") -> dict[str, Any]:
    """Compare; returns counts and the smallest examples. `out`: where all differences go, as Parquet.

    missing: in the ledger, not in the topic. unexpected: the other way round. repeated: a key of the ledger stands at
    more offsets than the ledger has rows. different: the body's CRC-32 is not the ledger's.
    """
    columns = "queueId,queueOffset,brokerName,body," + ("msgId" if ledger.by == "msgId" else "keys")
    messages = window.read(spark, columns)
    key = F.col("msgId") if ledger.by == "msgId" else F.explode_outer(F.split("keys", " "))
    there = messages.select(
        key.alias("key"), F.struct(*QUEUE, "queueOffset").alias("place"), F.crc32("body").alias("crc")
    )
    found = there.groupBy("key").agg(
        F.count(F.lit(1)).alias("times"), F.min("place").alias("place"), F.collect_set("crc").alias("crcs")
    )
    told = ledger.read(spark).groupBy("key").agg(F.count(F.lit(1)).alias("rows"), F.max("told").alias("told"))
    both = told.join(found, "key", "full")
    wrong = (
        F.when(F.col("times").isNull(), MISSING)
        .when(F.col("rows").isNull(), UNEXPECTED)
        .when(F.col("times") > F.col("rows"), REPEATED)
        .when(F.col("told").isNotNull() & ~F.array_contains("crcs", F.col("told")), DIFFERENT)
    )
    differences = both.withColumn("what", wrong).where(F.col("what").isNotNull())
    differences = differences.select("what", "key", "rows", "times", "place").persist()
    try:
        if out:
            differences.write.mode("overwrite").parquet(out)
        counts = {row.what: row["count"] for row in differences.groupBy("what").count().collect()}
        sizes = both.agg(F.sum("rows").alias("rows"), F.sum("times").alias("times")).collect()[0]
        return {
            "topic": window.topic,
            "ledger": sizes.rows or 0,
            "messages": sizes.times or 0,
            "equal": not counts,
            **{name: counts.get(name, 0) for name in (MISSING, UNEXPECTED, REPEATED, DIFFERENT)},
            "examples": [
                {**row.asDict(), "place": list(row.place) if row.place is not None else None}
                for row in differences.orderBy("what", "key").limit(SHOWN).collect()
            ],
        }
    finally:
        differences.unpersist()
