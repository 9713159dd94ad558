"""Background work of a process: periodic jobs and one-off tasks whose failures are never silent."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

_log = logging.getLogger(__name__)


class Tasks:
    """Owns the background tasks of one part; `close` cancels them and waits until they ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[object, object, None], name: str = "") -> asyncio.Task[None]:
        """Run a coroutine in the background; an exception is logged with the task's name."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def every(
        self, seconds: float, act: Callable[[], Awaitable[object] | None], name: str, *, first: float | None = None
    ) -> asyncio.Task[None]:
        """Call `act` every `seconds`, first after `first` (by default `seconds`); a failure is logged, not the end."""
        return self.spawn(self._periodic(seconds, act, name, seconds if first is None else first), name)

    async def close(self) -> None:
        """Cancel everything and wait for it."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _periodic(
        self, seconds: float, act: Callable[[], Awaitable[object] | None], name: str, first: float
    ) -> None:
        await asyncio.sleep(first)
        while True:
            try:
                pending = act()
                if pending is not None:
                    await pending
            except Exception:
                _log.exception("%s: %s failed; it is tried again in %s s", self._name, name, seconds)
            await asyncio.sleep(seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("background task %s failed", task.get_name(), exc_info=error)
