"""One index file: header, slots, entries; RocketMQ's layout, big-endian.

Header, 40 bytes: store time of the first and the last message (int64 ms each), their positions (int64 each), slots in
use (int32), number of the next entry (int32, 1 in an empty file). Then the slots: number of the newest entry whose hash
falls there (int32, 0: none). Then the entries, 20 bytes: hash (int32), position (int64), seconds since the first
message (int32), number of the next older entry of the slot (int32). Entry 0 is never used.
"""

import os
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from store.errors import StoreDamaged, is_full
from store.files.descriptors import Descriptors

Int64s = npt.NDArray[np.int64]

_HEADER = struct.Struct(">qqqqii")
HEADER_BYTES = _HEADER.size
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
ENTRY_DTYPE = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("older", ">i4")])
# Slots that are written together: a page of memory.
_PAGE_SLOTS = 1024
_SECONDS_MAX = 2**31 - 1


@dataclass(frozen=True)
class Shape:
    """How large index files are: RocketMQ's maxHashSlotNum and maxIndexNum."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        """Where entry 0 stands, in bytes."""
        return _HEADER.size + self.slots * _SLOT.size

    @property
    def file_bytes(self) -> int:
        """Size of the (sparse) file."""
        return self.entries_at + self.entries * _ENTRY.size


class IndexHeader(NamedTuple):
    """The first 40 bytes. Times in ms, positions in the CommitLog."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical: int
    end_physical: int
    slots_used: int
    next_entry: int


