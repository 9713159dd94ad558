"""What a power cut leaves of a killed member's files: every write that no completed fdatasync covered may be undone."""

import os
import random
import struct
from pathlib import Path
from typing import NamedTuple

# kind, sequence, offset, bytes of the path, bytes of what stood there before.
NOTE = struct.Struct(">BQQII")
WRITTEN, SYNCED = 1, 2
SECTOR = 512


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
