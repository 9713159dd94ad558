"""Ranges of the log that were found to be right, as many as a limit allows and no longer than a time allows.

What lies in the page cache may leave it and be read from the disk again: a range that was checked once is not right for
ever. So ranges come in two generations, and the older one is dropped when the younger is full, or old.
"""

from bisect import bisect_right

from remoting.compiled.door import COMPILED, hotpath

# Ranges of one generation, some 200 bytes each; an answer's are added together, and may be more.
RANGES_MAX = 8192


class _Generation:
    """Ranges that do not touch, in order."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def reach(self, position: int) -> int:
        """Return how far what is known goes on from a position; the position itself when nothing is known of it."""
        at = bisect_right(self.starts, position) - 1
        return max(position, self.ends[at]) if at >= 0 else position

    def add(self, start: int, end: int) -> None:
        """Join a range with what it touches."""
        low = bisect_right(self.starts, start)
        if low and self.ends[low - 1] >= start:
            low -= 1
            start = self.starts[low]
        high = bisect_right(self.starts, end)
        if high > low:
            end = max(end, self.ends[high - 1])
        self.starts[low:high] = [start]
        self.ends[low:high] = [end]


class Ranges:
    """Two generations; turn() begins a new one."""

    def __init__(self) -> None:
        self._young = _Generation()
        self._old = _Generation()

    def __len__(self) -> int:
        """Return how many ranges are remembered."""
        return len(self._young.starts) + len(self._old.starts)

    def covers(self, start: int, end: int) -> bool:
        """Tell whether all of a range is known."""
        while start < end:
            reach = self._young.reach(start)
            if reach == start:
                reach = self._old.reach(start)
            if reach == start:
                return False
            start = reach
        return True

    def add(self, runs: list[tuple[int, int]]) -> None:
        """Remember ranges: (position, size)."""
        young = self._young
        if COMPILED:
            hotpath.join_ranges(young.starts, young.ends, runs)
        else:
            for position, size in runs:
                young.add(position, position + size)
        if len(self._young.starts) >= RANGES_MAX:
            self.turn()

    def turn(self) -> None:
        """Forget the older generation, and begin a new one."""
        self._old, self._young = self._young, _Generation()
