"""Our log as what PySyncObj takes for its journal; beside raft/core/pysyncobj.py, the door to the library."""

from typing import Any

from pysyncobj.journal import Journal

from raft.core.hooks import Hooks, Votes
from raft.protocol.types import Log


class JournalView(Journal):  # type: ignore[misc]  # the library carries no types
    """Our log as the library's journal: a virtual entry at the base, then the entries, without their bytes (R9)."""

    def __init__(self, log: Log, votes: Votes, hooks: Hooks) -> None:
        self._log = log
        self._votes = votes
        self._hooks = hooks

    def __len__(self) -> int:
        return self._log.last.index - self._log.base.index + 1

    def __getitem__(self, item: int | slice) -> Any:
        base = self._log.base.index
        if isinstance(item, slice):
            return [self._entry(base + place) for place in range(*item.indices(len(self)))]
        return self._entry(base + item if item >= 0 else self._log.last.index + 1 + item)

    def between(self, first: int, last: int) -> list[tuple[bytes, int, int]]:
        """Return the entries from `first` to `last`, as far as there are; none when the first one is not there."""
        entries = []
        for index in range(first, last + 1):
            term = self._log.term(index)
            if term is None:
                assert not self._log.base.index <= index <= self._log.last.index, f"entry {index} cannot be read"
                break
            entries.append((b"", index, term))
        return entries

    def _entry(self, index: int) -> tuple[bytes, int, int]:
        term = self._log.term(index)
        assert term is not None, f"entry {index} is outside the log"
        return b"", index, term

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append; the only entry that the library makes itself is the no-op of a new leader."""
        assert len(command) == 1, "the library appends nothing but no-ops"
        appended = self._hooks.append_noop(term)
        assert appended == index, f"the no-op stands at {appended}, the library counts {index}"

    def clear(self, place: int = 0) -> None:
        """Never: conflicts are cut by our own append path, and retention is the store's."""
        raise AssertionError(f"the library may not cut the log at {place}")

    deleteEntriesFrom = deleteEntriesTo = clear

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Take no note: the commit index travels in control records."""

    def getRaftCommitIndex(self) -> int:
        """Return what the log itself knows as committed."""
        return max(self._log.commit, self._log.base.index)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Make term and vote durable."""
        self._votes.save(term, votedForNodeId or "")

    def getCurrentTerm(self) -> int:
        """Return the term on disk."""
        return self._votes.term

    def getVotedForNodeId(self) -> str | None:
        """Return the vote on disk."""
        return self._votes.voted_for or None

    def _destroy(self) -> None:
        pass
