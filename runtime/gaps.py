"""How long the event loop of this process was held up: a beat that is due every 10 ms tells by how late it comes.

At rest it is due every 25 ms: what wakes a process a hundred times a second costs more than all else that it does then.

While it is held up nobody is answered and no heartbeat leaves, whatever held it: work in the loop, a collection of
garbage, a process that was stopped, a machine that gave it no time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from runtime.clock import Clock
from runtime.timings import Timings

# A gap is known to within so much. A beat costs some 10 us, and 50 more where the process has to be woken for it.
BEAT_SECONDS = 0.01
# The same at rest, which is where less than this part of a processor was used since the last beat.
REST_SECONDS = 0.025
REST_SHARE = 0.1
# A gap that is worth a line: heartbeats and clients should never wait for so long.
LONG_SECONDS = 0.05
# From where on gaps are remembered one by one, and how many.
TOLD_SECONDS = 0.025
TOLD_MAX = 32
# The longest of late is that of this window and the one before.
WINDOW_SECONDS = 30.0
# Upper bounds of the times that are counted: from two beats on.
BOUNDS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class LoopGaps:
    """Must be made inside a loop. `used` returns the seconds of a processor that this process has used so far."""

    def __init__(self, clock: Clock, used: Callable[[], float] = time.process_time) -> None:
        self.times = Timings(BOUNDS_S)
        """The gaps of more than a beat."""
        self._loop = asyncio.get_running_loop()
        self._clock, self._used = clock, used
        self._looked, self._used_then = clock.monotonic(), used()
        self._longest = 0.0
        self._window = self._window_before = 0.0
        self._window_until = self._clock.monotonic() + WINDOW_SECONDS
        self._long = 0
        self._told: deque[tuple[int, float]] = deque(maxlen=TOLD_MAX)
        self._due = float("inf")
        # What this turn of the loop still has to make holds nobody up: nobody is there yet.
        self._timer: asyncio.Handle | None = self._loop.call_soon(self._beat)

    def close(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def longest_lately(self) -> float:
        """Return the seconds of the longest gap of the last half a minute, or up to a minute."""
        self._turn()
        return max(self._window, self._window_before)

    def status(self) -> dict[str, Any]:
        """Return what there was, in milliseconds; the last ones of more than TOLD_SECONDS with when they ended."""
        return {
            "longestMs": round(self._longest * 1000, 1),
            "longestLatelyMs": round(self.longest_lately() * 1000, 1),
            "over50Ms": self._long,
            "last": [{"at": at, "ms": round(gap * 1000, 1)} for at, gap in self._told],
        }

    def _beat(self) -> None:
        now = self._clock.monotonic()
        gap = now - self._due
        if gap > BEAT_SECONDS:
            self._note(gap)
        pause = self._pause(now)
        self._due = now + pause
        self._timer = self._loop.call_later(pause, self._beat)

    def _pause(self, now: float) -> float:
        """Return in how long the next beat is due."""
        used, passed = self._used(), now - self._looked
        at_rest = used - self._used_then < REST_SHARE * passed
        self._looked, self._used_then = now, used
        return REST_SECONDS if at_rest else BEAT_SECONDS

    def _note(self, gap: float) -> None:
        self._turn()
        self._window = max(self._window, gap)
        self._longest = max(self._longest, gap)
        self._long += gap > LONG_SECONDS
        if gap > TOLD_SECONDS:
            self._told.append((self._clock.now_ms(), gap))
        self.times.add(gap)

    def _turn(self) -> None:
        """Begin another window when this one is over."""
        now = self._clock.monotonic()
        if now >= self._window_until:
            both = now >= self._window_until + WINDOW_SECONDS
            self._window_before = 0.0 if both else self._window
            self._window, self._window_until = 0.0, now + WINDOW_SECONDS
