"""The files of one queue: entries of 20 bytes, big-endian, in files of one fixed size named by their start in bytes.

An entry is position in the CommitLog (int64), size of the record (int32), tags code (int64). Files are as long as
configured from the start (sparse; RocketMQ preallocates them), so what is not written yet reads as zeros, and the end
of a queue is where the zeros begin. A queue whose first entry is not entry 0 of its file has *fillers*
(0, 0x7FFFFFFF, 0) before it, as RocketMQ writes them.
"""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from remoting.compiled.door import COMPILED, hotpath
from store.files.descriptors import Descriptors

Entry = tuple[int, int, int]

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = 20
FILLER: Entry = (0, 0x7FFFFFFF, 0)
ZEROS: Entry = (0, 0, 0)
FILE_NAME_DIGITS = 20


def entry_end(entry: Entry) -> int:
    """Return the CommitLog position behind the entry's record; 0 for a filler."""
    return 0 if entry == FILLER else entry[0] + entry[1]


def pack_entries(entries: Iterable[Entry]) -> bytes:
    """Return the entries' bytes."""
    if COMPILED and type(entries) is list:
        return hotpath.pack_entries(entries)
    pack = ENTRY.pack
    return b"".join([pack(*entry) for entry in entries])


class QueueFiles:
    """Reads and writes the files of all queues, by queue folder and entry number; knows no queue."""

    def __init__(self, descriptors: Descriptors, *, file_bytes: int) -> None:
        # RocketMQ rounds the configured size up to whole entries too.
        self.per_file = -(-file_bytes // ENTRY_BYTES)
        self.file_bytes = self.per_file * ENTRY_BYTES
        self._descriptors = descriptors

    def path(self, folder: str, number: int) -> str:
        """Return the path of the file that holds entry `number`."""
        return f"{folder}/{number // self.per_file * self.file_bytes:0{FILE_NAME_DIGITS}d}"

    def read(self, folder: str, number: int, count: int) -> list[Entry]:
        """Return `count` entries from `number` on; all must have been written."""
        found: list[Entry] = []
        while count > 0:
            within = number % self.per_file
            part = min(count, self.per_file - within)
            data = self._descriptors.read(self.path(folder, number), within * ENTRY_BYTES, part * ENTRY_BYTES)
            found += ENTRY.iter_unpack(data)
            number += part
            count -= part
        return found

    def entry(self, folder: str, number: int) -> Entry:
        """Return one entry; zeros where none was written, in a file that is there."""
        data = self._descriptors.read(self.path(folder, number), number % self.per_file * ENTRY_BYTES, ENTRY_BYTES)
        return ENTRY.unpack(data) if len(data) == ENTRY_BYTES else ZEROS

    def raw(self, folder: str, number: int, end: int) -> bytes:
        """Return the bytes of the entries from `number` to `end`, or to the end of the file that holds `number`."""
        within = number % self.per_file
        count = min(end - number, self.per_file - within)
        return self._descriptors.read(self.path(folder, number), within * ENTRY_BYTES, count * ENTRY_BYTES)

    def write(self, folder: str, number: int, content: bytes) -> None:
        """Write entries from `number` on, making files as needed."""
        view = memoryview(content)
        while view:
            within = number % self.per_file * ENTRY_BYTES
            part = view[: self.file_bytes - within]
            self._descriptors.write(self.path(folder, number), within, part, file_bytes=self.file_bytes)
            view = view[len(part) :]
            number += len(part) // ENTRY_BYTES

    def cut(self, folder: str, number: int, first: int, end: int) -> None:
        """Make entry `number` and all behind it zeros; files that begin there are deleted, except a queue's first.

        `first` and `end`: where the queue's files begin and its entries end.
        """
        gone = -(-max(number, first + 1) // self.per_file) * self.per_file
        for start in range(gone, end + 1, self.per_file):
            self._descriptors.delete(self.path(folder, start))
        if number < gone:
            path = self.path(folder, number)
            within = number % self.per_file * ENTRY_BYTES
            if not self._descriptors.is_zero_from(path, within):
                self._descriptors.cut(path, within, file_bytes=self.file_bytes)

    def delete(self, folder: str, first: int, until: int) -> None:
        """Delete the files of entries `first` to `until` (both at a file's start)."""
        for start in range(first, until, self.per_file):
            self._descriptors.delete(self.path(folder, start))

    def find(self, folder: str, low: int, high: int, fits: Callable[[Entry], bool]) -> int:
        """Return the first number in [low, high) whose entry does not fit, `high` when all do.

        Everything that fits must stand before everything that does not. Steps that double, then a binary search: most
        queues are short.
        """
        step = 1
        while low + step < high and fits(self.entry(folder, low + step - 1)):
            low += step
            step *= 2
        high = min(high, low + step)
        while low < high:
            middle = (low + high) // 2
            if fits(self.entry(folder, middle)):
                low = middle + 1
            else:
                high = middle
        return low


def list_files(folder: str | Path) -> list[tuple[int, int]]:
    """Return (start in bytes, size) of a queue's files, in order; other names are passed over."""
    with os.scandir(folder) as found:
        return sorted(
            (int(file.name), file.stat().st_size)
            for file in found
            if len(file.name) == FILE_NAME_DIGITS and file.name.isdecimal()
        )
