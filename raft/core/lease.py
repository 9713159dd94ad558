"""How long a leader may answer reads from its own log without asking anybody (R7).

A lease counts from the moment a round of appends was *sent* that a majority then answered: an answer that waited in
the socket of a stopped process is as old as its question. It lasts 0.8 of the shortest election timeout, in which no
member that answered grants a pre-vote or a vote. The clock must go on while the process or the machine sleeps.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from raft.protocol.config import GroupConfig

# Rounds whose answers are awaited at a time; of more, the oldest are forgotten and their answers renew nothing.
ROUNDS_MAX = 65_536
_NEVER = float("-inf")


class Lease:
    """One leader's lease; there is none until begin(), and none after drop() until the next begin()."""

    def __init__(self, clock: Callable[[], float], span_s: float) -> None:
        self._clock = clock
        self._span_s = span_s
        self._held = False
        self._rounds: deque[tuple[int, float]] = deque()
        self._answered: dict[str, float] = {}

    def begin(self) -> None:
        """Start anew: this member was elected; no answer from before counts."""
        self.drop()
        self._held = True

    def drop(self) -> None:
        """End it for good: this member leads no more, or hands over.

        After a transfer was asked for, not even its failure brings the lease back in this term: the other may have
        been told to stand and its votes may be on their way, and those are granted whoever was heard of last.
        """
        self._held = False
        self._rounds.clear()
        self._answered.clear()

    def sent(self, seq: int) -> None:
        """Note that a round leaves now; sequences rise."""
        now = self._clock()
        rounds = self._rounds
        assert not rounds or seq > rounds[-1][0], f"round {seq} after {rounds[-1][0]}"
        # An answer to an older round could not make a lease that still runs.
        while rounds and (now - rounds[0][1] > self._span_s or len(rounds) >= ROUNDS_MAX):
            rounds.popleft()
        rounds.append((seq, now))

    def acked(self, peer: str, seq: int) -> None:
        """Note that a member answered a round of this term; unknown and older rounds change nothing."""
        rounds = self._rounds
        # Sequences rise, so what is kept can be halved to find it.
        at = bisect_left(rounds, (seq,))
        if at < len(rounds) and rounds[at][0] == seq and rounds[at][1] > self._answered.get(peer, _NEVER):
            self._answered[peer] = rounds[at][1]

    def valid(self, config: GroupConfig, self_id: str) -> bool:
        """Whether a read may be answered now from what is committed here. Ask at each answer, not before."""
        return self._held and self._clock() < self._until(config, self_id)

    def left(self, config: GroupConfig, self_id: str) -> float:
        """Return for how many seconds it would still be valid, 0 without one."""
        return max(0.0, self._until(config, self_id) - self._clock()) if self._held else 0.0

    def _until(self, config: GroupConfig, self_id: str) -> float:
        """When the newest round that a majority of the voters answered stops counting."""
        now = self._clock()
        times = [now if voter == self_id else self._answered.get(voter, _NEVER) for voter in config.voters]
        times.sort(reverse=True)
        return times[config.majority_size - 1] + self._span_s
