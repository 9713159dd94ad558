"""Opens a store folder: lock, marker of an unclean stop, recovery, parts that match one another."""

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from runtime.clock import Clock
from store.checkpoint import Checkpoint, load_checkpoint
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.consumequeue import ConsumeQueues, QueueOrderError
from store.disk import Disk
from store.dispatch import Dispatcher, dispatched_from_record
from store.errors import StoreDamaged
from store.indexfile import MessageIndex
from store.lockfile import ABORT_NAME, LockFile
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


def open_folder(config: StoreConfig, disk: Disk, clock: Clock, levels_ms: tuple[int, ...]) -> Opened:
    """Lock and recover a store folder. Raises StoreError, OSError; then everything is given back.

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
        files = load_files(config.log_folder, config.mappedFileSizeCommitLog, disk)
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
        mending = _Mending(config, disk, queues, index, checkpoint, files, levels_ms)
        found = mending.run(clean=clean)
        log = CommitLog(config.log_folder, config.mappedFileSizeCommitLog, disk, found.files, found.end)
        queues.delete_below(log.min_position)
        if not clean and not _tails_fit(queues, Reader(log, queues, None, config)):
            _LOG.warning("the queues do not match the CommitLog: all of them are built anew")
            mending.rebuild()
        undo.pop_all()
    return Opened(lock, log, queues, index, checkpoint, found.last_timestamp)


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
    ) -> None:
        self._config = config
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._files = files
        dispatcher = Dispatcher(queues, index)
        self._recovery: Callable[[], Recovery] = partial(
            Recovery,
            files,
            checkpoint,
            disk,
            check_crc=config.checkCRCOnRecover,
            read=partial(dispatched_from_record, levels_ms=levels_ms),
            dispatch=partial(dispatcher.dispatch, rebuilding=True),
        )

    def run(self, *, clean: bool) -> Recovered:
        """Read what must be read again, and settle the log."""
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
        return recovery.settle(end)

    def rebuild(self) -> None:
        """Build all queues and the index anew, from a log that has been settled."""
        self._feed_all(self._recovery())

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
