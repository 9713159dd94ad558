"""A slave's log: what it takes, what it refuses, and when it dispatches it."""

from pathlib import Path

import pytest

from remoting.record import BLANK, BLANK_MAGIC
from store.errors import ReplicaRefused
from store.messagestore import MessageStore
from store.slave import slavelog
from store.types import GetStatus, PutStatus
from tests.parts.slave_tools import Slave, borders, contents, open_master, piece, send
from tests.parts.store_tools import FILE_BYTES, expire, make_config, record


def test_a_slave_equals_its_master_byte_for_byte(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 800)
    assert master.written > 3 * FILE_BYTES
    slave.take(master)
    assert (slave.log.written, slave.log.dispatched) == (master.written, master.written)
    assert slave.store.topics() == master.topics()
    assert [entry.physical_offset for entry in slave.told] == sorted(entry.physical_offset for entry in slave.told)
    assert len(slave.told) == 800
    assert slave.store.stats().latest_timestamp == master.stats().latest_timestamp
    master.close()
    slave.store.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


def test_a_message_can_be_read_and_found_as_soon_as_it_is_dispatched(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 10)
    slave.log.append(0, piece(master, 0, master.written))
    assert slave.store.get("topic1", 1, 0, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert (slave.log.dispatched, slave.log.dispatch(), slave.log.dispatched) == (0, False, master.written)
    mine, theirs = slave.store.get("topic1", 1, 0, 32), master.get("topic1", 1, 0, 32)
    assert b"".join(mine.buffers) == b"".join(theirs.buffers) != b""
    assert len(slave.store.query("topic1", "key1", 9, 0, 1 << 62).records) == 1
    master.close()
    slave.store.close()


def test_a_record_in_parts_counts_when_it_is_whole(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 3, first=1)
    first, second, third = borders(master)
    slave.take(master, until=second + 20, frame=11)
    assert (slave.log.written, slave.log.dispatched, len(slave.told)) == (second + 20, second, 2)
    assert slave.store.record_at(second) is None
    slave.take(master, until=third - 1)
    assert len(slave.told) == 2
    slave.take(master)
    assert (slave.log.dispatched, len(slave.told)) == (third, 3)
    assert first > 0
    master.close()
    slave.store.close()


@pytest.mark.parametrize(
    ("position", "size"),
    [(1, 8), (-1, 8), (FILE_BYTES, 8), (0, 8), (10_000, 8)],
)
def test_what_does_not_stand_at_the_end_is_refused(tmp_path: Path, position: int, size: int) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 5)
    slave.take(master)
    with pytest.raises(ReplicaRefused, match="the log ends at"):
        slave.log.append(position, bytes(size))
    assert slave.log.written == master.written
    master.close()
    slave.store.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


def test_bytes_of_two_files_at_once_are_refused(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 400)
    data = piece(master, 0, FILE_BYTES) + piece(master, FILE_BYTES, FILE_BYTES + 1)
    with pytest.raises(ReplicaRefused, match="do not end in their file"):
        slave.log.append(0, data)
    assert slave.log.append(0, data[:-1]) == FILE_BYTES
    master.close()
    slave.store.close()


def wrong(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\x7f"),  # longer than its file
        (0, bytes(4)),
        (4, b"\x00"),  # no magic
        (0, bytes(8)),  # zeros
        (8, b"\xff"),  # the CRC
        (28, b"\x01"),  # it says that it stands elsewhere
        (39, b"\x30"),  # other hosts, so that all lengths are read from elsewhere
        (84, b"\xff\xff\xff\xff"),  # a body of less than nothing
        (87, b"\xff"),
        (90, b"!"),  # a byte of the body
    ],
)
def test_what_is_no_log_is_refused_whole(tmp_path: Path, at: int, value: bytes) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 6, first=1)
    ends = list(borders(master))
    slave.take(master, until=ends[0])
    data = piece(master, ends[0], ends[4])
    with pytest.raises(ReplicaRefused, match="no log"):
        slave.log.append(ends[0], wrong(data, ends[2] - ends[0] + at, value))
    assert (slave.log.written, slave.log.dispatched) == (ends[0], ends[0])
    slave.take(master)
    master.close()
    slave.store.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


