"""Repair of a log in memory: what is given must be the bytes that are in it all the same."""

from collections.abc import Callable
from typing import Protocol

from raft.protocol.types import Entry, EntryRefused, EntryType, Mark


class _Log(Protocol):
    rows: list[tuple[Entry, EntryType, Mark]]
    damaged: tuple[int, int] | None
    whole: bool
    base: Mark

    @property
    def last(self) -> Mark: ...
    def end_position(self, index: int) -> int: ...
    def row(self, index: int) -> tuple[Entry, EntryType, Mark]: ...


class MemoryMending:
    """Mending (raft.protocol.types) of such a log: damaged rows are still in it, what is given must be their bytes."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._given = b""
        self._done = 0
        self.contradicted = False
        self.idle, self.busy = True, False
        self.own = 0

    def _range(self) -> tuple[int, int] | None:
        log = self._log
        if log.damaged is None:
            return None
        return log.end_position(log.damaged[0] - 1), log.end_position(min(log.damaged[1], log.last.index))

    def wanted(self) -> tuple[int, int] | None:
        found = self._range()
        if found is None or found[0] + len(self._given) >= found[1]:
            return None
        return found[0] + len(self._given), found[1]

    def give(self, position: int, data: bytes | memoryview, *, sure: bool = True) -> None:  # noqa: ARG002
        wanted = self.wanted()
        if wanted is not None and position <= wanted[0] < position + len(data):
            self._given += bytes(data)[wanted[0] - position :]

    def read_own(self) -> None:
        self.own += 1

    def drop(self) -> None:
        self._given = b""

    def finish(self) -> None:
        pass

    def step(self) -> bool:
        log = self._log
        if log.damaged is None:
            return False
        entry = log.row(log.damaged[0])[0]
        if len(self._given) < len(entry.data):
            return False
        if self._given[: len(entry.data)] != entry.data:
            self.drop()
            raise EntryRefused("not the damaged one")
        self._given = self._given[len(entry.data) :]
        self._done += len(entry.data)
        log.damaged = (log.damaged[0] + 1, log.damaged[1]) if log.damaged[0] < log.damaged[1] else None
        log.whole = log.damaged is None
        return True

    def progress(self) -> tuple[int, int]:
        found = self._range()
        return self._done, self._done + (found[1] - found[0] if found is not None else 0)

    def fetch(self, position: int, size: int, tell: Callable[[bytes | memoryview], None]) -> None:
        log = self._log
        content = b"".join(bytes(entry.data) for entry, _, _ in log.rows)[position - log.base.end :]
        found = self._range()
        if found is not None and position >= found[0]:
            content = b""
        elif found is not None:
            content = content[: found[0] - position]
        tell(content[:size])
