"""Time as a value that is handed in, so that tests can turn the hands themselves."""

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is stored or shown, monotonic time for what expires."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch; may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; the origin is arbitrary."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


class BootClock(SystemClock):
    """The machine's clock whose monotonic time counts suspension."""

    # Asked some thirty times for each entry of a group: without a frame of its own.
    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))


# Milliseconds that a wall clock may move against the monotonic one without anybody being suspicious. Daemons that keep
# time slew both clocks alike, so whatever moves one against the other has set it.
JUMP_MS_MAX = 30_000
# What corrects a clock by little is followed at once. Whatever is more waits for the next confirmation: the confirmed
# moment may be wrong by as much as clocks that agree may differ, and a jump on top of that would be stamped.
STEP_MS_MAX = 1_000


class SteadyClock:
    """A wall clock that does not follow a step before somebody has confirmed it.

    Until confirm() is called `now_ms` goes on from the last confirmed moment by the monotonic clock; a step of more
    than `jump_ms_max` is also told of by `jumped_ms`. What has once
    been stamped with a wrong time cannot be taken back, while a right time that is followed late harms nobody.
    """

    def __init__(self, clock: Clock, jump_ms_max: int = JUMP_MS_MAX, step_ms_max: int = STEP_MS_MAX) -> None:
        self._clock = clock
        self._jump_ms_max = jump_ms_max
        self._step_ms_max = step_ms_max
        self.monotonic = clock.monotonic
        self._ahead_ms = 0.0
        self.confirm()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, by the wall clock unless that was set."""
        wall = self._clock.now_ms()
        held = self._ahead_ms + self.monotonic() * 1000
        return wall if -self._step_ms_max <= wall - held <= self._step_ms_max else round(held)

    def wall_ms(self) -> int:
        """Return what the wall clock itself says."""
        return self._clock.now_ms()

    def jumped_ms(self) -> int:
        """Return by how much the wall clock has jumped since the last confirmed moment; 0 when it did not."""
        apart = self._clock.now_ms() - self._ahead_ms - self.monotonic() * 1000
        return 0 if abs(apart) <= self._jump_ms_max else round(apart)

    def confirm(self) -> None:
        """Take what the wall clock says now for right."""
        self._ahead_ms = self._clock.now_ms() - self.monotonic() * 1000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1000.0

    def now_ms(self) -> int:
        """Return the wall time that was set, in milliseconds."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the monotonic time that was reached, in seconds."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let wall and monotonic time pass together."""
        assert seconds >= 0, "monotonic time never goes back; use set_wall to move the wall clock"
        self._monotonic += seconds
        self._now_ms += round(seconds * 1000)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock alone, as an administrator or NTP would."""
        self._now_ms = now_ms
