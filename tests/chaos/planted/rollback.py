"""A member that takes back what it had committed, in place of the assertions that end one which would have to.

Bugs of replication make members disagree about what is committed. The product notices that and ends its process; here
it is to go on, as a broker without such guards would, so that its clients' history and its log show what became of it.
"""

from typing import Any

from broker.raft_group.member import RaftGroup
from raft.core.core import Core
from raft.core.follower import Follower
from raft.protocol.messages import RaftMessage
from store.raftlog.entrylog import EntryLog
from tests.chaos.planted.grafts import graft


def take_back_what_was_committed() -> None:
    """Let a leader's entries replace committed ones; queues, commit index and what was applied go back with them."""

    def make_log_cut(honest: Any) -> Any:
        def cut(self: EntryLog, last: int) -> None:
            if last < self.commit:
                end = self.end_position(last)
                self.commit = last
                self._held.released = min(self._held.released, last)
                self._parts.queues.truncate_above(end)
                self._log.dispatched = min(self._log.dispatched, end)
            honest(self, last)

        return cut

    def make_follower_cut(_honest: Any) -> Any:
        def cut(self: Follower, last: int, _commit: int) -> None:
            self._log.cut(last)
            self.cuts += 1
            self._reported = min(self._reported, last)
            self.verified = min(self.verified, last)

        return cut

    def make_append(honest: Any) -> Any:
        def append(self: Core, peer: str, message: RaftMessage) -> None:
            cuts = self.follower.cuts
            honest(self, peer, message)
            if self.follower.cuts != cuts:
                _forget_applied(self)

        return append

    def make_on_commit(honest: Any) -> Any:
        def on_commit(self: RaftGroup, index: int) -> None:
            self._applied = min(self._applied, self._entries.released)
            honest(self, index)

        return on_commit

    graft(EntryLog, "cut", make_log_cut)
    graft(Follower, "_cut", make_follower_cut)
    graft(Core, "append", make_append)
    graft(RaftGroup, "on_commit", make_on_commit)


def _forget_applied(core: Core) -> None:
    """Make the library count from where the log was cut."""
    known = core.log.commit
    if known < core.applied:
        sync = core.election._sync
        sync._SyncObj__raftLastApplied = min(sync._SyncObj__raftLastApplied, known)
        sync._SyncObj__raftCommitIndex = max(known, core.follower.committed())
        core.applied = known
