"""Takes back what a slave has and its master has not: the end of a closed store's log, or all of it.

Nothing is lost by it: what is cut stands in ``<store folder>/cut/<position>-<time>/commitlog/`` afterwards, at its old
place in files of the old names, for `raftmq inspect` and for people. These files are synced before anything is cut,
nobody but a person removes them.

A crash at any step leaves a store that opens: the mark of an unclean stop and the lowered checkpoint come first, the
log loses its newest file first, and queues and index are made to match it at the next start as after any crash.
"""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from runtime.clock import Clock, SystemClock
from runtime.durable import replace_file
from store.config import StoreConfig
from store.errors import StoreError
from store.files.checkpoint import CHECKPOINT_NAME, Checkpoint, load_checkpoint
from store.files.disk import Disk
from store.files.floorfile import FLOOR_NAME, VOTE_NAME, read_floor
from store.files.lockfile import ABORT_NAME, LockFile
from store.files.mappedfile import NAME_DIGITS, LogFile
from store.files.owner_only import CUT_FOLDER
from store.log.logscan import LogScan, Span
from store.recovery.opening import INDEX_FOLDER, QUEUES_FOLDER
from store.recovery.recovery import dirty_ranges, load_files

_LOG = logging.getLogger(__name__)

# What replaced files leave beside them (runtime/durable.py).
BACKUP = ".bak"
LOG_FOLDER = "commitlog"
_CHUNK_BYTES = 1024 * 1024


class Cut(NamedTuple):
    """What was cut: whole records in [begin, end), whose bytes are kept in a folder that reads like a store's."""

    begin: int
    """The end of the log from now on."""
    end: int
    """The position behind the last whole record that was cut."""
    records: int
    kept_in: Path


def cut_folder(
    config: StoreConfig, position: int, disk: Disk | None = None, *, clock: Clock | None = None
) -> Cut | None:
    """Cut the log of a closed store at its last record border at or before `position`; None: nothing lay behind.

    Reads the file that holds the position, and all behind it. The store folder's disk takes what is cut once more.
    Raises StoreLocked, StoreDamaged, OSError; StoreError when the log begins behind `position`: nothing is cut then.
    """
    if not config.log_folder.is_dir():
        return None
    disk = disk if disk is not None else Disk()
    lock = LockFile(config.root)
    try:
        files = load_files(config.log_folder, config.mappedFileSizeCommitLog, disk)
        try:
            found = _find(files, position)
            if found is None:
                return None
            begin, end, records = found
            kept_in = _make_folder(config.root, begin, disk, clock)
            _keep(files, begin, kept_in / LOG_FOLDER, disk)
            _cut(config.root, files, begin, disk)
        finally:
            for file in files:
                file.release()
    finally:
        lock.release()
    _LOG.warning("the CommitLog was cut at %d: %d records up to %d are kept in %s", begin, records, end, kept_in)
    return Cut(begin, end, records, kept_in)


def begin_folder_anew(
    config: StoreConfig, disk: Disk | None = None, *, clock: Clock | None = None, same_member: bool = False
) -> Path:
    """Move log, queues and index of a closed store aside; return the folder that they are in.

    `same_member`: for its group it stays the disk that it was, which is right only for one that has acknowledged
    nothing to that group yet; otherwise its vote goes too (R6).

    The store is an empty one then, except for config/. Log files on another file system than the store folder stay
    on theirs, in a folder ``cut`` of their own. Raises StoreLocked, OSError.
    """
    disk = disk if disk is not None else Disk()
    lock = LockFile(config.root)
    try:
        aside = _make_folder(config.root, 0, disk, clock)
        _mark_unclean(config.root, disk)
        (aside / CHECKPOINT_NAME).write_bytes(load_checkpoint(config.root).encode())
        # From here on each start reads all that is left of the log, until nothing is.
        replace_file(config.root / CHECKPOINT_NAME, Checkpoint(dispatched=0, flushed=0).encode())
        # The vote first: no crash may leave it without the log.
        identity = () if same_member else (VOTE_NAME, VOTE_NAME + BACKUP)
        for name in (*identity, FLOOR_NAME, QUEUES_FOLDER, INDEX_FOLDER):
            _move(config.root / name, aside / name, disk)
        _move_log(config, aside, disk)
    finally:
        lock.release()
    _LOG.warning("the store in %s begins anew, what it held is kept in %s", config.root, aside)
    return aside


