import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from chaos.host.local import LocalCluster
from client.errors import SendFailed
from client.message import Message
from pipeline.spark.topic.query import run_query
from raftmq import sync
from tests.spark.topics import (
    come_up,
    everything,
    make_topic,
    places,
    send,
    send_batch,
    small_cluster,
    stream,
    wait_until,
)

pytestmark = pytest.mark.timeout(300)

BACKLOG = 150
QUEUES = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("stream")) as running:
        yield running


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path / "group", nodes=3) as running:
        yield running


class Output:
    """A stream that goes into Parquet files in a folder, with its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def start(self, frame: DataFrame, *, once: bool = False) -> StreamingQuery:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="100 milliseconds")
        return writer.start(str(self._folder / "out"))

    def places(self) -> list[tuple[int, int]]:
        """What is there, every row of it."""
        if not self.batches():
            return []
        rows = self._spark.read.schema("queueId int, queueOffset bigint").parquet(str(self._folder / "out")).collect()
        return places(rows)

    def batches(self) -> int:
        """How many micro-batches are in the folder."""
        return sum(path.name.isdigit() for path in (self._folder / "out" / "_spark_metadata").glob("*"))


def numbered(topic: str, start: int, end: int) -> list[Message]:
    return [Message(topic, b"%d" % number) for number in range(start, end)]


def whole(*counts: int) -> list[tuple[int, int]]:
    """The places of all messages, of queues with so many."""
    return [(queue, offset) for queue, count in enumerate(counts) for offset in range(count)]


def test_a_checkpoint_goes_on_where_it_ended(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster.address, "Again", 2)
    output = Output(spark, tmp_path)
    send_batch(cluster.address, numbered("Again", 0, 20), queue=0)
    query = come_up(lambda: output.start(stream(spark, cluster.address, "Again")))
    wait_until(lambda: output.places() == whole(20))
    send_batch(cluster.address, numbered("Again", 20, 50), queue=1)
    wait_until(lambda: output.places() == whole(20, 30))
    query.stop()
    send_batch(cluster.address, numbered("Again", 50, 60), queue=0)
    again = come_up(lambda: output.start(stream(spark, cluster.address, "Again", startingOffsets="latest")))
    wait_until(lambda: output.places() == whole(30, 30))
    again.stop()


def test_a_new_queue_is_read_from_its_first_message(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster.address, "Grows", 1)
    output = Output(spark, tmp_path)
    query = come_up(lambda: output.start(stream(spark, cluster.address, "Grows", startingOffsets="latest")))
    make_topic(cluster.address, "Grows", 2)
    send_batch(cluster.address, numbered("Grows", 0, 40), queue=1)
    send_batch(cluster.address, numbered("Grows", 40, 50), queue=0)
    wait_until(lambda: output.places() == whole(10, 40))
    query.stop()
    # And one that appears while nothing runs.
    make_topic(cluster.address, "Grows", 3)
    send_batch(cluster.address, numbered("Grows", 50, 55), queue=2)
    run_query(lambda: output.start(stream(spark, cluster.address, "Grows"), once=True))
    assert output.places() == whole(10, 40, 5)


def test_a_limit_makes_small_micro_batches(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster.address, "Many", 2)
    send_batch(cluster.address, numbered("Many", 0, 75), queue=0)
    send_batch(cluster.address, numbered("Many", 75, 100), queue=1)
    output = Output(spark, tmp_path)
    query = run_query(lambda: output.start(stream(spark, cluster.address, "Many", maxOffsetsPerTrigger=30), once=True))
    assert [progress.numInputRows for progress in query.recentProgress] == [30, 30, 30, 10]
    assert output.places() == whole(75, 25)


def test_a_topic_made_anew_is_an_error(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster.address, "Anew", 1)
    send_batch(cluster.address, numbered("Anew", 0, 5), queue=0)
    output = Output(spark, tmp_path)
    run_query(lambda: output.start(stream(spark, cluster.address, "Anew"), once=True))
    with sync.AdminClient(cluster.address) as admin:
        admin.delete_topic("Anew")
    make_topic(cluster.address, "Anew", 1)
    query = come_up(lambda: output.start(stream(spark, cluster.address, "Anew")))
    with pytest.raises(StreamingQueryException, match="ends at 0, but the query has read it up to 5"):
        query.awaitTermination(120)


def test_a_killed_leader_costs_no_message(spark: SparkSession, group: LocalCluster, tmp_path: Path) -> None:
    make_topic(group.address, "T", QUEUES)
    for queue in range(QUEUES):
        send_batch(group.address, numbered("T", 0, BACKLOG), queue=queue)
    output = Output(spark, tmp_path / "query")
    query = come_up(lambda: output.start(stream(spark, group.address, "T", maxOffsetsPerTrigger=60)))
    wait_until(lambda: output.batches() >= 2)
    group.wait_for_leader().kill()
    send(group.address, numbered("T", 0, 30), queue=1)
    each = BACKLOG
    wait_until(lambda: output.places() == whole(each, each + 30, each), timeout_s=90)
    assert query.exception() is None
    query.stop()


def committed(folder: Path) -> list[tuple[int, int]]:
    """The places in the files that a file sink's log names, read without Spark: the drivers need the machine."""
    logs = {int(path.name.split(".")[0]): path for path in (folder / "out" / "_spark_metadata").glob("[0-9]*")}
    compacted = max((number for number, path in logs.items() if path.suffix == ".compact"), default=-1)
    lines = [line for number, path in logs.items() if number >= compacted for line in path.read_text().splitlines()[1:]]
    files = [json.loads(line)["path"].removeprefix("file://") for line in lines]
    found: list[tuple[int, int]] = []
    for file in files:
        rows = parquet.read_table(file, columns=["queueId", "queueOffset"]).to_pylist()
        found += [(row["queueId"], row["queueOffset"]) for row in rows]
    return sorted(found)


