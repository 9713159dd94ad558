"""Time as a value that is handed in, so that tests can turn the hands themselves."""

import time
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
