"""Whether a slave's log can be relied upon: what its readiness rests on beside the verdicts.

A slave is ready while a master's log comes to it, and when its master is known to be away: then what it has is the best
that there is. It is not ready while the master lives and nothing comes, nor before it ever had a master's log.
"""

import asyncio

from broker.master_slave.ha_state import Followed


class Standing:
    """Knows whom the slave follows, or did."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.followed: Followed | None = None
        """Whose log comes now, if that is certain."""
        self.tried = False
        """Whether an attempt to follow has ended since the start, however."""
        # Loop time; 0 for never.
        self._until = 0.0

    def follows_no_more(self) -> None:
        """Note that the connection is over."""
        if self.followed is not None:
            self.followed, self._until = None, self._loop.time()

    def why_stale(self, why: str, *, has_followed: bool, heard: bool, alive: bool, grace: float) -> str | None:
        """Return why the log may lack what the master has, or be nobody's; None when neither can be said.

        `why` it does not follow, for people; `has_followed`: ever, in this store; `heard`: something came by the
        connection; `alive`: the master is there; `grace`: seconds that a break is nothing to speak of.
        """
        if self.followed is not None:
            return None if heard else f"nothing has come from {self.followed.address} yet"
        if not has_followed:
            return f"it has never had a master's log: {why}"
        lately = self._until and self._loop.time() - self._until < grace
        if not self.tried or (alive and not lately):
            return why
        return None