class Driver:
    """A driver in a process of its own, which `kill` ends as ``kill -9`` does, its JVM and workers with it."""

    def __init__(self, namesrv: str, topic: str, folder: Path, *more: str) -> None:
        arguments = [sys.executable, "-m", "tests.spark.topic_driver", namesrv, topic, str(folder), *more]
        self._log = folder / f"driver{len(list(folder.glob('driver*')))}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finished(self, timeout_s: float) -> None:
        """Wait for a good end."""
        code = self.process.wait(timeout_s)
        assert code == 0, self._log.read_text(errors="replace")[-3000:]


class Sender:
    """Sends one message after the other until it is stopped, whoever leads; knows which were acknowledged."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self._namesrv = namesrv
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with sync.Producer("senders", self._namesrv, send_timeout=20.0) as producer:
            number = 0
            while not self._stopped.wait(0.02):
                body = b"sent-%d" % number
                number += 1
                # Of one that failed nobody knows whether it is stored: what was read is compared with what is there.
                with suppress(SendFailed):
                    producer.send(Message(self._topic, body))
                    self.acknowledged.add(body)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def test_killed_driver_and_leader_every_message_once(group: LocalCluster, tmp_path: Path) -> None:
    folder = tmp_path / "query"
    folder.mkdir()
    make_topic(group.address, "T", QUEUES)
    for queue in range(QUEUES):
        send_batch(group.address, numbered("T", 0, BACKLOG), queue=queue)
    sender = Sender(group.address, "T")
    first = Driver(group.address, "T", folder)
    try:
        wait_until(lambda: len(committed(folder)) >= 200, timeout_s=300)
        first.kill()
        killed = group.wait_for_leader()
        killed.kill()
        before = len(sender.acknowledged)
        read = len(committed(folder))
        # In the middle: what is sent goes on, so that there is always more to read than was read.
        assert read
        second = Driver(group.address, "T", folder)
        try:
            wait_until(lambda: len(sender.acknowledged) > before + 20)
            wait_until(lambda: len(committed(folder)) > read, timeout_s=300)
        finally:
            second.kill()
    finally:
        if first.process.poll() is None:
            first.kill()
        sender.stop()
    killed.start()
    third = Driver(group.address, "T", folder, "once")
    try:
        third.finished(300)
    finally:
        if third.process.poll() is None:
            third.kill()
    with sync.AdminClient(group.address) as admin:
        ends = [queue.maxOffset for queue in admin.topic_stats("T").offsetTable.values()]
    stored = everything(group.address, "T", sum(ends))
    assert committed(folder) == [(message.queue_id, message.queue_offset) for message in stored]
    assert sender.acknowledged <= {message.body for message in stored}
    assert len(stored) >= BACKLOG * QUEUES + len(sender.acknowledged)
