"""What stands before a group's first entry: the log of a single broker or a pair, which members must share (R16)."""

from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused
from runtime.clock import ManualClock
from store.messagestore import MessageStore
from tests.parts.entry_tools import lead, open_node, sent
from tests.parts.store_tools import HOST, fill, make_config


def classic(folder: Path, *bodies: bytes) -> None:
    """A single broker's store: ten messages, and these."""
    store = MessageStore.open(make_config(folder), store_host=HOST, clock=ManualClock())
    fill(store, 10)
    for body in bodies:
        fill(store, 1, body=body)
    store.close()


@pytest.mark.parametrize(
    ("bodies", "taken"),
    [
        ((b"last",), True),
        ((), False),  # a prefix alone is not enough: the rest must be copied first
        ((b"lost",), False),  # a record that the master never had, of the same size
        ((b"last", b"more"), False),
    ],
)
def test_R16_entries_are_taken_only_behind_the_very_bytes_that_the_group_began_on(
    tmp_path: Path, bodies: tuple[bytes, ...], taken: bool
) -> None:
    classic(tmp_path / "master", b"last")
    classic(tmp_path / "other", *bodies)
    master, other = open_node(tmp_path / "master"), open_node(tmp_path / "other")
    assert (master.log.digest() == other.log.digest()) == taken
    lead(master, 2)
    if taken:
        other.log.accept(sent(master, 1))
        assert other.log.last == master.log.last
        assert other.content == master.content
    else:
        before = other.content
        with pytest.raises(EntryRefused):
            other.log.accept(sent(master, 1))
        assert (other.log.last, other.content) == (other.log.base, before)
    master.store.close()
    other.store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_R16_the_digest_of_those_bytes_is_part_of_the_log_for_ever(tmp_path: Path, clean: bool) -> None:
    classic(tmp_path, b"last")
    node = open_node(tmp_path)
    digest = node.log.digest()
    lead(node, 2)
    node.sync()
    node.store.close() if clean else node.kill()
    again = node.again()
    assert again.log.digest() == again.log.base.chain == digest
    again.store.close()
