"""Store folders that RocketMQ 5.5.0 left behind: all their messages are found, and what is derived is rebuilt alike.

The folders: stopped cleanly, killed, and a master with its slave. The manifests: what the sending client was told.
"""

import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from raft.protocol.types import EntryType
from remoting.codes import MessageSysFlag
from remoting.message import MessageExt
from remoting.msgid import pack_host, parse_offset_msg_id
from remoting.properties import encode_properties
from remoting.record import decode_record
from remoting.topics import RAFT_TOPIC
from store.config import StoreConfig
from store.controlrecord import Control
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.events import Payloads
from store.log.dispatch import Dispatcher, dispatched_from_record
from store.messagestore import MessageStore
from store.recovery.inspect import Gap, StoreFolder
from store.types import GetStatus, PendingRecord

DATA = Path(__file__).parent / "data"
HOST = pack_host("127.0.0.1", 31911)
# What the folders were made with.
CONFIG = StoreConfig(
    mappedFileSizeCommitLog=16384, mappedFileSizeConsumeQueue=2000, maxHashSlotNum=1000, maxIndexNum=4000
)
ALWAYS = (0, 1 << 62)


@dataclass(frozen=True)
class Recorded:
    archive: str
    broker: str
    manifest: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = (DATA / f"{self.manifest}.manifest.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]


FOLDERS = {
    "clean": Recorded("store-single-clean", "b0", "single-JSON"),
    "killed": Recorded("store-single-unclean", "b0", "single-ROCKETMQ"),
    "master": Recorded("store-sync-slave-clean", "b0", "sync-slave-JSON"),
    "slave": Recorded("store-sync-slave-clean", "b1", "sync-slave-JSON"),
}


@dataclass(frozen=True)
class Folder:
    recorded: Recorded
    root: Path


@pytest.fixture(params=sorted(FOLDERS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    recorded = FOLDERS[request.param]
    with tarfile.open(DATA / f"{recorded.archive}.tar.xz") as archive:
        for member in archive:
            # By hand: Python 3.11 has the argument that 3.12 insists on only since its fourth bug fix.
            if (content := archive.extractfile(member)) is not None:
                path = tmp_path / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                os.utime(path, (member.mtime, member.mtime))
    return Folder(recorded, tmp_path / recorded.broker)


@pytest.fixture
def store(folder: Folder) -> Iterator[MessageStore]:
    opened = open_store(folder.root)
    yield opened
    opened.close()


def open_store(root: Path) -> MessageStore:
    return MessageStore.open(replace(CONFIG, storePathRootDir=str(root)), store_host=HOST)


def derived_files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("consumequeue/*/*/*"))}


def index_contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def body_of(message: MessageExt) -> bytes:
    return zlib.decompress(message.body) if message.sys_flag & MessageSysFlag.COMPRESSED else message.body


def by_id(store: MessageStore, offset_id: str) -> MessageExt:
    _, position = parse_offset_msg_id(offset_id)
    record = store.record_at(position)
    assert record is not None
    return decode_record(record, check_crc=True)


def by_key(store: MessageStore, topic: str, key: str) -> dict[int, MessageExt]:
    found = [decode_record(record) for record in store.query(topic, key, 64, *ALWAYS).records]
    return {message.physical_offset: message for message in found}


def check_every_way(store: MessageStore, message: MessageExt) -> None:
    """Find the message by offset, by key, by unique key and by time."""
    at = (message.topic, message.queue_id)
    result = store.get(*at, message.queue_offset, 1)
    assert result.status is GetStatus.FOUND
    if result.cold:
        result = store.read_cold(result)
    assert decode_record(result.buffers[0]) == message
    assert result.next_offset == message.queue_offset + 1
    unique = message.properties.get("UNIQ_KEY")
    for key in [*message.keys, *filter(None, [unique])]:
        assert by_key(store, message.topic, key)[message.physical_offset] == message
    stored_ms = message.store_timestamp
    assert store.store_time(*at, message.queue_offset) == stored_ms
    found = store.offset_by_time(*at, stored_ms)
    assert found <= message.queue_offset
    assert all(store.store_time(*at, offset) == stored_ms for offset in range(found, message.queue_offset))
    assert found == 0 or store.store_time(*at, found - 1) < stored_ms
    if unique:
        then = store.query(message.topic, unique, 64, stored_ms, stored_ms).records
        assert message in [decode_record(record) for record in then]


def test_messages_of_the_manifest_are_found_every_way(folder: Folder, store: MessageStore) -> None:
    checked = 0
    for line in folder.recorded.lines:
        if line["what"] == "consumed" or line["what"].startswith("transaction"):
            continue
        ids = zip(line["msgId"].split(","), line["offsetMsgId"].split(","), strict=True)
        for number, (unique, offset_id) in enumerate(ids):
            message = by_id(store, offset_id)
            assert message.msg_id == unique
            assert (message.queue_offset, message.offset_msg_id) == (line["queueOffset"] + number, offset_id)
            if line["what"] in {"delay-level", "timer"}:
                # It waits in a system topic, and was delivered from there later.
                assert message.properties["REAL_TOPIC"] == line["topic"]
                (delivered,) = by_key(store, line["topic"], unique).values()
                assert body_of(delivered) == body_of(message)
                check_every_way(store, delivered)
            else:
                assert message.queue_id == line["queueId"]
                assert message.topic == line.get("topic", "GoldenBatch")
            if line["what"] != "batch":
                assert (message.tags, message.properties.get("KEYS")) == (line["tags"], line["keys"])
                assert (len(body_of(message)), zlib.crc32(body_of(message))) == (line["bodyLength"], line["bodyCrc32"])
            check_every_way(store, message)
            checked += 1
    assert checked == 25


def test_transactions_of_the_manifest_are_found_where_they_belong(folder: Folder, store: MessageStore) -> None:
    lines = [line for line in folder.recorded.lines if line["what"].startswith("transaction")]
    assert len(lines) == 3
    for line in lines:
        halves = by_key(store, "RMQ_SYS_TRANS_HALF_TOPIC", line["msgId"])
        assert halves
        committed = by_key(store, "GoldenTxTopic", line["msgId"])
        # Whether the roll-back or the check came first differs from recording to recording.
        if line["what"] != "transaction-ROLLBACK_MESSAGE":
            assert committed
        for message in committed.values():
            assert message.prepared_transaction_offset in halves
            assert (len(message.body), zlib.crc32(message.body)) == (line["bodyLength"], line["bodyCrc32"])
            check_every_way(store, message)


def test_every_record_of_the_log_is_in_its_queue_and_no_more(folder: Folder, store: MessageStore) -> None:
    messages = list(StoreFolder(folder.root).messages())
    assert not [message for message in messages if isinstance(message, Gap)]
    counts: dict[tuple[str, int], int] = {}
    for message in messages:
        assert isinstance(message, MessageExt)
        queue = (message.topic, message.queue_id)
        assert message.queue_offset == counts.get(queue, 0)
        counts[queue] = message.queue_offset + 1
        check_every_way(store, message)
    assert {queue: store.max_offset(*queue) for queue in counts} == counts
    assert store.topics() == {
        topic: sorted(queue_id for name, queue_id in counts if name == topic) for topic, _ in counts
    }


def test_opening_and_closing_leaves_rocketmqs_derived_files_as_they_were(folder: Folder) -> None:
    queues, index = derived_files(folder.root), index_contents(folder.root)
    open_store(folder.root).close()
    assert derived_files(folder.root) == queues
    assert index_contents(folder.root) == index
    assert not (folder.root / "abort").exists()


def test_a_store_without_derived_files_rebuilds_rocketmqs_bytes(folder: Folder) -> None:
    queues, index = derived_files(folder.root), index_contents(folder.root)
    for name in ("consumequeue", "index"):
        shutil.rmtree(folder.root / name)
    open_store(folder.root).close()
    assert derived_files(folder.root) == queues
    assert index_contents(folder.root) == index


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_dispatching_the_log_in_any_batches_gives_rocketmqs_bytes(folder: Folder, tmp_path: Path, batch: int) -> None:
    found = StoreFolder(folder.root).records()
    entries = [dispatched_from_record(record.view, record.at) for record in found if not isinstance(record, Gap)]
    queues = ConsumeQueues(tmp_path / "anew" / "consumequeue", file_bytes=CONFIG.mappedFileSizeConsumeQueue)
    index = MessageIndex(tmp_path / "anew" / "index", slots=CONFIG.maxHashSlotNum, entries=CONFIG.maxIndexNum)
    dispatcher = Dispatcher(queues, index)
    for start in range(0, len(entries), batch):
        dispatcher.dispatch(entries[start : start + batch])
        # A part of the log may be dispatched twice.
        dispatcher.dispatch(entries[max(0, start - 3) : start + 1])
    queues.close()
    index.close()
    assert derived_files(tmp_path / "anew") == derived_files(folder.root)
    assert index_contents(tmp_path / "anew") == index_contents(folder.root)


def test_inspection_agrees_and_changes_nothing(folder: Folder) -> None:
    before = {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}
    inspected = StoreFolder(folder.root)
    assert inspected.unclean == (folder.recorded.archive == "store-single-unclean")
    check = inspected.check_queues()
    assert (check.wrong, check.problems) == (0, [])
    assert check.records == sum(queue.max_offset for queue in inspected.queues())
    assert check.records == sum(segment.records for segment in inspected.segments())
    assert "topics.json" in inspected.config()
    assert inspected.checkpoint().log_timestamp == max(segment.last_timestamp for segment in inspected.segments())
    (index,) = inspected.index_files()
    assert index.entries > 100
    assert {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()} == before


def group_folder(tmp_path: Path) -> Path:
    """A folder in which a single broker's messages, a group and a single broker follow one another."""
    root = tmp_path / "group"
    config = replace(CONFIG, storePathRootDir=str(root))

    def record(body: str) -> PendingRecord:
        return PendingRecord("G", 0, 0, 0, 1, HOST, 0, 0, body.encode(), encode_properties({"UNIQ_KEY": body}))

    store = MessageStore.open(config, store_host=HOST)
    store.put_many([record("before 1"), record("before 2")])
    store.close()
    payloads = Payloads(ends_group=lambda payload: payload == b"classic")
    store = MessageStore.open(config, store_host=HOST, group=True, payloads=payloads)
    log = store.entries
    assert log is not None
    log.append(EntryType.CONFIG, 1, b"config", 0)
    log.append(EntryType.NOOP, 1, b"", 0)
    log.append_records([record("within 1"), [record("within 2"), record("within 3")]], 1, 1)
    log.append(EntryType.META, 2, b"meta", 3)
    log.append(EntryType.CONFIG, 2, b"classic", 4)
    log.release(5)
    store.close()
    store = MessageStore.open(config, store_host=HOST)
    store.put_many([record("behind")])
    store.close()
    return root


def test_a_group_s_folder_is_rocketmq_s_own(tmp_path: Path) -> None:
    root = group_folder(tmp_path)
    folder = StoreFolder(root)
    messages = [message for message in folder.messages() if isinstance(message, MessageExt)]
    assert [message.topic for message in messages] == [
        "G", "G", RAFT_TOPIC, RAFT_TOPIC, RAFT_TOPIC, "G", "G", "G", RAFT_TOPIC, RAFT_TOPIC, "G",
    ]  # fmt: skip
    bodies = ["before 1", "before 2", "within 1", "within 2", "within 3", "behind"]
    assert [message.body.decode() for message in messages if message.topic == "G"] == bodies
    assert [message.queue_offset for message in messages if message.topic == "G"] == list(range(6))
    check = folder.check_queues()
    assert (check.records, check.queues, check.wrong) == (11, 2, 0), check.problems
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    store = MessageStore.open(replace(CONFIG, storePathRootDir=str(root)), store_host=HOST)
    assert store.max_offset("G", 0) == 6
    assert [decode_record(found).body for found in store.query("G", "within 2", 9, *ALWAYS).records] == [b"within 2"]
    store.close()
    assert folder.check_queues().wrong == 0


def test_inspection_shows_entries_as_such(tmp_path: Path) -> None:
    root = group_folder(tmp_path)
    folder = StoreFolder(root)
    entries = [entry for entry in folder.entries() if isinstance(entry, Control)]
    assert [(entry.index, entry.term, entry.kind.name, entry.covered_count) for entry in entries] == [
        (1, 1, "CONFIG", 0), (2, 1, "NOOP", 0), (3, 1, "MESSAGES", 3), (4, 2, "META", 0), (5, 2, "CONFIG", 0),
    ]  # fmt: skip
    assert entries[4].is_classic
    floor = folder.floor()
    assert floor is not None
    assert (floor.index, floor.end) == (5, entries[4].end)
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[entries[2].end - 1] ^= 1
    path.write_bytes(content)
    found = list(folder.entries())
    assert [isinstance(entry, Gap) for entry in found] == [False, False, True, False, False]


def test_inspection_waits_for_the_commit(tmp_path: Path) -> None:
    config = replace(CONFIG, storePathRootDir=str(tmp_path / "group"))
    store = MessageStore.open(config, store_host=HOST, group=True)
    log = store.entries
    assert log is not None
    log.append(EntryType.CONFIG, 1, b"config", 0)
    for _ in range(2):
        log.append_records([PendingRecord("G", 0, 0, 0, 1, HOST, 0, 0, b"", b"")], 1, 1)
    log.release(2)
    store.close()
    check = StoreFolder(tmp_path / "group").check_queues()
    assert (check.records, check.wrong) == (5, 0), check.problems
