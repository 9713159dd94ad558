"""Why writes are refused: for good, until a moment, until the disk has room again; and what a failed write leaves."""

import logging

from runtime.clock import Clock
from store.config import StoreConfig
from store.errors import is_full
from store.files.disk import Disk
from store.files.reserve import Reserve
from store.log.assembler import Assembler
from store.log.commitlog import CommitLog

_LOG = logging.getLogger(__name__)

# After a full disk refused a write, it is asked again so much later.
FULL_DISK_RETRY_SECONDS = 1.0
# When that finds room and the next write none (no inode is left, say), twice as late each time, up to so much.
FULL_DISK_RETRY_SECONDS_MAX = 4.0
# That is: within so many seconds.
RELAPSE_SECONDS = 5.0
# After a follower without room refused its leader's messages, it has them sent again so much later: the leader sends
# some MiB each time. No-ops and metadata that stand before them it takes at once.
CLOSED_SECONDS = 2.0


class Health:
    """Owns `assembler.refused`. `failed` says why nobody writes any more; None while all is well."""

    def __init__(self, config: StoreConfig, clock: Clock, disk: Disk, log: CommitLog, assembler: Assembler) -> None:
        self._config = config
        self._clock = clock
        self._disk = disk
        self._log = log
        self._assembler = assembler
        self.reserve = Reserve(disk, config.root, config.log_folder, config.mappedFileSizeCommitLog)
        self.failed: str | None = None
        self._retry_at: float | None = None
        self.full: str | None = None
        """Why there is no room for messages, since a write found none; None once there is some."""
        self._pause = FULL_DISK_RETRY_SECONDS
        self._room_since = float("-inf")
        self._closed_until = 0.0
        self._disk_full: str | None = None
        # Why queues, index or checkpoint cannot be written at the moment.
        self._derived: str | None = None
        # Why tables beside the log cannot be.
        self._tables: str | None = None
        self.disk_ratio = 0.0
        self._measure_at = 0.0
        self.crowded = False
        """Whether so much waits for room in queues or index that nothing more should come, of whomever."""
        self.changes = 0
        """How often messages began to be refused, or to be taken again."""
        # Since when they are refused, as far as that was told.
        self._refused_since: float | None = None

    def begin(self) -> None:
        """Look how full the disk is, and keep the reserve. Raises OSError."""
        self.measure_disk()
        try:
            self.reserve.take_over()
        except OSError as error:
            if not is_full(error):
                raise
            self.no_room(error)

    @property
    def waits(self) -> bool:
        """Whether a full disk refused a write a moment ago: there is no use in the next one yet."""
        if self._retry_at is not None and self._clock.monotonic() >= self._retry_at:
            self._retry_at = None
            self._refuse()
        return self._retry_at is not None

    def writable(self) -> str | None:
        """Return why writes are refused (code SERVICE_NOT_AVAILABLE), None when they are not."""
        # Which lets the next write through when it is time.
        waits = self._retry_at is not None and self.waits
        assert not waits or self._assembler.refused is not None, "who waits for room takes nothing"
        return self._assembler.refused

    @property
    def closed(self) -> bool:
        """Whether what a leader sent found no room a moment ago: there is no use in having it sent again yet."""
        return self.full is not None and self._clock.monotonic() < self._closed_until

    @property
    def reason(self) -> str | None:
        """Why messages find no place: as writable(), and also while one is let through to see whether there is room."""
        return self.writable() or self.full

    def fail(self, reason: str) -> None:
        """Take no more writes until the next start."""
        _LOG.critical("the store takes no more writes: %s", reason)
        self.failed = reason
        self._refuse()

    def regain(self) -> None:
        """Have the reserve again before messages are written: they must not use up what was given up.

        Raises OSError while there is no room for both.
        """
        if self.full is not None:
            self.reserve.hold()

    def undo_write(self, error: OSError) -> None:
        """Bring everything back to the last good write, and decide whether there can be another."""
        if self.full is None or not is_full(error):
            _LOG.error("writing the CommitLog failed, what was put is dropped: %s", error)
        try:
            self._log.discard()
        except OSError as worse:
            self.fail(f"the CommitLog cannot be written ({error}) nor mended ({worse}); restart the broker")
        else:
            if is_full(error):
                self._closed_until = self._clock.monotonic() + CLOSED_SECONDS
                self._wait_for_room()
            else:
                self.fail(f"the CommitLog cannot be written: {error}; check the disk and restart the broker")
        self._assembler.forget_pending()

    def no_room(self, error: OSError) -> None:
        """Note that the disk has no room behind what is written: nothing is put before it has."""
        if self.full is None:
            _LOG.error("no room on the disk: %s; messages are refused until there is", error)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        now = self._clock.monotonic()
        if self.full is None:
            relapse = now - self._room_since < RELAPSE_SECONDS
            self._pause = min(2 * self._pause, FULL_DISK_RETRY_SECONDS_MAX) if relapse else FULL_DISK_RETRY_SECONDS
        self.reserve.give_up()
        self.full = "the disk is full"
        self._retry_at = now + self._pause
        self._refuse()

    def wrote(self) -> None:
        """Note that the disk has room for messages."""
        if self.full is not None:
            self.full = self._retry_at = None
            self._room_since = self._clock.monotonic()
            self._refuse()

    def look_for_room(self) -> None:
        """Find out whether there is room again, without any message. Raises OSError for another reason than room."""
        if self.full is None or self.waits:
            return
        try:
            self.regain()
        except OSError as error:
            if not is_full(error):
                raise
            self._wait_for_room()
        else:
            self.wrote()

    def derived(self, error: OSError | None) -> None:
        """Note how writing what is derived from the log went: nothing is taken while there is no room for it."""
        if error is not None and not is_full(error):
            _LOG.warning("queues and index cannot be persisted now: %s", error)
            return
        before, self._derived = self._derived, None if error is None else "the disk is full: queues or index wait"
        self._noted(before, self._derived, error, "queues, index or checkpoint")

    def tables(self, error: OSError | None) -> None:
        """Note whether there is room for the tables beside the log: nothing is taken while there is none."""
        before = self._tables
        self._tables = None if error is None else "the disk is full: tables (config/*.json) wait"
        self._noted(before, self._tables, error, "a table")

    def _noted(self, before: str | None, now: str | None, error: OSError | None, what: str) -> None:
        if before == now:
            return
        if error is not None:
            _LOG.error("no room for %s: %s; nothing is taken until there is", what, error)
            # They go on in the reserve; messages wait until that is there again.
            self._wait_for_room()
        else:
            _LOG.warning("there is room for %s again", what)
            # It may have been the reserve's, or not: then nothing need wait.
            self._retry_at = None
            self._refuse()
            self.look_for_room()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over the disk's ratios."""
        self._config = config
        self.measure_disk()

    def look_again(self) -> None:
        """Measure a disk that was too full by its ratio: files may have gone in between two looks of retention."""
        if self._disk_full is not None and self._clock.monotonic() >= self._measure_at:
            self.measure_disk()

    def measure_disk(self) -> None:
        """Look how full the disk is, and refuse writes accordingly. Raises OSError."""
        self._measure_at = self._clock.monotonic() + FULL_DISK_RETRY_SECONDS
        self.disk_ratio = self._disk.used_ratio(self._config.log_folder)
        full = self.disk_ratio >= self._config.warning_ratio
        self._disk_full = (
            f"the disk of {self._config.log_folder} is {self.disk_ratio:.0%} full, writes are refused from "
            f"{self._config.warning_ratio:.0%} on (diskSpaceWarningLevelRatio)"
            if full
            else None
        )
        self._refuse()

    def _refuse(self) -> None:
        lasting = self.failed or self._disk_full or self._derived or self._tables
        self._assembler.refused = lasting or (self.full if self._retry_at is not None else None)
        self._tell(lasting or self.full)

    def _tell(self, why: str | None) -> None:
        """Say when messages begin to be refused, and when they are taken again."""
        if (why is not None) == (self._refused_since is not None):
            return
        self.changes += 1
        now = self._clock.monotonic()
        if why is not None:
            self._refused_since = now
            _LOG.error("the store takes no messages: %s", why)
        elif self._refused_since is not None:
            _LOG.warning("the store takes messages again, after %.1f s", now - self._refused_since)
            self._refused_since = None
