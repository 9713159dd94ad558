"""An append-only journal: what changed since a file was written whole, durable record by record.

It stands beside a file that is only replaced now and then, and continues one content of it, named by a number that
grows (the generation). A journal of another generation is no part of that file.

    journal   "RMQJRNL1", generation (u64), CRC-32 of these 16 bytes (u32), records
    record    F7 "RJ" 01, ordinal (u32, from 0), length (u32), CRC-32 of the payload, CRC-32 of these 16 bytes, payload

A record is on the disk before the next one is begun. So only the last may be torn by a crash, and was acknowledged to
nobody: it is cut off. What cannot be read and has a record behind it is damage: JournalDamaged. The first byte of a
record is in no UTF-8 text, so that no payload of texts looks like one.
"""

import contextlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runtime.crc import crc32
from runtime.durable import fsync_folder

_MAGIC = b"RMQJRNL1"
_HEAD = struct.Struct(">8sQI")
_MARK = b"\xf7RJ\x01"
_RECORD = struct.Struct(">4sIIII")
# Bytes of one record: what a journal is for is small, and a file of that size is better written whole.
RECORD_BYTES_MAX = 64 * 1024 * 1024


class JournalDamaged(Exception):
    """A record that was acknowledged cannot be read; the text says where it stands."""


class JournalContent(NamedTuple):
    """What a journal says."""

    generation: int
    payloads: Sequence[bytes]
    end: int
    """Bytes that count; what stands behind them was torn."""


class Journal:
    """One journal's file. All methods may be called in any thread, by one at a time."""

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        """`mode` is who may read it."""
        self.path = path
        self._mode = mode
        self.generation = 0
        """Of the file that it continues; 0: there is none, and nothing can be appended."""
        self.size = 0
        """Bytes of it that count; 0 when it holds no record."""
        self.usable = True
        """False after a failure that leaves open what is on the disk: the file must be written whole."""
        self._records = 0

    def read(self) -> JournalContent | None:
        """Return what the file holds; None when there is no record in it. Raises JournalDamaged, OSError."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return _parse(content, self.path)

    def resume(self, content: JournalContent) -> None:
        """Go on behind what read() returned. Raises OSError."""
        fd = os.open(self.path, os.O_WRONLY)
        try:
            os.ftruncate(fd, content.end)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.generation, self.size, self._records = content.generation, content.end, len(content.payloads)
        self.usable = True

    def begin(self, generation: int) -> None:
        """Begin to continue a file that was just written, which holds whatever this journal held."""
        self.generation, self.size, self._records, self.usable = generation, 0, 0, True
        # If it comes back with a power cut, its generation tells that it is of the past.
        with contextlib.suppress(OSError):
            self.path.unlink()

    def append(self, payload: bytes) -> None:
        """Add a record; it is durable when this returns. Raises OSError: nothing was added, see `usable`."""
        assert self.generation, "it continues no file"
        head = _MARK + struct.pack(">III", self._records, len(payload), crc32(payload))
        record = head + struct.pack(">I", crc32(head)) + payload
        if self.size:
            self._write(record, self.size, os.O_WRONLY)
        else:
            opening = struct.pack(">8sQ", _MAGIC, self.generation)
            record = opening + struct.pack(">I", crc32(opening)) + record
            self._write(record, 0, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.size += len(record)
        self._records += 1

    def _write(self, record: bytes, at: int, flags: int) -> None:
        self.usable = False
        fd = os.open(self.path, flags, self._mode)
        try:
            if os.fstat(fd).st_size != at:
                raise OSError(f"{self.path} has changed under this process's hands")
            try:
                view = memoryview(record)
                while view:
                    view = view[os.pwrite(fd, view, at + len(record) - len(view)) :]
            except OSError:
                # No room, mostly. What was acknowledged is untouched; the rest goes, so that it can be tried again.
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, at)
                    os.fsync(fd)
                    self.usable = True
                raise
            os.fdatasync(fd)
        finally:
            os.close(fd)
        if not at:
            fsync_folder(self.path.parent)
        self.usable = True


def _parse(content: bytes, path: Path) -> JournalContent | None:
    """Read a journal; None when it holds no record. Raises JournalDamaged."""
    at, generation = 0, 0
    payloads: list[bytes] = []
    if len(content) >= _HEAD.size:
        magic, generation, crc = _HEAD.unpack_from(content)
        if magic == _MAGIC and crc == crc32(content[: _HEAD.size - 4]):
            at = _HEAD.size
            while (payload := _record_at(content, at, len(payloads))) is not None:
                payloads.append(payload)
                at += _RECORD.size + len(payload)
    behind = content.find(_MARK, at + 1)
    while behind >= 0:
        if _is_record(content, behind, len(payloads)):
            raise JournalDamaged(f"{path}: the record at byte {at} cannot be read, and others stand behind it")
        behind = content.find(_MARK, behind + 1)
    return JournalContent(generation, payloads, at) if payloads else None


def _record_at(content: bytes, at: int, ordinal: int) -> bytes | None:
    if len(content) - at < _RECORD.size:
        return None
    mark, number, length, payload_crc, crc = _RECORD.unpack_from(content, at)
    begin = at + _RECORD.size
    if mark != _MARK or crc != crc32(content[at : begin - 4]) or number != ordinal or length > len(content) - begin:
        return None
    payload = content[begin : begin + length]
    return payload if crc32(payload) == payload_crc else None


def _is_record(content: bytes, at: int, ordinal: int) -> bool:
    """Tell whether a later record begins here, whole or not: it was begun when those before were on the disk."""
    if len(content) - at < _RECORD.size:
        return False
    fields: tuple[bytes, int, int, int, int] = _RECORD.unpack_from(content, at)
    _, number, length, _, crc = fields
    whole = crc == crc32(content[at : at + _RECORD.size - 4]) and length <= RECORD_BYTES_MAX
    return whole and number >= ordinal
