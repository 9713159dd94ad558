"""The face of the store: one CommitLog, its queues and its index, behind one object."""

import logging
from collections.abc import Callable, Sequence

from runtime.clock import Clock, SystemClock
from store.config import StoreConfig
from store.errors import StoreWriteError
from store.events import Payloads, StoreEvents
from store.files.beginning import Beginning
from store.files.disk import Disk
from store.files.floorfile import FloorFile
from store.files.lockfile import ABORT_NAME
from store.integrity.scrub import Scrub
from store.integrity.verifier import Verifier
from store.log.assembler import Assembler
from store.log.checkpointer import GROUP_CHECKPOINT_BYTES, Helper, Keeper
from store.log.cleaner import Ages, Cleaner
from store.log.delivery import Delivery
from store.log.dispatch import parse_delay_levels
from store.log.flusher import Flusher
from store.log.health import Health
from store.raftlog.cleaner import GroupCleaner
from store.raftlog.entrychecks import EntryRanges
from store.raftlog.entrylog import EntryLog
from store.raftlog.entryparts import EntryParts
from store.raftlog.groupscan import FoundEntries
from store.reads.storereads import StoreReads
from store.recovery.opening import Opened, open_folder
from store.slave.slavelog import SlaveLog, SlaveParts
from store.types import CleanReport, Integrity, PendingRecord, PutResult, StoreStats

_LOG = logging.getLogger(__name__)


