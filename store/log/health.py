"""Why writes are refused: for good, until a moment, until the disk has room again; and what a failed write leaves."""

import logging

from runtime.clock import Clock
from store.config import StoreConfig
from store.errors import is_full
from store.files.disk import Disk
from store.log.assembler import Assembler
from store.log.commitlog import CommitLog

_LOG = logging.getLogger(__name__)

# After a full disk refused a write, the next one is let through so much later.
FULL_DISK_RETRY_SECONDS = 1.0


class Health:
    """Owns `assembler.refused`. `failed` says why nobody writes any more; None while all is well."""

    def __init__(self, config: StoreConfig, clock: Clock, disk: Disk, log: CommitLog, assembler: Assembler) -> None:
        self._config = config
        self._clock = clock
        self._disk = disk
        self._log = log
        self._assembler = assembler
        self.failed: str | None = None
        self._retry_at: float | None = None
        self.full: str | None = None
        """Why the last write found no room; None once one found some."""
        self._disk_full: str | None = None
        # Why queues, index or checkpoint cannot be written at the moment.
        self._derived: str | None = None
        # Why tables beside the log cannot be.
        self._tables: str | None = None
        self.disk_ratio = 0.0
        self._measure_at = 0.0
        self.crowded = False
        """Whether so much waits for room in queues or index that nothing more should come, of whomever."""

    @property
    def waits(self) -> bool:
        """Whether a full disk refused a write a moment ago: there is no use in the next one yet."""
        if self._retry_at is not None and self._clock.monotonic() >= self._retry_at:
            self._retry_at = None
            self._refuse()
        return self._retry_at is not None

    def writable(self) -> str | None:
        """See MessageStore.writable."""
        # Which lets the next write through when it is time.
        waits = self.waits
        assert not waits or self._assembler.refused is not None, "who waits for room takes nothing"
        return self._assembler.refused

    @property
    def reason(self) -> str | None:
        """Why messages find no place: as writable(), and also while one is let through to see whether there is room."""
        return self.writable() or self.full

    def fail(self, reason: str) -> None:
        """Take no more writes until the next start."""
        _LOG.critical("the store takes no more writes: %s", reason)
        self.failed = reason
        self._refuse()

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
                self._wait_for_room()
            else:
                self.fail(f"the CommitLog cannot be written: {error}; check the disk and restart the broker")
        self._assembler.forget_pending()

    def no_room(self, error: OSError) -> None:
        """Note that the disk has no room behind what is written: nothing is put before it has."""
        if self.full is None:
            _LOG.error("no room for the CommitLog: %s; messages are refused until there is", error)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        self.full = "the disk is full"
        self._retry_at = self._clock.monotonic() + FULL_DISK_RETRY_SECONDS
        self._refuse()

    def wrote(self) -> None:
        """Note that the disk has room for messages."""
        if self.full is not None:
            _LOG.warning("there is room for the CommitLog again")
            self.full = self._retry_at = None
            self._refuse()

    def derived(self, error: OSError | None) -> None:
        """Note how writing what is derived from the log went: nothing is taken while there is no room for it."""
        if error is not None and not is_full(error):
            _LOG.warning("queues and index cannot be persisted now: %s", error)
            return
        before, self._derived = self._derived, None if error is None else "the disk is full: queues or index wait"
        if before != self._derived:
            if error is not None:
                _LOG.error("no room for queues, index or checkpoint: %s; nothing is taken until there is", error)
            else:
                _LOG.warning("there is room for queues, index and checkpoint again")
            self._refuse()

    def tables(self, error: OSError | None) -> None:
        """Note whether there is room for the tables beside the log: nothing is taken while there is none."""
        if (error is None) == (self._tables is None):
            return
        if error is not None:
            _LOG.error("no room for a table: %s; nothing is taken until there is", error)
            self._tables = "the disk is full: tables (config/*.json) wait"
        else:
            _LOG.warning("there is room for the tables again")
            self._tables = None
        self._refuse()

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
        waiting = self.full if self._retry_at is not None else None
        self._assembler.refused = self.failed or self._disk_full or waiting or self._derived or self._tables
