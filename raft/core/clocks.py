"""Whether this member's wall clock is one that the majority agrees with (R17).

Members tell one another what their wall clocks say with appends and answers, up to some fifty times a second; who does
not lead also asks, as nobody answers it otherwise. An answer was given between question and arrival, and what is known
of a peer is just that much: its clock is between so and so far ahead of *this member's monotonic clock*, which nobody
sets. So whichever of the two wall clocks is set later, the difference is known at once, and an answer that waited in
the socket of a stopped process makes what is known vague, never wrong. An append says only how far its sender's clock
is at least.

A clock is *apart* when a majority of the voters is surely more than CLOCK_APART_MS_MAX away from it; when it has
jumped and no majority confirms where it is now; or when one voter is so far away, none is known to agree, and none ever
did. Who is apart neither stands nor leads; stamps go on by the monotonic
clock until then (runtime.clock.SteadyClock), and retention proposes nothing unless a majority is known to agree. A
group of one voter has nobody to ask: it leads on, and takes a jump over once it has stood for ALONE_SECONDS.
"""

import logging
from typing import Any, NamedTuple

from raft.protocol.config import GroupConfig
from raft.protocol.fields import CLOCK_MS_MAX
from raft.protocol.hello import CLOCK_APART_MS_MAX, CLOCKS, Hello
from runtime.clock import SteadyClock

_log = logging.getLogger(__name__)

# Seconds that a handshake may take, and so the age of what its hello says.
HELLO_SECONDS = 2.0
# How often a member that does not lead asks the others.
ASK_SECONDS = 1.0
# How often the verdict is looked at.
LOOK_SECONDS = 0.05
# How often a peer is told, with what is sent anyway: with each of thousands of appends it would cost as much as those.
TELL_SECONDS = 0.02
# Of the time since a peer was heard: what is known of it gets so much more vague, until it says nothing any more.
DRIFT = 0.05
# Seconds after which a group of one takes over what its clock was set to: a person has time to set it right before.
ALONE_SECONDS = 600.0

# How long something that a peer sent may have been on its way.
ON_THE_WAY_SECONDS_MAX = 1800.0


class Seen(NamedTuple):
    """How far a peer's wall clock is ahead of our monotonic one, in milliseconds, as found out at a moment."""

    low: float
    high: float
    at: float
    fades: bool
    asked: float
    """When what it answered last was asked: it was so at that moment or later. An append was not asked for."""

    def by(self, now: float) -> tuple[float, float]:
        """Return both bounds as they are at a later moment."""
        vague = (now - self.at) * DRIFT * 1000 if self.fades else 0.0
        return self.low - vague, self.high + vague


