"""Why writes are refused: for good, until a moment, until the disk has room again; and what a failed write leaves."""

import errno
import logging

from runtime.clock import Clock
from store.assembler import Assembler
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.disk import Disk

_LOG = logging.getLogger(__name__)

# After a full disk refused a write, the next one is let through so much later.
FULL_DISK_RETRY_SECONDS = 1.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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
        self._disk_full: str | None = None
        self.disk_ratio = 0.0

    def writable(self) -> str | None:
        """See MessageStore.writable."""
        if self._retry_at is not None and self._clock.monotonic() >= self._retry_at:
            self._retry_at = None
            self._refuse()
        return self._assembler.refused

    def fail(self, reason: str) -> None:
        """Take no more writes until the next start."""
        _LOG.critical("the store takes no more writes: %s", reason)
        self.failed = reason
        self._refuse()

    def undo_write(self, error: OSError) -> None:
        """Bring everything back to the last good write, and decide whether there can be another."""
        _LOG.error("writing the CommitLog failed, what was put is dropped: %s", error)
        try:
            self._log.discard()
        except OSError as worse:
            self.fail(f"the CommitLog cannot be written ({error}) nor mended ({worse}); restart the broker")
        else:
            if error.errno in _FULL:
                self._retry_at = self._clock.monotonic() + FULL_DISK_RETRY_SECONDS
                self._refuse()
            else:
                self.fail(f"the CommitLog cannot be written: {error}; check the disk and restart the broker")
        self._assembler.forget_pending()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over the disk's ratios."""
        self._config = config
        self.measure_disk()

    def measure_disk(self) -> None:
        """Look how full the disk is, and refuse writes accordingly. Raises OSError."""
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
        waiting = "the disk is full" if self._retry_at is not None else None
        self._assembler.refused = self.failed or self._disk_full or waiting
