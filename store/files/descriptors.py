"""Open files by path, at most so many at once: the least recently used one is closed to make room.

Ten thousand topics of eight queues have more files than a process may hold open. Reading, writing and syncing go
through here by path, so nobody keeps a descriptor that might be closed behind his back.
"""

import errno
import os
import threading
from collections import OrderedDict
from pathlib import Path

# Well below the usual soft limit of 1,024 open files, which the broker's connections need as well.
DESCRIPTORS_MAX = 256
# File systems tell data from holes by blocks of at least this size.
_PAGE_BYTES = 4096


class Descriptors:
    """A table path → descriptor with a bound. Every call may be made from any thread; one runs at a time."""

    def __init__(self, limit: int = DESCRIPTORS_MAX, *, read_only: bool = False) -> None:
        assert limit > 0, "at least one file must be open to be used"
        self._limit = limit
        self._mode = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        self._open: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many files are open now."""
        return len(self._open)

    def read(self, path: str, position: int, size: int) -> bytes:
        """Return up to `size` bytes at `position`; fewer at the end of the file. Raises FileNotFoundError."""
        with self._lock:
            return os.pread(self._descriptor(path), size, position)

    def write(self, path: str, position: int, content: bytes | memoryview, *, file_bytes: int) -> None:
        """Write all of `content`; a file that is not there yet is made, with its full (sparse) size at once."""
        assert position + len(content) <= file_bytes, "a write must end inside its file"
        with self._lock:
            try:
                fd = self._descriptor(path)
            except FileNotFoundError:
                fd = self._create(path, file_bytes)
            view = memoryview(content)
            while view:
                written = os.pwrite(fd, view, position)
                view = view[written:]
                position += written

    def is_zero_from(self, path: str, position: int) -> bool:
        """Tell whether nothing but zeros stands from `position` on, as far as the file system knows without reading.

        Blocks that hold written zeros count as data.
        """
        with self._lock:
            fd = self._descriptor(path)
            boundary = -(-position // _PAGE_BYTES) * _PAGE_BYTES
            if any(os.pread(fd, boundary - position, position)):
                return False
            try:
                os.lseek(fd, boundary, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return True
                raise
            return False

    def cut(self, path: str, position: int, *, file_bytes: int) -> None:
        """Make everything from `position` on zero; the file keeps its full size."""
        with self._lock:
            fd = self._descriptor(path)
            os.ftruncate(fd, position)
            os.ftruncate(fd, file_bytes)

    def delete(self, path: str) -> None:
        """Close and delete a file; one that is not there is no error."""
        with self._lock:
            fd = self._open.pop(path, None)
            if fd is not None:
                os.close(fd)
            Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        """Close all; a later call opens what it needs again."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _descriptor(self, path: str) -> int:
        fd = self._open.get(path)
        if fd is None:
            return self._keep(path, os.open(path, self._mode))
        self._open.move_to_end(path)
        return fd

    def _create(self, path: str, file_bytes: int) -> int:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, self._mode | os.O_CREAT, 0o644)
        try:
            os.ftruncate(fd, file_bytes)
        except OSError:
            # A file of another size would be refused at the next start, and found here by the next write.
            os.close(fd)
            Path(path).unlink()
            raise
        return self._keep(path, fd)

    def _keep(self, path: str, fd: int) -> int:
        while len(self._open) >= self._limit:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = fd
        return fd
