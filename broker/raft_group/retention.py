"""How much of a group's log may be deleted (R12): nothing that a start, or a member that copies, still needs from it.

The leader alone looks at age and disk. It proposes where the log is to begin, and the first offset of each queue that
loses messages (broker/metadata/queue_starts.py); every member deletes its files when that is applied, or later, as
soon as it can spare them. So all replicas begin at the same position, and a queue that is empty then goes on with its
offsets.

Beside what the store itself keeps (what is not committed, dispatched and synced, and everything while somebody copies)
that is what the oldest file of metadata does not hold yet, and the CONFIG in force: a log without one is nobody's. So
that CONFIG does not keep old files for ever, the leader writes it anew when it stands in the oldest of several.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from broker.metadata.queue_starts import QueueStarts, StartEvents
from broker.role import BrokerRole
from raft.protocol.group_node import GroupNode
from raft.protocol.types import EntryType, Fate
from remoting.errors import CommandError
from runtime.late import late
from store.errors import StoreDamaged
from store.messagestore import MessageStore
from store.raftlog.cleaner import GroupCleaner
from store.raftlog.entrylog import EntryLog
from store.types import CleanReport

_log = logging.getLogger(__name__)

CLOCK_ALONE = "no majority is known to agree with this member's clock (R17)"


class StampedMetadata(Protocol):
    """What is needed of the metadata."""

    def oldest_stamp(self) -> int:
        """Return the last entry whose metadata is in every file."""
        ...

    def restamp_soon(self) -> None:
        """Have all files written anew: their stamps keep the log from being deleted."""
        ...


def start_events(retention: Callable[[], "GroupRetention"]) -> StartEvents:
    """Return what a table of starts tells the retention that is made after it."""
    return StartEvents(
        moved=late(lambda: retention().moved),
        begins=late(lambda: retention().begins),
        begin_now=late(lambda: retention().begin_now),
    )


class GroupRetention:
    """A member's retention. Called where the store is, in the loop."""

    def __init__(
        self,
        store: MessageStore,
        entries: EntryLog,
        node: GroupNode,
        role: BrokerRole,
        metadata: StampedMetadata,
        starts: QueueStarts,
        exists: Callable[[str], bool],
        *,
        file_bytes: int,
    ) -> None:
        """Follow nothing before resume(). `starts`: made with start_events().

        `exists` tells whether a topic is to stay. `file_bytes`: of a CommitLog file.
        """
        assert store.group_cleaner is not None, "the store was opened as a group member's"
        self._cleaner: GroupCleaner = store.group_cleaner
        self._store = store
        self._entries = entries
        self._node = node
        self._role = role
        self._metadata = metadata
        self._file_bytes = file_bytes
        self._renewing = False
        self._moving = False
        self._owes_begins = False
        # While META is replayed the queues and the log are as the last run left them.
        self._follows = False
        self._starts = starts
        self._exists = exists

    def resume(self) -> None:
        """Let queues go on where the replayed table says, and follow it from here on."""
        self._begin_queues()
        self._follows = True

    def begin_now(self) -> Mapping[tuple[str, int], int]:
        """Return where the queues begin now; see StartEvents."""
        return self._cleaner.first_offsets(self._store.min_physical)

    def begins(self, starts: Mapping[str, Mapping[int, int]]) -> None:
        """Let queues that hold nothing begin where it was applied that they do; see StartEvents."""
        if self._follows:
            self._cleaner.begin_queues(starts)

    def _begin_queues(self) -> None:
        """Let queues that hold nothing go on where the table says.

        Not while messages in front of the agreed start, which are here still, wait in a hole: they come first.
        """
        self._owes_begins = not self._entries.whole and self._starts.log_start > self._store.min_physical
        if not self._owes_begins:
            self._cleaner.begin_queues(self._starts.tables)

    def clean(self, *, now: bool = False) -> CleanReport:
        """Do one pass: delete what was agreed upon and could not go then; as leader, propose what may go next.

        See MessageStore.clean. Raises OSError.
        """
        if self._owes_begins:
            self._begin_queues()
        keep_from, agreed = self.keep_from(), self._starts.log_start
        removed = self._cleaner.trim(agreed, keep_from)
        # On every member: it is also what finds out that the disk is too full to lead with.
        wanted = self._cleaner.wanted(now=now)
        if self._stamped() < (max(agreed, wanted.start) if self._role.leads else agreed):
            self._metadata.restamp_soon()
        if self._role.leads and not self._node.clocks.agreed(self._node.config):
            # By a clock that was set wrong everything is old, or nothing ever will be.
            return CleanReport(removed, CLOCK_ALONE, wanted.disk_ratio)
        if self._role.leads:
            self._renew_config()
            start = self._cleaner.spare(wanted.start, keep_from)
            if start > max(self._store.min_physical, agreed) and not self._moving:
                self._propose(start)
        return CleanReport(removed, wanted.reason, wanted.disk_ratio)

    def _stamped(self) -> int:
        """Return the position before which all metadata is in files."""
        entries = self._entries
        return entries.end_position(min(max(self._metadata.oldest_stamp(), entries.base.index), entries.last.index))

    def _propose(self, start: int) -> None:
        first = self._cleaner.first_offsets(start)
        self._moving = True
        try:
            self._starts.move(start, {key: at for key, at in first.items() if self._exists(key[0])}, self._agreed)
        except CommandError as error:
            self._moving = False
            _log.info("raft: the start of the log cannot be moved now: %s", error)

    def _agreed(self, _code: int) -> None:
        self._moving = False

    def moved(self, start: int) -> None:
        """Delete what the group agreed upon; called when that is applied."""
        if self._follows:
            self._cleaner.trim(start, self.keep_from())

    def keep_from(self) -> int:
        """Return the position from which on this member needs its log, whatever the age of its files."""
        entries = self._entries
        config = entries.last_config()
        if not 0 < config <= entries.released:
            # It is not committed: the one before it counts, wherever that is.
            return self._store.min_physical
        needed = min(config, self._metadata.oldest_stamp() + 1)
        return entries.end_position(max(needed - 1, entries.base.index))

    def _renew_config(self) -> None:
        entries, node = self._entries, self._node
        config, at = node.config, node.config_index
        if config is None or self._renewing or not entries.base.index < at <= node.applied_index:
            return
        oldest_end = self._store.min_physical // self._file_bytes * self._file_bytes + self._file_bytes
        if entries.end_position(at) > oldest_end or entries.last.end <= oldest_end:
            return
        payload = config.encode()
        self._renewing = True
        refusal = node.propose(
            lambda term, commit: entries.append(EntryType.CONFIG, term, payload, commit), self._renewed
        )
        if refusal is not None:
            self._renewing = False

    def _renewed(self, fate: Fate) -> None:
        self._renewing = False
        if fate is not Fate.COMMITTED:
            _log.info("raft: the list of members was not written anew: %s", fate.name)


def check_config(entries: EntryLog) -> None:
    """Raise StoreDamaged when the file in which the list of members stood is gone: it looks like retention at work."""
    at = entries.last_config()
    if at and at <= entries.base.index:
        raise StoreDamaged(
            f"entry {at} of the CommitLog, the list of the group's members, is damaged or missing: put its file back, "
            f"or remove this member from the group, empty its store and add it again"
        )
