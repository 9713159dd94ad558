"""What the tests of a member's log share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raft.protocol.types import Entry, EntryType
from runtime.clock import Clock, ManualClock
from store.events import Payloads
from store.files.disk import Disk
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from store.types import Dispatched, PendingRecord
from tests.parts.store_tools import HOST, make_config, record
from tests.parts.told import Told


@dataclass
class Node:
    """A member's store, without threads; `told` is what consumers were told of."""

    folder: Path
    store: MessageStore
    log: EntryLog
    told: list[Dispatched]

    @property
    def content(self) -> bytes:
        """Everything in the log, up to its end."""
        files = sorted((self.folder / "store" / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files)[: self.store.written]

    def sync(self) -> None:
        while self.store.step_flush():
            pass

    def records(self, *bodies: bytes, term: int = 1, **changes: Any) -> int:
        """Append one entry of messages as leader."""
        made: list[PendingRecord] = [record(body, **changes) for body in bodies]
        index, _ = self.log.append_records(made, term, self.log.commit)
        return index

    def kill(self) -> None:
        """End without a stop: what was written stays, nothing more is done."""
        self.store._health.failed = "killed"
        self.store.flusher._failure = OSError("killed")
        self.store._queues._dirty.clear()
        self.store.close()

    def again(self, **options: Any) -> "Node":
        """Start once more, after kill() or close()."""
        return open_node(self.folder, **options)

    def start_of(self, index: int) -> int:
        return self.log._finder.kept(index).position


def open_node(folder: Path, *, clock: Clock | None = None, disk: Disk | None = None, **changes: Any) -> Node:
    """Open a member's store.

    Here a META entry of b"delete T U" deletes these topics, and a CONFIG of b"classic" ends the group.
    """
    told = Told()
    store = MessageStore.open(
        make_config(folder, **changes),
        store_host=HOST,
        clock=clock or ManualClock(),
        disk=disk,
        group=True,
        stepped=True,
        payloads=Payloads(
            deletes=lambda payload: payload[7:].decode().split() if payload.startswith(b"delete ") else (),
            ends_group=lambda payload: payload == b"classic",
        ),
        events=told.events,
    )
    assert store.entries is not None
    node = Node(folder, store, store.entries, [])
    told.dispatched, told.flushed = node.told.extend, node.log.settle
    return node


def lead(node: Node, entries: int = 3, term: int = 1) -> None:
    """Append a CONFIG to an empty log, and entries of two messages each."""
    if node.log.last.index == node.log.base.index:
        node.log.append(EntryType.CONFIG, term, b"config", 0)
    for number in range(entries):
        node.records(b"body %d" % number, b"other %d" % number, term=term, tags="a")


def sent(node: Node, first: int, last: int | None = None) -> list[Entry]:
    """Entries as they travel: copies of their bytes."""
    until = node.log.last.index if last is None else last
    return [entry._replace(data=bytes(entry.data)) for entry in node.log.read(first, 1 << 30) if entry.index <= until]


def give(node: Node, content: bytes, *, sure: bool = True, size: int = 1 << 16) -> bool:
    """Hand in the next bytes of a log that is whole, and do all the work that there is; tell whether any were wanted.

    Raises EntryRefused when they are not what is due.
    """
    mending = node.log.mending
    wanted = mending.wanted()
    if wanted is not None:
        begin, until = wanted
        mending.give(begin, content[begin : min(begin + size, until)], sure=sure)
    while mending.step() or node.store.step_helper():
        pass
    mending.step()
    return wanted is not None


def mend(node: Node, content: bytes) -> None:
    """Hand in all that is damaged."""
    while node.log.damaged is not None:
        assert give(node, content), f"nothing is wanted for {node.log.damaged}"


def damage(folder: Path, position: int, value: bytes = b"\xff", *, file_bytes: int = 64 * 1024) -> None:
    """Write over a byte of a log that is closed."""
    path = folder / "store" / "commitlog" / f"{position - position % file_bytes:020d}"
    with path.open("r+b") as file:
        file.seek(position % file_bytes)
        file.write(value)


def checkpoint(node: Node, clock: ManualClock) -> None:
    """Bring the store to a checkpoint."""
    for _ in range(4):
        clock.advance(6)
        node.store.idle()
        node.sync()
        while node.store.step_helper():
            pass
