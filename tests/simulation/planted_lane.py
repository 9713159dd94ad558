"""Planted bugs in the straight lane of a leader's commits (Core.move_commit): beside those of planted.py."""

from raft.core.core import Core
from tests.simulation.planted import with_core


class _UnsyncedCore(Core):
    """Counts what was sent to the others as if it were on their disks."""

    def held_by_majority(self) -> int:
        return min(self.countable(), min([peer.next - 1 for peer in self.replication.peers.values()], default=0))


lane_before_the_sync = with_core(_UnsyncedCore)


class _LastingCore(Core):
    """Goes on with entries of a term that has ended."""

    def move_commit(self) -> None:
        index = self.held_by_majority()
        if index > self.election.commit:
            self.election.commit = index
            self.election.apply()


lane_after_its_term = with_core(_LastingCore)
