"""Damage below the floor of a member's log: never cut, fetched from a peer into the same positions (R4)."""

import shutil
from pathlib import Path

import pytest

from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.controlrecord import EntryKind
from store.errors import EntryRefused, StoreDamaged
from store.floorfile import read_floor
from store.messagestore import MessageStore
from tests.unit.entry_tools import checkpoint, damage, lead, open_node, sent
from tests.unit.store_tools import FILE_BYTES, HOST, fill, make_config


# In the head (a host, the queue id), the body, the topic, what is covered.
@pytest.mark.parametrize("offset", [15, 50, 100, 145, 200])
def test_R4_damage_below_the_floor_is_not_cut_but_repaired(tmp_path: Path, offset: int) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 12)
    node.sync()
    node.kill()
    whole = node.again()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    position, last = whole.start_of(6), whole.log.last
    damage(tmp_path / "b", position + offset)
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert (log.whole, log.damaged, log.last, log.floor) == (False, (6, 6), last, 13)
    assert log.durable == 5
    assert log.read(6, 1000) == []
    assert log.term(6) is None
    assert [entry.index for entry in log.read(7, 1 << 20)] == list(range(7, 14))
    # What is committed waits for the repair.
    log.release(9)
    assert (log.commit, log.released) == (9, 5)
    with pytest.raises(EntryRefused, match="no entry for the hole"):
        log.repair(sent(whole, 7))
    log.repair(sent(whole, 6))
    assert log.whole
    assert (log.durable, log.released) == (13, 9)
    assert hurt.content == whole.content
    hints = hurt.store.queue_entries(RAFT_TOPIC, 0, 1, 99)
    assert len(hints) == 13
    assert hints == whole.store.queue_entries(RAFT_TOPIC, 0, 1, 99)
    log.release(13)
    hurt.records(b"more", term=3)
    hurt.kill()
    again = hurt.again()
    assert (again.log.whole, again.log.last.index) == (True, 14)
    again.store.close()
    whole.store.close()


def test_R4_a_hole_up_to_the_floor_and_over_files_is_filled_in_pieces(tmp_path: Path) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 20)
    for _ in range(6):
        node.log.append(EntryKind.META, 2, bytes(40_000), 0)
    node.log.append(EntryKind.CONFIG, 2, b"newer", 0)
    node.sync()
    node.kill()
    whole = node.again()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    last = whole.log.last
    for index in range(15, last.index + 1):
        damage(tmp_path / "b", whole.start_of(index) + 90)
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert (log.damaged, log.last, log.last_config()) == ((15, 28), last, 1)
    while log.damaged is not None:
        log.repair(sent(whole, log.damaged[0], log.damaged[0] + 3))
    assert log.last_config() == 28
    assert hurt.content == whole.content
    assert [log.term(index) for index in range(20, 29)] == [1, 1, 2, 2, 2, 2, 2, 2, 2]
    hurt.store.close()
    whole.store.close()
    again = node.again()
    assert again.log.last == last
    again.store.close()


@pytest.mark.parametrize("gone", [[1], [1, 2], [2], [3], [2, 3]])
def test_R4_files_that_are_missing_are_fetched_from_a_peer(tmp_path: Path, gone: list[int]) -> None:
    node = open_node(tmp_path / "a")
    lead(node)
    while node.store.written < 3.5 * FILE_BYTES:
        node.records(bytes(3000), topic="U")
    node.sync()
    node.log.release(node.log.last.index)
    node.store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for number in gone:
        (tmp_path / "b" / "store" / "commitlog" / f"{number * FILE_BYTES:020d}").unlink()
    whole = node.again()
    last = whole.log.last
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert (log.whole, log.last, log.floor) == (False, last, last.index)
    assert log.damaged is not None
    assert log.durable == log.damaged[0] - 1
    hurt.kill()
    # Nothing is taken for whole at the next start either.
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert log.damaged is not None
    while log.damaged is not None:
        log.repair(sent(whole, log.damaged[0], log.damaged[0] + 7))
    assert hurt.content == whole.content
    assert (log.durable, log.last) == (last.index, last)
    log.release(last.index)
    assert hurt.store.max_offset("U", 0) == whole.store.max_offset("U", 0)
    hurt.records(b"more", topic="U")
    hurt.store.close()
    again = open_node(tmp_path / "b")
    assert (again.log.whole, again.log.last.index) == (True, last.index + 1)
    again.store.close()
    whole.store.close()


