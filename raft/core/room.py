"""Which members' logs take messages: who has no room for them does not lead while another one has.

A member whose log takes none (`Log.refused`: its disk is full, mostly) says so in a hello, when that begins, every
SAY_SECONDS as long as it lasts, to whom it is linked anew, and when it is over. What was said counts for HEARD_SECONDS,
so that a lost message does no harm for longer. Who says nothing has room: members of older programs say nothing.

None of this is needed for safety, and it must never leave a group without a leader, who serves reads and retention on
a full disk too: who has no room stands back for STAND_BACK_TIMEOUTS only, and at once when nobody else has any.
"""

from collections.abc import Callable

from raft.protocol.hello import NO_ROOM, Hello
from raft.protocol.types import Log

# How often a member looks at its own log.
LOOK_SECONDS = 0.05
# How often it says again that its log takes nothing, and how long that counts with the others.
SAY_SECONDS = 1.0
HEARD_SECONDS = 3.0
# A leader whose log has taken nothing for so long hands over: shorter, and a full disk that retention empties, or one
# refused write, would move the lead for nothing.
SEEK_SECONDS = 1.0
# Seconds until it tries again, when nobody took the lead: proposals wait during each try.
SEEK_AGAIN_SECONDS = 3.0
# Of the longest election timeout: how long who has no room waits for one that has some to stand. That one may be
# behind, and then never gets a vote.
STAND_BACK_TIMEOUTS = 2.0


class Room:
    """What one member knows of its own log's room and of the others'."""

    def __init__(self, now: Callable[[], float], log: Log) -> None:
        self._now = now
        self._log = log
        self._since: float | None = None
        self._look_at = float("-inf")
        # When the others are to be told (again).
        self.say_at = float("inf")
        self.without: dict[str, float] = {}
        """Who may have none, until when that counts; for reading."""

    @property
    def lacking_s(self) -> float:
        """Seconds for which this member's log has taken nothing, as far as was looked; 0 when it takes messages."""
        return 0.0 if self._since is None else self._now() - self._since

    def look(self) -> bool:
        """Look at the log, a few times a second; whether the others are to be told now."""
        now = self._now()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self.without = {peer: until for peer, until in self.without.items() if now < until}
            lacks = self._log.refused is not None
            if lacks != (self._since is not None):
                self._since = now if lacks else None
                self.say_at = now
        if now < self.say_at:
            return False
        self.say_at = float("inf") if self._since is None else now + SAY_SECONDS
        return True

    def marked(self, hello: Hello) -> Hello:
        """Return a hello that says so when this member has no room."""
        return hello if self._since is None else hello._replace(features=(*hello.features, NO_ROOM))

    def met(self) -> None:
        """Note a new link: who is there now has not been told yet."""
        if self._since is not None:
            self.say_at = float("-inf")

    def heard(self, peer: str, hello: Hello) -> None:
        """Take what a peer says of itself."""
        if NO_ROOM in hello.features:
            self.without[peer] = self._now() + HEARD_SECONDS
        else:
            self.without.pop(peer, None)

    def has(self, peer: str) -> bool:
        """Whether a peer has room, as far as is known."""
        return self._now() >= self.without.get(peer, float("-inf"))
