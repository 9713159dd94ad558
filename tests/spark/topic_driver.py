"""A driver of its own, to be killed: streams a topic into Parquet files.

python -m tests.spark.topic_driver NAMESRV TOPIC FOLDER [once]
"""

import sys
from pathlib import Path

from pipeline.spark.session import spark_session
from pipeline.spark.topic.query import run_query
from tests.spark.topics import stream

# Small micro-batches, so that a backlog takes many of them; once, all that is there is one.
OFFSETS_PER_TRIGGER = 100
OFFSETS_ONCE = 1_000_000


def main(namesrv: str, topic: str, folder: Path, *, once: bool) -> None:
    spark = spark_session("driver", cores=2, memory_mb=768, quick=True)
    most = OFFSETS_ONCE if once else OFFSETS_PER_TRIGGER
    frame = stream(spark, namesrv, topic, columns="queueId,queueOffset,body", maxOffsetsPerTrigger=most)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="50 milliseconds")
    run_query(lambda: writer.start(str(folder / "out")))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), once=sys.argv[4:] == ["once"])
