from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from chaos.host.local import LocalCluster
from client.message import Message
from pipeline.spark.topic.client import TopicError
from pipeline.spark.topic.options import OptionError, topic_options
from pipeline.spark.topic.query import run_query
from pipeline.spark.topic.sink import BATCH_MESSAGES, TopicWriter, messages_of, send_rows
from raftmq import sync
from remoting.javahash import java_hash
from remoting.message import MessageExt
from tests.spark.topics import come_up, everything, make_topic, send_batch, small_cluster, source, stream

pytestmark = pytest.mark.timeout(240)

QUEUES = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("sink")) as running:
        yield running


def write(frame: DataFrame, namesrv: str, topic: str, **options: str) -> None:
    frame.write.format("raftmq").mode("append").options(namesrv=namesrv, topic=topic, **options).save()


def dedup_keys(messages: list[MessageExt]) -> Counter[str]:
    return Counter(message.properties["sparkRow"] for message in messages)


def test_rows_become_messages_and_come_back(spark: SparkSession, cluster: LocalCluster) -> None:
    make_topic(cluster.address, "Round", QUEUES)
    frame = spark.range(1000).selectExpr(
        "concat('body ', id) AS body",
        "IF(id % 2 = 0, concat('k', id % 10), NULL) AS keys",
        "IF(id % 3 = 0, 'third', NULL) AS tags",
        "map('id', string(id), 'none', NULL) AS properties",
    )
    write(frame, cluster.address, "Round")
    messages = everything(cluster.address, "Round", 1000)
    by_id = {int(message.properties["id"]): message for message in messages}
    assert sorted(by_id) == list(range(1000))
    for number, message in by_id.items():
        assert message.body == b"body %d" % number
        assert message.properties.get("KEYS") == (f"k{number % 10}" if number % 2 == 0 else None)
        assert message.tags == ("third" if number % 3 == 0 else None)
        assert "none" not in message.properties
        if number % 2 == 0:
            assert message.queue_id == java_hash(f"k{number % 10}") % QUEUES
    assert len({message.queue_id for message in messages}) == QUEUES
    assert max(dedup_keys(messages).values()) == 1
    # A topic can be copied as it is read.
    make_topic(cluster.address, "Copy", 2)
    write(source(spark, cluster.address, "Round").load(), cluster.address, "Copy", dedupKey="copied")
    copies = everything(cluster.address, "Copy", 1000)
    assert sorted(message.body for message in copies) == sorted(message.body for message in messages)
    assert {message.properties["sparkRow"] for message in copies} == set(dedup_keys(messages))
    assert len({message.properties["copied"] for message in copies}) == 1000


def test_binary_bodies_of_any_size(spark: SparkSession, cluster: LocalCluster) -> None:
    make_topic(cluster.address, "Sizes", 1)
    sizes = [1, 100, 300_000, 700_000, 5, 1_000_000]
    frame = spark.createDataFrame([(bytes([number]) * size,) for number, size in enumerate(sizes)], "body binary")
    write(frame.coalesce(1), cluster.address, "Sizes", dedupKey="")
    messages = everything(cluster.address, "Sizes", len(sizes))
    assert [len(message.body) for message in messages] == sizes
    assert all("sparkRow" not in message.properties for message in messages)


def test_a_retried_task_sends_copies_that_tell_themselves(cluster: LocalCluster) -> None:
    make_topic(cluster.address, "Retried", 2)
    options = topic_options({"namesrv": cluster.address, "topic": "Retried"})

    def rows(fails: bool) -> Iterator[pa.RecordBatch]:
        for start in (0, BATCH_MESSAGES * 2, BATCH_MESSAGES * 4):
            if fails and start == BATCH_MESSAGES * 4:
                raise RuntimeError("the task is lost")
            bodies = [b"%d" % number for number in range(start, start + BATCH_MESSAGES * 2)]
            yield pa.RecordBatch.from_arrays([pa.array(bodies)], names=["body"])

    with pytest.raises(RuntimeError, match="the task is lost"):
        send_rows(options, rows(fails=True), "write/0/0", 0)
    assert send_rows(options, rows(fails=False), "write/0/0", 0).messages == BATCH_MESSAGES * 6
    messages = everything(cluster.address, "Retried", BATCH_MESSAGES * 10)
    assert len(messages) == BATCH_MESSAGES * 10
    found: dict[str, set[bytes]] = {}
    for message in messages:
        found.setdefault(message.properties["sparkRow"], set()).add(message.body)
    # Of equal key, equal body: who drops what has a key seen before keeps every row once.
    assert found == {f"write/0/0/{number}": {b"%d" % number} for number in range(BATCH_MESSAGES * 6)}


