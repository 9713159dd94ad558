"""The queues that a push consumer has now: started when they come to it, handed over when they go."""

import logging
from collections.abc import Awaitable, Callable

from client.assigned import AssignedQueue, PullContext
from client.subscription import Subscription
from remoting.bodies import MessageQueue

_log = logging.getLogger(__name__)


class Assignment:
    """The queues of one consumer; `released` is awaited for each that is taken away, after fetching from it stopped."""

    def __init__(self, context: PullContext, released: Callable[[AssignedQueue], Awaitable[None]]) -> None:
        self._context = context
        self._released = released
        self.queues: dict[MessageQueue, AssignedQueue] = {}

    async def apply(self, subscription: Subscription, mine: list[MessageQueue]) -> None:
        """Make the queues of one topic exactly `mine`."""
        wanted = set(mine)
        for queue, assigned in list(self.queues.items()):
            if queue.topic != subscription.topic:
                continue
            if queue not in wanted or assigned.subscription is not subscription:
                await self._give_up(queue, assigned)
        for queue in mine:
            if queue not in self.queues:
                _log.info("group %s: %s is taken", self._context.group, queue)
                assigned = self.queues[queue] = AssignedQueue(self._context, queue, subscription)
                assigned.start()

    async def drop_topic(self, topic: str) -> None:
        """Give up all queues of a topic."""
        for queue, assigned in list(self.queues.items()):
            if queue.topic == topic:
                await self._give_up(queue, assigned)

    async def _give_up(self, queue: MessageQueue, assigned: AssignedQueue) -> None:
        del self.queues[queue]
        _log.info("group %s: %s is given up", self._context.group, queue)
        await assigned.stop_fetching()
        await self._released(assigned)
