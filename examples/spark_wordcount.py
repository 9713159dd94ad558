"""Counts the words of flights as they are sent: a stream of the topic "flights" in Spark.

Sends some flights first, each with the text "CARRIER ORIGIN DEST" as its body, then counts every word with Structured
Streaming and compares with a count in plain Python. Needs Java 17 and `pip install '.[spark,demo]'` in the repository.
Start a cluster in another terminal with `raftmq local`, then run this file.
"""

import os
import sys
import tempfile
import uuid
from collections import Counter

import orjson

from raftmq import Message
from raftmq.flights import flights
from raftmq.spark import spark_session
from raftmq.sync import AdminClient, Producer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "flights"
COUNT = int(os.environ.get("FLIGHTS", "3000"))
BATCH = 100
SHOWN = 10


def text_of(body: bytes) -> str:
    flight = orjson.loads(body)
    return f"{flight['carrier']} {flight['origin']} {flight['dest']}"


def replay(run: str) -> Counter[str]:
    """Send the flights, tagged with this run; returns how often each word was sent."""
    texts = [text_of(record.body) for record in flights(COUNT).items]
    with AdminClient(NAMESRV) as admin:
        admin.create_topic(TOPIC, read_queues=8, write_queues=8)
    with Producer("flights_producer", NAMESRV) as producer:
        for start in range(0, len(texts), BATCH):
            producer.send([Message(TOPIC, text.encode(), tags=run) for text in texts[start : start + BATCH]])
    print(f"sent {len(texts):,} flights")
    return Counter(word for text in texts for word in text.split())


def main() -> None:
    run = uuid.uuid4().hex
    expected = replay(run)
    spark = spark_session("flights word count", quick=True)
    lines = (
        spark.readStream.format("raftmq")
        .options(namesrv=NAMESRV, topic=TOPIC, tags=run, startingOffsets="earliest", columns="body")
        .load()
    )
    counts = lines.selectExpr("explode(split(string(body), ' ')) AS word").groupBy("word").count()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            counts.writeStream.outputMode("complete")
            .format("memory")
            .queryName("words")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = Counter({row["word"]: row["count"] for row in spark.table("words").collect()})
    spark.stop()
    for word, count in found.most_common(SHOWN):
        print(f"  {word:<5}{count:>8,}")
    print("the counts agree with what was sent" if found == expected else f"WRONG: {expected - found}")
    sys.exit(found != expected)


if __name__ == "__main__":
    main()
