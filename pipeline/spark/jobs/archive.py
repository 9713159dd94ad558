"""A topic into Parquet files by date, and back: resumable, each message once by its offset."""

from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.spark.topic.options import DEDUP_KEY
from pipeline.spark.topic.query import run_query

CHECKPOINT = "_checkpoint"
# Messages that one step of archiving takes: what is done again after a failure, and the memory that it needs.
STEP_MESSAGES = 2_000_000
ORDER = ("brokerName", "queueId", "queueOffset")


def archive(spark: SparkSession, namesrv: str, topic: str, folder: str, *, step: int = STEP_MESSAGES) -> dict[str, Any]:
    """Append to `folder` what the topic holds and the archive does not yet; returns how much that was.

    A stream that ends where the topic ends now. Its checkpoint lies in the folder: run again, it goes on behind the
    last message that it wrote, also when it was killed half way. Files are below date=YYYY-MM-DD, of the store time in
    UTC; read them with Spark, which takes only those that a finished step has named.
    """
    messages = (
        spark.readStream.format("raftmq")
        .options(namesrv=namesrv, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(step))
        .load()
    )
    writer = (
        messages.withColumn("date", F.to_date("storeTimestamp"))
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("checkpointLocation", str(PurePosixPath(folder) / CHECKPOINT))
        .trigger(availableNow=True)
    )
    query = run_query(lambda: writer.start(folder))
    steps = query.recentProgress
    return {
        "topic": topic,
        "folder": folder,
        "steps": len(steps),
        "messages": sum(one["numInputRows"] for one in steps),
    }


def restore(
    spark: SparkSession, namesrv: str, topic: str, folder: str, *, dates: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Send an archive's messages to a topic, which may be another one; `dates`: the first and the last one.

    Keys, tags, properties and bodies are those of the archive, offsets and times the broker's. At least once: run
    again, it sends all again. Each message says by the property DEDUP_KEY which row it was, the same in every run, so
    that copies can be told. Messages of one queue of the archive keep their order within one task.
    """
    rows = spark.read.parquet(folder)
    if dates is not None:
        rows = rows.where(F.col("date").between(*dates))
    places = rows.select("properties", "keys", "tags", "body", *ORDER)
    sorted_rows = places.repartition("brokerName", "queueId").sortWithinPartitions(*ORDER)
    count = rows.count()
    sorted_rows.select("keys", "tags", "properties", "body").write.format("raftmq").mode("append").options(
        namesrv=namesrv, topic=topic, writeId=f"restore/{PurePosixPath(folder).name}"
    ).save()
    return {"topic": topic, "folder": folder, "messages": count, "dedup_key": DEDUP_KEY}
