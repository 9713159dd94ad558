"""What happens to a store folder at start, before anything is put.

1. The files are checked: sizes, no gaps.
2. The log is read from where the checkpoint says that everything was synced (without one of ours: from the file that
   RocketMQ's timestamps point to). Queues and index are cut back to that point and fed again with what is read, so that
   after any stop they are what a rebuild gives.
3. Reading ends at the first thing that is no record. At or behind the position that the checkpoint knows as flushed it
   is a torn tail, never acknowledged as flushed as far as anybody can tell: it is cut, said in the log. Before that
   position it is damage (a rotten disk, a removed file), and what stands behind it may have been acknowledged:
   StoreDamaged, and the log stays as it is. RocketMQ would cut there. With a folder that RocketMQ left, an intact later
   record that is not younger than the checkpoint's timestamp is the sign.
4. Everything behind the end is zeroed and synced, later files with data are removed: no remainder can ever be taken for
   a successor of what will be written.
5. What was read is synced before it counts as flushed: that it could be read says only that it was in the page cache.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from remoting.record import RecordError
from store.errors import StoreDamaged
from store.files.checkpoint import CHECKPOINT_NAME, Checkpoint
from store.files.disk import Disk
from store.files.mappedfile import NAME_DIGITS, LogFile
from store.log.logscan import LogScan, Span, find_later_record
from store.raftlog.groupscan import FoundEntries
from store.types import Dispatched

_LOG = logging.getLogger(__name__)

# RocketMQ flushes its queues and index at most this much later than the records they point to.
TIMESTAMP_SLACK_MS = 3000
# Records dispatched at once while the log is read.
BATCH_RECORDS = 1024
_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)


@dataclass
class Recovered:
    """The log as it was found."""

    files: list[LogFile]
    end: int
    last_timestamp: int
    entries: FoundEntries | None = None
    """Of a group member's log."""


def file_starts(folder: Path) -> list[int]:
    """Return where the files of a CommitLog folder begin, by their names, in order."""
    return sorted(
        int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal() and len(entry.name) == NAME_DIGITS
    )


def load_files(
    folder: Path,
    file_bytes: int,
    disk: Disk,
    *,
    begin: int | None = None,
    until: int = 0,
    missing: list[LogFile] | None = None,
) -> list[LogFile]:
    """Return the files of a CommitLog folder in order; raises StoreDamaged when they make no log.

    An empty last file is what a stop leaves between making and sizing a file: it is removed. With `missing`, files
    that are missing behind the first, up to position `until` at least, are in the result all the same, and are added
    to it: they are to be made; those from `begin` on too, where the log is known to begin.
    """
    starts = file_starts(folder)
    files: list[LogFile] = []

    def bridge(position: int) -> None:
        while missing is not None and (files or begin is not None):
            at = files[-1].end if files else begin
            if at is None or at >= position:
                return
            files.append(LogFile(disk, folder / f"{at:0{NAME_DIGITS}d}", at, file_bytes))
            missing.append(files[-1])

    for start in starts:
        path = folder / f"{start:0{NAME_DIGITS}d}"
        size = path.stat().st_size
        if size == 0 and start == starts[-1]:
            disk.unlink(path)
            continue
        if size != file_bytes:
            raise StoreDamaged(
                f"{path} has {size} bytes, mappedFileSizeCommitLog says {file_bytes}: "
                f"set it to the size that the files were made with"
            )
        if start % file_bytes == 0:
            bridge(start)
        if start % file_bytes or (files and files[-1].end != start):
            lacking = files[-1].end if files else start - start % file_bytes
            raise StoreDamaged(
                f"{folder} lacks the file that begins at {lacking}: put it back, "
                f"or move {path.name} and the later files away to go on without them"
            )
        files.append(LogFile(disk, path, start, file_bytes))
    bridge(until)
    return files


