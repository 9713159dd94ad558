"""A batch in a group is stored whole or not at all: one entry, in one file, whatever tears the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import store.raftlog.entrybuild
from raft.protocol.types import EntryType
from remoting.record import decode_records
from store.types import PutResult, PutStatus
from tests.parts.entry_tools import Node, lead, open_node
from tests.parts.store_tools import FILE_BYTES, record

WHOLE = [b"batch %d" % number for number in range(5)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = open_node(tmp_path)
    lead(made, 1)
    yield made
    made.store.close()


def put_batch(node: Node, bodies: list[bytes], topic: str = "T") -> list[PutResult]:
    _, results = node.log.append_records([[record(body, topic, tags="a") for body in bodies]], 1, node.log.commit)
    (placed,) = results
    assert isinstance(placed, list)
    return placed


def bodies_of(node: Node, index: int) -> list[bytes]:
    (entry, *_) = node.log.read(index, 1)
    assert entry.index == index
    return [bytes(message.body) for message in decode_records(bytes(entry.data), check_crc=True)[1:]]


def test_a_batch_is_one_entry_and_stands_in_one_file(node: Node) -> None:
    for number in range(200):
        bodies = [b"%d-%d " % (number, each) + bytes(range(97, 122)) * 12 for each in range(4)]
        assert [result.status for result in put_batch(node, bodies)] == [PutStatus.PUT_OK] * 4
        last = node.log.last
        assert bodies_of(node, last.index) == bodies
        assert node.start_of(last.index) // FILE_BYTES == (last.end - 1) // FILE_BYTES
    assert node.store.written > 3 * FILE_BYTES


def test_consumers_are_told_of_a_batch_at_once(node: Node) -> None:
    node.log.release(node.log.last.index)
    node.told.clear()
    put_batch(node, WHOLE)
    put_batch(node, WHOLE)
    assert node.told == []
    node.log.release(node.log.last.index - 1)
    assert [told.topic for told in node.told] == ["T"] * len(WHOLE)


def test_a_torn_batch_is_gone_whole(tmp_path: Path) -> None:
    made = open_node(tmp_path)
    lead(made, 1)
    made.sync()
    before = made.log.last
    put_batch(made, WHOLE)
    start, end = made.start_of(before.index + 1), made.store.written
    made.kill()
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    whole = path.read_bytes()
    # Also where every record but the last is whole.
    for until in [*range(start + 1, end, 23), end - 1]:
        path.write_bytes(whole[:until] + bytes(len(whole) - until))
        again = made.again()
        assert again.log.last == before
        assert again.store.written == start
        assert not any(body in path.read_bytes() for body in WHOLE)
        again.kill()


def test_one_message_that_is_refused_is_all_of_them(node: Node) -> None:
    last = node.log.last
    placed = put_batch(node, [*WHOLE, bytes(5 * 1024 * 1024)])
    assert [result.status for result in placed] == [PutStatus.MESSAGE_ILLEGAL]
    assert node.log.last == last
    put_batch(node, WHOLE)
    assert bodies_of(node, last.index + 1) == WHOLE


@pytest.mark.parametrize("topic", ["T", "t" * 120])
def test_what_no_entry_can_hold_is_refused_for_good(node: Node, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy would be a promise: its sender would try again for ever. What fits is taken, to the byte."""
    monkeypatch.setattr(store.raftlog.entrybuild, "ENTRY_BYTES_MAX", 8192)
    monkeypatch.setattr(node.log._builder, "_bytes_max", 8192)
    head = 91 + len(topic) + len("TAGS=a ")
    count = 8192 // (head + 10)
    assert [result.status for result in put_batch(node, [b"x" * 10] * (count + 1), topic)] == [
        PutStatus.MESSAGE_ILLEGAL
    ]
    last = node.log.last.index
    placed = put_batch(node, [b"x" * 10] * count, topic)
    assert [result.status for result in placed] == [PutStatus.PUT_OK] * count
    assert len(bodies_of(node, last + 1)) == count


def test_a_batch_beside_others_that_fill_the_entry_waits(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.raftlog.entrybuild, "ENTRY_BYTES_MAX", 8192)
    single = record(b"y" * 6000)
    _, results = node.log.append_records([single, [record(b"z" * 1000) for _ in range(3)]], 1, 0)
    assert [result.status for result in (results[0], *results[1])] == [PutStatus.PUT_OK, PutStatus.OS_PAGE_CACHE_BUSY]
    assert node.log.kind(node.log.last.index) == EntryType.MESSAGES
    assert [result.status for result in put_batch(node, [b"z" * 1000] * 3)] == [PutStatus.PUT_OK] * 3
