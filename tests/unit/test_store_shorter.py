"""R12: below the commit point no queue ever gets shorter, unless its topic was deleted in the log."""

import logging
import shutil
from pathlib import Path

import pytest

from broker.metadata.meta_entry import deleted_topics, encode
from broker.metadata.operations import Operation, Table, Verb
from raft.protocol.types import EntryType
from store.errors import StoreDamaged
from tests.parts.entry_tools import Node, lead, open_node


def forget(node: Node, offset: int) -> None:
    """Have a leader give offsets that its queue has given already, as one that lost messages unawares does."""
    node.log._held.offsets_stale = False
    node.store._assembler._next["T", 0] = offset


@pytest.mark.parametrize("offset", [0, 3, 9])
def test_R12_an_offset_below_the_queue_s_end_stops_the_member_and_cuts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.log.release(6)
    forget(node, offset)
    wrong = node.records(b"again")
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(StoreDamaged, match=rf"T/0 ends at 10, .* has offset {offset}, and nothing deleted the topic"),
    ):
        node.log.release(wrong)
    assert "starts again" not in caplog.text
    assert "Remove that member from the group" in (node.store.writable() or "")
    assert node.store.max_offset("T", 0) == 10
    assert node.log.released == 6
    node.kill()


def test_R12_nor_does_a_start_cut_it(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    lead(node, 5)
    node.log.release(6)
    forget(node, 4)
    wrong = node.records(b"again")
    node.log.append(EntryType.NOOP, 1, b"", wrong)
    node.store._queues.persist()
    node.sync()
    node.kill()
    for lost in (False, True):
        if lost:
            shutil.rmtree(tmp_path / "store" / "consumequeue")
        with pytest.raises(StoreDamaged, match="nothing deleted the topic"):
            node.again()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("delivered", [False, True])
def test_R12_a_topic_that_the_log_deletes_begins_anew_on_every_member_alike(
    tmp_path: Path, lost: bool, delivered: bool
) -> None:
    """Also when records of it stand behind the deletion that their leader appended before it was applied."""
    node = open_node(tmp_path)
    lead(node, 5)
    deletion = node.log.append(EntryType.META, 1, b"delete T", node.log.commit)
    node.records(b"behind it", b"and more")
    last = node.log.append(EntryType.NOOP, 1, b"", node.log.last.index)
    if delivered:
        node.log.release(last)
        assert (node.store.min_offset("T", 0), node.store.max_offset("T", 0)) == (10, 12)
    node.store._queues.persist()
    node.sync()
    node.kill()
    if lost:
        shutil.rmtree(tmp_path / "store" / "consumequeue")
    again = node.again()
    assert again.log.released == last - 1 > deletion
    assert (again.store.min_offset("T", 0), again.store.max_offset("T", 0)) == (10, 12)
    again.records(b"next")
    again.log.release(last + 1)
    assert again.store.max_offset("T", 0) == 13
    again.store.close()


def test_R12_the_store_learns_which_topics_an_entry_deletes() -> None:
    put: Operation = [Verb.PUT, Table.TOPICS, [1, 1, 1], [["T", 4, 4]]]
    payload = encode([put, [Verb.DELETE, Table.TOPICS, [1, 1, 1], ["T", "U"]], [Verb.DELETE, Table.GROUPS, [], ["g"]]])
    assert deleted_topics(payload) == ["T", "U"]
    assert deleted_topics(encode([put])) == []
    assert deleted_topics(b"\x02\x01 in something of a later version") == []
    for odd in ([], [7], [None], [["T", 7]]):
        assert deleted_topics(encode([[Verb.DELETE, Table.TOPICS, 0, *odd]])) == ["T"] * (odd == [["T", 7]])
