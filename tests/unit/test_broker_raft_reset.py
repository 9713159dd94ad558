"""broker/raft_group/snapshot.py: what a leader gives away of its store, and the folder that a copy is put into."""

import shutil
from pathlib import Path

import pytest

from broker.raft_group.snapshot import MARKER, VOTE, StoreSource, StoreTarget, copy_peers, is_marked
from raft.protocol.config import GroupConfig
from raft.protocol.config import Member as Listed
from raft.protocol.settings import Peer, RaftSettings
from raft.protocol.types import EntryType, Mark
from raft.snapshot.protocol import CopiedFile, Manifest, Marker, MetadataFile, ResetMismatch, write_marker
from store.errors import StoreLocked
from store.files.floorfile import read_floor
from tests.parts.entry_tools import Node, damage, lead, open_node
from tests.parts.store_tools import FILE_BYTES, HOST, make_config

CONFIG = GroupConfig(b"g" * 16, (Listed("n0", "127.0.0.1:40911", b"d" * 16),))


def leader(folder: Path) -> Node:
    """A store whose last two entries are not committed."""
    node = open_node(folder)
    node.log.append(EntryType.CONFIG, 1, CONFIG.encode(), 0)
    while node.store.written < 1.5 * FILE_BYTES:
        lead(node, 1)
    node.log.release(node.log.last.index)
    lead(node, 2)
    (folder / "store" / "config").mkdir()
    (folder / "store" / "config" / "topics.json").write_bytes(b"{}")
    (folder / "store" / "config" / "topics.json.bak").write_bytes(b"older")
    return node


def manifest(source: StoreSource) -> Manifest:
    end = source.end()
    return Manifest(
        source.config(),
        end,
        source.log_file_bytes,
        tuple(CopiedFile(*file) for file in source.files_upto(end.end)),
        tuple(MetadataFile(name, len(data), 0) for name, data in source.metadata().items()),
    )


def test_R13_a_copy_ends_at_the_commit_point_and_pins_what_it_names(tmp_path: Path) -> None:
    node = leader(tmp_path)
    why: list[str | None] = ["it does not lead", None]
    source = StoreSource(make_config(tmp_path), node.log, lambda: why.pop(0))
    assert [source.refusal(), source.refusal()] == ["it does not lead", None]
    end = source.end()
    assert end.index == node.log.commit == node.log.last.index - 2
    assert end == Mark(end.index, 1, node.log.end_position(end.index), node.log._finder.kept(end.index).chain)
    assert source.files_upto(end.end) == [(0, FILE_BYTES), (FILE_BYTES, end.end - FILE_BYTES)]
    assert GroupConfig.decode(source.config()) == CONFIG
    assert source.metadata() == {"topics.json": b"{}"}
    manifest(source).check()
    source.pin()
    assert node.log.copies.pinned
    source.unpin()
    assert not node.log.copies.pinned
    node.store.close()