def test_R4_a_file_of_messages_from_before_the_group_is_not_made_up(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    alone = MessageStore.open(config, store_host=HOST)
    while alone.written < 2.5 * FILE_BYTES:
        fill(alone, 10, body=bytes(1000))
    alone.close()
    node = open_node(tmp_path)
    lead(node)
    node.sync()
    node.log.release(node.log.last.index)
    node.store.close()
    missing = tmp_path / "store" / "commitlog" / f"{FILE_BYTES:020d}"
    missing.unlink()
    for _ in range(2):
        with pytest.raises(StoreDamaged):
            open_node(tmp_path)
        assert not missing.exists()


def test_R4_what_was_another_entry_does_not_repair(tmp_path: Path) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 5)
    node.sync()
    node.kill()
    whole = node.again()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    damage(tmp_path / "b", whole.start_of(6) + 90)
    hurt = open_node(tmp_path / "b")
    assert hurt.log.damaged == (6, 6)
    # Another leader's sixth entry, of the same size.
    whole.log.cut(5)
    whole.records(b"body 4", b"otheR 4", tags="a")
    with pytest.raises(EntryRefused, match="not the one that stood there"):
        hurt.log.repair(sent(whole, 6))
    # A leader may overwrite it nevertheless: then it was never committed.
    hurt.log.cut(5)
    assert hurt.log.whole
    hurt.log.accept(sent(whole, 6))
    assert hurt.content == whole.content
    hurt.kill()
    again = hurt.again()
    assert again.log.whole
    assert again.log.last == whole.log.last
    again.store.close()
    whole.store.close()


def test_R4_what_later_entries_know_as_committed_is_not_cut(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.log.release(6)
    node.records(b"knows 6")
    position, end = node.start_of(4), node.store.written
    node.kill()
    assert read_floor(tmp_path / "store") is None
    damage(tmp_path, position + 90)
    again = node.again()
    assert (again.log.damaged, again.log.last.index, again.store.written) == ((4, 4), 7, end)
    again.store.close()


def test_R4_zeros_below_the_floor_are_damage_too(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.sync()
    position, size = node.start_of(5), node.store.written - node.start_of(5)
    last = node.log.last
    node.kill()
    damage(tmp_path, position, bytes(size))
    again = node.again()
    assert (again.log.damaged, again.log.last) == ((5, 6), last)
    again.store.close()


def test_R4_nothing_left_at_all_is_refused(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.sync()
    node.kill()
    damage(tmp_path, 90)
    with pytest.raises(StoreDamaged, match="had been synced"):
        node.again()


def test_R4_an_old_entry_that_rots_is_found_out_when_it_is_read(tmp_path: Path) -> None:
    clock = ManualClock()
    node = open_node(tmp_path / "a", clock=clock)
    lead(node, 20)
    node.log.release(21)
    checkpoint(node, clock)
    node.store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    whole = node.again()
    for index, offset in ((5, 250), (9, 50)):
        damage(tmp_path / "b", whole.start_of(index) + offset)
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert log.whole
    assert [entry.index for entry in log.read(1, 1 << 20)] == [1, 2, 3, 4]
    assert log.read(5, 1 << 20) == []
    assert log.damaged == (5, 5)
    assert [entry.index for entry in log.read(6, 1 << 20)] == [6, 7, 8]
    assert log.read(9, 1 << 20) == []
    assert log.damaged == (5, 9)
    log.repair(sent(whole, 5, 9))
    assert log.whole
    assert log.durable == 21
    assert b"".join(entry.data for entry in log.read(1, 1 << 20)) == whole.content == hurt.content
    hurt.store.close()
    whole.store.close()
