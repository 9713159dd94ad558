"""News of topics' queues: an application is told when the queues of a topic come to be others than they were."""

import inspect
import logging
from collections.abc import Awaitable, Callable

from client.consume.offsets import refresh_quietly
from client.errors import ConsumeError
from client.instance import ClientInstance
from remoting.bodies.registry import MessageQueue

_log = logging.getLogger(__name__)

# How often topics are looked at (RocketMQ's topicMetadataCheckIntervalMillis).
LOOK_S = 30.0
LISTENERS_MAX = 1024

# Called with a topic and the queues that it has now; a coroutine function, or a plain one that does not block.
QueueListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]


class QueueNews:
    """Whom to tell of which topic, and what each was told last."""

    def __init__(self, instance: ClientInstance) -> None:
        """`instance` has routes once it is entered."""
        self._instance = instance
        self._listeners: dict[str, QueueListener] = {}
        self._told: dict[str, tuple[MessageQueue, ...]] = {}

    def listen(self, topic: str, listener: QueueListener) -> None:
        """Have a listener told of a topic, instead of an earlier one; raises ConsumeError when there are too many."""
        if topic not in self._listeners and len(self._listeners) >= LISTENERS_MAX:
            raise ConsumeError(f"a consumer listens to the queues of {LISTENERS_MAX} topics at most")
        self._listeners[topic] = listener
        self._told.pop(topic, None)

    async def look(self) -> None:
        """Ask for the routes, and tell whoever does not know what they say: the first time too."""
        routes = self._instance.routes
        for topic, listener in list(self._listeners.items()):
            await refresh_quietly(routes, topic)
            route = routes.cached(topic)
            if route is None or route.assumed or self._told.get(topic) == route.read_queues:
                continue
            self._told[topic] = route.read_queues
            try:
                answer = listener(topic, list(route.read_queues))
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                _log.exception("what listens to the queues of topic %s failed", topic)