def test_a_copy_of_a_log_of_which_nothing_is_left_ends_at_its_base(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    source = StoreSource(make_config(tmp_path), node.log, lambda: None)
    assert source.end() == Mark(*node.log.base)
    assert source.metadata() == {}
    node.store.close()


def copied(tmp_path: Path) -> tuple[Manifest, StoreTarget]:
    """A folder that holds the leader's log up to its commit point, and what stood there before."""
    node = leader(tmp_path / "a")
    source = StoreSource(make_config(tmp_path / "a"), node.log, lambda: None)
    made, root = manifest(source), tmp_path / "b" / "store"
    (root / "raft").mkdir(parents=True)
    for name in (VOTE, VOTE + ".bak"):
        (root / name).write_bytes(b"a vote")
    write_marker(root / MARKER, Marker())
    target = StoreTarget(make_config(tmp_path / "b"), HOST)
    with target.locked():
        target.wipe(frozenset())
    for start, size in made.files:
        data = bytes(source.read_bytes(start, size))
        target.log_path(start).write_bytes(data.ljust(FILE_BYTES, b"\0"))
    node.store.close()
    return made, target


def test_R13_what_was_copied_is_checked_and_its_end_becomes_the_floor(tmp_path: Path) -> None:
    made, target = copied(tmp_path)
    with target.locked():
        target.verify(made)
        with pytest.raises(StoreLocked):
            open_node(tmp_path / "b")
    assert read_floor(tmp_path / "b" / "store") == Mark(*made.end)
    copy = open_node(tmp_path / "b")
    assert (copy.log.last, copy.log.floor, copy.log.durable) == (Mark(*made.end), made.end.index, made.end.index)
    copy.store.close()


@pytest.mark.parametrize("position", [40, FILE_BYTES // 2, FILE_BYTES + 200])
def test_R13_a_byte_that_went_wrong_on_the_way_is_found(tmp_path: Path, position: int) -> None:
    made, target = copied(tmp_path)
    damage(tmp_path / "b", position, b"\xa5\x5a\xa5\x5a")
    with target.locked(), pytest.raises(ResetMismatch):
        target.verify(made)
    # The folder is locked again, and let go.
    with target.locked():
        pass


def test_R13_a_copy_that_ends_too_early_is_found(tmp_path: Path) -> None:
    made, target = copied(tmp_path)
    last = target.log_path(FILE_BYTES)
    last.write_bytes(last.read_bytes()[: made.end.end - FILE_BYTES - 10].ljust(FILE_BYTES, b"\0"))
    with target.locked(), pytest.raises(ResetMismatch):
        target.verify(made)


def test_R13_wiping_leaves_the_vote_the_marker_and_the_files_that_are_done(tmp_path: Path) -> None:
    node = leader(tmp_path)
    node.store.close()
    root = tmp_path / "store"
    (root / VOTE).write_bytes(b"a vote")
    write_marker(root / MARKER, Marker("n1"))
    (root / "elsewhere").symlink_to(tmp_path)
    target = StoreTarget(make_config(tmp_path), HOST)
    for keep in (frozenset({FILE_BYTES}), frozenset[int]()):
        with target.locked():
            target.wipe(keep)
            target.wipe(keep)
        left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        logs = {f"commitlog/{start:020d}" for start in keep}
        assert left == {MARKER, VOTE, "lock", "abort"} | logs
    assert tmp_path.exists()
    assert (target.metadata_path("topics.json"), target.log_path(0).name) == (root / "config/topics.json", "0" * 20)
    assert target.log_file_bytes == FILE_BYTES
    shutil.rmtree(root)


def test_R13_only_the_marker_says_that_a_store_is_to_be_replaced(tmp_path: Path) -> None:
    assert not is_marked(tmp_path)
    (tmp_path / "raft").mkdir()
    (tmp_path / MARKER).write_bytes(b"not a marker that anybody can read")
    assert is_marked(tmp_path)


def test_R13_a_copy_is_asked_of_those_too_whom_only_the_last_config_names() -> None:
    settings = RaftSettings("n3", "g", (Peer("n3", "127.0.0.1", 40914), Peer("n1", "old", 1)))
    peers = (("n1", "10.0.0.1:40911"), ("n2", "[fd00::1]:40912"), ("n5", "nonsense"))
    assert copy_peers(settings, Marker(peers=peers)) == {
        "n3": ("127.0.0.1", 40914),
        "n1": ("10.0.0.1", 40911),
        "n2": ("fd00::1", 40912),
    }
    assert copy_peers(settings, Marker()) == {"n3": ("127.0.0.1", 40914), "n1": ("old", 1)}


def test_R16_what_tells_of_one_broker_alone_is_neither_given_nor_taken_nor_wiped(tmp_path: Path) -> None:
    """A member that got the leader's mode.json would start as the leader; without its own, as what it was before."""
    node = leader(tmp_path / "leader")
    config = tmp_path / "leader" / "store" / "config"
    for name in ("mode.json", "pair.json"):
        (config / name).write_bytes(b"of the leader")
    source = StoreSource(make_config(tmp_path / "leader"), node.log, lambda: None)
    assert set(source.metadata()) == {"topics.json"}
    node.store.close()

    own = tmp_path / "own" / "store"
    (own / "config").mkdir(parents=True)
    (own / "cut" / "aside" / "commitlog").mkdir(parents=True)
    for name in ("config/mode.json", "config/mode.json.bak", "config/topics.json", "cut/aside/commitlog/0"):
        (own / name).write_bytes(b"own")
    target = StoreTarget(make_config(tmp_path / "own"), HOST)
    with target.locked():
        target.wipe(frozenset())
    assert (own / "config" / "mode.json").read_bytes() == b"own"
    assert (own / "config" / "mode.json.bak").read_bytes() == b"own"
    assert (own / "cut" / "aside" / "commitlog" / "0").read_bytes() == b"own"
    assert not (own / "config" / "topics.json").exists()
    for name in ("mode.json", "pair.json"):
        with pytest.raises(ResetMismatch, match="tells of the leader alone"):
            target.metadata_path(name)
