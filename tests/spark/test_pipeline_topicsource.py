import os
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession

from chaos.host.local import LocalCluster
from client.message import Message
from raftmq import sync
from remoting.message import MessageExt
from tests.spark.topics import everything, make_topic, places, send, send_batch, small_cluster, source, wait_until

pytestmark = pytest.mark.timeout(240)

COUNT = 90


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker with the topic "T": 90 messages in three queues, of tags t0 to t2."""
    with small_cluster(tmp_path_factory.mktemp("source")) as running:
        make_topic(running.address, "T", 3)
        for queue in range(3):
            send(running.address, (_message(number) for number in range(queue, COUNT, 3)), queue=queue)
        yield running


def _message(number: int) -> Message:
    # Every ninth is long enough to be compressed; every fifth has neither key nor tag.
    body = b"%d " % number * (2000 if number % 9 == 0 else 1)
    if number % 5 == 0:
        return Message("T", body)
    properties = {"number": str(number), "naïve": "ünï\n"}
    return Message("T", body, keys=[f"k{number}", "all"], tags=f"t{number % 4}", properties=properties)


def as_row(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "brokerName": message.broker_name,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "keys": message.properties.get("KEYS"),
        "tags": message.tags,
        "properties": message.properties,
        "body": message.body,
        "msgId": message.msg_id,
    }


def plain(row: Row) -> dict[str, Any]:
    def milliseconds(value: Any) -> Any:
        return round(value.timestamp() * 1000) if isinstance(value, datetime) else value

    return {name: milliseconds(value) for name, value in row.asDict().items()} | {"body": bytes(row.body)}


def test_every_column_is_what_the_client_reads(spark: SparkSession, cluster: LocalCluster) -> None:
    rows = source(spark, cluster.address, "T").load().orderBy("queueId", "queueOffset").collect()
    assert [plain(row) for row in rows] == [as_row(message) for message in everything(cluster.address, "T", COUNT)]
    assert len(rows) == COUNT


def test_few_columns_in_the_order_asked_for(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = source(spark, cluster.address, "T", columns="body,queueId").load()
    assert frame.columns == ["body", "queueId"]
    assert frame.count() == COUNT
    chosen = source(spark, cluster.address, "T").schema("queueOffset bigint, tags string").load()
    assert chosen.columns == ["queueOffset", "tags"]
    assert chosen.where("tags is null").count() == COUNT / 5


def test_offsets_bound_what_is_read(spark: SparkSession, cluster: LocalCluster) -> None:
    start = '{"broker-a": {"0": 5, "1": "latest"}}'
    end = '{"broker-a": {"0": 8, "2": -2}}'
    frame = source(spark, cluster.address, "T", startingOffsets=start, endingOffsets=end).load()
    assert places(frame.collect()) == [(0, 5), (0, 6), (0, 7)]
    assert source(spark, cluster.address, "T", startingOffsets="latest").load().count() == 0


def test_times_bound_what_is_read(spark: SparkSession, cluster: LocalCluster) -> None:
    messages = everything(cluster.address, "T", COUNT)
    times = sorted(message.store_timestamp for message in messages)
    first, behind = times[COUNT // 3], times[COUNT // 2] + 1
    frame = source(spark, cluster.address, "T", startingTimestamp=first, endingTimestamp=behind).load()
    wanted = [(one.queue_id, one.queue_offset) for one in messages if first <= one.store_timestamp < behind]
    assert places(frame.collect()) == sorted(wanted)


@pytest.mark.parametrize("wanted", ["t1", "t1 || t3"])
def test_brokers_filter_by_tag(spark: SparkSession, cluster: LocalCluster, wanted: str) -> None:
    tags = set(wanted.split(" || "))
    frame = source(spark, cluster.address, "T", tags=wanted, pullBatchCount=2).load()
    expected = [message for message in everything(cluster.address, "T", COUNT) if message.tags in tags]
    assert places(frame.collect()) == [(one.queue_id, one.queue_offset) for one in expected]
    # A filtered read keeps to its range too: what matches behind its end is left out.
    end = '{"broker-a": {"0": 4, "1": 0, "2": 0}}'
    short = source(spark, cluster.address, "T", tags=wanted, endingOffsets=end).load()
    assert places(short.collect()) == [
        (one.queue_id, one.queue_offset) for one in expected if one.queue_id == 0 and one.queue_offset < 4
    ]


def test_a_filter_that_nothing_passes_comes_to_an_end(spark: SparkSession, cluster: LocalCluster) -> None:
    make_topic(cluster.address, "Long", 1)
    # One read of a broker scans 800 entries.
    send_batch(cluster.address, [Message("Long", b"%d" % number, tags="no") for number in range(2000)], queue=0)
    send(cluster.address, [Message("Long", b"last", tags="yes")], queue=0)
    assert source(spark, cluster.address, "Long", tags="nothing").load().count() == 0
    rows = source(spark, cluster.address, "Long", tags="yes").load().collect()
    assert [(row.queueOffset, bytes(row.body)) for row in rows] == [(2000, b"last")]
    # And what one answer cannot hold is asked for in pieces, in order and whole.
    offsets = [row.queueOffset for row in source(spark, cluster.address, "Long", pullBatchCount=7).load().collect()]
    assert offsets == list(range(2001))


def test_filters_of_tags_are_pushed_down(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = source(spark, cluster.address, "T", pushTags="true").load()
    everything_ = [row.tags for row in source(spark, cluster.address, "T").load().collect()]
    assert frame.where("tags = 't2'").count() == everything_.count("t2")
    assert frame.where("tags IN ('t1', 't2')").count() == everything_.count("t1") + everything_.count("t2")
    assert frame.where("tags = 't2' AND queueOffset > 10").where("tags = 't1'").count() == 0
    # Spark filters what a subscription cannot say.
    assert frame.where("tags IS NULL").count() == everything_.count(None)
    plan = frame.where("tags = 't2'")._jdf.queryExecution().executedPlan().toString()
    assert "(tags#" not in plan.split("Filter")[-1].split("BatchScan")[0] or "Filter" not in plan


def test_queues_are_cut_into_partitions(spark: SparkSession, cluster: LocalCluster) -> None:
    whole = source(spark, cluster.address, "T").load()
    assert whole.rdd.getNumPartitions() == 3
    cut = source(spark, cluster.address, "T", minPartitions=8).load()
    assert cut.rdd.getNumPartitions() >= 8
    assert places(cut.collect()) == places(whole.collect())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": '{"broker-x": {"0": 1}}'}, "has no queue broker-x:0, which the offsets name"),
        ({"endingOffsets": '{"broker-a": {"0": 1000}}', "retryTimeoutMs": 300}, "it has offsets 0 to 30"),
        ({"topic": "Nowhere", "retryTimeoutMs": 300}, "No topic route info for topic Nowhere"),
        ({"namesrv": "127.0.0.1:1", "retryTimeoutMs": 300}, "no NameServer answered"),
        ({"tops": 1}, "has no option tops"),
    ],
)
def test_what_cannot_be_read_is_said(
    spark: SparkSession, cluster: LocalCluster, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(PySparkException) as error:
        source(spark, **({"namesrv": cluster.address, "topic": "T"} | options)).load().collect()
    assert told in str(error.value)


def test_a_wrong_schema_is_refused(spark: SparkSession, cluster: LocalCluster) -> None:
    with pytest.raises(AnalysisException, match="no column queueId of type bigint"):
        source(spark, cluster.address, "T").schema("queueId bigint").load().collect()


def test_expired_messages_are_an_error_unless_they_may_be_lost(spark: SparkSession, tmp_path: Path) -> None:
    with small_cluster(tmp_path) as cluster:
        make_topic(cluster.address, "Old", 1)
        # Three log files of 16 MiB; the first one goes.
        send(
            cluster.address,
            (Message("Old", random.Random(number).randbytes(3_000_000)) for number in range(12)),
            queue=0,
        )
        first_file = min((tmp_path / "broker" / "store" / "commitlog").iterdir())
        with sync.AdminClient(cluster.address) as admin:

            def gone() -> bool:
                # Not before all of it is flushed and in queues, which may come after the first request.
                if first_file.exists():
                    os.utime(first_file, (0, 0))
                    admin.delete_expired_commitlog()
                return not first_file.exists()

            wait_until(gone)
        left = source(spark, cluster.address, "Old").load()
        first = min(row.queueOffset for row in left.select("queueOffset").collect())
        assert first > 0
        asked = {"startingOffsets": '{"broker-a": {"0": 0}}', "columns": "queueOffset"}
        with pytest.raises(PySparkException, match=f"from offset 0 to {first - 1} are gone"):
            source(spark, cluster.address, "Old", **asked).load().collect()
        rows = source(spark, cluster.address, "Old", failOnDataLoss="false", **asked).load().collect()
        assert [row.queueOffset for row in rows] == list(range(first, 12))
