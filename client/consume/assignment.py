"""The queues that a push consumer has now: started when they come to it, handed over when they go.

What is had changes in one synchronous step; handing over takes its time beside it, and a queue that comes back
meanwhile waits for that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from client.consume.push_queue import AssignedQueue, PullContext
from client.consume.subscription import Subscription
from remoting.bodies.registry import MessageQueue

_log = logging.getLogger(__name__)


class Assignment:
    """The queues of one consumer; `released` is awaited for each that is taken away, after fetching from it stopped."""

    def __init__(self, context: PullContext, released: Callable[[AssignedQueue], Awaitable[None]]) -> None:
        self._context = context
        self._released = released
        self.queues = context.assigned
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}

    def apply(self, subscription: Subscription, mine: list[MessageQueue], wait_s: float = 0.0) -> None:
        """Make the queues of one topic exactly `mine`; one that is new is not read before `wait_s` are over."""
        wanted = set(mine)
        for queue, assigned in list(self.queues.items()):
            if queue.topic != subscription.topic:
                continue
            if queue not in wanted or assigned.subscription is not subscription:
                self._give_up(queue, assigned)
        for queue in mine:
            if queue not in self.queues:
                _log.info("group %s: %s is taken", self._context.group, queue)
                assigned = self.queues[queue] = AssignedQueue(self._context, queue, subscription)
                assigned.start(after=self._leaving.get(queue), wait_s=wait_s)

    def drop_topic(self, topic: str) -> None:
        """Give up all queues of a topic."""
        for queue, assigned in list(self.queues.items()):
            if queue.topic == topic:
                self._give_up(queue, assigned)

    async def close(self, grace_s: float) -> None:
        """Wait until what was given up has been handed over, up to `grace_s`; then that ends."""
        leaving = list(self._leaving.values())
        if leaving:
            await asyncio.wait(leaving, timeout=grace_s)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    def _give_up(self, queue: MessageQueue, assigned: AssignedQueue) -> None:
        del self.queues[queue]
        assigned.retired = True
        _log.info("group %s: %s is given up", self._context.group, queue)
        before = self._leaving.get(queue)
        task = asyncio.get_running_loop().create_task(self._hand_over(assigned, before), name=f"hand over {queue}")
        self._leaving[queue] = task
        task.add_done_callback(lambda ended: self._left(queue, ended))

    async def _hand_over(self, assigned: AssignedQueue, before: "asyncio.Task[None] | None") -> None:
        await assigned.stop_fetching()
        if before is not None:
            await asyncio.wait([before])
        await self._released(assigned)

    def _left(self, queue: MessageQueue, ended: "asyncio.Task[None]") -> None:
        if self._leaving.get(queue) is ended:
            del self._leaving[queue]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            _log.error("group %s: %s was not handed over in good order", self._context.group, queue, exc_info=error)