def test_tasks_of_a_write_and_repeated_writes_have_keys_of_their_own(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    make_topic(cluster.address, "Keys", 2)
    frame = spark.range(40).selectExpr("string(id) AS body").repartition(2)
    write(frame, cluster.address, "Keys", writeId="first")
    write(frame, cluster.address, "Keys", writeId="first")
    write(frame, cluster.address, "Keys")
    counts = dedup_keys(everything(cluster.address, "Keys", 120))
    named = {key: count for key, count in counts.items() if key.startswith("first/0/")}
    assert set(named.values()) == {2}
    assert len(named) == 40
    assert len(counts) == 80


def test_a_stream_writes_each_row_once(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    for topic in ("From", "To"):
        make_topic(cluster.address, topic, 2)
    send_batch(cluster.address, [Message("From", b"%d" % number, keys="k") for number in range(60)], queue=0)
    frame = stream(spark, cluster.address, "From", maxOffsetsPerTrigger=20).select("body", "keys")
    writer = frame.writeStream.format("raftmq").options(namesrv=cluster.address, topic="To")
    query = run_query(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)
    messages = everything(cluster.address, "To", 60)
    # One queue for one key, and so in the order of the source.
    assert [message.body for message in messages] == [b"%d" % number for number in range(60)]
    assert [message.properties["sparkRow"] for message in messages] == [
        f"{query.id}/{epoch}/0/{row}" for epoch in range(3) for row in range(20)
    ]


def test_the_brokers_words_fail_the_task(spark: SparkSession, cluster: LocalCluster) -> None:
    with sync.AdminClient(cluster.address) as admin:
        admin.create_topic("Closed", read_queues=1, write_queues=1, perm=4)
    frame = spark.range(3).selectExpr("string(id) AS body")
    with pytest.raises(PySparkException, match="Closed"):
        write(frame, cluster.address, "Closed", retryTimeoutMs="500")
    with pytest.raises(PySparkException, match="no NameServer answered"):
        write(frame, "127.0.0.1:1", "Closed", retryTimeoutMs="500")


def test_the_brokers_words_fail_the_query(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster.address, "Other", 1)
    with sync.AdminClient(cluster.address) as admin:
        admin.create_topic("Shut", read_queues=1, write_queues=1, perm=4)
    send_batch(cluster.address, [Message("Other", b"x")], queue=0)
    rows = stream(spark, cluster.address, "Other").select("body")
    writer = rows.writeStream.format("raftmq").options(namesrv=cluster.address, topic="Shut", retryTimeoutMs="500")
    query = come_up(writer.option("checkpointLocation", str(tmp_path)).start)
    with pytest.raises(StreamingQueryException, match="Shut"):
        query.awaitTermination(120)


def test_what_is_no_message_is_refused(spark: SparkSession, cluster: LocalCluster) -> None:
    options = topic_options({"namesrv": cluster.address, "topic": "T"})
    text = StructType([StructField("body", StringType())])
    with pytest.raises(OptionError, match="cannot be overwritten"):
        TopicWriter(options, text, overwrite=True)
    for columns, told in {
        "id bigint": "has the column body",
        "body int": "a message has no body of type int",
        "body string, keys array<string>": "a message has no keys of type array<string>",
        "body string, colour string": "a message has no colour of type string",
    }.items():
        schema = StructType.fromDDL(columns)
        assert isinstance(schema, StructType)
        with pytest.raises(OptionError, match=told):
            TopicWriter(options, schema, overwrite=False)
    empty = pa.RecordBatch.from_arrays([pa.array(["a", None])], names=["body"])
    with pytest.raises(TopicError, match="row w/0/0/8 has no body"):
        list(messages_of(options, empty, "w/0/0", 7))
