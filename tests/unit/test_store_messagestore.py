"""The face of the store: putting, and what failures cost."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from remoting.codes import MessageSysFlag
from remoting.javahash import java_hash
from remoting.properties import encode_properties
from remoting.record import decode_record
from runtime.clock import ManualClock
from store.errors import StoreLocked, StoreWriteError
from store.events import StoreEvents
from store.files.disk import Disk
from store.files.lockfile import ABORT_NAME
from store.messagestore import MessageStore
from store.types import Dispatched, PendingRecord, PutStatus
from tests.parts.store_tools import FILE_BYTES, HOST, HOST_V6, fill, make_config, record
from tests.parts.told import Told


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hears() -> Told:
    return Told()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, hears: Told) -> Iterator[MessageStore]:
    opened = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, events=hears.events)
    yield opened
    opened.close()


def test_a_record_comes_back_with_every_field(store: MessageStore, clock: ManualClock) -> None:
    properties = encode_properties({"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U1"})
    put = store.put(PendingRecord("T", 3, 9, 1, 1234, HOST_V6, 2, 77, memoryview(b"body"), properties))
    assert put.status is PutStatus.PUT_OK
    assert (put.physical_offset, put.queue_offset, put.store_timestamp) == (0, 0, clock.now_ms())
    assert store.max_offset("T", 3) == 0, "put is not yet written"
    assert store.write() == put.end == put.size
    found = decode_record(store.get("T", 3, 0, 1).buffers[0], check_crc=True)
    assert (found.topic, found.queue_id, found.queue_offset, found.physical_offset) == ("T", 3, 0, 0)
    assert (found.flag, found.sys_flag, found.body, found.size) == (
        9,
        1 | MessageSysFlag.BORNHOST_V6,
        b"body",
        put.size,
    )
    assert (found.born_timestamp, found.born_host) == (1234, ("fd00::1", 10911))
    assert (found.store_timestamp, found.store_host) == (clock.now_ms(), ("10.0.0.1", 10911))
    assert (found.reconsume_times, found.prepared_transaction_offset) == (2, 77)
    assert found.properties == {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U1"}


def test_arrivals_are_told_once_a_write(store: MessageStore, hears: Told) -> None:
    told: list[list[Dispatched]] = []
    hears.dispatched = lambda batch: told.append(list(batch))
    store.put(record(tags="TagA", properties=encode_properties({"TAGS": "TagA", "UNIQ_KEY": "U", "KEYS": "a b"})))
    store.put(record(queue_id=1))
    assert not told
    store.write()
    store.write()
    ((first, second),) = told
    assert first[:6] == ("T", 0, 0, 0, first.size, java_hash("TagA"))
    assert (first.uniq_key, first.keys, first.tags) == (b"U", b"a b", b"TagA")
    assert (second.queue_id, second.tags_code, second.physical_offset) == (1, 0, first.size)


def test_who_copies_the_log_is_told_before_the_queues_are(store: MessageStore, hears: Told) -> None:
    """A slave then has what it copies a dispatch earlier; of nothing written nobody is told."""
    told: list[object] = []
    hears.dispatched = lambda _batch: told.append("queues")
    placed = store.put(record())

    def written() -> None:
        told.append((store.written, store.max_offset("T", 0)))

    store.write(written)
    store.write(written)
    assert told == [(placed.size, 0), "queues"]


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (record(properties=bytes(32768)), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (record(topic=""), PutStatus.MESSAGE_ILLEGAL),
        (record(topic="t" * 32768), PutStatus.MESSAGE_ILLEGAL),
        (record(topic="\ud800"), PutStatus.MESSAGE_ILLEGAL),
        (record(body=bytes(4 * 1024 * 1024 + 1)), PutStatus.MESSAGE_ILLEGAL),
        (record(body=bytes(FILE_BYTES)), PutStatus.MESSAGE_ILLEGAL),
        (record(flag=1 << 31), PutStatus.MESSAGE_ILLEGAL),
        (record(queue_id=1 << 31), PutStatus.MESSAGE_ILLEGAL),
        (record(properties=b"A\x01b\0"), PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_what_no_record_can_hold_is_refused(store: MessageStore, bad: PendingRecord, status: PutStatus) -> None:
    assert store.put(bad).status is status
    assert [result.status for result in store.put_batch([record(), bad, record()])] == [status] * 3
    good = store.put(record())
    assert (good.status, good.physical_offset, good.queue_offset) == (PutStatus.PUT_OK, 0, 0)
    store.write()
    assert store.max_offset("T", 0) == 1


def test_a_batch_stands_together(store: MessageStore) -> None:
    fill(store, 1, body=bytes(FILE_BYTES - 1000))
    results = store.put_batch([record(bytes(300), queue_id=1) for _ in range(4)])
    assert [result.physical_offset for result in results] == [
        FILE_BYTES + number * results[0].size for number in range(4)
    ]
    assert [result.queue_offset for result in results] == [0, 1, 2, 3]
    store.write()
    assert len(store.get("T", 1, 0, 10).buffers) == 1


def test_the_pending_buffer_has_a_limit(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.log.assembler.PENDING_BYTES_MAX", 1000)
    store._assembler.moved()
    assert store.put(record(bytes(500))).status is PutStatus.PUT_OK
    assert store.put(record(bytes(500))).status is PutStatus.OS_PAGE_CACHE_BUSY
    assert store.put_batch([record(bytes(500))])[0].status is PutStatus.OS_PAGE_CACHE_BUSY
    store.write()
    assert store.put(record(bytes(500))).status is PutStatus.PUT_OK


def test_hidden_transaction_records_stand_in_no_queue(store: MessageStore) -> None:
    for flag in (MessageSysFlag.TRANSACTION_PREPARED, MessageSysFlag.TRANSACTION_ROLLBACK):
        assert store.put(record(sys_flag=int(flag))).queue_offset == 0
    assert store.put(record(sys_flag=int(MessageSysFlag.TRANSACTION_COMMIT))).queue_offset == 0
    assert store.put(record()).queue_offset == 1
    store.write()
    assert store.max_offset("T", 0) == 2


def test_store_timestamps_never_go_back(store: MessageStore, clock: ManualClock) -> None:
    first = clock.now_ms()
    fill(store, 1)
    clock.set_wall(first - 60_000)
    fill(store, 1)
    clock.set_wall(first + 5)
    fill(store, 1)
    assert [store.store_time("T", 0, offset) for offset in range(3)] == [first, first, first + 5]
    assert store.store_time("T", 0, 3) == -1
    assert store.stats().earliest_timestamp == first
    assert store.stats().latest_timestamp == first + 5


class BrokenDisk(Disk):
    """Takes `room` more bytes of the store's own thread, then fails with `code`."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.code = errno.ENOSPC
        self.ratio = 0.1

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.room is not None and any(data):
            os.pwrite(fd, data[: self.room], offset)
            raise OSError(self.code, os.strerror(self.code))
        super().pwrite(fd, data, offset)

    def used_ratio(self, folder: Path) -> float:
        assert folder.is_dir()
        return self.ratio


