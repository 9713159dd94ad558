"""What PySyncObj, behind its door (raft/core/pysyncobj.py), asks of the member that it works for."""

from typing import Any, Protocol


class Votes(Protocol):
    """Term and vote on disk: raft.core.votefile.VoteFile."""

    @property
    def term(self) -> int:
        """The latest term known."""
        ...

    @property
    def voted_for(self) -> str:
        """Who got the vote in it, "" for nobody."""
        ...

    def save(self, term: int, voted_for: str) -> None:
        """Make both durable; OSError when that failed."""
        ...


class Hooks(Protocol):
    """What the library asks of us."""

    def election_timeout(self) -> float:
        """Return seconds to wait for a leader, drawn anew each time."""
        ...

    def countable(self) -> int:
        """Return the index up to which this member itself counts: durable on its own disk."""
        ...

    def append_noop(self, term: int) -> int:
        """Append the no-op that begins a term; its index."""
        ...

    def beat(self) -> None:
        """Send what is new, or nothing, to every peer: the heartbeat."""
        ...

    def apply_until(self, applied: int, upto: int) -> int:
        """Return how far one turn applies of what is committed up to `upto`."""
        ...

    def applying(self, index: int) -> None:
        """Everything up to `index` is committed: apply it; the callbacks follow."""
        ...

    def leading(self) -> None:
        """Begin a term as its leader; the no-op follows."""
        ...

    def carry(self, peer: str, message: dict[str, Any]) -> None:
        """Send request_vote, response_vote or timeout_now."""
        ...