@pytest.mark.parametrize("wrong_byte", [10, 91])
def test_of_a_damaged_record_nothing_is_left_even_when_it_came_in_parts(tmp_path: Path, wrong_byte: int) -> None:
    """Else the slave would ask for the rest of a record whose beginning is wrong, for ever."""
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 3, first=1)
    first, second, third = borders(master)
    data = wrong(piece(master, first, third), wrong_byte, b"\xee")
    half = wrong_byte + 1
    slave.take(master, until=first)
    slave.log.append(first, data[:half])
    slave.sync()
    assert slave.log.flushed == slave.log.written == first + half
    with pytest.raises(ReplicaRefused, match="CRC"):
        slave.log.append(first + half, data[half:])
    assert (slave.log.written, slave.log.flushed) == (first, first)
    slave.take(master, frame=50)
    assert (slave.log.dispatched, second < third) == (third, True)
    master.close()
    slave.store.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


@pytest.mark.parametrize("topic", ["../up", "a/b", ".", "nul\0"])
def test_a_topic_that_is_no_folder_is_refused(tmp_path: Path, topic: str) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    assert master.put(record(topic="x" * len(topic))).status is PutStatus.PUT_OK
    master.write()
    data = piece(master, 0, master.written).replace(b"x" * len(topic), topic.encode())
    with pytest.raises(ReplicaRefused, match="cannot be a topic"):
        slave.log.append(0, data)
    master.close()
    slave.store.close()


