"""A log in memory whose syncing is done by a thread, for members that run in a real loop without a store."""

import asyncio
import struct
import zlib
from collections.abc import Callable, Sequence

from raft.protocol.types import Entry, EntryRefused, EntryType, Mark

_HEAD = struct.Struct(">Bqq")
NOTHING = Mark(0, 0, 0, 0)


class NothingToMend:
    """raft.network.driver.DrivenMending of a log that is never damaged."""

    contradicted = False
    idle = True
    busy = False

    def wanted(self) -> tuple[int, int] | None:
        return None

    def give(self, *_: object, **__: object) -> None:
        raise AssertionError

    def read_own(self) -> None:
        raise AssertionError

    def drop(self) -> None:
        raise AssertionError

    def finish(self) -> None:
        pass

    def step(self) -> bool:
        return False

    def progress(self) -> tuple[int, int]:
        return 0, 0

    def fetch(self, _position: int, _size: int, tell: Callable[[bytes | memoryview], None]) -> None:
        tell(b"")


class MemoryLog:
    """What raft.network.driver.DrivenLog asks for. `data` of an entry: kind, index, term, payload."""

    def __init__(self) -> None:
        # Called in another thread, as a flusher does it, with the position up to which the log is on the disk.
        self.flushed: Callable[[int], None] | None = None
        self.entries: list[Entry] = []
        self.durable = 0
        self.floor = 0
        self.commit = 0
        self.whole = True
        self.damaged: tuple[int, int] | None = None
        self.fail_settling: Exception | None = None
        self.full = self.cutting = False
        self.refused: str | None = None
        self.mending = NothingToMend()

    @property
    def base(self) -> Mark:
        return NOTHING

    @property
    def readable(self) -> int:
        return self.last.index

    def end_position(self, index: int) -> int:
        entry = self.entries[index - 1] if index else None
        return entry.position + len(entry.data) if entry is not None else 0

    @property
    def last(self) -> Mark:
        if not self.entries:
            return NOTHING
        last = self.entries[-1]
        return Mark(last.index, last.term, last.position + len(last.data), zlib.crc32(last.data))

    def chain(self) -> int:
        return zlib.crc32(b"".join(bytes(entry.data) for entry in self.entries))

    def term(self, index: int) -> int | None:
        if index == 0:
            return 0
        return self.entries[index - 1].term if index <= len(self.entries) else None

    def kind(self, index: int) -> EntryType:
        return EntryType(_HEAD.unpack_from(self.entries[index - 1].data)[0])

    def payload(self, index: int) -> bytes:
        if self.kind(index) is EntryType.MESSAGES:
            return b""
        return bytes(self.entries[index - 1].data[_HEAD.size :])

    def messages(self) -> list[bytes]:
        """The contents of all MESSAGES entries."""
        messages = [entry for entry in self.entries if self.kind(entry.index) is EntryType.MESSAGES]
        return [bytes(entry.data[_HEAD.size :]) for entry in messages]

    def last_config(self) -> int:
        return max((entry.index for entry in self.entries if self.kind(entry.index) is EntryType.CONFIG), default=0)

    def append(self, kind: EntryType, term: int, payload: bytes, commit: int) -> int:  # noqa: ARG002 - Log's signature
        index = len(self.entries) + 1
        self.entries.append(Entry(index, term, self.last.end, _HEAD.pack(kind, index, term) + payload))
        return index

    def accept(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if (entry.index, entry.position) != (len(self.entries) + 1, self.last.end):
                raise EntryRefused(f"{entry.index} does not follow {self.last}")
            self.entries.append(entry._replace(data=bytes(entry.data)))

    def cut(self, last: int) -> None:
        del self.entries[last:]
        self.durable = min(self.durable, last)

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        end = index
        while (
            end < len(self.entries) and sum(len(entry.data) for entry in self.entries[index - 1 : end + 1]) <= bytes_max
        ):
            end += 1
        return self.entries[index - 1 : end]

    def digest(self) -> int:
        return 0

    def sync_soon(self) -> None:
        if self.flushed is not None:
            asyncio.get_running_loop().run_in_executor(None, self.flushed, self.last.end)

    def settle(self, position: int) -> int:
        if self.fail_settling is not None:
            raise self.fail_settling
        for entry in self.entries[self.durable :]:
            if entry.position + len(entry.data) > position:
                break
            self.durable = entry.index
        return self.durable
