"""Carries out what store.log.retention decides: files leave the log from the front, then what points into them.

A single broker decides and deletes in one pass; a member of a group deletes what was agreed upon (GroupCleaner).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from runtime.clock import Clock
from store.config import StoreConfig
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.log.checkpointer import Helper, Keeper
from store.log.commitlog import CommitLog
from store.log.health import Health
from store.log.retention import KeptFile, decide
from store.types import CleanReport

_LOG = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """What retention would like."""

    start: int
    """Where the log would begin."""
    reason: str
    """Why there, or why nothing goes."""
    disk_ratio: float
    """Used part of the file system, 0 to 1."""


class Ages(NamedTuple):
    """What decides about how old something is, and whether that matters."""

    clock: Clock
    needed_from: Callable[[], int]
    """See StoreEvents."""


class Cleaner:
    """Removes expired files; in the store's thread, with the helper doing the unlinking."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex | None,
        *,
        keeper: Keeper,
        helper: Helper,
        health: Health,
        ages: Ages,
    ) -> None:
        self.config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._keeper = keeper
        self._helper = helper
        self._health = health
        self._clock, self._needed_from = ages

    def clean(self, *, now: bool) -> CleanReport:
        """See MessageStore.clean."""
        wanted = self.wanted(now=now)
        removed = self.remove(min(wanted.start, self.spared()), wanted.reason)
        return CleanReport(removed, wanted.reason, wanted.disk_ratio)

    def wanted(self, *, now: bool) -> Wanted:
        """Look at the disk, and say what may go as far as age and room are concerned. Raises OSError."""
        self._health.measure_disk()
        log, ratio = self._log, self._health.disk_ratio
        files = [
            KeptFile(file.start, file.size, int(file.path.stat().st_mtime * 1000))
            for file in log.files
            if file.start <= log.written
        ]
        decision = decide(files, self.config, now_ms=self._clock.now_ms(), disk_ratio=ratio, asked=now)
        delete, reason = decision.delete, decision.reason
        if delete and not decision.forced:
            needed = self._needed_from()
            delete = [start for start in delete if start + self.config.mappedFileSizeCommitLog <= needed]
            if len(delete) < len(decision.delete):
                reason += f"; what stands from {needed} on is needed: messages wait there for their time"
        start = delete[-1] + self.config.mappedFileSizeCommitLog if delete else log.min_position
        return Wanted(start, reason, ratio)

    def spared(self) -> int:
        """Return the position before which the store itself needs nothing.

        Never beyond the checkpoint: a queue whose last entries were lost with a kill must find their records. In a
        group that is below what is committed, dispatched and synced (R12).
        """
        return min(self._log.flushed, self._log.dispatched, self._keeper.checkpoint.dispatched)

    def remove(self, before: int, reason: str, trimmed: Callable[[], None] = lambda: None) -> list[int]:
        """Remove the files that end at or before a position; return their starts.

        `trimmed` is called when they are out of the log. They leave the disk once it says where the log begins now.
        """
        log = self._log
        removed = [file.start for file in log.files if file.end <= before]
        if removed:
            paths = [log.remove_first(start) for start in removed]
            trimmed()
            self._helper.submit(self._keeper.note_beginning)
            self._helper.remove(paths)
            self._queues.delete_below(log.min_position)
            if self._index is not None:
                self._index.delete_below(log.min_position)
            _LOG.info("%d CommitLog files removed, %s; it begins at %d now", len(removed), reason, log.min_position)
        return removed
