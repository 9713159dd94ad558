"""Queues that are being handed over: what is still to be done with one, and who waits for that."""

import asyncio
from collections.abc import Callable, Coroutine

from remoting.bodies.registry import MessageQueue


class Leaving:
    """The last task of each queue that goes; the tasks of one queue follow one another."""

    def __init__(self, spawn: Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]) -> None:
        self._spawn = spawn
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}

    def get(self, queue: MessageQueue) -> "asyncio.Task[None] | None":
        """Return what a queue that comes back has to wait for."""
        return self._tasks.get(queue)

    def begin(self, queue: MessageQueue, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Do what is to be done when a queue goes, after what is being done already."""
        before = self._tasks.get(queue)

        async def leave() -> None:
            if before is not None:
                await asyncio.wait([before])
            await work()

        def left(ended: "asyncio.Task[None]") -> None:
            if self._tasks.get(queue) is ended:
                del self._tasks[queue]

        task = self._tasks[queue] = self._spawn(leave(), f"hand over {queue}")
        task.add_done_callback(left)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until all have left, or the time is over."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=timeout_s)
