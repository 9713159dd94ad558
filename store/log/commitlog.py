"""The CommitLog: a row of files of equal size, one pending buffer, one write position.

`end` runs ahead of `written`: what lies between is in the pending buffer, and becomes bytes on disk by write(), one
pwrite for each contiguous run. A record never crosses a file: when fewer than its size + 8 bytes are left, a blank
(remaining size, BLANK_MAGIC) closes the file.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from remoting.record import BLANK, BLANK_BYTES, BLANK_MAGIC
from runtime.timings import Timings
from store.files.disk import Disk
from store.files.mappedfile import ZERO_CHUNK_BYTES, LogFile, read_cold

# Bytes put and not yet written; at the limit put() answers OS_PAGE_CACHE_BUSY until the next write().
PENDING_BYTES_MAX = 64 * 1024 * 1024
# Behind the end of the log, read through mappings without asking whether the pages are there: they were just written.
HOT_BYTES = 64 * 1024 * 1024
# Zeros ahead of the writing: about a tenth of a second at full speed, and little enough to start with.
AHEAD_BYTES = 16 * 1024 * 1024
# Files with a descriptor (and perhaps a mapping, which holds another one) besides those being written.
OPEN_FILES_MAX = 64


class LogTimes(NamedTuple):
    """How long writes took, and syncs, which the flusher counts in its thread."""

    write: Timings
    sync: Timings


class CommitLog:
    """The files from `min_position` to the end. One thread puts, writes and reads; see prepare() for the other one."""

    def __init__(self, folder: Path, file_bytes: int, disk: Disk, files: list[LogFile], end: int) -> None:
        """Take over `files` (in order, without gaps, at least one) with `end` inside the last one that has data."""
        self._folder = folder
        self.file_bytes = file_bytes
        self._disk = disk
        self._files = {file.start: file for file in files}
        self._opened: OrderedDict[int, LogFile] = OrderedDict()
        # Made ahead by the helper, taken over when the writing reaches it.
        self._growth = threading.Lock()
        self._preparing = threading.Lock()
        # How often the log was cut, and how often the disk followed: until then what stands behind the end is what a
        # crash must find, and no room ahead.
        self._hides = self._blots = 0
        self.min_position = files[0].start
        self.end = end
        self.written = end
        # Everything before this is on disk as far as fdatasync can promise; moved by the flusher, and by hide().
        self.flushed = end
        # Everything before this is in queues and index, as far as it belongs there; moved by whoever dispatches.
        self.dispatched = end
        self._current = self._file_of(end)
        self.file_end = self._current.end
        # Pieces of the run that begins at _run_start in the current file, and the runs of files already left.
        self.pieces: list[bytes | memoryview] = []
        self._run_start = end
        self._runs: list[tuple[LogFile, int, bytes | memoryview]] = []
        self.times = LogTimes(Timings(), Timings())

    # -- putting and writing

    def roll(self) -> None:
        """Close the current file with a blank and go on in the next one. Raises OSError when that cannot be made."""
        # First what can fail, so that a failure leaves everything as it was.
        following = self._next_file()
        self.pieces.append(BLANK.pack(self.file_end - self.end, BLANK_MAGIC))
        self._go_on_in(following)

    def take_over(self, data: bytes) -> None:
        """Put bytes of another broker's log, of any part of it, at the end; they must not reach beyond this file.

        Whoever fills the file goes on in the next one. Raises OSError when that cannot be made: nothing is put then.
        """
        end = self.end + len(data)
        assert end <= self.file_end, "behind the file"
        following = self._next_file() if end == self.file_end else None
        self.pieces.append(data)
        self.end = end
        if following is not None:
            self._go_on_in(following)

    def _go_on_in(self, following: LogFile) -> None:
        self._runs.append((self._current, self._run_start, b"".join(self.pieces)))
        self.pieces = []
        self._current = following
        self._run_start = self.end = following.start
        self.file_end = following.end

    def secure(self, reserve: int) -> None:
        """Make sure that what is pending has its place on the disk, and `reserve` bytes behind it, in one file.

        Raises OSError when there is no room; then discard() must follow. After it write() does not lack room.
        """
        for file, position, data in self._runs:
            file.allocate(position + len(data) - file.start)
        current = self._current
        until = self.end - current.start + reserve
        current.allocate(until)
        if reserve and until + BLANK_BYTES > current.size:
            self._next_file().allocate(reserve)

    def write(self) -> None:
        """Write everything pending. Raises OSError; then nothing of it counts, and discard() must follow."""
        if pieces := self.pieces:
            self._runs.append((self._current, self._run_start, pieces[0] if len(pieces) == 1 else b"".join(pieces)))
            self.pieces = []
            self._run_start = self.end
        began = monotonic()
        for file, position, data in self._runs:
            file.write(data, position)
        self.times.write.add(monotonic() - began)
        self._runs.clear()
        self.written = self.end

    def discard(self) -> None:
        """Forget what is pending and blot out what a failed write left behind. Raises OSError when that fails too.

        Whole records behind the end would be taken for stored ones at the next start.
        """
        runs = self._runs
        self._runs = []
        self.pieces = []
        self.end = self._run_start = self.written
        self._current = self._file_of(self.written)
        self.file_end = self._current.end
        for file, position, data in runs:
            file.blot(position, len(data))

    def hide(self, end: int) -> Callable[[], None]:
        """Make `end`, a border between records, the end of the log; return what makes it so on the disk (R11).

        Nothing may be pending, and nothing may be put before that was called, in any thread, while no sync runs: it is
        durable when it returns. It raises OSError; then only a new start can tell where the log ends.
        """
        assert self.end == self.written, "what is pending is written or discarded first"
        last = self._file_of(end)
        until = min(self.written, last.end)
        # It is written to again, perhaps for the first time in this process.
        last.hold(until)
        # First of all: see prepare().
        self._hides += 1
        for start in [start for start in self._opened if start > last.start]:
            del self._opened[start]
        self._current = last
        self.file_end = last.end
        self.end = self.written = self._run_start = end
        self.flushed = min(self.flushed, end)
        return lambda: self._blot_out(last, end, until)

    def _blot_out(self, last: LogFile, end: int, until: int) -> None:
        """Remove the files behind `last`, and zero in it what stood up to `until`; durably. For any thread."""
        with self._preparing:
            for start in [start for start in sorted(self._files, reverse=True) if start > last.start]:
                # From the newest on, so that no crash leaves a gap.
                file = self._files.pop(start)
                file.release()
                self._disk.unlink(file.path)
                self._disk.sync_folder(self._folder)
            for at in range(end, until, ZERO_CHUNK_BYTES):
                last.write(bytes(min(ZERO_CHUNK_BYTES, until - at)), at)
            last.sync()
            self._blots += 1

    def begin(self, start: int) -> None:
        """Let a log that never held anything begin at `start`, where a file begins: durable when this returns.

        No sync may run. Raises OSError; then only a new start can tell where the log begins.
        """
        assert self.end == 0, "only an empty log has no beginning yet"
        with self._preparing:
            for at in sorted(self._files, reverse=True):
                # From the newest on, so that no crash leaves a gap; without any file the log is as empty as before.
                file = self._files.pop(at)
                file.release()
                self._disk.unlink(file.path)
                self._disk.sync_folder(self._folder)
            self._opened.clear()
            self._current = self._make(start)
            self.file_end = self._current.end
            self.min_position = self.end = self.written = self._run_start = start
            self.flushed = self.dispatched = start

    def overwrite(self, position: int, data: bytes) -> None:
        """Write over bytes of one file that the disk has wrong; the next sync takes them along. Raises OSError."""
        assert position + len(data) <= self.written, "behind the end is nothing to mend"
        self._file_of(position).write(data, position)

    def mend(self, runs: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """Write over damaged bytes, each run within one file, and make them durable. For any thread. Raises OSError.

        By descriptors of its own: those of the files may be given up meanwhile, and their numbers be another file's.
        Meanwhile the log may come to end before them: then what hide() returned must be called after this.
        """
        disk, opened = self._disk, dict[int, int]()
        try:
            for position, data in runs:
                start = position - position % self.file_bytes
                if start not in opened:
                    opened[start] = disk.open(self._folder / f"{start:020d}")
                disk.pwrite(opened[start], data, position - start)
            for fd in opened.values():
                disk.fdatasync(fd)
        finally:
            for fd in opened.values():
                disk.close(fd)

    def rewrite(self, position: int, data: bytes) -> None:
        """Write bytes again that memory holds and the disk does not; no sync is waited for. Raises OSError."""
        assert position + len(data) <= self.written, "behind the end nothing was written"
        self._file_of(position).write(data, position)

    @property
    def pending_bytes(self) -> int:
        """Bytes put and not yet written."""
        return self.end - self.written

    def fits(self, size: int) -> bool:
        """Whether a record, or records back to back, of `size` bytes can stand in one file at all."""
        return size + BLANK_BYTES <= self.file_bytes

    # -- the helper's part

    @property
    def cutting(self) -> bool:
        """Whether the disk has yet to follow hide()."""
        return self._hides != self._blots

    @property
    def wants_room(self) -> bool:
        """Whether prepare() has something worth doing: half of the zeros ahead are used up."""
        current = self._current
        ahead = current.prepared - (self.end - current.start)
        if ahead >= AHEAD_BYTES // 2:
            return False
        if current.prepared < current.size:
            return True
        following = self._files.get(current.end)
        return following is None or following.prepared == 0

    def prepare(self, failed: Callable[[BaseException], None]) -> None:
        """Write zeros ahead of the writing and make the next file in time. Called by the helper thread.

        Raises OSError when there is no room, which the writing will notice by itself if it gets that far. An error of
        fdatasync goes to `failed`: this descriptor will not report it a second time.
        """
        with self._preparing:
            current = self._current
            until = self.written - current.start + AHEAD_BYTES
            # Asked behind them: a cut in between is noticed.
            if self.cutting:
                return
            self._prepare_file(current, until, failed)
            if until > current.size - AHEAD_BYTES // 2:
                following = self._make(current.end)
                self._prepare_file(following, AHEAD_BYTES, failed)

    @staticmethod
    def _prepare_file(file: LogFile, until: int, failed: Callable[[BaseException], None]) -> None:
        if file.prepare(until):
            try:
                file.sync()
            except OSError as error:
                failed(error)

    def _next_file(self) -> LogFile:
        return self._files.get(self._current.end) or self._make(self._current.end)

    def _make(self, start: int) -> LogFile:
        with self._growth:
            file = self._files.get(start)
            if file is None:
                file = LogFile.create(self._disk, self._folder, start, self.file_bytes)
                self._files[start] = file
            return file

    # -- the flusher's part

    def sync(self, position: int, until: int) -> None:
        """Make what lies between two positions durable. Raises OSError."""
        began = monotonic()
        for file in self._between(position, until):
            file.sync()
        self.times.sync.add(monotonic() - began)

    def fds_to_sync(self, position: int, until: int) -> list[int]:
        """Return the descriptors by which what lies between two positions is made durable. Raises OSError."""
        current = self._current
        if position >= current.start:  # as nearly always
            return [current.fd]
        return [file.fd for file in self._between(position, until)]

    def _between(self, position: int, until: int) -> list[LogFile]:
        first = position - position % self.file_bytes
        return [self._files[start] for start in range(first, until, self.file_bytes)]

    # -- reading

    def read(self, position: int, size: int) -> memoryview | bytes | None:
        """Return written bytes of one file when they are in memory, None when the disk would have to be asked."""
        assert self.min_position <= position <= self.written - size, "outside the log"
        file = self.opened(position)
        return file.view(position, size) if position >= self.hot_from else file.read_cached(position, size)

    @property
    def hot_from(self) -> int:
        """From where on bytes are read through mappings without asking whether they are in memory."""
        return self.written - HOT_BYTES

    def read_blocking(self, position: int, size: int) -> memoryview | bytes:
        """Return written bytes, from disk when need be. For any thread. Raises OSError, also when the file is gone."""
        start = position - position % self.file_bytes
        file = self._files.get(start)
        if file is None:
            raise FileNotFoundError(f"the CommitLog holds nothing at {position}")
        return read_cold(file.path, position - start, size)

    def path_of(self, position: int) -> Path | None:
        """Return the path of the file that holds a position, None when there is none."""
        file = self._files.get(position - position % self.file_bytes)
        return file.path if file is not None else None

    def contains(self, position: int, size: int) -> bool:
        """Whether bytes are written and not yet removed, and lie in one file."""
        if size <= 0 or not self.min_position <= position <= self.written - size:
            return False
        return position % self.file_bytes + size <= self.file_bytes

    def _file_of(self, position: int) -> LogFile:
        return self._files[position - position % self.file_bytes]

    def opened(self, position: int) -> LogFile:
        """Return the file that holds a position, to be read now; what was read longest ago is given up for it."""
        file = self._file_of(position)
        opened = self._opened
        if file.start in opened:
            opened.move_to_end(file.start)
            return file
        opened[file.start] = file
        if len(opened) > OPEN_FILES_MAX:
            self._shrink()
        return file

    def unmap_old(self) -> None:
        """Give up the mappings of files without new bytes: what was read of them counts as this process's memory."""
        for file in self._opened.values():
            if file.end <= self.hot_from:
                file.unmap()

    def _shrink(self) -> None:
        """Give up the least recently read file that nobody writes or syncs."""
        # Read once: the flusher only ever moves it forward.
        flushed = self.flushed
        for start, file in self._opened.items():
            if file.end <= flushed and start != self._current.start:
                del self._opened[start]
                file.release()
                return

    # -- files

    @property
    def files(self) -> list[LogFile]:
        """All files, those made ahead included, in order."""
        return [self._files[start] for start in sorted(self._files)]

    def file_starts(self) -> list[int]:
        """Return the start positions of the files that hold data, in order; the last is being written."""
        return [start for start in sorted(self._files) if start <= self._current.start]

    def remove_first(self, start: int) -> Path:
        """Take the oldest file out of the log; return its path, for the caller to remove it."""
        assert start == self.min_position, "files leave from the front"
        assert self._files[start].end <= self.flushed, "what is being written never leaves"
        file = self._files.pop(start)
        self._opened.pop(start, None)
        file.release()
        self.min_position = file.end
        return file.path

    def close(self) -> None:
        """Give all descriptors up."""
        for file in self._files.values():
            file.release()
        self._opened.clear()
