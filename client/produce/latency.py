"""Which brokers answered slowly of late, and how long to leave them alone (latency fault tolerance). Pure.

Off unless asked for, as in the official clients; the steps are theirs: an answer after so many milliseconds keeps the
broker out of the choice for so many.
"""

from runtime.clock import Clock

# (answered after at least ms, avoided for ms), highest first.
STEPS_MS = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
    (100, 0),
    (50, 0),
)
# What a failure counts as when nothing better is known.
FAILURE_LATENCY_MS = 10_000
# Brokers remembered; a cluster has far fewer, and the one that is forgotten counts as healthy.
BROKERS_MAX = 4096


class LatencyTable:
    """Remembers until when each broker is avoided."""

    def __init__(self, clock: Clock, *, detected: bool = False) -> None:
        """Begin without faults.

        `detected`: one that failed is not available before a probe (or an answer) says that it is there again.
        """
        self._clock = clock
        self.detected = detected
        self._avoided_until: dict[str, float] = {}
        self._unreachable: dict[str, None] = {}

    def answered(self, broker: str, latency_ms: float) -> None:
        """Note that `broker` answered after `latency_ms`."""
        self.reached(broker)
        self._note(broker, latency_ms)

    def failed(self, broker: str) -> None:
        """Note that `broker` did not answer, or could not be reached."""
        if self.detected and (broker in self._unreachable or len(self._unreachable) < BROKERS_MAX):
            self._unreachable[broker] = None
        self._note(broker, FAILURE_LATENCY_MS)

    def reached(self, broker: str) -> None:
        """Note that `broker` is there, whatever it was avoided for."""
        self._unreachable.pop(broker, None)

    def reachable(self, broker: str) -> bool:
        """Tell whether `broker` is there, as far as is known: the second choice when none is available."""
        return broker not in self._unreachable

    def unreachable(self) -> list[str]:
        """Return the brokers that are to be probed."""
        return list(self._unreachable)

    def available(self, broker: str) -> bool:
        """Tell whether `broker` may be chosen."""
        until = self._avoided_until.get(broker)
        return (until is None or until <= self._clock.monotonic()) and broker not in self._unreachable

    def _note(self, broker: str, latency_ms: float) -> None:
        avoid_ms = next((avoid for least, avoid in STEPS_MS if latency_ms >= least), 0)
        if not avoid_ms:
            self._avoided_until.pop(broker, None)
            return
        if len(self._avoided_until) >= BROKERS_MAX and broker not in self._avoided_until:
            self._avoided_until.pop(next(iter(self._avoided_until)))
        self._avoided_until[broker] = self._clock.monotonic() + avoid_ms / 1000
