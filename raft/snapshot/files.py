"""Writing the copied log: files of full size, filled from their beginning, each on disk before it counts as done."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.durable import fsync_folder

# Bytes written between two syncs of a file: the disk is kept busy while more arrives, and no sync takes long.
SYNC_BYTES = 64 * 1024 * 1024
# Syncs that may wait for the disk before the writing waits too.
SYNCS_OPEN_MAX = 2


class LogWriter:
    """Writes the files told by `expect` from their beginnings on. A context: leaving it closes all files.

    `write` is called in one thread at a time; syncing, and telling `on_done` (start) of a file that is whole and on
    disk, goes on in a second one, whose OSError the next `write` or `finish` raises.
    """

    def __init__(self, file_bytes: int, path_of: Callable[[int], Path], on_done: Callable[[int], None]) -> None:
        self._file_bytes = file_bytes
        self._path_of = path_of
        self._on_done = on_done
        self._sizes: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._unsynced = 0
        self._syncs: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(1, "raft-reset-sync")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def expect(self, start: int, size: int) -> None:
        """Announce a file and how many bytes of it come; zeros follow them."""
        self._sizes[start] = size

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes of one file, in order. Raises OSError."""
        start = position - position % self._file_bytes
        assert position - start + len(data) <= self._sizes[start], "more than was announced"
        fd = self._open.get(start)
        if fd is None:
            fd = self._open[start] = self._create(start)
        offset = position - start
        end = offset + len(data)
        while data:
            written = os.pwrite(fd, data, offset)
            data = data[written:]
            offset += written
            self._unsynced += written
        if end == self._sizes[start]:
            self._later(self._complete, start)
        elif self._unsynced >= SYNC_BYTES:
            self._later(os.fdatasync, fd)

    def finish(self) -> None:
        """Return when everything announced is on disk. Raises OSError."""
        for sync in self._syncs:
            sync.result()
        self._syncs.clear()
        assert not self._open, "a file was not written to its end"

    def _create(self, start: int) -> int:
        path = self._path_of(start)
        path.parent.mkdir(parents=True, exist_ok=True)
        # The log is its owner's alone, here as where it comes from.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Room for all of it now: a disk that is too small is noticed at the beginning.
            os.posix_fallocate(fd, 0, self._file_bytes)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _later(self, act: Callable[[int], None], argument: int) -> None:
        self._unsynced = 0
        while len(self._syncs) >= SYNCS_OPEN_MAX:
            self._syncs.pop(0).result()
        self._syncs.append(self._pool.submit(act, argument))

    def _complete(self, start: int) -> None:
        os.fsync(self._open[start])
        fsync_folder(self._path_of(start).parent)
        os.close(self._open.pop(start))
        if self._sizes[start] == self._file_bytes:
            self._on_done(start)
