"""Time of the simulated world: one true time, and for each machine a clock that is off and runs a little wrong."""

from collections.abc import Callable

# Quartz is a hundred times better; a lease of 0.8 of the election time must stand this.
DRIFT_MAX = 0.02
EPOCH_MS = 1_700_000_000_000


class SimClock:
    """A machine's clock (runtime.clock.Clock). It goes on while the process is stopped, as CLOCK_BOOTTIME does."""

    def __init__(self, true_time: Callable[[], float], *, offset: float = 0.0, rate: float = 1.0) -> None:
        self._true_time = true_time
        self.offset = offset
        self.rate = rate
        # Seconds by which somebody has set the wall clock.
        self.ahead = 0.0

    def now_ms(self) -> int:
        """Return the wall time, ms."""
        return EPOCH_MS + round((self._true_time() * self.rate + self.offset + self.ahead) * 1000)

    def monotonic(self) -> float:
        """Return seconds since some moment of this machine."""
        return 500.0 + self.offset + self._true_time() * self.rate

    def true_seconds(self, seconds: float) -> float:
        """Return how long `seconds` of this clock truly are."""
        return seconds / self.rate
