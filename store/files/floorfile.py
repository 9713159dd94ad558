"""The floor: the entry up to which this member has synced its log, kept beside the log (raft-rules R4).

``raft/floor``: two sectors, written in turn, so that one of them is whole whatever a crash does to the other. A
sector holds mark, sequence number, index, term, position behind the entry, chain and a CRC-32; the higher number
counts. What a group commit writes becomes durable with the next one's fdatasync, which is that of the log: a sync of
its own would cost each commit as much as the log's. An old floor is a true one. Below the floor nothing is ever cut
at a start, however damaged it looks: it may have been acknowledged.

Under load not every commit writes it: the file may be LAG_SECONDS behind what is synced, and is up to date so long
after the last one. That is enough: what it does not say yet is on the disk all the same, and could only be missed if
those bytes went bad within that time; and the entries that follow carry the leader's commit index too.
"""

import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from raft.protocol.types import Mark
from runtime.crc import crc32
from store.errors import StoreDamaged
from store.files.disk import Disk

FLOOR_NAME = "raft/floor"
# The vote file, which is raft/'s own: who this disk is, and what it promised. Here it is only ever taken away.
VOTE_NAME = "raft/vote"
# Sectors stand a page apart: no disk writes both at once.
SECTOR_STRIDE = 4096
_FILE_BYTES = 2 * SECTOR_STRIDE
_SECTOR_BYTES = 512
_SECTOR = struct.Struct(">8sQqqqI")
_MARK = b"RAFTFLR1"
_CRC = struct.Struct(">I")
# How far the file may be behind what was synced, in seconds (R4).
LAG_SECONDS = 0.010
_NEVER = float("-inf")


def read_floor(root: Path) -> Mark | None:
    """Return the floor of a store folder, None when there is none. Raises StoreDamaged, OSError."""
    found = _read(root / FLOOR_NAME)
    return found[1] if found is not None else None