def read_header(data: bytes) -> IndexHeader:
    """Decode a header; zeros count as an empty file's."""
    return IndexHeader(*_HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0")))


class IndexTable:
    """One index file, made when the first entry is appended. Raises StoreDamaged when its size is not the shape's."""

    def __init__(self, path: str, shape: Shape, descriptors: Descriptors) -> None:
        self.path = path
        self._shape = shape
        self._descriptors = descriptors
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_physical = self.end_physical = 0
        self._slots_used = 0
        self._count = 1
        # The slot table while the file grows, and which of its pages are not written yet; loaded when first needed.
        self._slots: npt.NDArray[np.int32] | None = None
        self._dirty = np.zeros(0, bool)
        if os.path.exists(path):  # noqa: PTH110 - paths are strings here: they are keys of the descriptor table
            self._load()

    @property
    def is_empty(self) -> bool:
        """Whether no entry was ever appended."""
        return self._count <= 1

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._shape.entries - self._count

    def _load(self) -> None:
        size = os.stat(self.path).st_size  # noqa: PTH116 - see above
        if size != self._shape.file_bytes:
            if any(self._descriptors.read(self.path, 0, HEADER_BYTES)):
                raise StoreDamaged(
                    f"{self.path} has {size} bytes, maxHashSlotNum and maxIndexNum make {self._shape.file_bytes}: set "
                    "them to what the file was made with, or delete the index folder (it is built anew from the log)"
                )
            # The process died between making the file and sizing it.
            os.truncate(self.path, self._shape.file_bytes)
        header = read_header(self._descriptors.read(self.path, 0, HEADER_BYTES))
        self.begin_timestamp, self.end_timestamp = header.begin_timestamp, header.end_timestamp
        self.begin_physical, self.end_physical = header.begin_physical, header.end_physical
        self._slots_used = header.slots_used
        self._count = min(max(header.next_entry, 1), self._shape.entries)

    # -- growing

    def append(self, hashes: Int64s, physical: Int64s, timestamps: Int64s) -> int:
        """Append as many entries as fit; returns how many. The header and the slots are written later."""
        taken = min(self.room, len(hashes))
        hashes, physical, timestamps = hashes[:taken], physical[:taken], timestamps[:taken]
        slots = self._slot_table()
        if self.is_empty:
            self.begin_timestamp = int(timestamps[0])
            self.begin_physical = int(physical[0])
        numbers = np.arange(self._count, self._count + taken, dtype=np.int32)
        places = hashes % self._shape.slots
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        first = np.empty(taken, bool)
        first[0] = True
        first[1:] = ordered[1:] != ordered[:-1]
        older = np.empty(taken, np.int32)
        older[order[1:]] = numbers[order[:-1]]
        heads = slots[ordered[first]]
        older[order[first]] = heads
        last = np.append(np.flatnonzero(first)[1:] - 1, taken - 1)
        entries = np.zeros(taken, ENTRY_DTYPE)
        entries["hash"] = hashes
        entries["physical"] = physical
        entries["seconds"] = np.clip((timestamps - self.begin_timestamp) // 1000, 0, _SECONDS_MAX)
        entries["older"] = older
        self._write(self._shape.entries_at + self._count * _ENTRY.size, entries.tobytes())
        # Only now: a disk that is full leaves the table as it was, and the same entries come again.
        slots[ordered[last]] = numbers[order[last]]
        self._dirty[ordered[last] // _PAGE_SLOTS] = True
        self._slots_used += int(np.count_nonzero(heads == 0))
        self._count += taken
        self.end_timestamp = int(timestamps[-1])
        self.end_physical = int(physical[-1])
        return taken

    def _slot_table(self) -> npt.NDArray[np.int32]:
        if self._slots is None:
            self._dirty = np.zeros(-(-self._shape.slots // _PAGE_SLOTS), bool)
            if self.is_empty:
                self._slots = np.zeros(self._shape.slots, np.int32)
            else:
                data = self._descriptors.read(self.path, _HEADER.size, self._shape.slots * _SLOT.size)
                slots = np.frombuffer(data, ">i4").astype(np.int32)
                # RocketMQ too takes a head beyond the last entry for none.
                slots[(slots < 0) | (slots >= self._count)] = 0
                self._slots = slots
        return self._slots

    def save_header(self) -> None:
        """Write the header; entries count from then on."""
        header = _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical,
            self.end_physical,
            self._slots_used,
            self._count,
        )
        self._write(0, header)

    def save_slots(self) -> None:
        """Write the slots that changed since they were written last."""
        if self._slots is None or not self._dirty.any():
            return
        edges = np.flatnonzero(np.diff(self._dirty.astype(np.int8), prepend=0, append=0))
        for start, end in edges.reshape(-1, 2).tolist():
            run = self._slots[start * _PAGE_SLOTS : end * _PAGE_SLOTS].astype(">i4")
            self._write(_HEADER.size + start * _PAGE_SLOTS * _SLOT.size, run.tobytes())
        self._dirty[:] = False

    def finish(self) -> None:
        """Write all; the file grows no more, its slots need not stay in memory."""
        self.save_slots()
        self.save_header()
        self._slots = None

    def _write(self, position: int, content: bytes) -> None:
        self._descriptors.write(self.path, position, content, file_bytes=self._shape.file_bytes)

    # -- mending

    def keep_below(self, physical: int | None) -> None:
        """Keep the entries that hold together, of messages before `physical` if given; make the slots from them."""
        data = self._descriptors.read(self.path, self._shape.entries_at, self._count * _ENTRY.size)
        entries = np.frombuffer(data, ENTRY_DTYPE)[1:]
        places = entries["physical"].astype(np.int64)
        older = entries["older"].astype(np.int64)
        numbers = np.arange(1, len(entries) + 1)
        good = (older >= 0) & (older < numbers) & (entries["hash"] >= 0) & (entries["seconds"] >= 0)
        good &= np.diff(places, prepend=self.begin_physical) >= 0
        # A page that never reached the disk reads as zeros, also where the first message stands at position 0.
        good &= (entries["hash"] != 0) | (places != 0) | (older != 0) | (numbers == 1)
        if physical is not None:
            good &= places < physical
        count = len(good) if good.all() else int(np.argmin(good))
        entries = entries[:count]
        self._count = count + 1
        self._slots = np.zeros(self._shape.slots, np.int32)
        self._slots[entries["hash"].astype(np.int64) % self._shape.slots] = numbers[:count]
        self._slots_used = int(np.count_nonzero(self._slots))
        self._dirty = np.ones(-(-self._shape.slots // _PAGE_SLOTS), bool)
        if count < len(good):
            self.end_physical = int(places[count - 1]) if count else 0
            seconds = int(entries["seconds"][count - 1]) if count else 0
            self.end_timestamp = self.begin_timestamp + seconds * 1000
        at = self._shape.entries_at + self._count * _ENTRY.size
        self._descriptors.cut(self.path, at, file_bytes=self._shape.file_bytes)
        try:
            self.save_slots()
            self.save_header()
        except OSError as error:
            # A start on a full disk: they wait in memory, and if no stop writes them the next start makes them again.
            if not is_full(error):
                raise

    # -- asking

    def collect(
        self, wanted: int, max_count: int, begin_ms: int, end_ms: int, found: dict[int, None], steps: int
    ) -> int:
        """Add the positions of entries with hash `wanted` to `found`, newest first, until it holds `max_count`.

        Walks at most `steps` entries; returns how many steps are left.
        """
        if self.is_empty or begin_ms > self.end_timestamp + 999 or end_ms < self.begin_timestamp:
            return steps
        number = self._head(wanted % self._shape.slots)
        while 0 < number < self._count and steps > 0 and len(found) < max_count:
            steps -= 1
            at = self._shape.entries_at + number * _ENTRY.size
            own, physical, seconds, older = _ENTRY.unpack(self._descriptors.read(self.path, at, _ENTRY.size))
            stored_ms = self.begin_timestamp + seconds * 1000
            if seconds < 0 or stored_ms + 999 < begin_ms:
                break
            if own == wanted and stored_ms <= end_ms:
                found[physical] = None
            if older >= number:
                # Chains lead to older entries; one that does not would never end.
                break
            number = older
        return steps

    def _head(self, slot: int) -> int:
        if self._slots is not None:
            return int(self._slots[slot])
        data = self._descriptors.read(self.path, _HEADER.size + slot * _SLOT.size, _SLOT.size)
        head: int = _SLOT.unpack(data)[0]
        return head