class MessageStore(StoreReads):
    """A store folder in use. Made by open(), given back by close().

    One thread (the broker's loop) calls everything but read_cold(). What it tells of, and in which thread: StoreEvents.
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
        payloads: Payloads,
        events: StoreEvents,
    ) -> None:
        """Use open()."""
        super().__init__(opened.log, opened.queues, opened.index, config, Verifier(opened.log, clock))
        self._config, self._clock = config, clock
        self._disk = disk
        self._opened = opened
        self._events = events
        self._payloads = payloads
        self.entries: EntryLog | None = None
        """The Raft log, when the store is a group member's; then nothing is put or written past it."""
        self.group_cleaner: GroupCleaner | None = None
        """Of a group member, in place of clean()."""
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
        self.flusher = self._make_flusher(slave=slave, stepped=stepped)
        """What makes the log durable; whoever runs the loop may let the kernel do it, see Flusher.in_loop()."""
        self._helper = Helper(opened.log, disk, self.flusher.fail, events.worked, stepped=stepped)
        self._scrub = self._make_scrub()
        self._keeper = self._make_keeper(opened)
        self._cleaner = Cleaner(
            config,
            opened.log,
            opened.queues,
            opened.index,
            keeper=self._keeper,
            helper=self._helper,
            health=self._health,
            ages=Ages(clock, events.needed_from),
        )
        self._delivery = Delivery(
            opened.queues,
            opened.index,
            self._assembler,
            self._keeper,
            self._health,
            # What a master wrote is the truth: a topic may have been deleted and made anew there. A group's log tells.
            rebuilding=slave,
            deletes=payloads.deletes,
            dispatched=events.dispatched,
        )
        self._closed = False
        self.writable = self._health.writable
        if opened.entries is not None:
            self._open_entries(opened.entries, store_host, levels_ms)
        self.slave: SlaveLog | None = self._open_slave(levels_ms) if slave else None
        """What a master's bytes go into, when the store is a slave's; then nothing is put or written past it."""
        self._keeper.begin(self._beginning)

    def _make_flusher(self, *, slave: bool, stepped: bool) -> Flusher:
        return Flusher(
            self._log,
            self._config,
            on_flushed=self._events.flushed,
            on_fatal=self._fatal,
            witness=lambda: None if self.entries is None else self.entries.witness(),
            beside=lambda: None if self.entries is None else self._floor,
            # A slave waits in the loop until no sync runs.
            make_kernel=self._disk.make_syncs if self._config.kernelSyncEnable and not slave else lambda: None,
            stepped=stepped,
        )

    def _make_keeper(self, opened: Opened) -> Keeper:
        return Keeper(
            self._config.root,
            self._disk,
            self._clock,
            log=opened.log,
            queues=opened.queues,
            index=opened.index,
            flusher=self.flusher,
            helper=self._helper,
            checkpoint=opened.checkpoint,
            bytes_max=GROUP_CHECKPOINT_BYTES if opened.entries is not None else None,
        )

    def _beginning(self) -> Beginning | None:
        """Return where the log begins; for any thread. A slave's that never held anything has no beginning yet."""
        start = self._log.min_position
        if self.entries is not None:
            return self.entries.beginning(start)
        return Beginning(start) if self._log.end or self.slave is None else None

    def _make_scrub(self) -> Scrub:
        rate = self._config.scrubBytesPerSecond
        return Scrub(self._config.root, self._log, self._verifier, self._clock, self._helper.submit, rate)

    def _open_slave(self, levels_ms: tuple[int, ...]) -> SlaveLog:
        parts = SlaveParts(
            self._log,
            self._assembler,
            self.flusher,
            self._health,
            self._delivery.deliver,
            self._helper.make_room,
            levels_ms,
        )
        return SlaveLog(parts)

    def _open_entries(self, found: FoundEntries, store_host: bytes, levels_ms: tuple[int, ...]) -> None:
        self._floor = FloorFile(self._config.root, self._disk, self._clock.monotonic)
        parts = EntryParts(
            self._log,
            self._queues,
            self._assembler,
            self.flusher,
            self._health,
            self._floor,
            self._delivery.deliver,
            self._helper.worker,
            self._helper.make_room,
            self._keeper.hold,
            self._delivery.forget_deleted,
            self._payloads.ends_group,
            store_host,
            self._config.mappedFileSizeCommitLog,
            levels_ms,
        )
        self.entries = EntryLog(parts, found)
        self._verifier.entries = EntryRanges(self.entries, self._queues)
        self.group_cleaner = GroupCleaner(self._cleaner, self._log, self._queues, self.entries)

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
        payloads: Payloads | None = None,
        events: StoreEvents | None = None,
    ) -> "MessageStore":
        """Lock the folder, recover what is in it, begin.

        `store_host`: see remoting.msgid.pack_host. `group`: as a member of a Raft group, with `entries`; without it a
        group's folder is refused unless `force` gives up what only the group has. `slave`: as a master's slave, with
        `slave`, of a group's folder too: what it has is compared with the master's. `stepped`: without threads, see
        step_flush(). `payloads`: of a group's entries. `events`: nobody is told without them. Raises StoreLocked,
        StoreDamaged (the text says what to do), ConfigError, OSError.
        """
        config.validate()
        clock, disk = clock or SystemClock(), disk or Disk()
        levels_ms = parse_delay_levels(config.messageDelayLevel)
        opened = open_folder(config, disk, clock, levels_ms, group=group, force=force or slave)
        try:
            store = cls(
                config,
                opened,
                store_host=store_host,
                clock=clock,
                disk=disk,
                stepped=stepped,
                slave=slave,
                payloads=payloads or Payloads(),
                events=events or StoreEvents(),
            )
            store._health.begin()
        except BaseException:
            opened.release()
            raise
        store.flusher.start()
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

    def write(self, told: Callable[[], None] | None = None) -> int:
        """Write and dispatch everything put since the last time; return the written position.

        `told` is called in between: slaves are at work then while the queues are filled. Raises StoreWriteError: then
        nothing put since the last time is stored or dispatched, and its results are void.
        """
        log = self._log
        if log.end == log.written:
            return log.written
        try:
            if self._health.full is not None:
                self._health.regain()
            log.write()
        except OSError as error:
            self._health.undo_write(error)
            raise StoreWriteError(f"the CommitLog cannot be written: {error}") from error
        self._health.wrote()
        if told is not None:
            told()
        self._delivery.deliver(self._assembler.take_batch())
        log.dispatched = log.written
        if log.wants_room:
            self._helper.make_room()
        return log.written

    def flush_soon(self, position: int) -> None:
        """Have the flusher make everything before `position` durable; StoreEvents.flushed tells when."""
        self.flusher.ask(position)

    @property
    def refused(self) -> str | None:
        """Why messages find no place: as writable(), and also while one is let through to see whether there is room."""
        return self._health.reason

    # -- upkeep

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
            refused=self.refused,
            refused_changes=self._health.changes,
            reserve_bytes=self._health.reserve.size,
            synced_by=self.flusher.synced_by,
        )

    def integrity(self) -> Integrity:
        """Return what was found damaged, and how far the background check is."""
        return self._scrub.report()

    def idle(self) -> None:
        """Persist queue entries and work towards a checkpoint; called every 50 ms or so, takes some ms."""
        if self._health.failed is None:
            self._verifier.tick()
            self._scrub.step()
            try:
                self._health.look_again()
                if self.entries is not None:
                    self.entries.look_for_room()
                else:
                    self._health.look_for_room()
                self._keeper.step(self._assembler.timestamp)
                self._health.derived(self._keeper.full)
            except OSError as error:
                self._health.derived(error)
            self._delivery.look()

    def tables_full(self, error: OSError | None) -> None:
        """Refuse writes while there is no room for tables that stand beside the log and that others own."""
        self._health.tables(error)

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over a changed configuration: retention, ratios of the disk, rate of the scrub; no more than that."""
        assert config.mappedFileSizeCommitLog == self._config.mappedFileSizeCommitLog, "sizes of files never change"
        assert config.log_folder == self._config.log_folder, "the folder of a store never changes"
        self._config = self._cleaner.config = config
        self._health.reconfigure(config)
        self._scrub.rate = config.scrubBytesPerSecond

    def delete_topic(self, topic: str, before: int | None = None) -> None:
        """Forget the queues of a topic; its offsets begin at 0 again. Its records stay until their file expires.

        `before`: queues with a record that ends behind this position stay, for they were made anew there.
        """
        if self._health.failed is None:
            self.write()
        self._delivery.forget(topic, before)
        if self.entries is not None:
            self.entries.forget_topic()

    def clean(self, *, now: bool = False) -> CleanReport:
        """Do a retention pass: called every cleanResourceInterval in the store's thread; the helper removes files.

        `now`: an administrator wants expired files gone at any hour. Not for a group's member, see `group_cleaner`.
        """
        assert self.entries is None, "a group agrees on what it deletes"
        return self._cleaner.clean(now=now)

    def step_flush(self) -> bool:
        """Without threads: sync what is written, with the callbacks of the flusher; tell whether there was anything."""
        return self.flusher.step()

    def step_helper(self) -> bool:
        """Without threads: do one job of the helper or its worker; tell whether there was one."""
        return self._helper.step()

    def close(self) -> None:
        """Stop cleanly: write, flush, persist, checkpoint, remove the mark of an unclean stop, unlock.

        When writing or flushing failed, or finds no room, the mark stays and the next start recovers. Raises OSError,
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
            # First: the helper may wait for a sync of the kernel's, which this thread collects.
            self.flusher.release_kernel()
            self._helper.close()
            self.flusher.close()
            try:
                whole = self._health.failed is None and self.flusher.failure is None
                if whole and self.entries is not None:
                    self._floor.sync()
                if whole and self._keeper.finish(self._assembler.timestamp):
                    self._disk.unlink(self._config.root / ABORT_NAME)
                    self._disk.sync_folder(self._config.root)
            finally:
                if self.entries is not None:
                    self._floor.close()
                self._opened.release()

    def _fatal(self, error: BaseException) -> None:
        self._health.fail(f"the CommitLog cannot be synced: {error}; restart the broker")
        self._events.fatal(error)