class Clocks:
    """What one member knows of its own clock and of the others'."""

    def __init__(self, steady: SteadyClock, self_id: str) -> None:
        self.steady = steady
        self._self_id = self_id
        self._seen: dict[str, Seen] = {}
        # Whose programs know what to do with a clock, and when it was told last.
        self._told: dict[str, float] = {}
        self._jumped_at: float | None = None
        self._jump_ms = 0
        # Whether a majority ever agreed, since this process began: a clock that has not jumped since is not the one
        # that was set, when another differs and nobody else can be asked.
        self._proved = False
        self._looked_at = float("-inf")
        self._number = 0
        self._asked: dict[str, tuple[int, float]] = {}
        self._ask_at = float("-inf")
        self.apart = ""
        """Why this member must not lead, "" when nothing is against it."""
        self.sure = False
        """Whether a majority is known to agree with this clock."""

    # -- what is told

    def met(self, peer: str, hello: Hello) -> None:
        """Take a hello. Of an older program nothing newer comes than its next one: what it says does not fade."""
        if peer in self._told:
            # It is known better, and a hello that is said again may have been on its way for long.
            return
        if CLOCKS in hello.features:
            self._told[peer] = float("-inf")
        self.note(peer, hello.clock_ms, HELLO_SECONDS)
        self._looked_at = float("-inf")

    def left(self, peer: str) -> None:
        """Note that a link broke: another program may come back."""
        self._told.pop(peer, None)

    def says(self) -> int:
        """Return what this member tells others: its wall clock itself."""
        return min(max(0, self.steady.wall_ms()), CLOCK_MS_MAX)

    def tell(self, peer: str) -> int | None:
        """Return what to tell a peer with what is sent to it; None when its program does not know, or knows already."""
        told_at = self._told.get(peer)
        if told_at is None:
            return None
        now = self.steady.monotonic()
        if now - told_at < TELL_SECONDS:
            return None
        self._told[peer] = now
        return self.says()

    def note(self, peer: str, clock_ms: int, waited_s: float | None) -> None:
        """Take what a peer's clock said, in an answer to what was asked so long ago; None: it was not asked."""
        now = self.steady.monotonic()
        low = clock_ms - now * 1000
        high = float("inf") if waited_s is None else low + waited_s * 1000
        known = self._seen.get(peer)
        asked = float("-inf") if waited_s is None else now - waited_s
        if known is not None:
            asked = max(asked, known.asked)
            known_low, known_high = known.by(now)
            if low <= known_high and high >= known_low:
                # Both hold; where they do not, it was set in between.
                low, high = max(low, known_low), min(high, known_high)
        self._seen[peer] = Seen(low, high, now, peer in self._told, asked)

    def ask(self, peers: set[str]) -> list[tuple[str, int]]:
        """Return whom to ask now, with the question's number; nobody when it is not time yet."""
        now = self.steady.monotonic()
        if now < self._ask_at:
            return []
        self._ask_at = now + ASK_SECONDS
        self._number += 1
        asked = sorted(peers & self._told.keys())
        self._asked = dict.fromkeys(asked, (self._number, now))
        return [(peer, self._number) for peer in asked]

    def answered(self, peer: str, number: int, clock_ms: int) -> None:
        """Take an answer; one to an older question says too little."""
        asked = self._asked.get(peer)
        if asked is not None and asked[0] == number:
            del self._asked[peer]
            self.note(peer, clock_ms, self.steady.monotonic() - asked[1])

    @property
    def ask_at(self) -> float:
        """When ask() is due."""
        return self._ask_at

    # -- what follows from it

    def ahead_ms(self, peer: str) -> tuple[float, float] | None:
        """Return how far a peer's wall clock is ahead of ours at least and at most, None when nothing is known."""
        seen = self._seen.get(peer)
        if seen is None:
            return None
        now = self.steady.monotonic()
        low, high = seen.by(now)
        own = self.steady.wall_ms() - now * 1000
        return low - own, high - own

    def since_s(self, peer: str, clock_ms: int) -> tuple[float, float]:
        """Return how many seconds ago a peer's wall clock showed that, at least and at most."""
        seen = self._seen.get(peer)
        if seen is not None:
            now = self.steady.monotonic()
            low, high = (now + (bound - clock_ms) / 1000 for bound in seen.by(now))
            if high >= 0 and low < ON_THE_WAY_SECONDS_MAX:
                return max(0.0, low), high
        # Nobody knows, or more than any request can be on its way: then that clock was set.
        return 0.0, float("inf")

    def is_odd(self, peer: str) -> bool:
        """Whether a peer's clock is surely too far from ours."""
        ahead = self.ahead_ms(peer)
        return ahead is not None and (ahead[0] > CLOCK_APART_MS_MAX or ahead[1] < -CLOCK_APART_MS_MAX)

    def agrees(self, peer: str) -> bool:
        """Whether a peer's clock is surely close enough to ours."""
        ahead = self.ahead_ms(peer)
        return ahead is not None and ahead[0] >= -CLOCK_APART_MS_MAX and ahead[1] <= CLOCK_APART_MS_MAX

    def look(self, config: GroupConfig | None, *, now: bool = False) -> None:
        """Judge anew, a few times a second or at once; takes over where the clock is when a majority agrees."""
        at = self.steady.monotonic()
        if config is None or (not now and at < self._looked_at + LOOK_SECONDS):
            return
        self._looked_at = at
        self._seen = {peer: seen for peer, seen in self._seen.items() if config.member(peer) is not None}
        others = [voter for voter in config.voters if voter != self._self_id]
        odd = [voter for voter in others if self.is_odd(voter)]
        before, jumped = self.apart, self.steady.jumped_ms()
        self._note_jump(jumped, at)
        agreeing = [self._self_id, *(voter for voter in others if self._confirms(voter))]
        alone = config.voters == (self._self_id,)
        if alone:
            stood = self._jumped_at is None or at - self._jumped_at >= ALONE_SECONDS
            self._judge(jumped, agreed=stood)
            self.apart = ""
        else:
            agreed = config.majority(agreeing)
            self._judge(jumped, agreed=agreed)
            if config.majority(odd) or (odd and not (agreed or jumped or self._proved)):
                self.apart = self._far(odd)
        if self.apart != before:
            if self.apart:
                _log.warning("raft: this member does not lead: %s", self.apart)
            else:
                _log.warning("raft: the clock is right again, this member may lead")

    def _note_jump(self, jumped: int, at: float) -> None:
        if not jumped:
            self._jumped_at = None
        elif self._jumped_at is None or abs(jumped - self._jump_ms) > CLOCK_APART_MS_MAX:
            self._jumped_at, self._jump_ms = at, jumped
            self._ask_at = at
            _log.warning("raft: the clock jumped by %+.1f s: time goes on as before until others agree", jumped / 1000)

    def _confirms(self, peer: str) -> bool:
        """Whether a peer's clock agrees with ours, as it was asked for since ours jumped.

        What was heard before may be of a clock that was wrong then and is right now: two that are wrong one after the
        other must not take each other for a majority.
        """
        if not self.agrees(peer):
            return False
        seen = self._seen[peer]
        return self._jumped_at is None or not seen.fades or seen.asked >= self._jumped_at

    def agreed(self, config: GroupConfig | None) -> bool:
        """Tell whether a majority is known, at this very moment, to agree with this clock: retention needs that."""
        self.look(config, now=True)
        return self.sure and not self.apart

    def _judge(self, jumped: int, *, agreed: bool) -> None:
        self.sure = agreed
        self.apart = ""
        if agreed:
            if jumped:
                _log.warning("raft: the clock was set by %+.1f s, and that is taken over", jumped / 1000)
            self._jumped_at = None
            self._proved = True
            self.steady.confirm()
        elif jumped:
            self.apart = (
                f"this member's clock jumped by {jumped / 1000:+.1f} s and no majority agrees with it:"
                f" until then its time goes on as before. Set the clocks (R17)"
            )

    def _far(self, odd: list[str]) -> str:
        ahead = self.ahead_ms(odd[0])
        assert ahead is not None, "who is odd was heard"
        # Of both bounds the one that shows it.
        far = ahead[0] if ahead[0] > 0 else ahead[1]
        way = "behind" if far > 0 else "ahead of"
        return (
            f"this member's clock is {abs(far) / 1000:.1f} s {way} those of {', '.join(odd)},"
            f" {CLOCK_APART_MS_MAX // 1000} s are allowed: set the clocks (R17)"
        )

    def describe(self) -> dict[str, Any]:
        """Return plain values for the status: milliseconds, None where nothing is known."""
        peers = {}
        for peer in sorted(self._seen):
            ahead = self.ahead_ms(peer)
            assert ahead is not None, "just listed"
            peers[peer] = [None if abs(bound) == float("inf") else round(bound) for bound in ahead]
        return {"apart": self.apart, "sure": self.sure, "jumped_ms": self.steady.jumped_ms(), "peers_ahead_ms": peers}
