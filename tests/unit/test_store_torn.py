"""What is torn above everything that was synced or is known as committed is cut, also behind a hole (R4)."""

import shutil
from pathlib import Path

import pytest

from raft.protocol.types import EntryType
from store.files.floorfile import read_floor
from tests.parts.entry_tools import Node, damage, give, lead, mend, open_node, sent


def twenty(folder: Path, *, floor: int, commit: int = 0) -> Node:
    """Twenty entries, the first of them synced; from the seventeenth on they know what the others have committed."""
    node = open_node(folder)
    lead(node, floor - 1)
    node.sync()
    lead(node, 16 - floor)
    node.log.commit = commit
    lead(node, 4)
    assert node.log.last.index == 20
    node.kill()
    return node


def starts(folder: Path) -> dict[int, int]:
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    node = open_node(copy)
    found = {index: node.start_of(index) for index in range(1, 21)}
    node.store.close()
    shutil.rmtree(copy)
    return found


def test_R4_what_is_torn_behind_a_hole_is_cut(tmp_path: Path) -> None:
    """Nobody else need have it, and a member that waited for it would be out for good."""
    node = twenty(tmp_path / "a", floor=15)
    assert (read_floor(tmp_path / "a" / "store") or (0,))[0] == 15
    at = starts(tmp_path / "a")
    damage(tmp_path / "a", at[11] + 90)
    damage(tmp_path / "a", at[18] + 90)
    hurt = node.again()
    assert (hurt.log.damaged, hurt.log.last.index) == ((11, 11), 17)
    assert hurt.store.written == at[18]
    # Nor does the floor rise over what is not acknowledged and stands behind the hole.
    hurt.sync()
    hurt.log.append(EntryType.NOOP, 2, b"", 0)
    hurt.sync()
    assert hurt.log.floor == 15
    hurt.kill()
    damage(tmp_path / "a", at[17] + 90)
    hurt = node.again()
    assert (hurt.log.damaged, hurt.log.last.index, hurt.log.floor) == ((11, 11), 16, 15)
    hurt.store.close()


@pytest.mark.parametrize("torn", [range(11, 13), range(11, 16), range(14, 18), range(15, 21)])
def test_R4_a_hole_ends_where_the_floor_does(tmp_path: Path, torn: range) -> None:
    node = twenty(tmp_path / "a", floor=15)
    at = starts(tmp_path / "a")
    for index in torn:
        damage(tmp_path / "a", at[index] + 90)
    hurt = node.again()
    assert hurt.log.damaged == (torn[0], min(torn[-1], 15))
    assert hurt.log.last.index == (20 if torn[-1] <= 15 else 15)
    hurt.store.close()


def test_R4_what_is_known_as_committed_is_never_cut(tmp_path: Path) -> None:
    """It may have been acknowledged, by a member whose note of it was on its way to the disk."""
    node = twenty(tmp_path / "a", floor=10, commit=16)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    at = starts(tmp_path / "a")
    damage(tmp_path / "b", at[16] + 90)
    damage(tmp_path / "b", at[19] + 90)
    whole = node.again()
    hurt = open_node(tmp_path / "b")
    assert (hurt.log.damaged, hurt.log.last.index) == ((16, 16), 18)
    mend(hurt, whole.content)
    assert hurt.log.whole
    assert hurt.content == whole.content[: at[19]]
    hurt.store.close()
    whole.store.close()


def test_R4_what_is_left_of_a_hole_above_everything_known_is_cut(tmp_path: Path) -> None:
    """Entry 16 is committed, and has a peer that knows it; 17 and 18 were torn, and may be on no other disk."""
    node = twenty(tmp_path / "a", floor=10, commit=16)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    at = starts(tmp_path / "a")
    for index in (16, 17, 18):
        damage(tmp_path / "b", at[index] + 90)
    whole = node.again()
    hurt = open_node(tmp_path / "b")
    assert (hurt.log.damaged, hurt.log.last.index) == ((16, 18), 20)
    assert give(hurt, whole.content[: at[17]])
    assert (hurt.log.whole, hurt.log.last.index, hurt.log.durable) == (True, 16, 16)
    hurt.log.accept(sent(whole, 17))
    assert hurt.content == whole.content
    hurt.kill()
    again = hurt.again()
    assert (again.log.whole, again.log.last.index) == (True, 20)
    again.store.close()
    whole.store.close()
