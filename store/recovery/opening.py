"""Opens a store folder: lock, marker of an unclean stop, recovery, parts that match one another."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from remoting.topics import RAFT_TOPIC
from runtime.clock import Clock
from store.config import StoreConfig
from store.derived.consumequeue import ConsumeQueues, QueueOrderError
from store.derived.indexfile import MessageIndex
from store.errors import StoreDamaged, is_full
from store.files.beginning import Beginning, leftovers, lost_text
from store.files.checkpoint import CHECKPOINT_BYTES, CHECKPOINT_NAME, Checkpoint, load_checkpoint, save_checkpoint
from store.files.disk import Disk
from store.files.floorfile import read_floor
from store.files.lockfile import ABORT_NAME, LockFile, mark_unclean
from store.files.mappedfile import LogFile, file_name
from store.log.commitlog import CommitLog
from store.log.dispatch import Dispatcher, dispatched_from_record
from store.log.logscan import Span
from store.raftlog.groupscan import FoundEntries, HintedControls
from store.reads.reads import Reader
from store.recovery.raft_recovery import GroupRecovery
from store.recovery.recovery import Recovered, Recovery, file_starts, load_files, scan_start

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
        """Give everything back. What queues and index hold that finds no room, the next start builds again."""
        with ExitStack() as undo:
            undo.callback(self.lock.release)
            undo.callback(self.log.close)
            if self.index is not None:
                undo.callback(_close_if_room, self.index.close)
            undo.callback(_close_if_room, self.queues.close)


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
        begin = _check_oldest(config, disk, checkpoint.beginning, fetched=missing is not None, group=group)
        files = load_files(
            config.log_folder, config.mappedFileSizeCommitLog, disk, begin=begin, until=until, missing=missing
        )
        undo.callback(_release_all, files)
        if not files and checkpoint.flushed > 0:
            raise StoreDamaged(
                f"{config.log_folder} is empty, but {checkpoint.flushed} bytes had been written: put the CommitLog "
                f"files back (is storePathCommitLog right?), or remove the file 'checkpoint' from {config.root} to "
                f"begin anew"
            )
        # The first one may be due when the disk is full: a start that finds none begins by writing one.
        disk.reserve(config.root / CHECKPOINT_NAME, CHECKPOINT_BYTES)
        mark_unclean(config.root)
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
            # A file that only zeros stand in must not be there when the next start asks what is missing.
            undo.callback(disk.unlink, file.path)
        found = mending.run(clean=clean, missing=missing or [])
        log = CommitLog(config.log_folder, config.mappedFileSizeCommitLog, disk, found.files, found.end)
        queues.delete_below(log.min_position)
        damaged = found.entries is not None and found.entries.damaged is not None
        if not clean and not _tails_fit(queues, Reader(log, queues, None, config), damaged=damaged):
            _LOG.warning("the queues do not match the CommitLog: all of them are built anew")
            found = replace(found, entries=mending.rebuild())
        undo.pop_all()
    return Opened(lock, log, queues, index, mending.checkpoint, found.last_timestamp, found.entries)


def _check_oldest(
    config: StoreConfig, disk: Disk, beginning: Beginning | None, *, fetched: bool, group: bool
) -> int | None:
    """Return where files are missing from, when the log's oldest are and can be `fetched` from another member.

    What a removal that was cut short has left in front of the log goes. Raises StoreDamaged when nobody can bring what
    is missing: neither retention nor a person who knows better took it. OSError.
    """
    starts = file_starts(config.log_folder)
    if beginning is None or (not starts and not (group and fetched)):
        # RocketMQ's folder, one of an earlier version, or one without a log: that is looked at elsewhere.
        return None
    left = leftovers(starts, beginning.start, config.mappedFileSizeCommitLog)
    first = min((start for start in starts if start not in left), default=None)
    lost = first is None or first > beginning.start
    if lost and not (fetched and beginning.entries_from_start is not None):
        raise StoreDamaged(lost_text(config.root, config.log_folder, beginning, first, group=group))
    for start in left:
        _LOG.warning("%s was removed by retention, and goes now", file_name(start))
        disk.unlink(config.log_folder / file_name(start))
    if left:
        disk.sync_folder(config.log_folder)
    return beginning.start if lost else None


def _close_if_room(close: Callable[[], None]) -> None:
    try:
        close()
    except OSError as error:
        if not is_full(error):
            raise


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
    """Makes queues and index match the log.

    What a start cuts of them it must be able to cut again: should it be killed before all is built, the next one
    begins at the same place. So `checkpoint` is lowered to where this one reads from, durably, before anything is cut.
    """

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
        self.checkpoint = checkpoint
        self._group = group
        self._force = force
        self._disk = disk
        self._config = config
        self._queues = queues
        self._index = index
        self._files = files
        self._read = partial(dispatched_from_record, levels_ms=levels_ms)
        self._dispatch = partial(Dispatcher(queues, index).dispatch, rebuilding=True)

    def run(self, *, clean: bool, missing: Sequence[LogFile]) -> Recovered:
        """Read what must be read again, and settle the log. Files that are `missing` are made: a hole of zeros."""
        if not clean:
            self._queues.scan(files_max=1)
        start = self._start(clean=clean)
        if missing:
            start = min(start, missing[0].start)
        _LOG.info("the CommitLog is read from %d (%s stop)", start, "clean" if clean else "unclean")
        known = self.checkpoint
        # Looked at before anything is cut or lowered: what was taken away is missed behind a hole too.
        whole = self._holds(known)
        if whole:
            self._lower(start, self._queues.totals(below=start))
        else:
            self._lower(self._files[0].start, (0, 0))
        for file in missing:
            _LOG.error("%s is missing: it is to be fetched from another member", file.path)
            LogFile.create(self._disk, self._config.log_folder, file.start, file.size).release()
        self._queues.truncate_above(start)
        if self._index is not None:
            self._index.truncate_above(start)
            (self._config.root / INDEX_FOLDER).mkdir(exist_ok=True)
        try:
            if not whole:
                raise QueueOrderError(f"the queues lack some of what they held: {known.totals} queues and entries")
            recovery = self._recovery()
            end = recovery.feed(start)
        except QueueOrderError as error:
            _LOG.warning("%s: all queues are built anew", error)
            recovery, end = self._feed_all()
        if not self._group:
            self._check_classic(end)
        return recovery.settle(end)

    def _recovery(self) -> Recovery:
        """Make a pass over the log, from the present checkpoint on."""
        if self._group:
            return GroupRecovery(
                self._files,
                self.checkpoint,
                self._disk,
                queues=self._queues,
                floor=read_floor(self._config.root),
                read=self._read,
                dispatch=self._dispatch,
            )
        return Recovery(
            self._files,
            self.checkpoint,
            self._disk,
            check_crc=self._config.checkCRCOnRecover,
            read=self._read,
            dispatch=self._dispatch,
        )

    def _lower(self, position: int, totals: tuple[int, int] | None) -> None:
        """Have whatever start comes next read from `position` too, unless the checkpoint says so already."""
        if not 0 <= self.checkpoint.dispatched <= position:
            self.checkpoint = self.checkpoint.lowered(position, totals)
            save_checkpoint(self._config.root, self._disk, self.checkpoint)

    def _holds(self, known: Checkpoint) -> bool:
        """Tell whether the queues hold at least what a checkpoint counted; true when it counted nothing."""
        if known.totals is None or known.dispatched < 0:
            return True
        found = self._queues.totals(below=known.dispatched)
        return all(there >= counted for there, counted in zip(found, known.totals, strict=True))

    def rebuild(self) -> FoundEntries | None:
        """Build all queues and the index anew, from a log that has been settled."""
        recovery, _ = self._feed_all()
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

    def _feed_all(self) -> tuple[Recovery, int]:
        """Build all of it from all of the log; return the pass that did it, and the end that it found."""
        start = self._files[0].start
        self._lower(start, (0, 0))
        self._queues.clear(below=start)
        if self._index is not None:
            self._index.clear()
        recovery = self._recovery()
        return recovery, recovery.feed(start)

    def _start(self, *, clean: bool) -> int:
        first = self._files[0].start
        if self._index is not None and not (self._config.root / INDEX_FOLDER).is_dir():
            # It was taken away, or there was none so far.
            return first
        if self._group and self.checkpoint.dispatched < 0 and self._queues.known(RAFT_TOPIC, 0):
            # Nothing tells up to where the entries were committed.
            return first
        start = scan_start(
            self.checkpoint,
            self._files,
            clean=clean,
            queues_end=self._queues.max_physical(),
            files_max=self._config.maxRecoveryCommitlogFiles,
        )
        index = self._index
        if index is not None and self.checkpoint.dispatched < 0 and index.end_physical < start:
            # RocketMQ's checkpoint says nothing certain about its index: go on where the index ends.
            size = self._files[0].size
            start = max(first, index.end_physical // size * size)
        return start


def _tails_fit(queues: ConsumeQueues, reader: Reader, *, damaged: bool) -> bool:
    """Tell whether each queue's newest entry points to the record that it stands for.

    Of a `damaged` log the entries themselves do not count: what the hole takes is known by its place only.
    """
    for topic, queue_ids in queues.topics().items():
        if damaged and topic == RAFT_TOPIC:
            continue
        for queue_id in queue_ids:
            offset = queues.max_offset(topic, queue_id) - 1
            if offset < queues.min_offset(topic, queue_id):
                continue
            position = queues.entries(topic, queue_id, offset, 1)[0][0]
            record = reader.any_record_at(position)
            if record is None:
                return False
            found = dispatched_from_record(record)
            if (found.topic, found.queue_id, found.queue_offset) != (topic, queue_id, offset):
                return False
    return True
