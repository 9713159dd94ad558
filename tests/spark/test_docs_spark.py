"""The programs of docs/spark.md, statement by statement in one session, beside a cluster and its stores."""

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from chaos.host.local import LocalCluster
from client.message import Message
from tests.docs.documents import blocks
from tests.docs.treatments import ADDRESS, WORDS
from tests.spark.topics import come_up, everything, make_topic, send, small_cluster, source, stream

DOCUMENT = "docs/spark.md"
PROGRAMS = [block.text for block in blocks("docs/spark.md") if block.language == "python"]
STORES = "n0/store,n1/store,n2/store"
COUNT = 12


class Site:
    """What the programs find: a topic of flights, a topic to write to, and rows to write."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, folder: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder

    def rows(self) -> Any:
        return source(self.spark, self.cluster.address, "flights").load()

    def stream(self) -> Any:
        return stream(self.spark, self.cluster.address, "flights")

    def written(self, count: int) -> None:
        assert len(everything(self.cluster.address, "out", count)) == count

    def of_sink(self, rows: Any) -> Any:
        return rows.withColumn("row", F.col("properties")["sparkRow"])


@pytest.fixture(scope="module")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("documents")
    with small_cluster(folder / "cluster", nodes=3) as cluster:
        for topic in ("flights", "out"):
            make_topic(cluster.address, topic, 2)
        send(cluster.address, (Message("flights", b"x", keys=f"k{number}") for number in range(COUNT)))
        yield Site(spark, cluster, folder)


def _written_once(site: Site, _: dict[str, Any]) -> None:
    site.written(COUNT)


def _written_again(site: Site, names: dict[str, Any]) -> None:
    query = names["query"]
    query.processAllAvailable()
    query.stop()
    site.written(2 * COUNT)


def _counted(name: str) -> Callable[[Site, dict[str, Any]], None]:
    def count(_: Site, names: dict[str, Any]) -> None:
        assert names[name].count() == COUNT

    return count


def _read_of_all(_: Site, names: dict[str, Any]) -> None:
    held = names["records"].where("topic = 'flights'").groupBy("member").count().collect()
    assert {row.member: row["count"] for row in held} == dict.fromkeys(STORES.split(","), COUNT)


def _is_a_stream(_: Site, names: dict[str, Any]) -> None:
    assert names["once"].isStreaming


def _one_of_each(site: Site, names: dict[str, Any]) -> None:
    # What the sink wrote above, and its twin.
    rows = site.of_sink(source(site.spark, site.cluster.address, "out").load())
    assert names["once"].count() == rows.select("row").distinct().count()


def _known(_: Site, names: dict[str, Any]) -> None:
    assert isinstance(names["spark"], SparkSession)


def _rows(site: Site) -> dict[str, Any]:
    return {"frame": site.rows()}


def _stream(site: Site) -> dict[str, Any]:
    return {"frame": site.stream()}


def _stream_of_sink(site: Site) -> dict[str, Any]:
    return {"topic": site.of_sink(site.stream()).withWatermark("storeTimestamp", "1 minute")}


def _rows_of_sink(site: Site) -> dict[str, Any]:
    return {"topic": site.of_sink(source(site.spark, site.cluster.address, "out").load())}


def _nothing(_: Site) -> dict[str, Any]:
    return {}


def _execute(line: str, names: dict[str, Any]) -> None:
    """Run a statement; one that starts a query again where its Python worker was late."""

    def start() -> StreamingQuery:
        exec(line, names)
        query: StreamingQuery = names["query"]
        return query

    if line.startswith("query ="):
        come_up(start)
    else:
        exec(line, names)


# By how a statement begins: the names that the text around it speaks of, and what must hold behind it.
STATEMENTS: Mapping[str, tuple[Callable[[Site], dict[str, Any]], Callable[[Site, dict[str, Any]], None]]] = {
    "from raftmq.spark": (_nothing, lambda _site, _names: None),
    "spark = spark_session": (_nothing, _known),
    "flights = spark.read": (_nothing, _counted("flights")),
    "frame.write.format": (_rows, _written_once),
    "query = frame.writeStream": (_stream, _written_again),
    "once = topic.dropDuplicatesWithinWatermark": (_stream_of_sink, _is_a_stream),
    "once = topic.dropDuplicates(": (_rows_of_sink, _one_of_each),
    "records = spark.read.format('raftmq-log')": (_nothing, _read_of_all),
}


@pytest.mark.timeout(240)
def test_all_statements_run_one_after_the_other(site: Site) -> None:
    words = {
        ADDRESS: site.cluster.address,
        STORES: ",".join(str(site.cluster.folder / part) for part in STORES.split(",")),
        **{old: new.format(folder=site.folder) for old, new in WORDS[DOCUMENT].items()},
    }
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        text = program
        for old, new in words.items():
            text = text.replace(old, new)
        for statement in ast.parse(text).body:
            line = ast.unparse(statement)
            given, holds = next(row for begin, row in STATEMENTS.items() if line.startswith(begin))
            names |= given(site)
            _execute(line, names)
            holds(site, names)
