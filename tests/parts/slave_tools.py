"""What the tests of a slave's store share: a master with a log worth copying, a slave, and how they compare."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remoting.properties import encode_properties
from runtime.clock import Clock, ManualClock
from store.files.disk import Disk
from store.messagestore import MessageStore
from store.slave.slavelog import SlaveLog
from store.types import Dispatched, PendingRecord, PutStatus
from tests.parts.store_tools import HOST, HOST_V6, make_config
from tests.parts.told import Told

PREPARED = 0x4


def open_master(folder: Path, *, clock: Clock | None = None, **changes: Any) -> MessageStore:
    return MessageStore.open(
        make_config(folder, **changes), store_host=HOST, clock=clock or ManualClock(), stepped=True
    )


def messages(first: int, count: int, size: int = 300) -> list[PendingRecord]:
    """Messages of all kinds: tags, keys, delays, halves of transactions, hosts of either kind."""
    made = []
    for number in range(first, first + count):
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key{number} all"}
        if number % 3:
            properties["TAGS"] = f"tag{number % 4}"
        topic, queue_id = f"topic{number % 5}", number % 2
        if number % 7 == 0:
            topic, queue_id = "SCHEDULE_TOPIC_XXXX", 2
            properties["DELAY"] = "3"
        made.append(
            PendingRecord(
                topic,
                queue_id,
                number,
                PREPARED if number % 11 == 0 else 0,
                1000,
                HOST_V6 if number % 13 == 0 else HOST,
                0,
                0,
                bytes([number % 251]) * (number * 37 % size),
                encode_properties(properties),
            )
        )
    return made


def send(store: MessageStore, count: int, first: int = 0, size: int = 300) -> None:
    results = store.put_many(messages(first, count, size))
    assert all(result.status is PutStatus.PUT_OK for result in results)
    store.write()


class Slave:
    """A slave's store without threads. `told` is what consumers were told of."""

    def __init__(self, folder: Path, *, clock: Clock | None = None, disk: Disk | None = None, **changes: Any) -> None:
        self.folder = folder
        self.told: list[Dispatched] = []
        self.hears = Told()
        self.hears.dispatched = self.told.extend
        self.store = MessageStore.open(
            make_config(folder, **changes),
            store_host=HOST,
            clock=clock or ManualClock(),
            disk=disk,
            slave=True,
            stepped=True,
            events=self.hears.events,
        )
        assert self.store.slave is not None
        self.log: SlaveLog = self.store.slave

    def take(self, master: MessageStore, until: int | None = None, frame: int = 1000) -> None:
        """Append and dispatch what the master has, up to `until`."""
        end = master.written if until is None else until
        assert end <= master.written, "the master has no more"
        while self.log.written < end:
            at = self.log.written
            self.log.append(at, piece(master, at, min(at + frame, end)))
            while self.log.dispatch():
                pass

    def sync(self) -> None:
        while self.store.step_flush():
            pass

    def kill(self) -> None:
        """End without a stop: what was written stays, nothing more is done."""
        self.store._health.failed = "killed"
        self.store.flusher._failure = OSError("killed")
        self.store._queues._dirty.clear()
        self.store.close()


def piece(master: MessageStore, begin: int, end: int) -> bytes:
    """Bytes of one file of the master's log."""
    found = master.read_piece(begin, end - begin)
    assert found is not None
    return bytes(found)


def borders(store: MessageStore) -> Iterator[int]:
    """Yield where each record of the log ends."""
    at = store.min_physical
    while at < store.written:
        record = store.record_at(at)
        if record is None:
            at = at - at % store.file_bytes + store.file_bytes
        else:
            at += len(record)
            yield at


def contents(folder: Path) -> dict[str, bytes]:
    """The log and what is derived from it, of a store that is closed; log files made ahead of need are left out.

    An index file's name is the time when it was made.
    """
    root = folder / "store"
    index = sorted((root / "index").iterdir()) if (root / "index").is_dir() else []
    found = {f"index {number}": path.read_bytes() for number, path in enumerate(index)}
    for path in [*sorted(root.glob("commitlog/*")), *sorted(root.glob("consumequeue/*/*/*"))]:
        found[str(path.relative_to(root))] = path.read_bytes()
    return {name: content for name, content in found.items() if any(content)}
