"""Opens a store folder: lock, marker of an unclean stop, recovery, parts that match one another."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from runtime.clock import Clock
from store.checkpoint import Checkpoint, load_checkpoint
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.consumequeue import ConsumeQueues, QueueOrderError
from store.disk import Disk
from store.dispatch import Dispatcher, dispatched_from_record
from store.errors import StoreDamaged
from store.floorfile import read_floor
from store.grouprecovery import GroupRecovery
from store.groupscan import FoundEntries, HintedControls
from store.indexfile import MessageIndex
from store.lockfile import ABORT_NAME, LockFile
from store.logscan import Span
from store.mappedfile import LogFile
from store.reads import Reader
from store.recovery import Recovered, Recovery, load_files, scan_start

_LOG = logging.getLogger(__name__)

QUEUES_FOLDER = "consumequeue"
INDEX_FOLDER = "index"


@dataclass
class Opened:
    """The parts of a store that is recovered and locked. Whoever has it must release the lock in the end."""

    lock: LockFile
    log: CommitLog
    queues: ConsumeQueues
    index: MessageIndex | None
    checkpoint: Checkpoint
    last_timestamp: int
    entries: FoundEntries | None
    """Of a group member, None for a single broker."""

    def release(self) -> None:
        """Give everything back."""
        try:
            self.queues.close()
            if self.index is not None:
                self.index.close()
        finally:
            self.log.close()
            self.lock.release()


def open_folder(
    config: StoreConfig,
    disk: Disk,
    clock: Clock,
    levels_ms: tuple[int, ...],
    *,
    group: bool = False,
    force: bool = False,
) -> Opened:
    """Lock and recover a store folder. Raises StoreError, OSError; then everything is given back.

    `group`: as a member of a Raft group. `force`: as a single broker or a slave, although it belongs to a group.

    Files and folders of RocketMQ that are not known here (config/, timerwheel, abort.bak, …) are left alone.
    """
    config.root.mkdir(parents=True, exist_ok=True)
    config.log_folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        lock = LockFile(config.root)
        undo.callback(lock.release)
        abort = config.root / ABORT_NAME
        clean = not abort.exists()
        checkpoint = load_checkpoint(config.root)
        # In a group what is missing can be fetched from another member, as damaged bytes can (R4).
        floor = read_floor(config.root) if group else None
        missing: list[LogFile] | None = [] if floor is not None else None
        until = floor.end if floor is not None else 0
        files = load_files(config.log_folder, config.mappedFileSizeCommitLog, disk, until=until, missing=missing)
        undo.callback(_release_all, files)
        if not files and checkpoint.flushed > 0:
            raise StoreDamaged(
                f"{config.log_folder} is empty, but {checkpoint.flushed} bytes had been written: put the CommitLog "
                f"files back (is storePathCommitLog right?), or remove the file 'checkpoint' from {config.root} to "
                f"begin anew"
            )
        abort.write_text(str(os.getpid()), encoding="ascii")
        disk.sync_folder(config.root)
        queues = ConsumeQueues(config.root / QUEUES_FOLDER, file_bytes=config.mappedFileSizeConsumeQueue)
        undo.callback(queues.close)
        index = _open_index(config, clock, checkpoint, clean=clean)
        if index is not None:
            undo.callback(index.close)
        if not files:
            files.append(LogFile.create(disk, config.log_folder, 0, config.mappedFileSizeCommitLog))
        mending = _Mending(config, disk, queues, index, checkpoint, files, levels_ms, group=group, force=force)
        for file in missing or ():
            undo.callback(disk.unlink, file.path)
        found = mending.run(clean=clean, missing=missing or [])
        log = CommitLog(config.log_folder, config.mappedFileSizeCommitLog, disk, found.files, found.end)
        queues.delete_below(log.min_position)
        damaged = found.entries is not None and found.entries.damaged is not None
        if not clean and not damaged and not _tails_fit(queues, Reader(log, queues, None, config)):
            _LOG.warning("the queues do not match the CommitLog: all of them are built anew")
            found = replace(found, entries=mending.rebuild())
        undo.pop_all()
    return Opened(lock, log, queues, index, checkpoint, found.last_timestamp, found.entries)


def _release_all(files: list[LogFile]) -> None:
    for file in files:
        file.release()


def _open_index(config: StoreConfig, clock: Clock, checkpoint: Checkpoint, *, clean: bool) -> MessageIndex | None:
    if not config.messageIndexEnable:
        return None
    return MessageIndex(
        config.root / INDEX_FOLDER,
        slots=config.maxHashSlotNum,
        entries=config.maxIndexNum,
        clean=clean,
        synced=max(0, checkpoint.dispatched),
        clock=clock,
    )


class _Mending:
    """Makes queues and index match the log."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        queues: ConsumeQueues,
        index: MessageIndex | None,
        checkpoint: Checkpoint,
        files: list[LogFile],
        levels_ms: tuple[int, ...],
        *,
        group: bool,
        force: bool,
    ) -> None:
        self._force = force
        self._disk = disk
        self._config = config
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._files = files
        dispatcher = Dispatcher(queues, index)
        read = partial(dispatched_from_record, levels_ms=levels_ms)
        dispatch = partial(dispatcher.dispatch, rebuilding=True)
        self._recovery: Callable[[], Recovery] = partial(
            Recovery, files, checkpoint, disk, check_crc=config.checkCRCOnRecover, read=read, dispatch=dispatch
        )
        if group:
            self._recovery = partial(
                GroupRecovery,
                files,
                checkpoint,
                disk,
                queues=queues,
                floor=read_floor(config.root),
                read=read,
                dispatch=dispatch,
            )

    def run(self, *, clean: bool, missing: Sequence[LogFile]) -> Recovered:
        """Read what must be read again, and settle the log; all of it when files are `missing`."""
        if missing:
            # The queues first: should this be cut short, the next start must read everything too.
            self._queues.clear()
            self._disk.sync_tree(self._config.root)
            for file in missing:
                _LOG.error("%s is missing: it is to be fetched from another member", file.path)
                LogFile.create(self._disk, self._config.log_folder, file.start, file.size).release()
            recovery = self._recovery()
            return recovery.settle(self._feed_all(recovery))
        if not clean:
            self._queues.scan(files_max=1)
        start = self._start(clean=clean)
        _LOG.info("the CommitLog is read from %d (%s stop)", start, "clean" if clean else "unclean")
        self._queues.truncate_above(start)
        if self._index is not None:
            self._index.truncate_above(start)
        recovery = self._recovery()
        try:
            end = recovery.feed(start)
        except QueueOrderError as error:
            _LOG.warning("%s: all queues are built anew", error)
            recovery = self._recovery()
            end = self._feed_all(recovery)
        if not isinstance(recovery, GroupRecovery):
            self._check_classic(end)
        return recovery.settle(end)

    def rebuild(self) -> FoundEntries | None:
        """Build all queues and the index anew, from a log that has been settled."""
        recovery = self._recovery()
        self._feed_all(recovery)
        return recovery.found if isinstance(recovery, GroupRecovery) else None

    def _check_classic(self, end: int) -> None:
        """Refuse a single broker on a group's log, before a byte of it is changed (R2)."""
        try:
            free = HintedControls([Span(file.path, file.start, file.size) for file in self._files], self._queues)
            if self._force or free.ends_classic():
                return
        except QueueOrderError:
            pass
        raise StoreDamaged(
            f"{self._config.root} belongs to a Raft group: as a single broker it would go its own way from {end} on. "
            f"Let the group end first (raftmq cluster leave-raft GROUP), or start with --force, which gives up what "
            f"the group has acknowledged and this member lacks, and keeps what was never committed"
        )

    def _feed_all(self, recovery: Recovery) -> int:
        self._queues.clear()
        if self._index is not None:
            self._index.clear()
        return recovery.feed(self._files[0].start)

    def _start(self, *, clean: bool) -> int:
        start = scan_start(
            self._checkpoint,
            self._files,
            clean=clean,
            queues_end=self._queues.max_physical(),
            files_max=self._config.maxRecoveryCommitlogFiles,
        )
        index = self._index
        if index is not None and self._checkpoint.dispatched < 0 and index.end_physical < start:
            # RocketMQ's checkpoint says nothing certain about its index: go on where the index ends.
            size = self._files[0].size
            start = max(self._files[0].start, index.end_physical // size * size)
        return start


def _tails_fit(queues: ConsumeQueues, reader: Reader) -> bool:
    """Tell whether each queue's newest entry points to the record that it stands for."""
    for topic, queue_ids in queues.topics().items():
        for queue_id in queue_ids:
            offset = queues.max_offset(topic, queue_id) - 1
            if offset < queues.min_offset(topic, queue_id):
                continue
            position = queues.entries(topic, queue_id, offset, 1)[0][0]
            record = reader.record_at(position)
            if record is None:
                return False
            found = dispatched_from_record(record)
            if (found.topic, found.queue_id, found.queue_offset) != (topic, queue_id, offset):
                return False
    return True