def test_a_heartbeat_changes_nothing(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    assert slave.log.append(5 * FILE_BYTES, b"") == 0
    send(master, 2)
    slave.take(master)
    assert slave.log.append(master.written, b"") == master.written
    with pytest.raises(ReplicaRefused):
        slave.log.append(master.written + 1, b"")
    master.close()
    slave.store.close()


# -- the ends of files


def full_file(master: MessageStore) -> int:
    """Fill the first file; return where its blank begins."""
    send(master, 400)
    return max(end for end in borders(master) if end < FILE_BYTES)


@pytest.mark.parametrize("split", [0, 1, 7, 8, 9, 30])
def test_the_blank_and_what_stands_behind_it_come_in_any_parts(tmp_path: Path, split: int) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    blank = full_file(master)
    assert FILE_BYTES - blank > 30
    slave.take(master, until=blank + split)
    assert (slave.log.written, slave.log.dispatched) == (blank + split, blank)
    slave.take(master, until=FILE_BYTES)
    assert (slave.log.written, slave.log.dispatched) == (FILE_BYTES, FILE_BYTES)
    assert (tmp_path / "s" / "store" / "commitlog" / f"{FILE_BYTES:020d}").stat().st_size == FILE_BYTES
    slave.take(master)
    master.close()
    slave.store.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


def test_what_an_old_rocketmq_leaves_behind_a_blank_is_taken_as_it_is(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    blank = full_file(master)
    remains = b"\xda\xa3\x20\xa7" * FILE_BYTES
    first = (piece(master, 0, blank + 8) + remains)[:FILE_BYTES]
    for at in range(0, FILE_BYTES, 4096):
        slave.log.append(at, first[at : at + 4096])
    slave.take(master)
    slave.store.close()
    assert contents(tmp_path / "s")[f"commitlog/{0:020d}"] == first
    again = Slave(tmp_path / "s")
    assert again.log.written == master.written
    assert len(list(borders(again.store))) == 400
    again.store.close()
    master.close()


def test_a_blank_of_another_size_is_refused(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    blank = full_file(master)
    slave.take(master, until=blank)
    for size in (FILE_BYTES - blank - 1, FILE_BYTES - blank + 1, 8):
        with pytest.raises(ReplicaRefused, match="blank"):
            slave.log.append(blank, BLANK.pack(size, BLANK_MAGIC))
    assert slave.log.written == blank
    master.close()
    slave.store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_slave_that_stops_within_a_blank_goes_on(tmp_path: Path, clean: bool) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    blank = full_file(master)
    slave.take(master, until=blank + 9)
    slave.store.close() if clean else slave.kill()
    again = Slave(tmp_path / "s")
    assert again.log.written in {blank, FILE_BYTES}
    again.take(master)
    again.store.close()
    master.close()
    assert contents(tmp_path / "s") == contents(tmp_path / "m")


# -- where a log begins


def late_master(folder: Path) -> MessageStore:
    """A master whose first file has expired."""
    master = open_master(folder)
    send(master, 400)
    master.close()
    expire(make_config(folder), FILE_BYTES)
    return open_master(folder)


def test_an_empty_log_begins_where_the_master_s_does(tmp_path: Path) -> None:
    master, slave = late_master(tmp_path / "m"), Slave(tmp_path / "s")
    assert master.log_range()[0] == FILE_BYTES
    slave.log.append(FILE_BYTES, piece(master, FILE_BYTES, FILE_BYTES + 500))
    slave.take(master)
    assert slave.store.log_range() == master.log_range()
    ranges = [
        {
            (topic, queue_id): (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
            for topic, queue_ids in master.topics().items()
            for queue_id in queue_ids
        }
        for store in (master, slave.store)
    ]
    assert ranges[0] == ranges[1]
    assert ranges[0]["topic1", 1][0] > 0
    assert slave.store.digest(*master.log_range()) == master.digest(*master.log_range()) is not None
    slave.kill()
    again = Slave(tmp_path / "s")
    assert again.store.log_range() == master.log_range()
    again.store.close()
    names = sorted(path.name for path in (tmp_path / "s" / "store" / "commitlog").iterdir())
    assert names[0] == f"{FILE_BYTES:020d}"
    master.close()


@pytest.mark.parametrize("position", [1, FILE_BYTES + 1, FILE_BYTES - 8])
def test_a_log_begins_with_a_file(tmp_path: Path, position: int) -> None:
    slave = Slave(tmp_path)
    with pytest.raises(ReplicaRefused):
        slave.log.append(position, b"\0" * 8)
    slave.store.close()


def test_a_log_does_not_begin_with_what_is_none(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    with pytest.raises(ReplicaRefused, match="no log"):
        slave.log.append(FILE_BYTES, bytes(100))
    assert slave.store.log_range() == (0, 0)
    slave.store.close()


# -- dispatch


def test_dispatch_goes_by_batches(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 200)
    while slave.log.written < master.written:
        at = slave.log.written
        slave.log.append(at, piece(master, at, at + 1000))
    steps = 0
    while slave.log.dispatch(5000):
        steps += 1
        assert len(slave.told) < 200
        assert slave.log.dispatched == slave.told[-1].physical_offset + slave.told[-1].size
        assert slave.log.dispatched <= steps * 5000
    assert steps >= master.written // 5000
    assert (len(slave.told), slave.log.dispatched) == (200, master.written)
    master.close()
    slave.store.close()


def test_what_waits_for_dispatch_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slavelog, "WAITING_RECORDS_MAX", 50)
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    send(master, 180)
    while slave.log.written < master.written:
        at = slave.log.written
        slave.log.append(at, piece(master, at, at + 1000))
        assert slave.log._waiting_records <= 50
    slave.log.dispatch()
    assert len(slave.told) == 180
    master.close()
    slave.store.close()


def test_a_topic_that_was_made_anew_begins_anew(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    for count in (5, 3):
        for _ in range(count):
            assert master.put(record()).status is PutStatus.PUT_OK
        master.write()
        slave.take(master)
        assert slave.store.max_offset("T", 0) == count
        master.delete_topic("T")
    master.close()
    slave.store.close()


def test_flushing_is_told(tmp_path: Path) -> None:
    master, slave = open_master(tmp_path / "m"), Slave(tmp_path / "s")
    told: list[int] = []
    slave.hears.flushed = told.append
    send(master, 5)
    slave.take(master, until=master.written - 1)
    slave.log.flush_soon()
    assert slave.log.flushed == 0
    slave.sync()
    assert told == [master.written - 1] == [slave.log.flushed]
    master.close()
    slave.store.close()