def scan_start(
    checkpoint: Checkpoint, files: Sequence[LogFile], *, clean: bool, queues_end: int, files_max: int
) -> int:
    """Return the position from which the log must be read again. `queues_end`: see ConsumeQueues.max_physical."""
    first = files[0].start
    if queues_end == 0:
        return first
    if checkpoint.dispatched >= 0:
        return max(first, checkpoint.dispatched)
    if clean:
        # RocketMQ left it, everything synced: its newest file is read again, as RocketMQ does.
        return max(first, min(queues_end - 1, files[-1].end - 1) // files[0].size * files[0].size)
    known = min(checkpoint.log_timestamp, checkpoint.queue_timestamp) - TIMESTAMP_SLACK_MS
    for file in list(reversed(files))[:files_max]:
        for record in LogScan([_span(file)], file.start, check_crc=False):
            if record.store_timestamp <= known:
                return file.start
            break
    return files[max(0, len(files) - files_max)].start


class Recovery:
    """One pass over the log. `read` makes of a record what is dispatched, `dispatch` takes batches in log order."""

    def __init__(
        self,
        files: list[LogFile],
        checkpoint: Checkpoint,
        disk: Disk,
        *,
        check_crc: bool,
        read: Callable[[memoryview, int], Dispatched],
        dispatch: Callable[[list[Dispatched]], None],
    ) -> None:
        self._files = files
        self._spans = [_span(file) for file in files]
        self._checkpoint = checkpoint
        self._disk = disk
        self._check_crc = check_crc
        self._read = read
        self._dispatch = dispatch
        self._last_timestamp = checkpoint.log_timestamp

    def feed(self, start: int) -> int:
        """Dispatch every record from `start` on; return the end of the log, whose files are not touched.

        Raises StoreDamaged when records that had been flushed are damaged; OSError.
        """
        last = self._files[-1]
        if max(start, self._checkpoint.flushed) > last.end:
            raise StoreDamaged(_damage_text(last.end, "no further file", self._flushed_text()))
        scan = LogScan(self._spans, start, check_crc=self._check_crc)
        damage = ""
        batch: list[Dispatched] = []
        for found in scan:
            try:
                batch.append(self._read(found.view, found.at))
            except RecordError as error:
                damage = str(error)
                break
            self._last_timestamp = max(self._last_timestamp, found.store_timestamp)
            if len(batch) >= BATCH_RECORDS:
                self._dispatch(batch)
                batch = []
        self._judge(scan.end, damage or scan.damage)
        if batch:
            self._dispatch(batch)
        return scan.end

    def _judge(self, end: int, damage: str) -> None:
        """Decide whether a log that ends at `end`, with `damage` behind it, may be cut there."""
        flushed = self._checkpoint.flushed
        if end < flushed:
            raise StoreDamaged(_damage_text(end, damage or "no record", self._flushed_text()))
        if not damage:
            return
        if flushed < 0:
            later = find_later_record(self._spans, end)
            if later is not None and later.store_timestamp <= self._checkpoint.log_timestamp:
                raise StoreDamaged(_damage_text(end, damage, f"the intact record at {later.position} had been flushed"))
        _LOG.warning("the CommitLog ends at %d, behind it stands %s: cut, it was not known as flushed", end, damage)

    def _flushed_text(self) -> str:
        return f"everything before {self._checkpoint.flushed} had been flushed"

    def settle(self, end: int) -> Recovered:
        """Make the files end at `end`, on disk; from here on nothing behind it is left. Raises OSError."""
        kept = [file for file in self._files if file.start <= end]
        later = [file for file in self._files if file.start > end]
        if kept[-1].end <= end:
            kept.append(LogFile.create(self._disk, kept[-1].path.parent, end, kept[-1].size))
        # A file made ahead of need may stay; from the first one with data on nothing belongs to the log.
        ahead = 0
        while ahead < len(later) and not _has_data(later[ahead]):
            ahead += 1
        for file in reversed(later[ahead:]):
            _LOG.warning("%s lies behind the end %d of the CommitLog and is removed", file.path, end)
            file.release()
            self._disk.unlink(file.path)
            # One by one, from the newest on: no crash may leave a gap.
            self._disk.sync_folder(file.path.parent)
        last = kept[-1]
        for offset, length in dirty_ranges(last.fd, end - last.start, last.size):
            self._disk.pwrite(last.fd, bytes(length), offset)
        last.prepared = os.lseek(last.fd, end - last.start, os.SEEK_HOLE)
        files = kept + later[:ahead]
        for file in files:
            if file.end > self._checkpoint.flushed:
                # Opened here, so that the writer and the flusher later find one descriptor.
                file.sync()
        self._disk.sync_folder(last.path.parent)
        return Recovered(files, end, self._last_timestamp)


def _span(file: LogFile) -> Span:
    return Span(file.path, file.start, file.size)


def _has_data(file: LogFile) -> bool:
    return next(dirty_ranges(file.fd, 0, file.size), None) is not None


def dirty_ranges(fd: int, offset: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of what is not zero between two offsets of a file; holes are skipped unread."""
    while offset < end:
        try:
            offset = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        hole = min(os.lseek(fd, offset, os.SEEK_HOLE), end)
        while offset < hole:
            chunk = os.pread(fd, min(_CHUNK_BYTES, hole - offset), offset)
            if chunk != _ZEROS[: len(chunk)]:
                yield offset, len(chunk)
            offset += len(chunk)


def _damage_text(position: int, found: str, why: str) -> str:
    return (
        f"the CommitLog is damaged at {position} ({found}), but {why}. The log was left as it is. Restore the file "
        f"that holds this position from a replica or a backup; or, to give up everything from there on, remove the "
        f"file '{CHECKPOINT_NAME}' from the store folder and start again"
    )
