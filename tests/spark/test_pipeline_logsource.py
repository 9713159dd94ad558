"""Tests of pipeline/spark/logsource: Spark sees of store folders what the artefacts' reader sees."""

import tarfile
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipeline.history.rows import UNKNOWN
from pipeline.logs.log import read_log
from pipeline.logs.member_files import CHUNK_BYTES, read_artefact
from pipeline.logs.queues import compare_index
from remoting.message import MessageExt
from store.derived.indexhash import key_hash
from store.recovery.inspect import StoreFolder
from tests.planted.plant_stores import LOG_FILE_BYTES, PAIR, RAFT, TOPIC, Cluster, build

# The first one starts Spark.
pytestmark = pytest.mark.timeout(300)

GOLDEN = Path(__file__).parent.parent / "golden" / "data" / "store-single-clean.tar.xz"


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return build(tmp_path_factory.mktemp("logs") / "group", 5, RAFT, entries=30)


def table(spark: SparkSession, schema: str, *folders: Path, **options: str) -> DataFrame:
    reader = spark.read.format("raftmq-log").option("schema", schema).options(**options)
    return reader.load(",".join(map(str, folders)))


def rows(frame: DataFrame, order: str = "position") -> list[tuple[Any, ...]]:
    """All rows in order, as plain tuples; lists as tuples."""
    return [
        tuple(tuple(value) if isinstance(value, list) else value for value in row)
        for row in frame.orderBy("member", order).collect()
    ]


def test_records_and_entries_are_those_of_the_artefacts(spark: SparkSession, group: Cluster) -> None:
    members = ("n0", "n1")
    artefacts = [read_artefact(group.folder(member)) for member in members]
    assert artefacts[0].log.end > 2 * LOG_FILE_BYTES, "several files, so that chains go on from one to the next"
    folders = [group.folder(member) for member in members]
    messages = [(found.member, *row) for found in artefacts for row in found.messages]
    assert rows(table(spark, "records", *folders)) == messages
    entries = [(found.member, *row) for found in artefacts for row in found.entries]
    assert rows(table(spark, "entries", *folders)) == entries
    configs = [(found.member, *row) for found in artefacts for row in found.configs]
    assert rows(table(spark, "configs", *folders), "index") == configs


def test_a_chain_that_breaks_between_files_is_told(spark: SparkSession, tmp_path: Path) -> None:
    one = build(tmp_path / "one", 6, RAFT, entries=30).folder("n0")
    other = build(tmp_path / "other", 6, RAFT, entries=30).folder("n0")
    entries = read_artefact(one).entries
    number = entries[-1].position // LOG_FILE_BYTES
    # The file before the last one is gone: the chain goes on from a file further back.
    (one / "commitlog" / f"{(number - 1) * LOG_FILE_BYTES:020d}").unlink()
    for folder in (one, other):
        expected = [("m", *row) for row in read_artefact(folder).entries]
        assert rows(table(spark, "entries", folder, members="m")) == expected
    assert [row[-1] for row in rows(table(spark, "entries", one))].count(False) == 1


def test_damage_becomes_gaps(spark: SparkSession, tmp_path: Path) -> None:
    folder = build(tmp_path / "pair", 7, PAIR).folder("master")
    message = read_artefact(folder).messages[4]
    path = folder / "commitlog" / f"{message.position - message.position % LOG_FILE_BYTES:020d}"
    data = bytearray(path.read_bytes())
    data[message.position % LOG_FILE_BYTES + 95] ^= 1
    path.write_bytes(data)
    artefact = read_artefact(folder)
    assert rows(table(spark, "gaps", folder), "start") == [("master", *gap) for gap in artefact.gaps]
    assert rows(table(spark, "records", folder)) == [("master", *row) for row in artefact.messages]
    assert len(artefact.gaps) == 1
    unchecked = table(spark, "records", folder, crc="false", columns="position,crc,digest").collect()
    assert len(unchecked) == len(artefact.messages) + 1
    assert {(row.crc, row.digest) for row in unchecked} == {(UNKNOWN, UNKNOWN)}


def test_queues_index_and_keys(spark: SparkSession, group: Cluster) -> None:
    folder = group.folder("n2")
    queues = read_artefact(folder).queues
    expected = sorted(("n2", *queue, *row) for queue, entries in queues.items() for row in entries)
    assert sorted(tuple(row) for row in table(spark, "queues", folder).collect()) == expected
    log = read_log(folder)
    keys = {(row.position, key) for row in log.keyed for key in row.keys}
    found = table(spark, "keys", folder).collect()
    assert {(row.position, row.key) for row in found} == keys
    assert all(row.hash == key_hash(row.topic, row.key) for row in found)
    known = {(row.position, row.hash) for row in table(spark, "index", folder).collect()}
    assert compare_index(folder, log.keyed).lacking == []
    assert {(row.position, row.hash) for row in found} <= known


def test_chunks_are_hashes_of_each_mebibyte(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    data = bytes(range(256)) * 6000
    (tmp_path / "s" / "commitlog" / f"{0:020d}").write_bytes(data + bytes(2 * CHUNK_BYTES))
    found = rows(table(spark, "chunks", tmp_path / "s"), "start")
    whole = data + bytes(2 * CHUNK_BYTES)
    edges = [*range(0, len(whole), CHUNK_BYTES), len(whole)]
    parts = [(start, end, blake2b(whole[start:end], digest_size=16).digest()) for start, end in pairwise(edges)]
    assert found == [("s", start, end, bytearray(digest)) for start, end, digest in parts]


def test_messages_of_rocketmq_itself(spark: SparkSession, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        for member in archive:
            if (content := archive.extractfile(member)) is not None:
                path = tmp_path / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    (log,) = [path for path in tmp_path.rglob("commitlog") if path.is_dir()]
    expected = [message for message in StoreFolder(log.parent).messages() if isinstance(message, MessageExt)]
    found = table(spark, "messages", log.parent, members="rocketmq").orderBy("position").collect()
    assert len(found) == len(expected) > 0
    for row, message in zip(found, expected, strict=True):
        assert (row.topic, row.queueId, row.queueOffset) == (message.topic, message.queue_id, message.queue_offset)
        assert (row.position, row.bornTimestamp) == (message.physical_offset, message.born_timestamp)
        assert row.properties == message.properties
        assert row.msgId
        assert row.tags == message.properties.get("TAGS")
        assert row.entryIndex == UNKNOWN
        assert row.member == "rocketmq"


def test_bodies_of_messages_and_folders_in_a_folder(spark: SparkSession, group: Cluster) -> None:
    frame = table(spark, "messages", group.root, columns="member,body,keys,entryIndex,storeTimestamp")
    found = frame.collect()
    assert {row.member for row in found} == {"n0", "n1", "n2"}
    assert len(found) == 3 * len(group.ops)
    assert all(row.body.startswith(b"RMQ6") and row["keys"].endswith(" all") for row in found)
    assert table(spark, "messages", group.folder("n0")).where(f"topic = '{TOPIC}'").count() == len(group.ops)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": "nonsense"}, "schema takes one of"),
        ({"columns": "topic,body"}, "columns of the schema records"),
        ({"members": "a,b"}, "members takes a name for each"),
        ({"crc": "perhaps"}, "crc takes true or false"),
        ({"limit": "1"}, "knows no option limit"),
    ],
)
def test_wrong_options_are_told(spark: SparkSession, group: Cluster, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        table(spark, options.pop("schema", "records"), group.folder("n0"), **options).collect()


def test_a_folder_that_is_no_store_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="is no store folder"):
        table(spark, "records", tmp_path).collect()
