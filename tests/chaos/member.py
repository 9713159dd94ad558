"""A broker process whose disk can lose power: `member.py --undo FILE [--fsync-ms N] [--planted BUG] broker -c FILE`.

Everything runs as deployed, but for the seam to the operating system: before a write that is not yet synced, what
stood there before is noted in the undo file. Nothing is ever undone here. When the process has been killed, the
harness may undo what no completed fdatasync covered (powerloss.py): that is what a power cut does.
"""

import argparse
import os
import sys
import threading
import time
from pathlib import Path

from store.disk import Disk
from tests.chaos.powerloss import NOTE, SYNCED, WRITTEN

# When nothing is unsynced and the file is longer than this, it starts anew.
UNDO_BYTES_MAX = 8 * 1024 * 1024


class UndoFile:
    """Notes of writes and syncs, in the order in which they happened."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._sequence = 0
        # Path → sequence of its newest write that no sync covers.
        self._unsynced: dict[str, int] = {}
        self._size = 0

    def note_write(self, path: str, offset: int, before: bytes) -> None:
        with self._lock:
            self._sequence += 1
            self._unsynced[path] = self._sequence
            self._put(WRITTEN, self._sequence, path, offset, before)

    def begin_sync(self) -> int:
        with self._lock:
            return self._sequence

    def note_sync(self, path: str, until: int) -> None:
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


def watch_disk(undo: UndoFile, fsync_s: float) -> None:
    """Make every Disk of this process take notes, and its syncs slow."""
    pwrite, fdatasync, hand_over = Disk.pwrite, Disk.fdatasync, Disk.hand_over
    # With the device, and durable with the next sync: path → sequence of its newest write.
    handed: dict[str, int] = {}

    def noted_pwrite(self: Disk, fd: int, data: bytes | memoryview, offset: int) -> None:
        before = os.pread(fd, len(data), offset).ljust(len(data), b"\0")
        if before != bytes(data):
            undo.note_write(str(Path(f"/proc/self/fd/{fd}").readlink()), offset, before)
        pwrite(self, fd, data, offset)

    def noted_fdatasync(self: Disk, fd: int) -> None:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        until = undo.begin_sync()
        if fsync_s:
            # The clock of a disk cannot be turned: a slow one takes its time.
            time.sleep(fsync_s)
        handed_now = dict(handed)
        fdatasync(self, fd)
        undo.note_sync(path, until)
        for other, sequence in handed_now.items():
            undo.note_sync(other, sequence)
            if handed.get(other) == sequence:
                del handed[other]

    def noted_hand_over(self: Disk, fd: int, offset: int, length: int) -> None:
        hand_over(self, fd, offset, length)
        handed[str(Path(f"/proc/self/fd/{fd}").readlink())] = undo.begin_sync()

    # An instance method in place of another; mypy does not let methods be replaced.
    Disk.pwrite = noted_pwrite  # type: ignore[method-assign]
    Disk.fdatasync = noted_fdatasync  # type: ignore[method-assign]
    Disk.hand_over = noted_hand_over  # type: ignore[method-assign]


def main() -> None:
    """Read our own arguments, hand the rest to the raftmq command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--undo", type=Path, required=True)
    parser.add_argument("--fsync-ms", type=float, default=0.0)
    parser.add_argument("--planted", choices=["", "ack-before-fsync"], default="")
    options, rest = parser.parse_known_args()
    watch_disk(UndoFile(options.undo), options.fsync_ms / 1000)
    if options.planted == "ack-before-fsync":
        from tests.chaos.planted import ack_before_fsync

        ack_before_fsync()
    from raftmq.cli.main import main as raftmq

    sys.argv = ["raftmq", *rest]
    raftmq()


if __name__ == "__main__":
    main()
