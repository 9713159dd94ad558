"""`raftmq pipeline`: each option of each job does what its help says, over queues that hold unequal numbers."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner, Result

from client.message import Message
from raftmq.cli.pipeline import app
from remoting.message import MessageExt
from tests.planted.plant_stores import RAFT, build
from tests.spark.topics import everything, make_topic, places, send, small_cluster, source, wait_until

pytestmark = pytest.mark.timeout(240)
TOPIC, COPY = "uneven", "copy"
EARLY, LATE = (17, 3, 0), (14, 4, 0)
TIMES_SENT = 3
COUNT = sum(EARLY) + sum(LATE) + TIMES_SENT


class Again(Message):
    """A message whose sends have one unique key: what a producer that repeats a send leaves."""

    def properties_text(self, uniq_key: str) -> str:  # noqa: ARG002  # that is what is wrong with it
        return super().properties_text("0" * 31 + "A")


class Filled(NamedTuple):
    """A topic of three queues: two of unequal length and an empty one, filled at two times."""

    namesrv: str
    messages: list[MessageExt]
    middle_ms: int
    """What was sent late was stored at it or after, the rest before."""

    @property
    def early(self) -> list[MessageExt]:
        return [message for message in self.messages if message.store_timestamp < self.middle_ms]

    @property
    def late(self) -> list[MessageExt]:
        return [message for message in self.messages if message.store_timestamp >= self.middle_ms]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with small_cluster(tmp_path_factory.mktemp("uneven")) as cluster:
        namesrv = cluster.namesrv.address
        make_topic(namesrv, TOPIC, len(EARLY))
        make_topic(namesrv, COPY, 2)
        _fill(namesrv, "early", EARLY)
        middle = max(message.store_timestamp for message in everything(namesrv, TOPIC, sum(EARLY))) + 1
        wait_until(lambda: time.time() * 1000 > middle)
        _fill(namesrv, "late", LATE)
        send(namesrv, [Again(TOPIC, b"again", keys="again") for _ in range(TIMES_SENT)], queue=1)
        yield Filled(namesrv, everything(namesrv, TOPIC, COUNT), middle)


def _fill(namesrv: str, when: str, counts: tuple[int, ...]) -> None:
    for queue, count in enumerate(counts):
        messages = [
            Message(TOPIC, b"x" * (10 + number), keys=f"{when}-{queue}-{number}", tags=when) for number in range(count)
        ]
        send(namesrv, messages, queue=queue)


Command = Callable[..., Result]


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `raftmq pipeline` in this process; the session is that of all tests and goes on."""
    monkeypatch.setattr(SparkSession, "stop", lambda _session: None)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return run


def report(outcome: Result, exit_code: int = 0) -> dict[str, Any]:
    assert outcome.exit_code == exit_code, outcome.output
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def ledger_of(folder: Path, **columns: Any) -> str:
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "part.parquet")
    return str(folder)


def keys_of(messages: list[MessageExt]) -> list[str]:
    return [message.properties["KEYS"] for message in messages]


@pytest.mark.parametrize("partitions", [2, 3, 5, 7, 41, 100])
def test_no_remainder_is_lost_however_queues_are_cut(spark: SparkSession, filled: Filled, partitions: int) -> None:
    rows = source(spark, filled.namesrv, TOPIC, minPartitions=partitions).load().select("queueId", "queueOffset")
    assert places(rows.collect()) == sorted((one.queue_id, one.queue_offset) for one in filled.messages)


def test_audit_counts_repeated_sends_and_unequal_queues(filled: Filled, command: Command) -> None:
    told = report(command("audit", TOPIC, "-n", filled.namesrv, "--json"))
    assert (told["messages"], told["duplicates"]) == (COUNT, TIMES_SENT - 1)
    assert told["duplicated"] == [{"msgId": "0" * 31 + "A", "times": TIMES_SENT}]
    by_queue = {queue["queueId"]: (queue["messages"], queue["largest"]) for queue in told["queues"]}
    assert by_queue == {0: (31, 26), 1: (7 + TIMES_SENT, 13)}
    assert "duplicates" in command("audit", TOPIC, "-n", filled.namesrv).output


def test_audit_looks_at_the_time_between_from_and_to(filled: Filled, command: Command) -> None:
    def messages(*options: str) -> int:
        return int(report(command("audit", TOPIC, "-n", filled.namesrv, "--json", *options))["messages"])

    middle = str(filled.middle_ms)
    assert messages("--from", middle) == len(filled.late) == sum(LATE) + TIMES_SENT
    assert messages("--to", middle) == len(filled.early) == sum(EARLY)
    assert messages("--from", middle, "--to", middle) == 0


