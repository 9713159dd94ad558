"""Repair touches each damaged byte once, in slices, off the loop's disk waits, and goes on where the disk says (R4)."""

import shutil
from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused
from remoting.topics import RAFT_TOPIC
from store.raftlog.entryrepair import CHECKED_BYTES_MAX, GIVEN_BYTES_MAX, Mender
from tests.parts.entry_tools import Node, damage, give, lead, mend, open_node
from tests.parts.mending_tools import Counted, pair
from tests.parts.store_tools import FILE_BYTES


@pytest.mark.parametrize("size", [700, 5000, FILE_BYTES, 1 << 20])
def test_R4_repair_costs_as_much_as_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Not by time: what is written, copied, read of the log and of hints, for twice the damage is twice as much."""
    costs: list[tuple[int, int]] = []
    for files in (3, 5):
        whole, hurt = pair(tmp_path / str(files), files)
        content = whole.content
        done, total = hurt.log.mending.progress()
        missing = total - done
        assert hurt.log.damaged is not None
        first, last = hurt.log.damaged
        counted = Counted(hurt, monkeypatch)
        while hurt.log.damaged is not None:
            assert give(hurt, content, size=size)
        # Each byte is written once, with the blanks; a hint is written once, and some around the hole are looked up.
        assert missing - files * 1100 < counted.written <= missing + files * 8
        assert counted.hints <= (last - first + 1) + 200
        assert counted.read <= 64 * 1024
        # Bytes are copied where an entry ends in another piece than it began in, and then once.
        assert counted.copied <= missing * 2.1
        costs.append((missing, counted.copied))
        assert hurt.content == content
        hurt.store.close()
        whole.store.close()
    assert costs[1][0] > 1.9 * costs[0][0]


def test_R4_what_is_given_and_not_used_is_bounded(tmp_path: Path) -> None:
    whole, hurt = pair(tmp_path, 3)
    mending = hurt.log.mending
    wanted = mending.wanted()
    assert wanted is not None
    mending.give(wanted[0], bytes(GIVEN_BYTES_MAX))
    assert mending.wanted() is None
    with pytest.raises(EntryRefused):
        mending.step()
    assert mending.wanted() == wanted
    assert CHECKED_BYTES_MAX < GIVEN_BYTES_MAX
    hurt.store.close()
    whole.store.close()


@pytest.mark.parametrize("kills", [1, 3])
def test_R4_a_repair_that_is_killed_goes_on_where_the_disk_says(tmp_path: Path, kills: int) -> None:
    whole, hurt = pair(tmp_path, 5)
    content = whole.content
    begins = []
    for _ in range(kills):
        assert hurt.log.damaged is not None
        begins.append(hurt.log.damaged[0])
        give(hurt, content, size=FILE_BYTES // 2)
        # Given, checked, not written: it is as if it had never been.
        wanted = hurt.log.mending.wanted()
        assert wanted is not None
        hurt.log.mending.give(wanted[0], content[wanted[0] : wanted[0] + 5000])
        hurt.log.mending.step()
        at = hurt.log.damaged[0]
        assert at > begins[-1]
        assert hurt.log.durable == at - 1
        hurt.store._helper.worker._jobs.get()
        hurt.kill()
        hurt = open_node(tmp_path / "b")
        assert hurt.log.damaged is not None
        assert hurt.log.damaged[0] == at
    mend(hurt, content)
    assert hurt.content == content
    assert hurt.log.durable == whole.log.last.index
    hurt.store.close()
    whole.store.close()


def test_R4_what_is_not_known_as_committed_counts_only_at_the_end(tmp_path: Path) -> None:
    whole, hurt = pair(tmp_path, 3)
    content = whole.content
    damaged = hurt.log.damaged
    assert damaged is not None
    give(hurt, content, sure=False, size=FILE_BYTES)
    assert hurt.log.damaged == damaged
    hurt.log.mending.drop()
    wanted = hurt.log.mending.wanted()
    assert wanted is not None
    assert wanted[0] == hurt.log.end_position(damaged[0] - 1)
    while hurt.log.damaged is not None:
        assert give(hurt, content, sure=False, size=FILE_BYTES)
    assert hurt.content == content
    hurt.store.close()
    whole.store.close()


def test_R4_sure_bytes_behind_unsure_ones_are_kept_apart(tmp_path: Path) -> None:
    whole, hurt = pair(tmp_path, 4)
    content = whole.content
    give(hurt, content, size=FILE_BYTES)
    assert hurt.log.damaged is not None
    at = hurt.log.damaged[0]
    give(hurt, content, sure=False, size=FILE_BYTES)
    assert hurt.log.damaged[0] == at
    with pytest.raises(EntryRefused):
        give(hurt, bytes(len(content)), size=FILE_BYTES)
    mend(hurt, content)
    assert hurt.content == content
    hurt.store.close()
    whole.store.close()


def test_R4_intact_entries_within_a_hole_come_from_the_own_disk(tmp_path: Path) -> None:
    """Recovery may call more damaged than is: between two lost files nothing is given by a peer."""
    whole, hurt = pair(tmp_path, 5)
    begin = hurt.log.damaged
    assert begin is not None
    kept = tmp_path / "b" / "store" / "commitlog" / f"{FILE_BYTES:020d}"
    kept.write_bytes((tmp_path / "a" / "store" / "commitlog" / kept.name).read_bytes())
    assert hurt.log.mending.wanted() is not None
    hurt.log.mending.read_own()
    while hurt.store.step_helper():
        pass
    with pytest.raises(EntryRefused, match="no record"):
        _until_refused(hurt)
    while hurt.log.mending.step() or hurt.store.step_helper():
        pass
    assert hurt.log.damaged is not None
    assert hurt.log.damaged[0] > begin[0] + 10
    mend(hurt, whole.content)
    assert hurt.content == whole.content
    hurt.store.close()
    whole.store.close()


def _until_refused(node: Node) -> None:
    while True:
        node.log.mending.step()


def test_R4_what_is_damaged_is_not_given_to_peers(tmp_path: Path) -> None:
    whole, hurt = pair(tmp_path, 3)
    damaged = hurt.log.damaged
    assert damaged is not None
    begin = hurt.log.end_position(damaged[0] - 1)
    told: list[bytes] = []
    for position in (0, begin - 10, begin, 2 * FILE_BYTES, hurt.store.written - 10, hurt.store.written):
        hurt.log.mending.fetch(position, 100, lambda data: told.append(bytes(data)))
    assert [len(data) for data in told] == [100, 10, 0, 0, 10, 0]
    assert told[1] == whole.content[begin - 10 : begin]
    hurt.store.close()
    whole.store.close()


def test_an_entry_whose_hint_misleads_is_found_from_the_nearest_intact_one(tmp_path: Path) -> None:
    """A4: no power of two back lands on an intact hint, but three back does."""
    node = open_node(tmp_path)
    lead(node, 40)
    node.sync()
    node.store.close()
    node = node.again()
    index, queues = 38, node.store._queues
    for back in (0, 1, 2, 4, 8, 16, 32):
        queues.replace(RAFT_TOPIC, 0, index - back, [(7, 1, 0)])
    control = node.log._finder.control(index)
    assert control is not None
    assert control.index == index
    node.store.close()


def test_R4_an_entry_that_cannot_be_read_does_not_end_the_member(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 40)
    node.sync()
    node.log.release(20)
    position = node.start_of(30)
    content = node.content
    node.store.close()
    node = node.again()
    node.log.release(20)
    released = node.log.released
    damage(tmp_path, position + 50)
    with pytest.raises(LookupError):
        node.log.kind(30)
    assert node.log.damaged == (30, 30)
    assert node.log.read(29, 1)[0].index == 29
    node.log.release(41)
    assert node.log.released == max(released, 29)
    mend(node, content)
    node.log.release(41)
    assert node.log.released == 41
    node.store.close()


def _give_all(node: Node, content: bytes) -> None:
    while give(node, content, sure=False, size=300):
        pass


class _Believing(Mender):
    """Planted: takes what a peer has not committed for what stood there."""

    def give(self, position: int, data: bytes | memoryview, *, sure: bool = True) -> None:  # noqa: ARG002
        super().give(position, data, sure=True)


def released_by_a_stale_peer(folder: Path) -> int:
    """Repair entries that are known as committed with those of a peer whose tail was never committed; what counts."""
    node = open_node(folder / "a")
    lead(node, 4)
    lead(node, 8, term=3)
    node.sync()
    node.kill()
    for name in "bc":
        shutil.copytree(folder / "a", folder / name)
    whole = node.again()
    for index in range(5, 10):
        damage(folder / "b", whole.start_of(index) + 90)
    stale = open_node(folder / "c")
    stale.log.cut(4)
    lead(stale, 9, term=2)
    hurt = open_node(folder / "b")
    assert hurt.log.damaged == (5, 9)
    hurt.log.release(9)
    with pytest.raises(EntryRefused):
        _give_all(hurt, stale.content)
    while hurt.log.mending.step() or hurt.store.step_helper():
        pass
    hurt.log.release(9)
    released = hurt.log.released
    for each in (whole, stale, hurt):
        each.store.close()
    return released


def test_R4_what_a_stale_peer_has_not_committed_is_not_believed(tmp_path: Path) -> None:
    assert released_by_a_stale_peer(tmp_path) == 4


def test_R4_planted_believing_a_stale_peer_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.raftlog.entrylog.Mender", _Believing)
    assert released_by_a_stale_peer(tmp_path) > 4
