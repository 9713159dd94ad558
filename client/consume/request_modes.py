"""Whether a group reads a topic by pulls or by POP, as an administrator has set it (code 401): asked of the brokers.

Members that ask pop then, and who pulled beside them would consume everything a second time.
"""

import logging
import time
from collections.abc import Callable

from client.errors import RouteError
from client.instance import ClientInstance
from client.routes import TopicRoute
from remoting.errors import RemotingError, ResponseError
from remoting.topics import is_retry_topic

_log = logging.getLogger(__name__)

# How long an answer holds: queues are shared anew more often while members come and go.
ASK_S = 10.0
POP = "POP"


class ReadingModes:
    """The modes of one group's topics."""

    def __init__(self, group: str, instance: ClientInstance, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a monotonic clock."""
        self._group, self._instance, self._now = group, instance, now
        # By topic: whether it is pulled, and when that was told.
        self._told: dict[str, tuple[bool, float]] = {}

    async def pulls(self, route: TopicRoute) -> bool:
        """Tell whether the topic of a route is to be pulled; raises RemotingError or RouteError: not known now."""
        topic = route.topic
        if is_retry_topic(topic):
            return True
        known = self._told.get(topic)
        if known is not None and self._now() - known[1] < ASK_S:
            return known[0]
        mode = await self._ask(route)
        pulls = mode != POP if mode is not None else known is None or known[0]
        if not pulls and (known is None or known[0]):
            _log.error(
                "group %s: topic %s is set to be popped, and a PushConsumer pulls: it takes no queue of it, so that "
                "nothing is consumed twice. Use a SimpleConsumer, or `raftmq group mode %s %s --pull`",
                self._group,
                topic,
                self._group,
                topic,
            )
        elif known is not None and pulls and not known[0]:
            _log.warning("group %s: topic %s is pulled again", self._group, topic)
        self._told[topic] = (pulls, self._now())
        return pulls

    async def _ask(self, route: TopicRoute) -> str | None:
        """Return what the first broker that answers says, None when it says nothing about it."""
        failure: RemotingError | None = None
        for broker in sorted(route.brokers):
            address = route.address(broker)
            if address is None:
                continue
            try:
                return await self._instance.api.request_mode(
                    address, self._group, self._instance.client_id, route.topic
                )
            except ResponseError:
                # One that knows no modes, or tells none to this user.
                return None
            except RemotingError as error:
                failure = error
        raise failure or RouteError(f"topic {route.topic} has no broker now", retriable=True)
