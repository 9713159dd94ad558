"""Carries out what store.retention decides: files leave the log from the front, then what points into them.

A single broker decides and deletes in one pass. In a Raft group (`GroupCleaner`) the leader only says where the log
might begin; the group agrees, and then every member deletes what stands before that, when it can spare it (R12).
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from remoting.topics import RAFT_TOPIC
from runtime.clock import Clock
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.consumequeue import ConsumeQueues
from store.entrylog import EntryLog
from store.health import Health
from store.indexfile import MessageIndex
from store.keeper import Helper, Keeper
from store.retention import KeptFile, decide
from store.types import CleanReport

_LOG = logging.getLogger(__name__)

COPIED = "another member copies the files"


class Wanted(NamedTuple):
    """What retention would like."""

    start: int
    """Where the log would begin."""
    reason: str
    """Why there, or why nothing goes."""
    disk_ratio: float
    """Used part of the file system, 0 to 1."""


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
        clock: Clock,
    ) -> None:
        self.config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._keeper = keeper
        self._helper = helper
        self._health = health
        self._clock = clock

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
        start = decision.delete[-1] + self.config.mappedFileSizeCommitLog if decision.delete else log.min_position
        return Wanted(start, decision.reason, ratio)

    def spared(self) -> int:
        """Return the position before which the store itself needs nothing.

        Never beyond the checkpoint: a queue whose last entries were lost with a kill must find their records. In a
        group that is below what is committed, dispatched and synced (R12).
        """
        return min(self._log.flushed, self._log.dispatched, self._keeper.checkpoint.dispatched)

    def remove(self, before: int, reason: str) -> list[int]:
        """Remove the files that end at or before a position; return their starts."""
        log = self._log
        removed = [file.start for file in log.files if file.end <= before]
        if removed:
            self._helper.remove([log.remove_first(start) for start in removed])
            self._queues.delete_below(log.min_position)
            if self._index is not None:
                self._index.delete_below(log.min_position)
            _LOG.info("%d CommitLog files removed, %s; it begins at %d now", len(removed), reason, log.min_position)
        return removed


class GroupCleaner:
    """What a member of a group forgets, and what it must not forget with it: where each queue begins."""

    def __init__(self, cleaner: Cleaner, log: CommitLog, queues: ConsumeQueues, entries: EntryLog) -> None:
        self._cleaner = cleaner
        self._log = log
        self._queues = queues
        self._entries = entries

    def wanted(self, *, now: bool) -> Wanted:
        """Say where the log would begin if only age and room counted; see Cleaner.wanted. Raises OSError."""
        wanted = self._cleaner.wanted(now=now)
        if self._entries.copies.pinned:
            return wanted._replace(start=self._log.min_position, reason=COPIED)
        return wanted

    def spare(self, start: int, keep_from: int) -> int:
        """Return up to where this member can do without its log, at or before `start`: the border of a file.

        `keep_from`: somebody needs the log from this position on.
        """
        if self._entries.copies.pinned:
            return self._log.min_position
        limit = min(start, self._cleaner.spared(), keep_from)
        return max((file.end for file in self._log.files if file.end <= limit), default=self._log.min_position)

    def trim(self, start: int, keep_from: int) -> list[int]:
        """Remove the files before the start that was agreed upon, as far as this member can spare them already."""
        reason = f"the group agreed that the log begins at {start}"
        removed = self._cleaner.remove(self.spare(start, keep_from), reason)
        if removed:
            self._entries.trimmed()
        return removed

    def first_offsets(self, start: int) -> dict[tuple[str, int], int]:
        """Return, by topic and queue, the first offset at or behind a position, where it is not 0."""
        found = {}
        for topic, queue_ids in self._queues.topics().items():
            if topic == RAFT_TOPIC:
                continue
            for queue_id in queue_ids:
                if (first := self._first(topic, queue_id, start)) > 0:
                    found[topic, queue_id] = first
        return found

    def begin_queues(self, starts: Mapping[str, Mapping[int, int]]) -> None:
        """Let queues that hold no message begin at these offsets at least, by topic and queue."""
        for topic, queues in starts.items():
            for queue_id, offset in queues.items():
                if self._queues.begin(topic, queue_id, offset):
                    self._entries.forget_topic()

    def _first(self, topic: str, queue_id: int, start: int) -> int:
        low, high = self._queues.min_offset(topic, queue_id), self._queues.max_offset(topic, queue_id)
        # Most queues lose nothing, and one look tells.
        if low < high and self._queues.entries(topic, queue_id, low, 1)[0][0] >= start:
            return low
        while low < high:
            middle = (low + high) // 2
            if self._queues.entries(topic, queue_id, middle, 1)[0][0] < start:
                low = middle + 1
            else:
                high = middle
        return low
