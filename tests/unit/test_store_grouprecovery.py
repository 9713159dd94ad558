"""Starts of a member: what it finds, what it refuses, what it never cuts."""

import shutil
from pathlib import Path

import pytest

from raft.protocol.types import EntryType, Mark
from remoting.record import encode_record
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.controlrecord import control_bytes
from store.errors import StoreDamaged
from store.files.checkpoint import CHECKPOINT_NAME, load_checkpoint
from store.files.disk import Disk
from store.files.floorfile import FLOOR_NAME
from store.messagestore import MessageStore
from tests.parts.entry_tools import Node, checkpoint, damage, lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config


def classic(folder: Path, *, force: bool = False) -> MessageStore:
    return MessageStore.open(make_config(folder), store_host=HOST, force=force)


@pytest.mark.parametrize("clean", [True, False])
def test_everything_comes_back(tmp_path: Path, clean: bool) -> None:
    node = open_node(tmp_path)
    lead(node, 300)
    node.sync()
    node.log.release(200)
    node.records(b"knows", term=2)
    last = node.log.last
    if clean:
        node.store.close()
    else:
        node.kill()
    again = node.again()
    log = again.log
    assert log.last == last
    assert log.base == Mark(0, 0, 0, 0)
    # Known as committed: what the last entry's leader knew.
    assert log.commit == log.released == 200
    assert log.durable == log.floor == last.index
    assert again.store.max_offset("T", 0) == 2 * 199
    assert [entry.index for entry in log.read(1, 1 << 30)] == list(range(1, last.index + 1))
    assert again.told == []
    log.release(last.index)
    assert [entry.queue_offset for entry in again.told] == list(range(398, 601))
    again.store.close()


def test_R12_queues_never_keep_what_is_above_the_commit(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 10)
    node.log.release(4)
    node.store._queues.persist()
    node.kill()
    again = node.again()
    # No later entry said that they are committed: nobody knows it here.
    assert again.log.commit == again.log.released == 0
    assert again.store.topics() == {RAFT_TOPIC: [0]}
    again.log.release(11)
    assert again.store.max_offset("T", 0) == 20
    again.store.close()


def test_the_log_is_read_from_the_checkpoint_only(tmp_path: Path) -> None:
    clock = ManualClock()
    node = open_node(tmp_path, clock=clock)
    lead(node, 100)
    node.log.release(60)
    checkpoint(node, clock)
    assert load_checkpoint(tmp_path / "store").dispatched == node.log.end_position(60)
    lead(node, 20)
    node.kill()
    # What lies before the checkpoint is not looked at.
    damage(tmp_path, 90 * 10)
    again = node.again()
    assert (again.log.commit, again.log.last.index) == (60, 121)
    assert again.log.base.index == 0
    again.store.close()


def test_a_checkpoint_never_vouches_for_what_may_be_cut(tmp_path: Path) -> None:
    clock = ManualClock()
    node = open_node(tmp_path, clock=clock)
    lead(node, 30)
    node.log.release(10)
    checkpoint(node, clock)
    node.log.cut(10)
    last = node.log.last
    node.kill()
    again = node.again()
    assert again.log.last == last
    again.store.close()


@pytest.mark.parametrize("part", ["control", "covered", "end"])
def test_a_torn_tail_above_the_floor_is_cut(tmp_path: Path, part: str) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.sync()
    good = node.log.last
    node.records(b"torn" * 50)
    at = {"control": good.end + 100, "covered": good.end + 250, "end": node.store.written - 1}[part]
    node.kill()
    damage(tmp_path, at)
    again = node.again()
    assert again.log.last == good
    assert again.log.whole
    assert again.store.written == good.end
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    assert not any(path.read_bytes()[good.end :])
    again.store.close()


@pytest.mark.parametrize("more", [1, 3])
def test_R4_what_stands_behind_a_rotten_floor_and_continues_it_is_kept(tmp_path: Path, more: int) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.sync()
    floor = node.log.last
    # Acknowledged within the time by which the floor's file may be behind.
    for _ in range(more):
        node.records(b"later" * 50)
    last = node.log.last
    at = node.start_of(floor.index) + 100
    node.kill()
    damage(tmp_path, at)
    again = node.again()
    assert again.log.last == last
    assert again.log.holes.ranges == [(floor.index, floor.index)]
    assert not again.log.whole
    again.kill()
    once_more = node.again()
    assert (once_more.log.last, once_more.log.holes.ranges) == (last, [(floor.index, floor.index)])
    once_more.store.close()


