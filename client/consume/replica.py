"""Which replica of a queue's broker is pulled from next: the master, the slave that a broker points to, or who is left.

Pure but for the clock that is handed in. One of these belongs to each queue of a consumer.
"""

from collections.abc import Callable

from client.routes import MASTER_ID, TopicRoute
from remoting.errors import InvokeError

# How long an address that failed is left alone while another replica can be asked. The route may name a dead master
# for two minutes, when its machine went without a word; it is looked for about once a second meanwhile.
AVOIDED_S = 1.0
# An answer without news that came sooner than this was not waited for; what follows is a pause, growing to the second
# figure.
PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 1.0


class ReplicaChoice:
    """`clock` gives seconds that only grow."""

    __slots__ = ("_asked", "_asked_at", "_avoided", "_avoided_until", "_clock", "_pause_s", "_wanted")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wanted = MASTER_ID
        self._asked = ""
        self._asked_at = 0.0
        self._avoided: str | None = None
        self._avoided_until = 0.0
        self._pause_s = 0.0

    def choose(self, route: TopicRoute, broker: str) -> str | None:
        """Return the address to ask now, None for a broker that is not in the route."""
        address = self._next(route, broker)
        self._asked, self._asked_at = address or "", self._clock()
        return address

    def answered(self, suggested_id: int) -> None:
        """Note an answer that brought the consumer on, and whom it names for the next question."""
        self._wanted = suggested_id
        self._pause_s = 0.0

    def nothing_new(self, route: TopicRoute | None, broker: str, suggested_id: int) -> float:
        """Note an answer that leaves the consumer where it is; returns the seconds to wait before asking again.

        A slave that may not be read while its master lives answers so at once, and goes on to while the route lacks
        the master; so does one that a consumer is ahead of. To ask again without a pause would be a tight loop.
        """
        self._wanted = suggested_id
        if self._clock() - self._asked_at >= PAUSE_S_FIRST:
            self._pause_s = 0.0
            return 0.0
        elsewhere = route is not None and self._next(route, broker) not in {None, self._asked}
        # Two replicas that point to one another are a loop as well: the second time there is a pause.
        pause = 0.0 if elsewhere and not self._pause_s else max(self._pause_s, PAUSE_S_FIRST)
        self._pause_s = min(max(self._pause_s * 2, PAUSE_S_FIRST), PAUSE_S_MAX)
        return pause

    def failed(self, error: Exception) -> None:
        """Note that there was no good answer: the master is asked next, or another replica when it was the one."""
        self._wanted = MASTER_ID
        if isinstance(error, InvokeError) and error.reroute and self._asked:
            self._avoided = self._asked
            self._avoided_until = self._clock() + AVOIDED_S

    def _next(self, route: TopicRoute, broker: str) -> str | None:
        avoided = self._avoided if self._clock() < self._avoided_until else None
        return route.address(broker, self._wanted, avoided)
