"""One CommitLog file: a name, a descriptor while it is used, a mapping while it is read, zeros ahead of the writing."""

import mmap
import os
import threading
from pathlib import Path

from store.errors import is_full
from store.files.disk import Disk

NAME_DIGITS = 20
# One zero-filling write: small enough that a writer who waits for the lock does not feel it.
ZERO_CHUNK_BYTES = 1024 * 1024
# Looked at and overwritten at once: the least block of a file system, of which holes are made.
BLOT_BYTES = 512
# Room that is asked for at once, where there is so much: a call for each entry would cost too many.
ROOM_STEP_BYTES = 1024 * 1024
_ZEROS = bytes(ZERO_CHUNK_BYTES)


def file_name(start: int) -> str:
    """Return the name of the file that begins at position `start`."""
    return f"{start:0{NAME_DIGITS}d}"


class LogFile:
    """Bytes `start` to `start + size` of the log. Positions in arguments are those of the log, not of the file.

    The descriptor is opened on first use and may be given up and opened again; only the thread that writes does either
    once the store runs. The zero-filling thread and the writer agree through the lock about `prepared`.
    """

    __slots__ = ("_disk", "_fd", "_lock", "_map", "_room", "_view", "end", "path", "prepared", "size", "start")

    def __init__(self, disk: Disk, path: Path, start: int, size: int, *, fd: int = -1, prepared: int = 0) -> None:
        self._disk = disk
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        # Bytes from the file's start that hold data or zeros that were written: fdatasync is cheap there.
        self.prepared = prepared
        # Bytes from the file's start that the disk surely has room for; a recovered file is asked about once.
        self._room = 0
        self._fd = fd
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._lock = threading.Lock()

    @classmethod
    def create(cls, disk: Disk, folder: Path, start: int, size: int) -> "LogFile":
        """Make the file, its name durable; raises OSError."""
        path = folder / file_name(start)
        fd = disk.create(path, size)
        try:
            # The length is synced before the name, so that no short file is met after a crash.
            disk.fdatasync(fd)
            disk.sync_folder(folder)
        except OSError:
            disk.close(fd)
            raise
        return cls(disk, path, start, size, fd=fd)

    @property
    def fd(self) -> int:
        """The descriptor, opened when need be."""
        if self._fd < 0:
            self._fd = self._disk.open(self.path)
        return self._fd

    @property
    def is_open(self) -> bool:
        """Whether a descriptor or a mapping is held."""
        return self._fd >= 0 or self._map is not None

    def hold(self, position: int) -> None:
        """Have no zeros written ahead before a position: data stands there. And open it, for other threads."""
        assert self.fd >= 0, "just opened"
        with self._lock:
            self.prepared = max(self.prepared, position - self.start)

    def allocate(self, until: int) -> None:
        """Make sure that the disk has room for the file up to an offset; raises OSError. For the thread that writes."""
        have, until = self._room, min(until, self.size)
        if until <= have:
            return
        ample = min(until + ROOM_STEP_BYTES, self.size)
        try:
            self._disk.allocate(self.fd, have, ample - have)
        except OSError as error:
            if not is_full(error):
                raise
            self._disk.allocate(self.fd, have, until - have)
            ample = until
        self._room = ample

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write at a position of the log; raises OSError, and then any part may have been written."""
        assert self.start <= position, "before the file"
        assert position + len(data) <= self.end, "behind the file"
        offset = position - self.start
        end = offset + len(data)
        if end > self.prepared:
            with self._lock:
                # Faster than the zero-filling: what it has not reached is a hole and reads as zeros anyway.
                self.prepared = max(self.prepared, end)
        self._disk.pwrite(self._fd if self._fd >= 0 else self.fd, data, offset)

    def blot(self, position: int, size: int) -> None:
        """Make bytes zeros that a failed write may have touched; raises OSError.

        What is zeros already is left alone: it may be a hole, and a full disk has no room even for zeros.
        """
        offset, until = position - self.start, position - self.start + size
        while offset < until:
            length = min(BLOT_BYTES - offset % BLOT_BYTES, until - offset)
            if any(os.pread(self.fd, length, offset)):
                self._disk.pwrite(self.fd, bytes(length), offset)
            offset += length

    def prepare(self, until: int) -> bool:
        """Write zeros up to the offset `until` of the file, in chunks; tell whether any. Raises OSError."""
        until = min(until, self.size)
        wrote = False
        while True:
            with self._lock:
                offset = self.prepared
                if offset >= until:
                    return wrote
                # Up to the next full chunk, so that later chunks stand aligned.
                length = min(ZERO_CHUNK_BYTES - offset % ZERO_CHUNK_BYTES, until - offset)
                self._disk.pwrite(self.fd, memoryview(_ZEROS)[:length], offset)
                self.prepared = offset + length
                wrote = True

    def sync(self) -> None:
        """Make what was written durable; raises OSError."""
        self._disk.fdatasync(self.fd)

    def view(self, position: int, size: int) -> memoryview:
        """Return bytes of the mapping, uncopied; they stay valid after the file is given up or removed."""
        if self._view is None:
            self._map = self._disk.map(self.fd, self.size)
            self._view = memoryview(self._map)
        offset = position - self.start
        return self._view[offset : offset + size]

    def read_cached(self, position: int, size: int, into: memoryview | None = None) -> memoryview | None:
        """Return bytes that the page cache holds, copied once, None when the disk would have to be asked.

        They are the first ones of `into`, when it is given.
        """
        into = memoryview(bytearray(size)) if into is None else into[:size]
        try:
            done = os.preadv(self.fd, [into], position - self.start, os.RWF_NOWAIT)
        except OSError:
            # Not cached (EAGAIN), or a file system that cannot tell: both are for the thread pool.
            return None
        return into.toreadonly() if done == size else None

    def unmap(self) -> None:
        """Give the mapping up; it is made anew when need be. Views that were handed out keep it alive until they go."""
        self._view = None
        self._map = None

    def release(self) -> None:
        """Give descriptor and mapping up, as unmap() does."""
        self.unmap()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._disk.close(fd)


def read_cold(path: Path, offset: int, size: int) -> bytes:
    """Read from a file by a descriptor of its own: for threads. Raises OSError; EOFError when the file is too short."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while size > 0:
            piece = os.pread(fd, size, offset)
            if not piece:
                raise EOFError(f"{path} ends {size} bytes too early")
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(fd)