class FloorFile:
    """Raised by whoever syncs, the flusher's thread or the loop, retracted by the loop, lowered by the worker's thread.

    All may call at the same time.
    """

    def __init__(self, root: Path, disk: Disk, now: Callable[[], float] = time.monotonic) -> None:
        """Open or make the file; `now` gives seconds. Raises StoreDamaged when neither sector is whole, OSError."""
        path = root / FLOOR_NAME
        self._disk = disk
        self._now = now
        self._lock = threading.Lock()
        found = _read(path)
        self._sequence = found[0] if found is not None else 0
        self._mark: Mark | None = found[1] if found is not None else None
        # When the file was written last; the epoch in which the mark rose that it lacks, None when it lacks none.
        self._written_at = _NEVER
        self._lacks: int | None = None
        # The sector that is on its way to the device: its offset, and the sequence that stands in it.
        self._sent_off: tuple[int, int] | None = None
        # Moved by retract(), before every lowering: a mark that was taken before it must not be written after it.
        self.epoch = 0
        if path.exists() and path.stat().st_size == _FILE_BYTES:
            self._fd = disk.open(path)
            # What was read may be in the cache only, and this member is about to rely on it (R5).
            disk.fdatasync(self._fd)
            return
        path.parent.mkdir(exist_ok=True)
        self._fd = disk.create(path, _FILE_BYTES)
        # Its room is its own from now on: a full disk stops no group commit.
        disk.pwrite(self._fd, bytes(_FILE_BYTES), 0)
        disk.fdatasync(self._fd)
        disk.sync_folder(path.parent)
        disk.sync_folder(root)

    @property
    def mark(self) -> Mark | None:
        """The floor; None before anything was synced."""
        return self._mark

    def advance(self, mark: Mark, epoch: int) -> None:
        """Raise the floor to what has just been synced; nothing happens when it was lowered since `epoch`.

        The file follows at once, or with catch_up(); it is durable once something was synced after hand_over().
        Raises OSError. What was lowered since is not waited for: lower() may be at the disk.
        """
        if epoch != self.epoch:
            return
        with self._lock:
            if epoch == self.epoch and (self._mark is None or mark.index > self._mark.index):
                self._mark = mark
                self._lacks = epoch
                self._follow()

    def catch_up(self) -> float | None:
        """Let the file follow if it is time; return seconds until then, None when it lacks nothing. Raises OSError."""
        with self._lock:
            return self._follow() if self._lacks is not None else None

    def _follow(self) -> float | None:
        """Write what the file lacks, unless it was written just now: then return after how many seconds."""
        wait = self._written_at + LAG_SECONDS - self._now()
        if wait > 0:
            return wait
        # Retracted meanwhile: lower() comes and decides.
        if self._lacks == self.epoch:
            self._send_off()
        return None

    def _send_off(self) -> None:
        """Write the mark, and let it begin its way to the device."""
        assert self._mark is not None, "what is lacked is a mark"
        at = self._write(self._mark)
        self._disk.send_off(self._fd, at, _SECTOR_BYTES)
        self._sent_off = at, self._sequence

    def hand_over(self) -> None:
        """Let the next fdatasync, of whatever file, make the floor durable. Raises OSError.

        For one thread. The lock is not held while it waits for the disk, for which those who raise must not wait.
        """
        if (sent := self._sent_off) is not None:
            self._disk.hand_over(self._fd, sent[0], _SECTOR_BYTES)
            self._landed(sent)

    def along(self) -> tuple[int, Callable[[], None]] | None:
        """Return, in place of hand_over(), what may be synced beside the log: a descriptor, and whom to tell then."""
        sent = self._sent_off
        return None if sent is None else (self._fd, lambda: self._landed(sent))

    def _landed(self, sent: tuple[int, int]) -> None:
        with self._lock:
            if self._sent_off == sent:
                self._sent_off = None

    def retract(self) -> None:
        """Let no mark of before rise to a floor any more; lower() follows. At once, whatever waits for the disk."""
        self.epoch += 1

    def lower(self, mark: Mark) -> None:
        """Bring the floor down before entries behind `mark` are cut. Raises OSError; then nothing may be cut.

        For any thread, after retract(): what was on its way to the file before that is lowered here.
        """
        with self._lock:
            if self._mark is not None and mark.end < self._mark.end:
                self._write(mark)
                self._disk.fdatasync(self._fd)
            elif self._lacks is not None:
                # It stands in front of the cut, and nobody else comes for what was retracted.
                self._send_off()

    def sync(self) -> None:
        """Make the floor durable now: nothing more is to be synced that would take it along. Raises OSError."""
        with self._lock:
            if self._lacks == self.epoch and self._mark is not None:
                self._sent_off = self._write(self._mark), self._sequence
            if self._sent_off is not None:
                self._sent_off = None
                self._disk.fdatasync(self._fd)

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            if self._fd >= 0:
                self._disk.close(self._fd)
                self._fd = -1

    def _write(self, mark: Mark) -> int:
        sequence = self._sequence + 1
        packed = _SECTOR.pack(_MARK, sequence, *mark)
        packed += _CRC.pack(crc32(packed))
        at = sequence % 2 * SECTOR_STRIDE
        self._disk.pwrite(self._fd, packed.ljust(_SECTOR_BYTES, b"\0"), at)
        self._sequence = sequence
        self._mark = mark
        self._written_at = self._now()
        self._lacks = None
        return at


def _read(path: Path) -> tuple[int, Mark] | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    best: tuple[int, Mark] | None = None
    for at in (0, SECTOR_STRIDE):
        packed = content[at : at + _SECTOR.size]
        stored = content[at + _SECTOR.size : at + _SECTOR.size + _CRC.size]
        if len(stored) < _CRC.size or crc32(packed) != _CRC.unpack(stored)[0]:
            continue
        mark, sequence, index, term, end, chain = _SECTOR.unpack(packed)
        if mark == _MARK and (best is None or sequence > best[0]):
            best = sequence, Mark(index, term, end, chain)
    if best is None and any(content):
        raise StoreDamaged(
            f"{path} is damaged: it says up to where this member must not lose its log. Restore it, or remove this "
            f"member from the group and add it again with an empty store"
        )
    return best
