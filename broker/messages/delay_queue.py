"""One level of delayed messages: its queue, what is on its way from there, and how long its head waits."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, Protocol

from store.types import PendingRecord


class Cancellable(Protocol):
    """A timer."""

    def cancel(self) -> None:
        """Let it never fire."""
        ...


Later = Callable[[float, Callable[[], None]], Cancellable]
"""Sets a timer."""


class Aside(Protocol):
    """Has something done in another thread, and tells of it in the loop: its result, or what it raised."""

    def __call__(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Begin it."""
        ...


class DelayLoop(NamedTuple):
    """What is needed of the event loop."""

    later: Later
    aside: Aside


def aside_in(threads: Executor) -> Aside:
    """Return what does things in these threads. To be called inside the loop."""
    loop = asyncio.get_running_loop()

    def tell(future: Future[Any], then: Callable[[Any], None]) -> None:
        if not future.cancelled():
            error = future.exception()
            then(future.result() if error is None else error)

    def aside(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        threads.submit(work).add_done_callback(lambda future: loop.call_soon_threadsafe(tell, future, then))

    return aside


def wait_ms(due_ms: int, now_ms: int, delay_ms: int) -> int:
    """Return how long the head of a level still waits; 0 or less: its time has come.

    Never longer than the level's delay, however far a clock that was set back has left the due time ahead.
    """
    return min(due_ms - now_ms, delay_ms)


class DelayedDelivery:
    """A message on its way to its real queue; `record` is kept only as long as it may have to be stored again."""

    __slots__ = ("done", "offset", "record")

    def __init__(self, offset: int, record: PendingRecord | None) -> None:
        self.offset = offset
        self.record = record
        self.done = record is None


class DelayLevel:
    """One level's queue: where it is, and what is on its way."""

    __slots__ = ("delay_ms", "delivered", "flight", "next", "progress", "queue_id", "refused", "timer", "woken")

    def __init__(self, queue_id: int, delay_ms: int, progress: int) -> None:
        self.queue_id = queue_id
        self.delay_ms = delay_ms
        # Everything before it has been delivered for good.
        self.progress = progress
        # The next offset to look at; between the two stands what is in flight.
        self.next = progress
        self.flight: deque[DelayedDelivery] = deque()
        # Offsets from there on that were delivered all the same; see broker/messages/delay_tail.py.
        self.delivered: set[int] = set()
        self.refused: list[DelayedDelivery] = []
        self.timer: Cancellable | None = None
        self.woken = False

    def settle(self) -> bool:
        """Move progress behind the deliveries that are done, in their order; tells whether it moved."""
        before = self.progress
        while self.flight and self.flight[0].done:
            self.progress = self.flight.popleft().offset + 1
        if not self.flight:
            self.progress = self.next
        return self.progress != before
