"""Real brokers for the tests of topics: filled, and read by the client that the source is compared with."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from chaos.host.local import LocalCluster
from client.message import Message
from pipeline.spark.topic.query import STARTS, worker_late
from raftmq import sync
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt

# Small files, and a machine whose disk may be nearly full.
SMALL: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}
POLL_S = 0.05


def small_cluster(folder: Path, nodes: int = 1) -> LocalCluster:
    """A NameServer and a broker, or a Raft group."""
    return LocalCluster(folder, nodes=nodes, broker_settings=SMALL)


def make_topic(namesrv: str, topic: str, queues: int) -> None:
    """Create a topic, or change the number of its queues, and wait until the NameServer knows."""
    with sync.AdminClient(namesrv) as admin:
        admin.create_topic(topic, read_queues=queues, write_queues=queues)
    wait_until(lambda: _queue_count(namesrv, topic) == queues)


def _queue_count(namesrv: str, topic: str) -> int:
    with sync.Producer("askers", namesrv) as producer:
        return len(producer.queues(topic))


def send(namesrv: str, messages: Iterable[Message], *, queue: int | None = None, broker: str = "broker-a") -> None:
    """Send messages one by one: to one queue, or spread over all; each time, also what has the key of another."""
    with sync.Producer("fillers", namesrv, send_timeout=20.0, idempotent=False) as producer:
        for message in messages:
            target = None if queue is None else MessageQueue(message.topic, broker, queue)
            producer.send(message, queue=target)


def send_batch(namesrv: str, messages: Sequence[Message], queue: int) -> None:
    """Send messages to one queue in batches of 250."""
    with sync.Producer("fillers", namesrv, send_timeout=20.0) as producer:
        for start in range(0, len(messages), 250):
            some = list(messages[start : start + 250])
            producer.send(some, queue=MessageQueue(some[0].topic, "broker-a", queue))


def everything(namesrv: str, topic: str, count: int) -> list[MessageExt]:
    """Read `count` messages of a topic from its start with the ordinary client, in the order of queue and offset."""
    found: list[MessageExt] = []
    with sync.LitePullConsumer("checkers", namesrv, auto_commit=False) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        deadline = time.monotonic() + 120
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.poll(0.5)
    return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))


def source(spark: SparkSession, namesrv: str, topic: str, **options: object) -> DataFrameReader:
    """The batch source of a topic."""
    return spark.read.format("raftmq").options(**_given(namesrv, topic, options))


def stream(spark: SparkSession, namesrv: str, topic: str, **options: object) -> DataFrame:
    """The streaming source of a topic, from its first message on."""
    given = _given(namesrv, topic, {"startingOffsets": "earliest", **options})
    return spark.readStream.format("raftmq").options(**given).load()


def come_up(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that goes on until it is stopped, again where its Python worker was late: what run_query() does."""
    for _ in range(STARTS):
        query = start()
        wait_until(lambda query=query: query.lastProgress is not None or not query.isActive, 120)  # type: ignore[misc]
        error = query.exception()
        if error is None or not worker_late(error):
            break
    return query


def _given(namesrv: str, topic: str, options: Mapping[str, object]) -> dict[str, Any]:
    return {"namesrv": namesrv, "topic": topic, **options}


def places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Queue and offset of each row, sorted."""
    return sorted((row.queueId, row.queueOffset) for row in rows)


def wait_until(true: Callable[[], bool], timeout_s: float = 180.0) -> None:
    """Wait for what another process does; fails when it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"it did not happen within {timeout_s:g} s"
        time.sleep(POLL_S)
