"""Histograms of seconds as plain numbers: counted where it happens, rendered only when somebody asks.

A count costs some 0.2 us (one bisection, two additions), so it is taken per entry, per sync or per turn of the loop,
with the number of messages that it stands for, and not per message.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

# Upper bounds in seconds: from an answer out of memory up to a disk or a group that does not answer.
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Timings:
    """How often something took up to each bound, and all of it together; what takes longer stands in the last count.

    One thread adds; another may read, and then sees a count at most one `add` ahead of the sum.
    """

    __slots__ = ("bounds", "counts", "seconds")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        """`bounds` rise."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count something that took so long, `times` of it."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.seconds += seconds * times

    def join(self, other: "Timings") -> None:
        """Count what another one of the same bounds has counted."""
        assert self.bounds == other.bounds, "of other bounds"
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds

    @property
    def total(self) -> int:
        """How often, in all."""
        return sum(self.counts)


class Lately:
    """A quantile of what was counted of late: between the oldest of some marks and now."""

    def __init__(self, timings: Timings, marks: int) -> None:
        """Begin; `marks` calls of mark() are what the window spans."""
        self._timings = timings
        self._marks = deque((tuple(timings.counts),), marks)

    def mark(self) -> None:
        """Move the window on; called at even intervals."""
        self._marks.append(tuple(self._timings.counts))

    def quantile(self, share: float) -> float | None:
        """Return the seconds in which that share was done, None when there was nothing.

        As Prometheus reckons it: straight lines between the bounds, the last bound for what is beyond it.
        """
        timings, first = self._timings, self._marks[0]
        return quantile(timings.bounds, [now - then for now, then in zip(timings.counts, first, strict=True)], share)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return a quantile of such counts; see Lately.quantile()."""
    total = sum(counts)
    if not total:
        return None
    rank, below, lower = share * total, 0, 0.0
    for upper, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below, lower = below + count, upper
    return bounds[-1]
