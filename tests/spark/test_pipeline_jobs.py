"""The jobs over topics and logs, against a real broker and real store folders."""

import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from client.message import Message
from pipeline.spark.jobs.archive import archive, restore
from pipeline.spark.jobs.audit import Window, audit
from pipeline.spark.jobs.compare import compare
from pipeline.spark.jobs.reconcile import BadLedger, Ledger, reconcile
from raftmq.cli.pipeline import app, parse_moment
from tests.planted.plant_stores import RAFT, build
from tests.spark.topics import everything, make_topic, send, small_cluster

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
MESSAGES = 60
# Number 7 was sent three times under one key, number 9 with another body than the ledger says, 11 never.
TWICE, CHANGED, NEVER = 7, 9, 11
STRANGER = "stranger"


def body(number: int) -> bytes:
    return f"order {number}".encode()


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the orders."""
    with small_cluster(tmp_path_factory.mktemp("jobs")) as cluster:
        namesrv = cluster.namesrv.address
        make_topic(namesrv, TOPIC, 2)
        orders = [
            Message(TOPIC, body(number) + b"!" * (number == CHANGED), keys=f"k{number}", tags=f"t{number % 2}")
            for number in range(MESSAGES)
            if number != NEVER
        ]
        again = [Message(TOPIC, body(TWICE), keys=f"k{TWICE}") for _ in range(2)]
        send(namesrv, [*orders, *again, Message(TOPIC, b"?", keys=STRANGER)])
        yield namesrv


def ledger_of(folder: Path, **columns: Any) -> str:
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "part.parquet")
    return str(folder)


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    numbers = range(MESSAGES)
    crcs = pa.array([zlib.crc32(body(number)) for number in numbers], pa.int64())
    return ledger_of(tmp_path / "ledger", key=[f"k{number}" for number in numbers], crc32=crcs)


def test_audit_counts_what_the_ordinary_client_reads(spark: SparkSession, namesrv: str) -> None:
    messages = everything(namesrv, TOPIC, MESSAGES + 2)
    report = audit(spark, Window(namesrv, TOPIC))
    assert (report["messages"], report["gaps"], report["duplicates"]) == (MESSAGES + 2, 0, 0)
    assert report["bytes"] == sum(len(message.body) for message in messages)
    by_queue = {queue["queueId"]: queue for queue in report["queues"]}
    for number, queue in by_queue.items():
        offsets = [message.queue_offset for message in messages if message.queue_id == number]
        assert (queue["first"], queue["last"], queue["messages"]) == (min(offsets), max(offsets), len(offsets))
    assert report["keys"][0] == {"value": f"k{TWICE}", "messages": 3, "share": round(3 / (MESSAGES + 2), 4)}
    assert {one["value"]: one["messages"] for one in report["tags"]} == {"t0": 30, "t1": 29}


def test_audit_of_a_time_without_messages(spark: SparkSession, namesrv: str) -> None:
    report = audit(spark, Window(namesrv, TOPIC, 0, 1000))
    assert (report["messages"], report["queues"], report["bytes_mean"]) == (0, [], None)


def test_reconcile_names_each_kind_of_difference(
    spark: SparkSession, namesrv: str, ledger: str, tmp_path: Path
) -> None:
    report = reconcile(spark, Ledger(ledger), Window(namesrv, TOPIC), str(tmp_path / "out"))
    counts = {name: report[name] for name in ("missing", "unexpected", "repeated", "different")}
    assert counts == {"missing": 1, "unexpected": 1, "repeated": 1, "different": 1}
    assert {one["what"]: one["key"] for one in report["examples"]} == {
        "missing": f"k{NEVER}", "unexpected": STRANGER, "repeated": f"k{TWICE}", "different": f"k{CHANGED}",
    }  # fmt: skip
    assert not report["equal"]
    assert spark.read.parquet(str(tmp_path / "out")).count() == 4


def test_reconcile_of_what_is_equal(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    keys = [message.properties["KEYS"] for message in everything(namesrv, TOPIC, MESSAGES + 2)]
    report = reconcile(spark, Ledger(ledger_of(tmp_path / "ledger", sent=keys), key="sent"), Window(namesrv, TOPIC))
    assert report["equal"]
    assert report["ledger"] == report["messages"] == MESSAGES + 2


def test_reconcile_says_which_columns_a_ledger_has(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    path = ledger_of(tmp_path / "ledger", id=["a"])
    with pytest.raises(BadLedger, match="no column key: it has id"):
        reconcile(spark, Ledger(path), Window(namesrv, TOPIC))
    with pytest.raises(BadLedger, match="one of the two"):
        reconcile(spark, Ledger(), Window(namesrv, TOPIC))


def test_archive_goes_on_where_it_ended_and_restore_brings_all_back(
    spark: SparkSession, namesrv: str, tmp_path: Path
) -> None:
    topic, copy, folder = "ledger_in", "ledger_out", str(tmp_path / "archive")
    make_topic(namesrv, topic, 2)
    make_topic(namesrv, copy, 2)
    send(namesrv, [Message(topic, body(number), keys=f"k{number}", tags="t") for number in range(10)])
    assert archive(spark, namesrv, topic, folder)["messages"] == 10
    assert archive(spark, namesrv, topic, folder)["messages"] == 0
    send(namesrv, [Message(topic, body(number), keys=f"k{number}", tags="t") for number in range(10, 15)])
    assert archive(spark, namesrv, topic, folder, step=2)["messages"] == 5
    rows = spark.read.parquet(folder).select("brokerName", "queueId", "queueOffset", "body").collect()
    assert len({(row.brokerName, row.queueId, row.queueOffset) for row in rows}) == len(rows) == 15
    assert len(list(Path(folder).glob("date=*"))) in {1, 2}
    assert restore(spark, namesrv, copy, folder)["messages"] == 15
    back = everything(namesrv, copy, 15)
    assert {(message.properties["KEYS"], bytes(message.body)) for message in back} == {
        (f"k{number}", body(number)) for number in range(15)
    }
    assert len({message.properties["sparkRow"] for message in back}) == 15


def test_compare_finds_the_entry_that_one_member_holds_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    cluster = build(tmp_path / "stores", 5, RAFT)
    folders = {name: str(cluster.folder(name)) for name in ("n0", "n1", "n2")}
    report = compare(spark, folders)
    assert (report["differences"], report["raft"]) == (0, True)
    last = {state["member"]: (state["last"], state["messages"], state["end"]) for state in report["members"]}
    assert len(set(last.values())) == 1
    other = build(tmp_path / "others", 6, RAFT)
    shutil.rmtree(folders["n2"])
    shutil.copytree(other.folder("n2"), folders["n2"])
    report = compare(spark, folders)
    assert report["differences"] > 0
    assert {one["member"] for one in report["first"][0]["members"]} == {"n0", "n1", "n2"}


def test_the_command_ends_with_254_when_nothing_can_be_compared(tmp_path: Path) -> None:
    """1 means that logs differ, and nothing else."""
    folders = [tmp_path / name for name in ("n0", "n1")]
    outcome = CliRunner().invoke(app, ["compare", *map(str, folders)])
    assert outcome.exit_code == 254
    assert "no store folder" in outcome.output


def test_times_are_ms_or_iso_in_utc() -> None:
    assert parse_moment("", "--from") is None
    assert parse_moment("1700000000000", "--from") == 1_700_000_000_000
    assert parse_moment("2023-11-14T22:13:20", "--from") == 1_700_000_000_000
    assert parse_moment("2023-11-14T23:13:20+01:00", "--from") == 1_700_000_000_000


def test_a_report_is_json(spark: SparkSession, tmp_path: Path) -> None:
    cluster = build(tmp_path / "stores", 5, RAFT)
    assert json.loads(json.dumps(compare(spark, {"n0": str(cluster.folder("n0"))})))["differences"] == 0
