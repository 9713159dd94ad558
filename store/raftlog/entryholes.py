"""Which entries of a member's log cannot be read as they were written: ranges that do not touch, in order (R4, R18)."""

from bisect import bisect_right

Range = tuple[int, int]
"""First and last index."""


class Holes:
    """The damaged ranges of a log. Ranges that touch or overlap are one."""

    def __init__(self, found: Range | None = None) -> None:
        self.ranges: list[Range] = [found] if found is not None else []
        """All of them, for reading: replaced whenever one changes."""

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.ranges)

    @property
    def first(self) -> Range | None:
        """The one that is filled now; None when there is none."""
        return self.ranges[0] if self.ranges else None

    def at(self, index: int) -> Range | None:
        """Return the one that an entry lies in."""
        place = bisect_right(self.ranges, (index, index + (1 << 63))) - 1
        if place < 0 or self.ranges[place][1] < index:
            return None
        return self.ranges[place]

    def behind(self, index: int) -> Range | None:
        """Return the first one that ends behind an entry: it may hold that entry."""
        for found in self.ranges[max(0, bisect_right(self.ranges, (index, 1 << 63)) - 1) :]:
            if found[1] > index:
                return found
        return None

    def add(self, first: int, last: int) -> None:
        """Take entries in."""
        assert first <= last, "a range has an entry"
        apart = []
        for known in self.ranges:
            if known[1] < first - 1 or known[0] > last + 1:
                apart.append(known)
            else:
                first, last = min(first, known[0]), max(last, known[1])
        self.ranges = sorted([*apart, (first, last)])

    def remove(self, first: int, last: int) -> None:
        """Take entries out: they were written again, or have left the log."""
        left = [(begin, min(until, first - 1)) for begin, until in self.ranges if begin < first]
        right = [(max(begin, last + 1), until) for begin, until in self.ranges if until > last]
        self.ranges = [*left, *right]

    def cut(self, last: int) -> None:
        """Take out every entry behind `last`."""
        self.ranges = [(first, min(until, last)) for first, until in self.ranges if first <= last]
