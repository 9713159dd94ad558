"""Bytes kept of frames that are not whole yet: one budget for all ports of a process, and a time for each frame.

Anybody may announce 16 MiB and send all but the last byte, on as many connections as he likes. At the budget whoever
has most of it is closed, of several the one that has had it longest; so is a frame that is not whole in its time. Pure
but for the clock that is handed in.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class UnfinishedFrames(Generic[K]):
    """What each connection has sent of a frame that is not whole; `clock` gives seconds that only grow."""

    def __init__(self, bytes_max: int, seconds_max: float, clock: Callable[[], float]) -> None:
        self._bytes_max = bytes_max
        self.seconds_max = seconds_max
        self._clock = clock
        # By connection: bytes, and since when.
        self._kept: dict[K, tuple[int, float]] = {}
        self._closers: list[Callable[[K, str], bool]] = []
        self.total = 0

    def joined(self, closer: Callable[[K, str], bool]) -> None:
        """Take in the connections of one more port, which `closer` closes for a reason; False for another port's."""
        self._closers.append(closer)

    def close(self, owner: K, why: str) -> None:
        """Have a connection closed by the port that it is of."""
        any(closer(owner, why) for closer in self._closers)

    def note(self, owner: K, kept: int, *, anew: bool) -> K | None:
        """Take note of the bytes that a connection has of a frame, `anew`: of another one than before.

        Returns whom to close, None: nobody.
        """
        before = self._kept.pop(owner, None)
        self.total += kept - (0 if before is None else before[0])
        if kept:
            self._kept[owner] = (kept, self._clock() if before is None or anew else before[1])
        if self.total <= self._bytes_max:
            return None
        return max(self._kept, key=lambda each: (self._kept[each][0], -self._kept[each][1]))

    def overdue(self) -> list[K]:
        """Return the connections whose frame is not whole in its time."""
        due = self._clock() - self.seconds_max
        return [owner for owner, (_, since) in self._kept.items() if since < due]
