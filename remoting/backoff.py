"""Backoff: how long whoever could not reach an address waits before the next attempt."""

from remoting.limits import ClientLimits

# More doublings than any limit allows for.
_DOUBLINGS_MAX = 30


class Backoff:
    """Per address, how often it failed in a row and when it may be tried again; times are seconds on one clock.

    The wait begins at backoff_first_seconds and doubles up to backoff_max_seconds. With more than connections_max
    addresses that fail all are forgotten: what one more attempt costs is less than a table without a bound.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._failures: dict[str, tuple[int, float]] = {}

    def failed(self, address: str, now: float) -> None:
        """Let the next attempt wait longer."""
        if len(self._failures) >= self._limits.connections_max:
            self._failures.clear()
        count, _ = self._failures.get(address, (0, 0.0))
        delay = min(self._limits.backoff_first_seconds * 2**count, self._limits.backoff_max_seconds)
        self._failures[address] = (min(count + 1, _DOUBLINGS_MAX), now + delay)

    def wait_seconds(self, address: str, now: float) -> float:
        """Return for how long an attempt has to wait still; 0 when it need not."""
        _, retry_at = self._failures.get(address, (0, now))
        return max(0.0, retry_at - now)

    def reached(self, address: str) -> None:
        """Begin anew: the address answered."""
        self._failures.pop(address, None)
