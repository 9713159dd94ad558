"""The face of the store: one CommitLog, its queues and its index, behind one object."""

import logging
from collections.abc import Callable, Sequence

from runtime.clock import Clock, SystemClock
from store.assembler import Assembler
from store.cleaner import Cleaner, GroupCleaner
from store.config import StoreConfig
from store.disk import Disk
from store.dispatch import Dispatcher, parse_delay_levels
from store.entrylog import EntryLog, EntryParts
from store.errors import StoreWriteError
from store.floorfile import FloorFile
from store.flusher import Flusher
from store.groupscan import FoundEntries
from store.health import Health
from store.keeper import GROUP_CHECKPOINT_BYTES, Helper, Keeper
from store.lockfile import ABORT_NAME
from store.logbytes import LogBytes
from store.opening import Opened, open_folder
from store.reads import Accepts, Reader
from store.slavelog import SlaveLog, SlaveParts
from store.types import (
    CleanReport,
    Dispatched,
    GetResult,
    PendingRecord,
    PutResult,
    QueryResult,
    QueueEntry,
    StoreStats,
)

_LOG = logging.getLogger(__name__)

# RocketMQ's limit of one answer, whatever the requester says.
READ_BYTES_MAX = 128 * 1024 * 1024


class MessageStore(LogBytes):
    """A store folder in use. Made by open(), given back by close().

    One thread (the broker's loop) calls everything but read_cold(). `on_dispatched` is called in it, once per write();
    `on_flushed` (position) and `on_fatal` (error: nothing is called flushed any more, end the process) are called from
    the store's own threads.
    """

    put: Callable[[PendingRecord], PutResult]
    """Give a record its place and build it into the pending buffer; write() stores it.

    No I/O, except that a file that is full is left for the next one. Status other than PUT_OK: nothing was put. (The
    assembler's own method, one call less per message.)
    """

    def __init__(
        self,
        config: StoreConfig,
        opened: Opened,
        *,
        store_host: bytes,
        clock: Clock,
        disk: Disk,
        stepped: bool,
        slave: bool,
    ) -> None:
        """Use open()."""
        super().__init__(opened.log)
        self._config = config
        self._clock = clock
        self._disk = disk
        self._opened = opened
        self._rebuilding = slave or opened.entries is not None
        self._queues = opened.queues
        self._dispatcher = Dispatcher(opened.queues, opened.index)
        levels_ms = parse_delay_levels(config.messageDelayLevel)
        self._assembler = Assembler(
            opened.log,
            opened.queues,
            clock,
            store_host=store_host,
            body_bytes_max=config.maxMessageSize,
            last_timestamp=opened.last_timestamp,
            levels_ms=levels_ms,
        )
        self._health = Health(config, clock, disk, opened.log, self._assembler)
        self.put = self._assembler.put
        self._reader = Reader(opened.log, opened.queues, opened.index, config)
        self._flusher = Flusher(opened.log, config, on_flushed=self._flushed, on_fatal=self._fatal, stepped=stepped)
        self._helper = Helper(opened.log, disk, self._flusher.fail, stepped=stepped)
        self._keeper = Keeper(
            config.root,
            disk,
            clock,
            log=opened.log,
            queues=opened.queues,
            index=opened.index,
            flusher=self._flusher,
            helper=self._helper,
            checkpoint=opened.checkpoint,
            bytes_max=GROUP_CHECKPOINT_BYTES if opened.entries is not None else None,
        )
        self._cleaner = Cleaner(
            config,
            opened.log,
            opened.queues,
            opened.index,
            keeper=self._keeper,
            helper=self._helper,
            health=self._health,
            clock=clock,
        )
        self._closed = False
        self.on_dispatched: Callable[[Sequence[Dispatched]], None] | None = None
        self.on_flushed: Callable[[int], None] | None = None
        self.on_fatal: Callable[[BaseException], None] | None = None
        self.entries: EntryLog | None = None
        """The Raft log, when the store is a group member's; then nothing is put or written past it."""
        self.group_cleaner: GroupCleaner | None = None
        """Of a group member, in place of clean()."""
        if opened.entries is not None:
            self.entries = self._open_entries(opened.entries, store_host, levels_ms)
            self.group_cleaner = GroupCleaner(self._cleaner, opened.log, opened.queues, self.entries)
        self.slave: SlaveLog | None = self._open_slave(levels_ms) if slave else None
        """What a master's bytes go into, when the store is a slave's; then nothing is put or written past it."""

    def _open_slave(self, levels_ms: tuple[int, ...]) -> SlaveLog:
        parts = SlaveParts(
            self._log, self._assembler, self._flusher, self._health, self._deliver, self._helper.make_room, levels_ms
        )
        return SlaveLog(parts)

    def _open_entries(self, found: FoundEntries, store_host: bytes, levels_ms: tuple[int, ...]) -> EntryLog:
        self._floor = FloorFile(self._config.root, self._disk)
        parts = EntryParts(
            self._log,
            self._queues,
            self._assembler,
            self._flusher,
            self._health,
            self._floor,
            self._deliver,
            self._helper.make_room,
            store_host,
            self._config.mappedFileSizeCommitLog,
            levels_ms,
        )
        return EntryLog(parts, found)

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        store_host: bytes,
        clock: Clock | None = None,
        disk: Disk | None = None,
        group: bool = False,
        slave: bool = False,
        stepped: bool = False,
        force: bool = False,
    ) -> "MessageStore":
        """Lock the folder, recover what is in it, begin.

        `store_host`: see remoting.msgid.pack_host. `group`: as a member of a Raft group, with `entries`; without it a
        group's folder is refused unless `force` gives up what only the group has. `slave`: as a master's slave, with
        `slave`, of a group's folder too: what it has is compared with the master's. `stepped`: without threads, see
        step_flush(). Raises StoreLocked, StoreDamaged (the text says what to do), ConfigError, OSError.
        """
        config.validate()
        clock = clock if clock is not None else SystemClock()
        disk = disk if disk is not None else Disk()
        levels_ms = parse_delay_levels(config.messageDelayLevel)
        opened = open_folder(config, disk, clock, levels_ms, group=group, force=force or slave)
        try:
            store = cls(config, opened, store_host=store_host, clock=clock, disk=disk, stepped=stepped, slave=slave)
            store._health.measure_disk()
        except BaseException:
            opened.release()
            raise
        store._flusher.start()
        store._helper.start()
        store._helper.make_room()
        return store

    # -- writing

    def put_many(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """Put records one after the other, each on its own account: one result each, in their order."""
        return self._assembler.put_many(records)

    def put_batch(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """Put records side by side in one file, all or none (then all results have the same status)."""
        return self._assembler.put_batch(records)

    def write(self) -> int:
        """Write and dispatch everything put since the last time; return the written position.

        Raises StoreWriteError: then nothing put since the last time is stored or dispatched, and its results are void.
        """
        log = self._log
        if log.end == log.written:
            return log.written
        try:
            log.write()
        except OSError as error:
            self._health.undo_write(error)
            raise StoreWriteError(f"the CommitLog cannot be written: {error}") from error
        self._deliver(self._assembler.take_batch())
        log.dispatched = log.written
        if log.wants_room:
            self._helper.make_room()
        return log.written

    def _deliver(self, batch: list[Dispatched]) -> None:
        """Bring records into queues and index, and tell of them."""
        try:
            # What another broker wrote is the truth: a topic may have been deleted and made anew there.
            self._dispatcher.dispatch(batch, rebuilding=self._rebuilding)
        except Exception as error:
            # The records are in the log, and will be in the queues after the next start; without them nothing goes on.
            self._health.fail(f"queues or index cannot take records: {error}; restart the broker, they will be rebuilt")
            raise StoreWriteError(f"records are written but not dispatched: {error}") from error
        if self.on_dispatched is not None:
            self.on_dispatched(batch)

    def flush_soon(self, position: int) -> None:
        """Have the flusher make everything before `position` durable; `on_flushed` tells when."""
        self._flusher.ask(position)

    def writable(self) -> str | None:
        """Return why writes are refused (code SERVICE_NOT_AVAILABLE), None when they are not."""
        return self._health.writable()

    # -- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = READ_BYTES_MAX,
        accepts: Accepts = None,
    ) -> GetResult:
        """Read messages of a queue from `offset` on; never waits for the disk but for queue entries.

        `accepts`: tags codes that are wanted, or a function of the code; None for all. Messages it does not accept
        are passed over, next_offset included. With `cold` in the result, call read_cold() in a thread.
        """
        return self._reader.get(topic, queue_id, offset, max_count, min(max_bytes, READ_BYTES_MAX), accepts)

    def read_cold(self, result: GetResult) -> GetResult:
        """Fetch from disk what a cold result lacks; for any thread. Raises OSError when the disk fails."""
        return self._reader.read_cold(result)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest offset of a queue; 0 when it is unknown."""
        return self._queues.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue; 0 when it is unknown."""
        return self._queues.max_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after a time (the end of the queue when there is none).

        `upper`: the last one stored at or before it. May wait for the disk.
        """
        return self._reader.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, ms; -1 when it is not there. May wait for the disk."""
        return self._reader.store_time(topic, queue_id, offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the whole record that begins at a position, None when none does. May wait for the disk."""
        return self._reader.record_at(physical_offset)

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Return records of `topic` with this key or unique key, newest first. May wait for the disk."""
        return self._reader.query(topic, key, max_count, begin_ms, end_ms)

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> list[QueueEntry]:
        """Return up to `count` entries of a queue from offset `index` on."""
        return self._reader.queue_entries(topic, queue_id, index, count)

    def topics(self) -> dict[str, list[int]]:
        """Return the queue ids of each topic that ever had a message."""
        return self._queues.topics()

    def stats(self) -> StoreStats:
        """Return the store's figures."""
        log = self._log
        return StoreStats(
            written=log.written,
            flushed=log.flushed,
            min_physical=log.min_position,
            dispatch_behind_bytes=log.written - log.dispatched,
            flush_behind_bytes=max(0, log.written - log.flushed),
            log_files=len(log.files),
            log_bytes=log.written - log.min_position,
            queues=len(self._queues),
            earliest_timestamp=self._reader.earliest_timestamp(),
            latest_timestamp=self._assembler.timestamp,
            disk_ratio=self._health.disk_ratio,
            refused=self.writable(),
        )

    # -- upkeep

    def idle(self) -> None:
        """Persist queue entries and work towards a checkpoint; called every 50 ms or so, takes some ms."""
        if self._health.failed is None:
            try:
                self._keeper.step(self._assembler.timestamp)
            except OSError as error:
                _LOG.warning("queues and index cannot be persisted now: %s", error)

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over a changed configuration: retention and the disk's ratios; all else waits for the next start."""
        assert config.mappedFileSizeCommitLog == self._config.mappedFileSizeCommitLog, "sizes of files never change"
        assert config.log_folder == self._config.log_folder, "the folder of a store never changes"
        self._config = self._cleaner.config = config
        self._health.reconfigure(config)

    def delete_topic(self, topic: str, before: int | None = None) -> None:
        """Forget the queues of a topic; its offsets begin at 0 again. Its records stay until their file expires.

        `before`: queues with a record that ends behind this position stay, for they were made anew there.
        """
        if self._health.failed is None:
            self.write()
        self._queues.delete_topic(topic, before)
        self._assembler.forget_topic(topic)
        if self.entries is not None:
            self.entries.forget_topic()
        self._keeper.hasten()

    def clean(self, *, now: bool = False) -> CleanReport:
        """Do a retention pass: called every cleanResourceInterval in the store's thread; the helper removes files.

        `now`: an administrator wants expired files gone at any hour. The reason and what was removed are told. Not for
        a group's member, see `group_cleaner`.
        """
        assert self.entries is None, "a group agrees on what it deletes"
        return self._cleaner.clean(now=now)

    def step_flush(self) -> bool:
        """Without threads: sync what is written, with the callbacks of the flusher; tell whether there was anything."""
        return self._flusher.step()

    def step_helper(self) -> bool:
        """Without threads: do one job of the helper; tell whether there was one."""
        return self._helper.step()

    def close(self) -> None:
        """Stop cleanly: write, flush, persist, checkpoint, remove the mark of an unclean stop, unlock.

        When writing or flushing failed before, the mark stays and the next start recovers. Raises OSError,
        StoreWriteError; the folder is unlocked all the same.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._health.failed is None:
                self.write()
                if self.slave is not None:
                    self.slave.finish()
        finally:
            self._helper.close()
            self._flusher.close()
            try:
                if self._health.failed is None and self._flusher.failure is None:
                    self._keeper.finish(self._assembler.timestamp)
                    self._disk.unlink(self._config.root / ABORT_NAME)
                    self._disk.sync_folder(self._config.root)
            finally:
                if self.entries is not None:
                    self._floor.close()
                self._opened.release()

    # -- what the threads tell

    def _flushed(self, position: int) -> None:
        if self.entries is not None and self.entries.on_durable is not None:
            self.entries.on_durable(position)
        if self.on_flushed is not None:
            self.on_flushed(position)

    def _fatal(self, error: BaseException) -> None:
        self._health.fail(f"the CommitLog cannot be synced: {error}; restart the broker")
        if self.on_fatal is not None:
            self.on_fatal(error)
