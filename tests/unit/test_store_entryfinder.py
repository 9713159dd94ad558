"""store/raftlog/entryfinder.py: how often the log is read to find an entry."""

from pathlib import Path

import pytest

from raft.protocol.types import EntryType
from store.raftlog.entrycache import EntryCache
from store.raftlog.entryfinder import EntryFinder
from tests.parts.entry_tools import lead, open_node


def test_a_control_record_is_read_at_once_and_a_large_one_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_node(tmp_path)
    lead(node, 1)
    for size in (10, 1000, 10):
        node.log.append(EntryType.META, 1, bytes(size), node.log.last.index)
    node.store.close()
    node = open_node(tmp_path)
    reads: list[int] = []
    read = EntryFinder.bytes_at

    def counted(self: EntryFinder, position: int, size: int) -> bytes | memoryview:
        reads.append(size)
        return read(self, position, size)

    monkeypatch.setattr(EntryFinder, "bytes_at", counted)
    finder = node.log._finder
    finder._cache = EntryCache()
    finder._found.clear()
    last = node.log.last
    for index, count in ((last.index - 2, 1), (last.index - 1, 2), (last.index, 1)):
        reads.clear()
        control = finder.control(index)
        assert control is not None
        assert (control.index, len(reads)) == (index, count)
    node.store.close()
