"""What a member of a Raft group forgets of its log: where that begins is agreed upon in the group (R12).

The leader only says where the log might begin; once that is committed every member deletes what stands before it, when
it can spare it.
"""

from collections.abc import Mapping

from remoting.topics import RAFT_TOPIC
from store.derived.consumequeue import ConsumeQueues
from store.log.cleaner import Cleaner, Wanted
from store.log.commitlog import CommitLog
from store.raftlog.entrylog import EntryLog

COPIED = "another member copies the files"


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
        return self._cleaner.remove(self.spare(start, keep_from), reason, self._entries.trimmed)

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
