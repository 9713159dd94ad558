"""Learning the route that a send has shown to be old: of a topic that it created, or whose leader has changed."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

from client.errors import RouteError
from client.routes import Routes

# Pauses before asking for the route of a topic that a send just created.
CONFIRM_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 3.0)


class RouteNews:
    """Asks the NameServers about topics in the background, one question a topic at a time."""

    def __init__(self, routes: Routes, spawn: Callable[[Coroutine[object, object, None], str], object]) -> None:
        """`spawn` runs a coroutine in the background, under a name."""
        self._routes = routes
        self._spawn = spawn
        self._asking: set[str] = set()

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
        try:
            for pause in CONFIRM_PAUSES_S:
                await asyncio.sleep(pause)
                with contextlib.suppress(RouteError):
                    route = await self._routes.refresh(topic)
                    if route is not None and not route.assumed:
                        return
        finally:
            self._asking.discard(topic)
