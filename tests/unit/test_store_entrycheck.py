"""Everything that a follower looks at before it writes, one wrong thing at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raft.protocol.types import Entry, EntryRefused, EntryType, Mark
from remoting.record import encode_record
from store.controlrecord import Control, chained, decode_control, encode_control
from store.raftlog.entrycheck import check_entries
from tests.parts.entry_tools import Node, lead, open_node, sent
from tests.parts.store_tools import FILE_BYTES, HOST


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = open_node(tmp_path)
    lead(made, 3)
    yield made
    made.store.close()


def check(node: Node, entry: Entry) -> None:
    """Check an entry that is to follow the second."""
    control = node.log._finder.kept(2)
    check_entries([entry], Mark(2, control.term, control.end, control.chain), 1, FILE_BYTES)


def forged(node: Node, change: Callable[[Control], Control], *, chain: bool = True) -> Entry:
    """Entry 3 with another control record, whose own CRC and chain are right."""
    entry = sent(node, 3, 3)[0]
    control = change(decode_control(entry.data))
    if chain:
        control = chained(control, node.log._finder.kept(2).chain)
    data = encode_control(control, HOST) + bytes(entry.data[control.size :])
    return Entry(control.index, control.term, control.position, data)


def test_what_fits_is_copied(node: Node) -> None:
    entries = sent(node, 1)
    buffer = bytearray(b"".join(entry.data for entry in entries))
    views = []
    at = 0
    for entry in entries:
        views.append(entry._replace(data=memoryview(buffer)[at : at + len(entry.data)]))
        at += len(entry.data)
    checked = check_entries(views, Mark(0, 0, 0, 0), 0, FILE_BYTES)
    buffer[:] = bytes(len(buffer))
    assert b"".join(each.data for each in checked) == node.content
    assert [each.control.index for each in checked] == [1, 2, 3, 4]
    assert check_entries([], Mark(0, 0, 0, 0), 0, FILE_BYTES) == []
    check(node, forged(node, lambda control: control))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda control: control._replace(index=4), "does not follow entry 2"),
        (lambda control: control._replace(term=0), "has term 0, entry 2 has 1"),
        (lambda control: control._replace(previous_term=0), "follows term 0"),
        (lambda control: control._replace(commit=3), "knows entry 3 as committed"),
        (lambda control: control._replace(config=2), "names CONFIG 2"),
        (lambda control: control._replace(kind=EntryType.CONFIG), "names CONFIG 1"),
        (lambda control: control._replace(covered_crc=0), "does not match the CRC"),
        (lambda control: control._replace(covered_count=1), "covers no records"),
        (lambda control: control._replace(covered_count=3), "covers no records"),
        (lambda control: control._replace(covered_bytes=5), "bytes and claims"),
    ],
)
def test_forged_control_records(node: Node, change: Callable[[Control], Control], why: str) -> None:
    with pytest.raises(EntryRefused, match=why):
        check(node, forged(node, change))


def test_R11_the_chain_must_go_on(node: Node) -> None:
    with pytest.raises(EntryRefused, match="chain of entry 2"):
        check(node, forged(node, lambda control: control._replace(chain=control.chain ^ 1), chain=False))


def test_positions(node: Node) -> None:
    entry = sent(node, 3, 3)[0]
    for wrong in (0, entry.position - 1, entry.position + 1, 2 * FILE_BYTES):
        with pytest.raises(EntryRefused, match=f"stands at {wrong}"):
            check(node, entry._replace(position=wrong))
    # The next file's start is a place that an entry may have, and its record must know that.
    with pytest.raises(EntryRefused, match=f"record of position {entry.position}"):
        check(node, entry._replace(position=FILE_BYTES))


def test_R11_an_entry_that_does_not_fit_into_its_file(node: Node) -> None:
    entry = sent(node, 3, 3)[0]
    room = FILE_BYTES - entry.position
    with pytest.raises(EntryRefused, match="does not fit into its file"):
        check(node, entry._replace(data=bytes(room - 7)))
    with pytest.raises(EntryRefused, match="does not begin with a record"):
        check(node, entry._replace(data=bytes(room - 8)))


@pytest.mark.parametrize("at", [0, 5, 30, 90, 150, 170, -1])
def test_any_byte_that_changed_is_noticed(node: Node, at: int) -> None:
    entry = sent(node, 3, 3)[0]
    data = bytearray(entry.data)
    data[at] ^= 1
    with pytest.raises(EntryRefused):
        check(node, entry._replace(data=bytes(data)))


def test_another_record_is_no_entry(node: Node) -> None:
    position = node.start_of(3)
    data = encode_record("T", 0, b"x", physical_offset=position)
    with pytest.raises(EntryRefused, match="another topic"):
        check(node, Entry(3, 1, position, data))
    entry = sent(node, 3, 3)[0]
    with pytest.raises(EntryRefused, match="calls itself 3 of term 1"):
        check(node, entry._replace(term=2))


def test_all_are_checked_before_one_is_written(node: Node, tmp_path: Path) -> None:
    follower = open_node(tmp_path / "follower")
    entries = sent(node, 1)
    broken = [*entries[:-1], entries[-1]._replace(data=bytes(entries[-1].data[:-1]) + b"?")]
    with pytest.raises(EntryRefused):
        follower.log.accept(broken)
    assert follower.store.written == follower.log.last.index == 0
    follower.log.accept(entries)
    assert follower.content == node.content
    follower.store.close()
