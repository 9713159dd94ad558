"""How much of a group's log may be deleted (R12): nothing that a start, or a member that copies, still needs from it.

Beside what the store itself keeps (what is not committed, dispatched and synced, and everything while somebody copies)
that is what the oldest file of metadata does not hold yet, and the CONFIG in force: a log without one is nobody's. So
that CONFIG does not keep old files for ever, the leader writes it anew when it stands in the oldest of several.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from broker.role import BrokerRole
from raft.group import GroupConfig
from raft.types import Fate, OnFate, Refusal
from store.controlrecord import EntryKind
from store.entrylog import EntryLog
from store.messagestore import MessageStore
from store.types import CleanReport

_log = logging.getLogger(__name__)


class RetentionNode(Protocol):
    """What is needed of the group's node."""

    @property
    def config(self) -> GroupConfig | None:
        """Who belongs to the group."""
        ...

    @property
    def config_index(self) -> int:
        """The entry that says so."""
        ...

    @property
    def applied_index(self) -> int:
        """Everything up to it is committed and applied."""
        ...

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        """Let `append(term, commit)` append an entry."""
        ...


class GroupRetention:
    """A member's retention. Called where the store is, in the loop."""

    def __init__(
        self,
        store: MessageStore,
        entries: EntryLog,
        node: RetentionNode,
        role: BrokerRole,
        oldest_stamp: Callable[[], int],
        file_bytes: int,
    ) -> None:
        """`oldest_stamp` is the last entry whose metadata is in every file; `file_bytes`: of a CommitLog file."""
        self._store = store
        self._entries = entries
        self._node = node
        self._role = role
        self._oldest_stamp = oldest_stamp
        self._file_bytes = file_bytes
        self._renewing = False

    def clean(self, *, now: bool = False) -> CleanReport:
        """Do one pass; see MessageStore.clean."""
        if self._role.leads:
            self._renew_config()
        return self._store.clean(now=now, keep_from=self.keep_from())

    def keep_from(self) -> int:
        """Return the position from which on this member needs its log, whatever the age of its files."""
        entries = self._entries
        config = entries.last_config()
        if not 0 < config <= entries.released:
            # It is not committed: the one before it counts, wherever that is.
            return self._store.min_physical
        needed = min(config, self._oldest_stamp() + 1)
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
            lambda term, commit: entries.append(EntryKind.CONFIG, term, payload, commit), self._renewed
        )
        if refusal is not None:
            self._renewing = False

    def _renewed(self, fate: Fate) -> None:
        self._renewing = False
        if fate is not Fate.COMMITTED:
            _log.info("raft: the list of members was not written anew: %s", fate.name)
