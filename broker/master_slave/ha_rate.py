"""The limit on what a slave is sent in a second (haFlowControlEnable)."""

# The part of a second whose bytes may leave at once.
BURST_SECONDS = 0.1


class RateLimit:
    """Counts bytes against a rate; with a time of the loop's clock in hand, so that it decides without waiting."""

    def __init__(self, now: float) -> None:
        self._tokens = 0.0
        self._at = now

    def allowed(self, rate: int, least: int, now: float) -> tuple[int, float]:
        """Return how many bytes may leave now, at a rate of bytes per second; when 0, the seconds until some may.

        Fewer than `least` never may, so that frames do not get ever smaller; unless the whole burst is less.
        """
        burst = max(rate * BURST_SECONDS, 1.0)
        self._tokens = min(burst, self._tokens + (now - self._at) * rate)
        self._at = now
        least_now = min(float(least), burst)
        if self._tokens >= least_now:
            return int(self._tokens), 0.0
        return 0, (least_now - self._tokens) / rate

    def spent(self, count: int) -> None:
        """Count bytes that have left."""
        self._tokens -= count
