"""Who may stand and who gets a vote: the rules before PySyncObj's own, for pre-votes and votes alike (R1, R4, R7, R9).

PySyncObj's election counts and persists votes; what is asked first stands here, as pure functions of what a member
knows. A pre-vote asks all this without raising any term, so that a member that was cut off, or is behind, disturbs
nobody.
"""

from typing import NamedTuple

from raft.protocol.config import GroupConfig


class Stance(NamedTuple):
    """What a member knows of itself when it is asked, or wants to stand."""

    term: int
    last_index: int
    last_term: int
    floor: int
    """The index up to which it has ever synced its log (R4)."""
    whole: bool
    """Whether it can read everything up to the floor."""
    quiet_s: float
    """Seconds since the leader of its term last appended here; infinite when none did since the start."""
    up_s: float
    """Seconds since it started."""
    leads: bool
    config_index: int
    """Index of its last CONFIG."""


class Ask(NamedTuple):
    """What a member says that asks for a vote, or a pre-vote."""

    term: int
    """The one it stands in, or would."""
    last_index: int
    last_term: int
    config_index: int
    transfer: bool = False
    """The leader told it to stand: only in votes."""


def may_stand(stance: Stance, config: GroupConfig | None, self_id: str) -> str | None:
    """Return why this member must not stand, None when it may."""
    if config is None:
        return "it has no CONFIG entry: it belongs to no group yet"
    if config.classic:
        return "the group has ended"
    if not config.is_voter(self_id):
        return "it does not vote in this group"
    if not stance.whole:
        return f"it cannot read its own log up to {stance.floor}, which it once had on disk"
    return None


def may_grant(stance: Stance, config: GroupConfig | None, self_id: str, ask: Ask, election_s: float) -> str | None:
    """Return why a pre-vote or vote is refused, None when nothing here is against it.

    `election_s` is the shortest election timeout. That only one vote is given per term is the vote file's and
    PySyncObj's part.
    """
    return (
        _not_entitled(stance, config, self_id, ask)
        or _leader_lives(stance, ask, election_s)
        or _behind(stance, ask)
    )  # fmt: skip


def _not_entitled(stance: Stance, config: GroupConfig | None, self_id: str, ask: Ask) -> str | None:
    if config is None:
        return "this member has no CONFIG entry: it belongs to no group yet"
    if config.classic:
        return "the group has ended"
    # A learner that was promoted may not have received that yet, and its vote may be the one that is needed. Who asks
    # with a newer list decides whether the vote counts: it counts those of its own voters only.
    if not config.is_voter(self_id) and ask.config_index <= stance.config_index:
        return "this member does not vote in this group"
    return None


def _leader_lives(stance: Stance, ask: Ask, election_s: float) -> str | None:
    if stance.up_s < election_s:
        # It may have answered a leader just before it stopped, who counts on it until then.
        return f"this member started {stance.up_s:.3f} s ago and grants nothing for {election_s:.3f} s"
    if ask.transfer:
        return None
    if stance.leads:
        return f"this member leads term {stance.term}"
    if stance.quiet_s < election_s:
        return f"the leader was heard of {stance.quiet_s:.3f} s ago"
    return None


def _behind(stance: Stance, ask: Ask) -> str | None:
    if (ask.last_term, ask.last_index) < (stance.last_term, stance.last_index):
        return (
            f"its log ends at {ask.last_index} of term {ask.last_term},"
            f" this member's at {stance.last_index} of term {stance.last_term}"
        )
    if not stance.whole and ask.last_index < stance.floor:
        return f"its log ends at {ask.last_index}, this member has had up to {stance.floor} on disk and cannot read it"
    return None


class PreVote:
    """The answers to one member's question; only those of the newest round count."""

    def __init__(self) -> None:
        self._round = 0
        self._term = 0
        self._granted: set[str] = set()
        self._running = False

    @property
    def round(self) -> int:
        """The newest round; answers echo it."""
        return self._round

    @property
    def term(self) -> int:
        """The term that the newest round asked for."""
        return self._term

    @property
    def running(self) -> bool:
        """Whether answers are awaited."""
        return self._running

    def begin(self, term: int) -> int:
        """Ask anew, for `term`; returns the round to send."""
        self._round += 1
        self._term = term
        self._granted.clear()
        self._running = True
        return self._round

    def granted(self, peer: str, round_: int) -> bool:
        """Note a yes; False when it answers an older round, or none, and counts for nothing."""
        if not self._running or round_ != self._round:
            return False
        self._granted.add(peer)
        return True

    def won(self, config: GroupConfig, self_id: str) -> bool:
        """Whether a majority of the voters would vote for this member, itself included."""
        return self._running and config.majority({*self._granted, self_id})

    def cancel(self) -> None:
        """Await no more answers: it stands, or a leader was heard of."""
        self._running = False
        self._granted.clear()
