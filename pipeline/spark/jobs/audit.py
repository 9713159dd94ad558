"""What is in a topic between two times: counts, rates, sizes, skew of keys, gaps, duplicates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

QUEUE = ("brokerName", "queueId")
# Keys, tags and duplicates that a report names.
SHOWN = 10
COLUMNS = "queueId,queueOffset,brokerName,storeTimestamp,keys,tags,msgId,body"


@dataclass(frozen=True, slots=True)
class Window:
    """A topic, and the store times in ms that are looked at: [start, end); None for the topic's edges."""

    namesrv: str
    topic: str
    start_ms: int | None = None
    end_ms: int | None = None

    def options(self) -> Mapping[str, str]:
        """Return the options of format("raftmq")."""
        found = {"namesrv": self.namesrv, "topic": self.topic}
        if self.start_ms is not None:
            found["startingTimestamp"] = str(self.start_ms)
        if self.end_ms is not None:
            found["endingTimestamp"] = str(self.end_ms)
        return found

    def read(self, spark: SparkSession, columns: str) -> DataFrame:
        """Return its messages."""
        return spark.read.format("raftmq").options(**self.options(), columns=columns).load()


def audit(spark: SparkSession, window: Window) -> dict[str, Any]:
    """Return the report on a topic's messages.

    `queues`: messages, offsets, bytes of each; `gaps`: offsets between its first and last that have no message (expired
    ones are no gap). `minutes`: messages stored in each minute, the busiest first. `keys`: those on most messages.
    `duplicates`: unique keys that stand at several offsets: sends that were repeated, or copies.
    """
    messages = window.read(spark, COLUMNS).withColumn("size", F.length("body")).drop("body").persist()
    try:
        queues = _queues(messages)
        total = sum(queue["messages"] for queue in queues)
        size = sum(queue["bytes"] for queue in queues)
        twice = messages.groupBy("msgId").count().where(F.col("count") > 1)
        copies = twice.agg(F.count(F.lit(1)).alias("ids"), F.coalesce(F.sum("count"), F.lit(0)).alias("all")).collect()[
            0
        ]
        return {
            "topic": window.topic,
            "messages": total,
            "bytes": size,
            "bytes_mean": round(size / total, 1) if total else None,
            "gaps": sum(queue["gaps"] for queue in queues),
            "queues": queues,
            "rates": _rates(messages),
            "keys": _most(messages.select(F.explode(F.split("keys", " ")).alias("value")), total),
            "tags": _most(messages.select(F.col("tags").alias("value")), total),
            "duplicates": copies["all"] - copies.ids,
            "duplicated": [
                {"msgId": row.msgId, "times": row["count"]}
                for row in twice.orderBy(F.desc("count"), "msgId").limit(SHOWN).collect()
            ],
        }
    finally:
        messages.unpersist()


def _queues(messages: DataFrame) -> list[dict[str, Any]]:
    rows = messages.groupBy(*QUEUE).agg(
        F.count(F.lit(1)).alias("messages"),
        F.min("queueOffset").alias("first"),
        F.max("queueOffset").alias("last"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("largest"),
        F.min("storeTimestamp").alias("from"),
        F.max("storeTimestamp").alias("to"),
    )
    return [
        {**row.asDict(), "gaps": row["last"] - row["first"] + 1 - row.messages}
        for row in rows.orderBy(*QUEUE).collect()
    ]


def _rates(messages: DataFrame) -> dict[str, Any]:
    """Return the messages a second over all of the time, and the busiest second and minute."""
    seconds = messages.groupBy(F.date_trunc("second", "storeTimestamp").alias("second")).count()
    minutes = messages.groupBy(F.date_trunc("minute", "storeTimestamp").alias("minute")).count()
    span = messages.agg(
        (F.max("storeTimestamp").cast("double") - F.min("storeTimestamp").cast("double")).alias("seconds"),
        F.count(F.lit(1)).alias("messages"),
    ).collect()[0]
    busiest = seconds.orderBy(F.desc("count"), "second").limit(1).collect()
    return {
        "seconds": span.seconds,
        "per_second": round(span.messages / span.seconds, 1) if span.seconds else None,
        "per_second_most": busiest[0]["count"] if busiest else None,
        "minutes": [row.asDict() for row in minutes.orderBy(F.desc("count"), "minute").limit(SHOWN).collect()],
    }


def _most(values: DataFrame, total: int) -> list[dict[str, Any]]:
    counts = values.where(F.col("value").isNotNull() & (F.col("value") != "")).groupBy("value").count()
    return [
        {"value": row.value, "messages": row["count"], "share": round(row["count"] / total, 4)}
        for row in counts.orderBy(F.desc("count"), "value").limit(SHOWN).collect()
    ]