class WatchedDisk(Disk):
    """Remembers what was written and synced, in order."""

    def __init__(self) -> None:
        self.acts: list[tuple[str, int, int]] = []

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.acts.append(("write", offset, len(data)))
        super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self.acts.append(("sync", 0, 0))
        super().fdatasync(fd)


def test_R5_what_lies_above_the_floor_is_written_and_synced_again(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    node.sync()
    floor = node.log.last.end
    lead(node, 2)
    end = node.store.written
    node.kill()
    disk = WatchedDisk()
    again = node.again(disk=disk)
    assert disk.acts[:2] == [("write", floor, end - floor), ("sync", 0, 0)]
    assert (again.log.durable, again.log.floor) == (6, 6)
    again.store.close()


def test_R2_a_message_where_an_entry_is_due_is_never_cut(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    end = node.store.written
    node.kill()
    written = encode_record("T", 0, b"alone", physical_offset=end, queue_offset=6)
    damage(tmp_path, end, written)
    with pytest.raises(StoreDamaged, match="Nothing was cut"):
        node.again()
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    assert path.read_bytes()[end : end + len(written)] == written


def test_R2_a_newer_control_record_is_never_cut(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    end = node.store.written
    node.kill()
    damage(tmp_path, end, encode_record(RAFT_TOPIC, 0, b"\x02" + bytes(60), physical_offset=end, queue_offset=5))
    with pytest.raises(StoreDamaged, match="version 2"):
        node.again()


def test_R2_a_single_broker_does_not_open_a_group_s_log(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    node.log.release(4)
    content = node.content
    node.store.close()
    with pytest.raises(StoreDamaged, match=r"leave-raft.*--force"):
        classic(tmp_path)
    again = node.again()
    assert again.content == content
    again.store.close()
    store = classic(tmp_path, force=True)
    assert store.max_offset("T", 0) == 6
    fill(store, 2)
    store.close()
    with pytest.raises(StoreDamaged, match="after the group"):
        node.again()


def leaving(folder: Path) -> Node:
    node = open_node(folder)
    lead(node, 3)
    node.log.append(EntryType.CONFIG, 2, b"classic", 4)
    node.log.release(5)
    return node


@pytest.mark.parametrize("clean", [True, False])
def test_R2_a_group_that_ended_is_a_single_broker_s_and_may_begin_again(tmp_path: Path, clean: bool) -> None:
    node = leaving(tmp_path)
    node.sync()
    if clean:
        node.store.close()
    else:
        node.kill()
    store = classic(tmp_path)
    assert store.max_offset("T", 0) == 6
    fill(store, 3)
    assert store.max_offset("T", 0) == 9
    end = store.written
    store.close()
    again = node.again()
    log = again.log
    assert log.base == log.last == Mark(5, 2, end, log.digest())
    assert (log.last_config(), log.commit, log.released) == (0, 5, 5)
    assert again.store.max_offset("T", 0) == 9
    digest = log.digest()
    assert log.append(EntryType.CONFIG, 3, b"joined", 0) == 6
    assert log.term(5) == 2
    again.records(b"new", term=3)
    log.release(7)
    assert again.store.max_offset("T", 0) == 10
    again.kill()
    last = node.again()
    assert (last.log.base, last.log.last.index) == (Mark(5, 2, end, digest), 7)
    assert last.store.max_offset("T", 0) == 10 - 1
    last.log.release(7)
    assert last.store.max_offset("T", 0) == 10
    last.store.close()
    # All of it read again, without queues and checkpoint.
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    (tmp_path / "store" / CHECKPOINT_NAME).unlink()
    anew = node.again()
    anew.log.release(7)
    assert anew.store.max_offset("T", 0) == 10
    assert (anew.log.base.index, anew.log.base.end, anew.log.last.index) == (5, end, 7)
    anew.store.close()


def test_R2_leaving_that_is_not_known_as_committed_leaves_a_member(tmp_path: Path) -> None:
    node = leaving(tmp_path)
    node.kill()
    again = node.again()
    assert (again.log.base.index, again.log.last.index, again.log.last_config()) == (0, 5, 5)
    again.store.close()


def test_R1_messages_of_a_single_broker_are_the_base(tmp_path: Path) -> None:
    store = classic(tmp_path)
    fill(store, 50)
    end = store.written
    store.close()
    node = open_node(tmp_path)
    log = node.log
    assert log.base == log.last == Mark(0, 0, end, log.digest())
    assert log.digest() != 0
    assert node.store.max_offset("T", 0) == 50
    lead(node, 2)
    base = log.base
    assert node.log.append_records([], 1, 0)[0] == -1
    log.release(3)
    assert node.store.max_offset("T", 0) == 54
    node.kill()
    again = node.again()
    assert again.log.base == base
    assert again.log.digest() == base.chain
    assert again.store.max_offset("T", 0) == 50
    again.log.cut(0)
    assert again.log.last == again.log.base
    lead(again, 1)
    again.store.close()
    last = open_node(tmp_path)
    assert last.log.base == base
    last.store.close()


def test_R10_hints_that_mislead_do_no_harm(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 40)
    node.store._queues.persist()
    folder = tmp_path / "store" / "consumequeue" / RAFT_TOPIC / "0"
    path = folder / f"{0:020d}"
    content = bytearray(path.read_bytes())
    for index in (7, 8, 9, 20):
        content[index * 20 : index * 20 + 8] = (node.start_of(index + 3)).to_bytes(8, "big")
    content[30 * 20 : 30 * 20 + 8] = (5).to_bytes(8, "big")
    path.write_bytes(content)
    node.log._cache.cut(0)
    assert [node.log.payload(index) for index in (1, 7, 8, 9, 20, 30)] == [b"config", b"", b"", b"", b"", b""]
    assert b"".join(entry.data for entry in node.log.read(1, 1 << 20)) == node.content
    node.log._cache.cut(0)
    assert b"".join(entry.data for index in range(1, 42) for entry in node.log.read(index, 1)) == node.content
    node.store.close()


def test_R10_the_queue_is_built_again_when_it_is_lost(tmp_path: Path) -> None:
    clock = ManualClock()
    node = open_node(tmp_path, clock=clock)
    lead(node, 40)
    node.log.release(30)
    checkpoint(node, clock)
    node.store.close()
    shutil.rmtree(tmp_path / "store" / "consumequeue" / RAFT_TOPIC)
    again = node.again()
    assert again.log.last.index == 41
    assert len(again.store.queue_entries(RAFT_TOPIC, 0, 1, 99)) == 41
    again.log.release(41)
    assert again.store.max_offset("T", 0) == 80
    again.store.close()


def test_R11_a_remainder_of_an_older_log_is_no_successor(tmp_path: Path) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 8)
    other = open_node(tmp_path / "b")
    other.log.accept(sent(node, 1, 4))
    other.records(b"body 3", b"other 3", term=2, tags="a")
    assert other.start_of(5) == node.start_of(5)
    assert other.log.last.end == node.start_of(6)
    rest = sent(node, 6)
    end = other.store.written
    other.kill()
    damage(tmp_path / "b", end, b"".join(entry.data for entry in rest))
    again = open_node(tmp_path / "b")
    assert again.log.last.index == 5
    assert again.store.written == end
    again.store.close()
    node.store.close()


def test_R11_a_blank_at_the_end_goes_with_what_follows(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    end = node.store.written
    node.log.append(EntryType.META, 1, bytes(FILE_BYTES - control_bytes(HOST) - 8), 0)
    assert node.start_of(5) == FILE_BYTES
    node.kill()
    damage(tmp_path, FILE_BYTES + 100)
    again = node.again()
    assert again.log.last.end == end
    # The blank belonged to the entry that is gone: another leader's may stand right behind the last one.
    assert again.store.written == end
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    assert not path.read_bytes()[end:].strip(b"\0")
    again.records(b"next")
    assert again.start_of(5) == end
    again.kill()
    last = node.again()
    assert last.log.last.index == 5
    last.store.close()


def test_a_floor_that_nobody_can_read_is_refused(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 3)
    node.store.close()
    (tmp_path / "store" / FLOOR_NAME).write_bytes(b"\xff" * 8192)
    with pytest.raises(StoreDamaged, match="add it again"):
        node.again()
