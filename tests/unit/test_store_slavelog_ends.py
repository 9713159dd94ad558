"""A slave's log after stops of any kind, with a disk that refuses, and in other hands before and after."""

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from raft.protocol.types import EntryType
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.errors import ReplicaRefused, StoreDamaged, StoreWriteError
from store.files.disk import Disk
from store.messagestore import MessageStore
from store.types import PutStatus
from tests.parts.entry_tools import lead, open_node
from tests.parts.slave_tools import Slave, borders, contents, open_master, piece, send
from tests.parts.store_tools import FILE_BYTES, HOST, make_config, record

# -- stops


@pytest.mark.parametrize("part", [1, 7, 8, 30, 100, -1])
@pytest.mark.parametrize("clean", [True, False])
def test_what_came_in_part_is_cut_off_by_any_stop(
    tmp_path: Path, clean: bool, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 30)
    ends = list(borders(master))
    slave.take(master, until=(ends[20] if part > 0 else ends[21]) + part)
    slave.sync()
    if clean:
        slave.store.close()
        assert not (tmp_path / "s" / "store" / "abort").exists()
    else:
        slave.kill()
    caplog.set_level(logging.WARNING)
    again = Slave(tmp_path / "s")
    assert not clean or not caplog.records
    assert (again.log.written, again.log.dispatched, again.log.flushed) == (ends[20],) * 3
    again.take(master)
    again.store.close()
    master.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


def test_a_checkpoint_knows_whole_records_only(tmp_path: Path) -> None:
    clock = ManualClock()
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s", clock=clock)
    send(master, 30)
    ends = list(borders(master))
    slave.take(master, until=ends[20] + 30)
    slave.log.append(ends[20] + 30, piece(master, ends[20] + 30, ends[25] + 3))
    for _ in range(4):
        clock.advance(6)
        slave.store.idle()
        slave.sync()
        while slave.store.step_helper():
            pass
    checkpoint = slave.store._keeper.checkpoint
    assert (checkpoint.dispatched, checkpoint.flushed) == (ends[20], ends[20])
    slave.kill()
    again = Slave(tmp_path / "s")
    assert again.log.written == ends[25]
    again.take(master)
    again.store.close()
    master.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


def test_a_slave_becomes_a_master_and_a_master_a_slave(tmp_path: Path) -> None:
    clock = ManualClock()
    master, slave = open_master(tmp_path / "m", clock=clock), Slave(tmp_path / "s")
    send(master, 30)
    clock.advance(10)
    send(master, 30, first=30)
    slave.take(master, until=master.written - 5)
    newest = slave.store.stats().latest_timestamp
    (told,) = (entry for entry in slave.told if entry.physical_offset == slave.told[-1].physical_offset)
    assert newest == told.store_timestamp
    slave.store.close()
    master.close()
    slow = ManualClock()
    assert slow.now_ms() < newest
    promoted = open_master(tmp_path / "s", clock=slow)
    expected = promoted.max_offset("topic1", 1)
    result = promoted.put(record(topic="topic1", queue_id=1))
    promoted.write()
    assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, expected)
    assert result.store_timestamp == newest
    # The old master lacks that and has another last message: once it is cut, it follows.
    old = Slave(tmp_path / "m")
    with pytest.raises(ReplicaRefused):
        old.log.append(result.physical_offset, piece(promoted, result.physical_offset, promoted.written))
    old.store.close()
    promoted.close()


def test_retention_works_on_a_slave(tmp_path: Path) -> None:
    clock = ManualClock()
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s", clock=clock)
    send(master, 800)
    slave.take(master, until=3 * FILE_BYTES + 100)
    for _ in range(4):
        clock.advance(6)
        slave.store.idle()
        slave.sync()
        while slave.store.step_helper():
            pass
    clock.set_wall(10**13)
    report = slave.store.clean(now=True)
    assert report.removed == [0, FILE_BYTES, 2 * FILE_BYTES]
    slave.take(master)
    assert slave.store.log_range() == (3 * FILE_BYTES, master.written)
    slave.store.close()
    again = Slave(tmp_path / "s")
    assert again.store.log_range() == (3 * FILE_BYTES, master.written)
    again.store.close()
    master.close()


# -- when the disk refuses


class FullDisk(Disk):
    """Refuses writes of data, or new files, as long as it is told to."""

    def __init__(self) -> None:
        self.full = self.no_files = False

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.full and any(data):
            super().pwrite(fd, data[:10], offset)
            raise OSError(errno.ENOSPC, "no space left")
        super().pwrite(fd, data, offset)

    def create(self, path: Path, size: int) -> int:
        if self.no_files:
            raise OSError(errno.ENOSPC, "no space left")
        return super().create(path, size)


def test_a_full_disk_costs_nothing_but_time(tmp_path: Path) -> None:
    disk = FullDisk()
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s", disk=disk)
    send(master, 400)
    ends = list(borders(master))
    slave.take(master, until=ends[3] + 5)
    disk.full = True
    for _ in range(2):
        with pytest.raises(StoreWriteError, match="no space"):
            slave.log.append(ends[3] + 5, piece(master, ends[3] + 5, ends[9]))
    assert (slave.log.written, slave.log.dispatched) == (ends[3] + 5, ends[3])
    disk.full = False
    slave.take(master, until=FILE_BYTES - 20)
    disk.no_files = True
    with pytest.raises(StoreWriteError, match="no space"):
        slave.log.append(FILE_BYTES - 20, piece(master, FILE_BYTES - 20, FILE_BYTES))
    assert slave.log.written == FILE_BYTES - 20
    disk.no_files = False
    slave.take(master)
    master.close()
    slave.store.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


def test_a_store_that_failed_takes_nothing(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 4)
    slave.store._health.fail("the disk is gone")
    with pytest.raises(StoreWriteError, match="the disk is gone"):
        slave.log.append(0, piece(master, 0, 100))
    assert slave.log.written == 0
    slave.store.close()
    master.close()


# -- groups


def test_the_log_of_a_group_that_ended_is_a_log_like_any_other(tmp_path: Path) -> None:
    node = open_node(tmp_path / "m")
    lead(node, 3)
    last = node.log.append(EntryType.CONFIG, 1, b"classic", node.log.last.index)
    node.log.release(last)
    node.sync()
    node.store.close()
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 20)
    slave.take(master, frame=70)
    assert slave.store.max_offset(RAFT_TOPIC, 0) == last + 1
    slave.store.close()
    master.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")
    promoted = open_master(tmp_path / "s")
    promoted.close()


def test_the_folder_of_a_group_opens_as_a_slave_s(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    node.sync()
    written = node.store.written
    node.store.close()
    with pytest.raises(StoreDamaged, match="belongs to a Raft group"):
        MessageStore.open(make_config(tmp_path), store_host=HOST)
    slave = Slave(tmp_path)
    assert (slave.log.written, slave.log.dispatched) == (written, written)
    assert slave.store.max_offset("T", 0) == 6
    slave.store.close()


def test_parts_are_only_there_where_they_belong(tmp_path: Path) -> None:
    master = open_master(tmp_path / "m")
    found: Any = master.slave
    assert found is None
    master.close()
