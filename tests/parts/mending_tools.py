"""A log with lost files beside its whole twin, and what its repair touches."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from store.files.queuefile import Entry
from tests.parts.entry_tools import Node, lead, open_node
from tests.parts.store_tools import FILE_BYTES


def pair(folder: Path, files: int, body: int = 900) -> tuple[Node, Node]:
    """A log of so many files and a half, and one whose files but the first and the last are lost."""
    node = open_node(folder / "a")
    lead(node)
    while node.store.written < (files + 0.5) * FILE_BYTES:
        node.records(bytes(body), topic="U")
    node.sync()
    node.log.release(node.log.last.index)
    node.store.close()
    shutil.copytree(folder / "a", folder / "b")
    for number in range(1, files):
        (folder / "b" / "store" / "commitlog" / f"{number * FILE_BYTES:020d}").unlink()
    return node.again(), open_node(folder / "b")


class Counted:
    """What a repair touches: bytes written, read of the log in the loop, and copied; hints read and written."""

    def __init__(self, node: Node, patch: pytest.MonkeyPatch) -> None:
        self.written = self.hints = self.read = 0
        self._node = node
        log, queues = node.store._log, node.store._queues
        self._mend, self._read, self._entries, self._replace = log.mend, log.read, queues.entries, queues.replace
        patch.setattr(log, "mend", self.mend)
        patch.setattr(log, "read", self.reads)
        patch.setattr(queues, "entries", self.entries)
        patch.setattr(queues, "replace", self.replace)

    @property
    def copied(self) -> int:
        return self._node.log.mending._mender._given.bytes.copied

    def mend(self, runs: Sequence[tuple[int, bytes | memoryview]]) -> None:
        self.written += sum(len(data) for _, data in runs)
        self._mend(runs)

    def reads(self, position: int, size: int) -> memoryview | bytes | None:
        self.read += size
        return self._read(position, size)

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        found = self._entries(topic, queue_id, offset, count)
        self.hints += len(found)
        return found

    def replace(self, topic: str, queue_id: int, offset: int, entries: Sequence[Entry]) -> None:
        self.hints += len(entries)
        self._replace(topic, queue_id, offset, entries)
