"""What a power cut leaves of a killed member's files: every write that no completed fdatasync covered may be undone.

While a member runs, `UndoFile` notes what stood before each write, and what was synced (chaos/site/member.py puts it
between the broker and its disk). Nothing is undone then: `lose_power` does that to the files of a process that is dead.
"""

import os
import random
import struct
import threading
from pathlib import Path
from typing import NamedTuple

# kind, sequence, offset, bytes of the path, bytes of what stood there before.
NOTE = struct.Struct(">BQQII")
WRITTEN, SYNCED = 1, 2
SECTOR = 512
# When nothing is unsynced and the file is longer than this, it starts anew.
UNDO_BYTES_MAX = 8 * 1024 * 1024


class UndoFile:
    """Notes of writes and syncs, in the order in which they happened. Used by any thread of the member."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._sequence = 0
        # Path → sequence of its newest write that no sync covers.
        self._unsynced: dict[str, int] = {}
        self._size = 0

    def note_write(self, path: str, offset: int, before: bytes) -> None:
        """Note what stands where something is about to be written."""
        with self._lock:
            self._sequence += 1
            self._unsynced[path] = self._sequence
            self._put(WRITTEN, self._sequence, path, offset, before)

    def begin_sync(self) -> int:
        """Return up to which write a sync that begins now will cover."""
        with self._lock:
            return self._sequence

    def note_sync(self, path: str, until: int) -> None:
        """Note that a file's writes up to `until` are durable."""
        with self._lock:
            if self._unsynced.get(path, until + 1) <= until:
                del self._unsynced[path]
            if not self._unsynced and self._size > UNDO_BYTES_MAX:
                os.ftruncate(self._fd, 0)
                self._size = 0
                return
            self._put(SYNCED, until, path, 0, b"")

    def _put(self, kind: int, sequence: int, path: str, offset: int, data: bytes) -> None:
        name = path.encode()
        note = NOTE.pack(kind, sequence, offset, len(name), len(data)) + name + data
        os.pwrite(self._fd, note, self._size)
        self._size += len(note)


class Write(NamedTuple):
    """A write that could be lost: what stood there before."""

    sequence: int
    path: str
    offset: int
    before: bytes


def unsynced(undo: Path) -> list[Write]:
    """Return the writes that no completed fdatasync covered, newest first."""
    data = undo.read_bytes()
    writes: list[Write] = []
    synced: dict[str, int] = {}
    at = 0
    while at + NOTE.size <= len(data):
        kind, sequence, offset, name_bytes, before_bytes = NOTE.unpack_from(data, at)
        at += NOTE.size
        if not kind or at + name_bytes + before_bytes > len(data):
            break
        path = data[at : at + name_bytes].decode()
        before = data[at + name_bytes : at + name_bytes + before_bytes]
        at += name_bytes + before_bytes
        if kind == WRITTEN:
            writes.append(Write(sequence, path, offset, before))
        else:
            synced[path] = max(synced.get(path, 0), sequence)
    return [write for write in reversed(writes) if write.sequence > synced.get(write.path, 0)]


def lose_power(undo: Path, dice: random.Random) -> int:
    """Undo what was not synced, all of it or sector by sector as the dice fall; return how many bytes were undone."""
    if not undo.exists():
        return 0
    torn = dice.random() < 0.5
    undone = 0
    for write in unsynced(undo):
        if not Path(write.path).exists():
            continue
        fd = os.open(write.path, os.O_RDWR)
        try:
            for start, piece in _sectors(write):
                if not torn or dice.random() < 0.5:
                    os.pwrite(fd, piece, start)
                    undone += len(piece)
        finally:
            os.close(fd)
    undo.write_bytes(b"")
    return undone


def _sectors(write: Write) -> list[tuple[int, bytes]]:
    """Cut what stood there before at the disk's sectors."""
    pieces = []
    at = 0
    while at < len(write.before):
        length = min(SECTOR - (write.offset + at) % SECTOR, len(write.before) - at)
        pieces.append((write.offset + at, write.before[at : at + length]))
        at += length
    return pieces