def _find(files: Sequence[LogFile], position: int) -> tuple[int, int, int] | None:
    """Return (last border at or before `position`, end of the log, records between them)."""
    if not files:
        return None
    first, last = files[0].start, files[-1]
    if position < first:
        raise StoreError(f"the CommitLog begins at {first}: there is nothing to keep before {position}, begin anew")
    # A file begins with a record when the one before it is full: so that one is looked at for its end.
    looked_at = min(max(first, position - 1), last.end - 1)
    begin = looked_at - looked_at % last.size
    spans = [Span(file.path, file.start, file.size) for file in files]
    scan = LogScan(spans, begin, check_crc=False)
    records = 0
    for found in scan:
        if found.position + found.size <= position:
            begin = found.position + found.size
        else:
            if found.position <= position:
                begin = found.position
            records += 1
    return (begin, scan.end, records) if scan.end > position else None


def _make_folder(root: Path, position: int, disk: Disk, clock: Clock | None) -> Path:
    """Make <root>/cut/<position>-<time>, its name durable."""
    folder = root / CUT_FOLDER
    folder.mkdir(exist_ok=True)
    now = (clock if clock is not None else SystemClock()).now_ms()
    name = f"{position:0{NAME_DIGITS}d}-{time.strftime('%Y%m%d%H%M%S', time.localtime(now // 1000))}{now % 1000:03d}"
    made, number = folder / name, 1
    while made.exists():
        number += 1
        made = folder / f"{name}-{number}"
    made.mkdir()
    disk.sync_folder(folder)
    disk.sync_folder(root)
    return made


def _keep(files: Sequence[LogFile], begin: int, folder: Path, disk: Disk) -> None:
    """Copy what stands behind `begin`, whatever it is, to where it stands in files of the same names; durably."""
    folder.mkdir()
    for file in files:
        if file.end <= begin:
            continue
        fd = disk.create(folder / file.path.name, file.size)
        try:
            for offset, length in dirty_ranges(file.fd, max(0, begin - file.start), file.size):
                disk.pwrite(fd, os.pread(file.fd, length, offset), offset)
            disk.fdatasync(fd)
        finally:
            disk.close(fd)
    disk.sync_folder(folder)
    disk.sync_folder(folder.parent)


def _cut(root: Path, files: Sequence[LogFile], begin: int, disk: Disk) -> None:
    _mark_unclean(root, disk)
    _lower_checkpoint(root, files, begin)
    floor = read_floor(root)
    if floor is not None and floor.end > begin:
        # A group member's promise not to lose entries; what decides here knows that they do not count. For the group
        # it is another disk from now on (R6), and it is so before anything is gone.
        for name in (VOTE_NAME, VOTE_NAME + BACKUP):
            if (root / name).exists():
                disk.unlink(root / name)
        disk.sync_folder((root / FLOOR_NAME).parent)
        disk.unlink(root / FLOOR_NAME)
        disk.sync_folder((root / FLOOR_NAME).parent)
    last = next(file for file in files if file.start <= begin < file.end)
    for file in reversed(files):
        if file.start > begin:
            file.release()
            disk.unlink(file.path)
            # One by one, from the newest on: no crash may leave a gap.
            disk.sync_folder(file.path.parent)
    for offset, length in dirty_ranges(last.fd, begin - last.start, last.size):
        disk.pwrite(last.fd, bytes(length), offset)
    last.sync()


def _mark_unclean(root: Path, disk: Disk) -> None:
    (root / ABORT_NAME).write_text(str(os.getpid()), encoding="ascii")
    disk.sync_folder(root)


def _lower_checkpoint(root: Path, files: Sequence[LogFile], position: int) -> None:
    known = load_checkpoint(root)
    flushed = min(known.flushed, position)
    if flushed < 0:
        # RocketMQ left it: only its times are known, and after the cut an older time would look like damage.
        for file in files:
            if file.start < position:
                file.sync()
        flushed = position
    lowered = replace(known, dispatched=min(known.dispatched, position), flushed=flushed, totals=None)
    replace_file(root / CHECKPOINT_NAME, lowered.encode())


def _move(path: Path, target: Path, disk: Disk) -> None:
    if path.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        disk.rename(path, target)
        disk.sync_folder(target.parent)
        disk.sync_folder(path.parent)


def _move_log(config: StoreConfig, aside: Path, disk: Disk) -> None:
    folder = config.log_folder
    if not folder.is_dir():
        return
    alike = folder.stat().st_dev == config.root.stat().st_dev
    target = aside / LOG_FOLDER if alike else folder / CUT_FOLDER / aside.name
    target.mkdir(parents=True)
    names = [path.name for path in folder.iterdir() if path.name.isdecimal() and len(path.name) == NAME_DIGITS]
    # From the newest on: what is left after a crash is a log.
    for name in sorted(names, reverse=True):
        _move(folder / name, target / name, disk)
    if not alike:
        _LOG.warning("the CommitLog files are kept in %s", target)
