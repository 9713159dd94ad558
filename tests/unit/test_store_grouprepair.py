"""Damage below the floor of a member's log: never cut, fetched from a peer into the same positions (R4)."""

import shutil
from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused, EntryType
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.errors import StoreDamaged
from store.files.checkpoint import CHECKPOINT_NAME
from store.files.floorfile import read_floor
from store.messagestore import MessageStore
from tests.parts.entry_tools import checkpoint, damage, give, lead, mend, open_node, sent
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config


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
    with pytest.raises(EntryRefused, match="entry 6"):
        give(hurt, bytes(len(whole.content)))
    mend(hurt, whole.content)
    assert log.whole
    log.release(9)
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
        node.log.append(EntryType.META, 2, bytes(40_000), 0)
    node.log.append(EntryType.CONFIG, 2, b"newer", 0)
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
        assert give(hurt, whole.content, size=10_000)
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
        assert give(hurt, whole.content, size=3000)
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
        give(hurt, whole.content)
    assert hurt.log.mending.contradicted
    # A leader may overwrite it nevertheless: then it was never committed.
    hurt.log.cut(5)
    assert hurt.log.whole
    while hurt.store.step_helper():
        pass
    hurt.log.accept(sent(whole, 6))
    assert hurt.content == whole.content
    hurt.kill()
    again = hurt.again()
    assert again.log.whole
    assert again.log.last == whole.log.last
    again.store.close()
    whole.store.close()


@pytest.mark.parametrize(
    ("bodies", "term", "words"),
    [
        ([b"same size"], 2, "entry 7 is of term 2, 1 follows"),
        ([bytes(600)], 1, "entry 7 has .* bytes, .* are left"),
        ([bytes(8000)], 1, "a blank at .*, where entry 7 is due"),
    ],
    ids=["later term", "larger", "in the next file"],
)
def test_R4_what_has_no_place_in_a_hole_contradicts_what_stands_behind_it(
    tmp_path: Path, bodies: list[bytes], term: int, words: str
) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 4)
    node.records(bytes(FILE_BYTES - 6000), tags="a")
    for _ in range(4):
        node.records(b"same size", tags="a")
    node.sync()
    node.kill()
    whole = node.again()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for index in (7, 8):
        damage(tmp_path / "b", whole.start_of(index) + 90, file_bytes=FILE_BYTES)
    hurt = open_node(tmp_path / "b")
    assert hurt.log.damaged == (7, 8)
    # What a peer has that cannot be read is no word about what stands behind.
    position = whole.start_of(7)
    with pytest.raises(EntryRefused, match=r"does not begin with a record|has no record"):
        give(hurt, whole.content[:position] + bytes([1]) * 2000)
    assert not hurt.log.mending.contradicted
    whole.log.cut(6)
    while whole.store.step_helper():
        pass
    whole.records(*bodies, term=term, tags="a")
    whole.records(*bodies, term=term, tags="a")
    with pytest.raises(EntryRefused, match=words):
        give(hurt, whole.content)
    assert hurt.log.mending.contradicted
    hurt.store.close()
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


def test_R4_the_very_first_entry_is_repaired_too(tmp_path: Path) -> None:
    """Where the entries begin is noted; without that, in a folder of an earlier version, the member refuses."""
    node = open_node(tmp_path)
    lead(node, 5)
    node.sync()
    content, last = node.content, node.log.last
    node.kill()
    damage(tmp_path, 90)
    (tmp_path / "store" / CHECKPOINT_NAME).rename(tmp_path / "checkpoint")
    with pytest.raises(StoreDamaged, match="had been synced"):
        node.again()
    (tmp_path / "checkpoint").rename(tmp_path / "store" / CHECKPOINT_NAME)
    for _ in range(2):
        node = node.again()
        assert (node.log.damaged, node.log.last, node.log.last_config()) == ((1, 1), last, 0)
        node.kill()
    node = node.again()
    mend(node, content)
    assert (node.content, node.log.last_config()) == (content, 1)
    node.store.close()


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
    assert log.holes.ranges == [(5, 5), (9, 9)]
    give(hurt, whole.content)
    assert (log.whole, log.damaged) == (False, (9, 9))
    give(hurt, whole.content)
    assert log.whole
    assert log.durable == 21
    assert b"".join(entry.data for entry in log.read(1, 1 << 20)) == whole.content == hurt.content
    hurt.store.close()
    whole.store.close()


def test_R4_a_running_member_is_told_what_is_damaged_and_has_it_repaired(tmp_path: Path) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 12)
    node.sync()
    node.log.release(13)
    content, log = node.content, node.log
    log.mark_damaged(4, 5)
    log.mark_damaged(9, 99)
    log.mark_damaged(0, 0)
    assert (log.whole, log.damaged, log.holes.ranges) == (False, (4, 5), [(4, 5), (9, 13)])
    assert [entry.index for entry in log.read(1, 1 << 20)] == [1, 2, 3]
    assert log.read(5, 1 << 20) == []
    assert [entry.index for entry in log.read(6, 1 << 20)] == [6, 7, 8]
    # It has synced them once, and goes on: it says so of what follows, and releases it.
    assert log.durable == 13
    node.records(b"more")
    node.sync()
    log.release(14)
    assert (log.durable, log.released, log.readable) == (14, 14, 14)
    mend(node, content)
    assert (log.whole, log.damaged) == (True, None)
    assert node.content[: len(content)] == content
    assert [entry.index for entry in log.read(1, 1 << 20)] == list(range(1, 15))
    node.store.close()
