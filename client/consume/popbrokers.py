"""The brokers that are popped from: where each is to be asked now, and how far its clock is from this one's."""

import time
from collections.abc import Callable

from client.consume.offsets import refresh_quietly
from client.errors import RouteError
from client.routes import Routes
from remoting.errors import InvokeError, RemotingError

# How long an address that failed is left alone while another replica can be asked.
AVOIDED_S = 1.0
# Brokers of which anything is remembered; more than that begin anew.
BROKERS_MAX = 4096
# A broker that calls a pop late is taken to be so much ahead, twice as much each time, up to the second figure.
AHEAD_MS_FIRST = 1000
AHEAD_MS_MAX = 24 * 3600 * 1000


class PopBrokers:
    """Addresses from the routes; `clock` gives seconds that only grow, `wall_ms` the time of day."""

    def __init__(
        self,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._routes = routes
        self._clock = clock
        self._wall_ms = wall_ms
        self._avoided: dict[str, tuple[str, float]] = {}
        self._ahead_ms: dict[str, int] = {}

    async def address(self, topic: str, broker: str) -> str:
        """Return who leads a broker, or whoever of its replicas is likely to; raises RouteError."""
        route = await self._routes.find(topic)
        avoided, until = self._avoided.get(broker, (None, 0.0))
        address = route.for_writing(broker, avoided if self._clock() < until else None)
        if address is None:
            # Its queues may be gone from the topic's route, and it may still have what was popped of them.
            replicas = self._routes.brokers().get(broker)
            if not replicas:
                raise RouteError(f"broker {broker} of topic {topic} is in no route now", retriable=True)
            address = replicas[min(replicas)]
        return address

    async def failed(self, topic: str, broker: str, address: str, error: Exception) -> None:
        """Note that a broker gave no good answer there; when another one leads, find out who."""
        if isinstance(error, InvokeError) and not error.reroute:
            return
        if address and isinstance(error, RemotingError):
            if len(self._avoided) >= BROKERS_MAX:
                self._avoided.clear()
            self._avoided[broker] = address, self._clock() + AVOIDED_S
        await refresh_quietly(self._routes, topic)

    def now_ms(self, broker: str) -> int:
        """Return the time of day as the broker has it, as far as is known."""
        return self._wall_ms() + self._ahead_ms.get(broker, 0)

    def heard(self, broker: str, its_ms: int) -> None:
        """Note what a broker's clock showed just now."""
        if its_ms > 0:
            self._note(broker, its_ms - self._wall_ms())

    def called_late(self, broker: str) -> None:
        """Note that a request that was made just now is late by the broker's clock."""
        known = max(self._ahead_ms.get(broker, 0), AHEAD_MS_FIRST // 2)
        self._note(broker, min(2 * known, AHEAD_MS_MAX))

    def _note(self, broker: str, ahead_ms: int) -> None:
        if len(self._ahead_ms) >= BROKERS_MAX:
            self._ahead_ms.clear()
        self._ahead_ms[broker] = ahead_ms
