"""The routes that sends need, and those that a send has shown to be old: a topic is new, or its leader has changed."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine

from client.errors import RouteError
from client.instance import ClientInstance
from client.produce.outgoing import Outgoing
from client.retry import until_true
from client.routes import TopicRoute

# How long a further attempt waits for a newer route.
ROUTE_S_MAX = 0.2
# Pauses before asking for the route of a topic that a send just created.
CONFIRM_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 3.0)


class RouteNews:
    """Asks the NameServers about topics in the background, one question a topic at a time."""

    def __init__(
        self, instance: ClientInstance, queues: int, spawn: Callable[[Coroutine[object, object, None], str], object]
    ) -> None:
        """`queues`: how many a new topic gets of a broker; `spawn` runs a coroutine in the background, under a name."""
        self._instance = instance
        self._routes = instance.routes
        self._queues = queues
        self._spawn = spawn
        self._asking: set[str] = set()

    async def in_time(self, out: Outgoing) -> TopicRoute:
        """Return the route for the next attempt, by the send's deadline; raises RouteError."""
        try:
            async with asyncio.timeout(max(out.deadline - time.monotonic(), 0.0)):
                return await self._route(out)
        except TimeoutError:
            raise RouteError(
                f"no NameServer answered in time for topic {out.topic}: check that one runs at "
                f"{self._instance.nameservers.describe()}",
                retriable=True,
            ) from None

    async def _route(self, out: Outgoing) -> TopicRoute:
        if out.failed_broker is not None:
            # The route may have changed. NameServers that are silent cost no more than a slice of the time.
            with contextlib.suppress(RouteError, TimeoutError):
                async with asyncio.timeout(min(ROUTE_S_MAX, (out.deadline - time.monotonic()) / 2)):
                    await self._routes.refresh(out.topic)
        return await self._routes.find_for_send(out.topic, self._queues)

    def passed_on(self, topic: str) -> None:
        """Learn who leads now: another than its leader passed a send of the topic on."""
        if topic not in self._asking:
            self._asking.add(topic)
            self._spawn(self._reroute(topic), f"route of {topic}")

    def created(self, topic: str) -> None:
        """Learn the real route of a topic that a send has created, so that all its queues are used."""
        if topic not in self._asking:
            self._asking.add(topic)
            self._spawn(self._confirm(topic), f"route of new topic {topic}")

    async def _reroute(self, topic: str) -> None:
        """Learn who leads now; a NameServer may learn it a little later than the member that forwarded."""
        try:
            with contextlib.suppress(RouteError):
                await self._routes.refresh(topic)
            await asyncio.sleep(CONFIRM_PAUSES_S[0])
        finally:
            self._asking.discard(topic)

    async def _confirm(self, topic: str) -> None:
        async def confirmed() -> bool:
            with contextlib.suppress(RouteError):
                route = await self._routes.refresh(topic)
                return route is not None and not route.assumed
            return False

        try:
            await until_true(confirmed, CONFIRM_PAUSES_S)
        finally:
            self._asking.discard(topic)
