"""Busy polling: a loop that goes on looking at its sockets for a moment, where the next request comes at once.

A loop that has nothing to do sleeps, and so does its processor. To wake them takes longer than a send does: with one
request in flight that is half of the time until the answer. While what is read comes closer together than `seconds`,
the loop therefore takes turns without anything in them, until nothing has come for so long. Who asks now and then is
not waited for, and a broker at rest sleeps.

Each such turn offers the processor to others. When somebody took it, the machine has better to do than to wait: then
the loop sleeps as ever, for a while.
"""

import asyncio
import os
from collections.abc import Callable
from time import perf_counter

# Above this, of what comes is as much waited for as not: the weight of the newest gap, and from where on to poll.
_WEIGHT = 0.125
_OFTEN = 0.5
# A processor that comes back later than this was somebody else's, seconds; for how long nothing is polled then.
TAKEN_SECONDS = 0.0001
AWAY_SECONDS = 0.02


class BusyPoll:
    """Of one loop. Whoever reads from a socket, or sees the end of a sync that was waited for, calls `heard` first."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        seconds: float,
        clock: Callable[[], float],
        offer: Callable[[], object],
    ) -> None:
        """`soon` calls in the loop's next turn; `offer` lets others have the processor; `clock` gives seconds."""
        self._soon = soon
        self._seconds = seconds
        self._clock = clock
        self._offer = offer
        self._heard_at = self._until = self._not_before = -seconds
        self._often = 0.0
        self.polling = False
        self.turns = 0
        """How many turns were taken for that."""

    def heard(self) -> None:
        """Note that something was read, or that a sync is over: what it lets be answered brings more at once."""
        now = self._clock()
        near = now - self._heard_at < self._seconds
        self._heard_at = now
        self._often += (near - self._often) * _WEIGHT
        if self._often > _OFTEN and now >= self._not_before:
            self._until = now + self._seconds
            if not self.polling:
                self.polling = True
                self._soon(self._look)

    def _look(self) -> None:
        began = self._clock()
        if began < self._until:
            self.turns += 1
            self._offer()
            now = self._clock()
            if now - began < TAKEN_SECONDS:
                self._soon(self._look)
                return
            self._not_before = now + AWAY_SECONDS
        self.polling = False


def busy_poll(micros: int, loop: asyncio.AbstractEventLoop) -> BusyPoll | None:
    """Return what a loop busy polls with, None where nobody wants it or one processor has to do for both sides."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if not micros or processors < 2:
        return None
    return BusyPoll(loop.call_soon, micros / 1e6, perf_counter, os.sched_yield)
