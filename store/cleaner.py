"""Carries out what store.retention decides: files leave the log from the front, then what points into them."""

import logging

from runtime.clock import Clock
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.consumequeue import ConsumeQueues
from store.health import Health
from store.indexfile import MessageIndex
from store.keeper import Helper, Keeper
from store.retention import KeptFile, decide
from store.types import CleanReport

_LOG = logging.getLogger(__name__)


class Cleaner:
    """Removes expired files; in the store's thread, with the helper doing the unlinking."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex | None,
        *,
        keeper: Keeper,
        helper: Helper,
        health: Health,
        clock: Clock,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._keeper = keeper
        self._helper = helper
        self._health = health
        self._clock = clock

    def clean(self, config: StoreConfig, *, now: bool, keep_from: int | None) -> CleanReport:
        """See MessageStore.clean."""
        self._health.measure_disk()
        log = self._log
        # Never beyond the checkpoint: a queue whose last entries were lost with a kill must find their records. In a
        # group that is below what is committed, dispatched and synced (R12).
        safe = min(log.flushed, log.dispatched, self._keeper.checkpoint.dispatched)
        if keep_from is not None:
            safe = min(safe, keep_from)
        files = [
            KeptFile(file.start, file.size, int(file.path.stat().st_mtime * 1000))
            for file in log.files
            if file.start <= log.written
        ]
        ratio = self._health.disk_ratio
        decision = decide(files, config, now_ms=self._clock.now_ms(), disk_ratio=ratio, asked=now)
        removed = [start for start in decision.delete if start + config.mappedFileSizeCommitLog <= safe]
        if removed:
            self._helper.remove([log.remove_first(start) for start in removed])
            self._queues.delete_below(log.min_position)
            if self._index is not None:
                self._index.delete_below(log.min_position)
            _LOG.info(
                "%d CommitLog files removed, %s; it begins at %d now", len(removed), decision.reason, log.min_position
            )
        return CleanReport(removed, decision.reason, ratio)