def test_a_full_disk_costs_what_was_put_and_nothing_else(tmp_path: Path, clock: ManualClock) -> None:
    disk = BrokenDisk()
    told: list[Dispatched] = []
    events = StoreEvents(dispatched=told.extend)
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, disk=disk, events=events)
    fill(store, 2)
    disk.room = 300
    for _ in range(5):
        store.put(record())
    with pytest.raises(StoreWriteError, match="No space left"):
        store.write()
    assert store.writable() == "the disk is full"
    assert store.put(record()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.put_batch([record()])[0].status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (store.max_offset("T", 0), len(told)) == (2, 2)
    disk.room = None
    clock.advance(1)
    assert store.writable() is None, "a second later the next one gets its chance"
    assert store.put(record()).queue_offset == 2
    store.write()
    store.close()
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    assert store.max_offset("T", 0) == 3
    store.close()


def test_any_other_write_error_is_final(tmp_path: Path, clock: ManualClock) -> None:
    disk = BrokenDisk()
    disk.code = errno.EIO
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, disk=disk)
    fill(store, 2)
    disk.room = 0
    store.put(record())
    with pytest.raises(StoreWriteError):
        store.write()
    disk.room = None
    clock.advance(100)
    assert "check the disk" in (store.writable() or "")
    assert store.stats().refused == store.writable()
    assert len(store.get("T", 0, 0, 5).buffers) == 1, "reading goes on"
    store.close()
    assert (tmp_path / "store" / ABORT_NAME).exists(), "the next start recovers"
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    assert store.max_offset("T", 0) == 2
    store.close()


def test_a_failed_sync_is_fatal(tmp_path: Path, clock: ManualClock) -> None:
    class Unsynced(Disk):
        broken = False

        def fdatasync(self, fd: int) -> None:
            if self.broken:
                raise OSError(errno.EIO, "cannot sync")
            super().fdatasync(fd)

    disk = Unsynced()
    happened = Event()
    fatal: list[BaseException] = []

    def note(error: BaseException) -> None:
        fatal.append(error)
        happened.set()

    events = StoreEvents(fatal=note)
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, disk=disk, events=events)
    fill(store, 1)
    disk.broken = True
    store.flush_soon(store.written)
    assert happened.wait(10)
    assert store.flushed == 0
    assert "cannot be synced" in (store.writable() or "")
    store.close()
    assert len(fatal) == 1
    assert (tmp_path / "store" / ABORT_NAME).exists()


def test_the_warning_ratio_stops_writes_until_there_is_room(tmp_path: Path, clock: ManualClock) -> None:
    disk = BrokenDisk()
    disk.ratio = 0.91
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, disk=disk)
    assert "diskSpaceWarningLevelRatio" in (store.writable() or "")
    assert store.put(record()).status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.ratio = 0.89
    assert store.clean().disk_ratio == 0.89
    assert store.writable() is None
    store.close()


def test_the_warning_ratio_is_looked_at_again_within_a_second(tmp_path: Path, clock: ManualClock) -> None:
    disk = BrokenDisk()
    disk.ratio = 0.91
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock, disk=disk)
    for disk.ratio in (0.91, 0.89):
        store.idle()
        assert "diskSpaceWarningLevelRatio" in (store.writable() or ""), "it was looked at a moment ago"
        clock.advance(1)
        store.idle()
        assert (store.writable() is None) is (disk.ratio < 0.9)
    store.close()


def test_a_second_store_on_the_folder_is_refused(tmp_path: Path, store: MessageStore) -> None:
    with pytest.raises(StoreLocked):
        MessageStore.open(make_config(tmp_path), store_host=HOST)
    fill(store, 1)