def test_cores_and_memory_are_the_sessions(
    filled: Filled, command: Command, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def session(name: str, **settings: Any) -> SparkSession:
        asked.append((name, settings))
        return spark

    monkeypatch.setattr("pipeline.spark.session.spark_session", session)
    command("audit", TOPIC, "-n", filled.namesrv, "--cores", "1", "--memory", "700")
    assert asked == [("raftmq audit", {"cores": 1, "memory_mb": 700})]


def test_reconcile_takes_the_window_the_key_and_the_place_of_differences(
    filled: Filled, command: Command, spark: SparkSession, tmp_path: Path
) -> None:
    ledger = ledger_of(tmp_path / "late", sent=keys_of(filled.late))
    given = ("reconcile", TOPIC, "-n", filled.namesrv, "--ledger", ledger, "--key", "sent", "--json")
    middle = str(filled.middle_ms)
    told = report(command(*given, "--from", middle))
    assert (told["equal"], told["messages"]) == (True, len(filled.late))
    out = str(tmp_path / "out")
    told = report(command(*given, "--to", middle, "--out", out), 1)
    missing = len(set(keys_of(filled.late)))
    assert (told["missing"], told["unexpected"]) == (missing, len(filled.early))
    assert spark.read.parquet(out).count() == missing + len(filled.early)
    without_key = command(*given[:6], "--json")
    assert (without_key.exit_code, "no column key" in without_key.stderr) == (254, True), without_key.output
    nowhere = command(*given[:5], str(tmp_path / "nowhere"), "--json")
    assert (nowhere.exit_code, "nowhere" in nowhere.stderr) == (254, True), nowhere.output


def test_reconcile_by_the_id_that_send_returned(filled: Filled, command: Command, tmp_path: Path) -> None:
    ids = sorted({message.msg_id for message in filled.messages})
    ledger = ledger_of(tmp_path / "ids", key=ids)
    given = ("reconcile", TOPIC, "-n", filled.namesrv, "--ledger", ledger, "--json")
    told = report(command(*given, "--by", "msgId"), 1)
    assert (told["missing"], told["unexpected"], told["repeated"]) == (0, 0, 1)
    assert report(command(*given), 1)["missing"] == len(ids)


def test_reconcile_with_a_table_of_a_database(
    filled: Filled, command: Command, spark: SparkSession, tmp_path: Path
) -> None:
    # Derby writes its log into the current folder otherwise, which is the checkout.
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = "jdbc:derby:memory:ledger;create=true"
    rows = spark.createDataFrame([(key,) for key in keys_of(filled.messages)], "key string")
    rows.write.format("jdbc").options(url=url, dbtable="SENT", createTableColumnTypes="key VARCHAR(64)").save()
    told = report(
        command("reconcile", TOPIC, "-n", filled.namesrv, "--jdbc", url, "--table", "SENT", "--key", "key", "--json")
    )
    assert (told["equal"], told["ledger"]) == (True, COUNT)


def test_archive_writes_as_many_at_a_time_as_step_says(filled: Filled, command: Command, tmp_path: Path) -> None:
    def steps(folder: str, *options: str) -> tuple[int, int]:
        told = report(command("archive", TOPIC, str(tmp_path / folder), "-n", filled.namesrv, "--json", *options))
        return told["steps"], told["messages"]

    assert steps("whole") == (1, COUNT)
    at_a_time = 10
    many, messages = steps("small", "--step", str(at_a_time))
    assert messages == COUNT
    assert many >= COUNT / at_a_time
    rows = pq.read_table(tmp_path / "small", columns=["queueId", "queueOffset"]).to_pylist()
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == sorted(
        (one.queue_id, one.queue_offset) for one in filled.messages
    )


def test_restore_takes_the_dates_from_the_first_to_the_last(
    filled: Filled, command: Command, spark: SparkSession, tmp_path: Path
) -> None:
    folder, dated = str(tmp_path / "archive"), str(tmp_path / "dated")
    report(command("archive", TOPIC, folder, "-n", filled.namesrv, "--json"))
    days = F.when(F.col("tags") == "early", "2020-02-28").when(F.col("tags") == "late", "2020-02-29")
    rows = spark.read.parquet(folder).withColumn("date", F.coalesce(days, F.lit("2020-03-01")).cast("date"))
    rows.write.partitionBy("date").parquet(dated)

    def restored(*dates: str) -> int:
        return int(report(command("restore", dated, COPY, "-n", filled.namesrv, "--json", *dates))["messages"])

    assert restored("--from", "2020-02-29", "--to", "2020-02-29") == sum(LATE)
    assert restored("--from", "2020-03-01") == TIMES_SENT
    assert restored("--to", "2020-02-28") == sum(EARLY)
    back = everything(filled.namesrv, COPY, COUNT)
    assert sorted(keys_of(back)) == sorted(keys_of(filled.messages))


def test_compare_calls_members_as_it_is_told(command: Command, tmp_path: Path) -> None:
    cluster = build(tmp_path / "stores", 5, RAFT)
    folders = [str(cluster.folder(name)) for name in ("n0", "n1")]
    told = report(command("compare", *folders, "--names", "left,right", "--json"))
    assert [state["member"] for state in told["members"]] == ["left", "right"]
    other = build(tmp_path / "others", 6, RAFT)
    told = report(command("compare", folders[0], str(other.folder("n1")), "--json"), 1)
    assert told["differences"] > 0
    assert command("compare", *folders, "--names", "one").exit_code == 2
