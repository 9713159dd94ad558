"""What was taken in order of one queue and is open: it holds up all that follows, and is what comes next."""

from collections.abc import Collection, Iterable, Sequence

from broker.pop.check_points import CheckPoint

Ended = tuple[CheckPoint, list[int]]
"""A check point, and which of its messages are its own no more."""


class HeldQueue:
    """The open check points of one queue, as seen by a group that goes on at `offset`. False when nothing is held.

    What they have from `offset` on is moot: the queue gives it, for the offset was set back, or the pop that took it
    was never answered.
    """

    def __init__(self, points: Iterable[CheckPoint], offset: int) -> None:
        self._points = list(points)
        self.offset = offset

    def __bool__(self) -> bool:
        return any(self._of(point) for point in self._points)

    def free(self, attempt: str, now_ms: int) -> bool:
        """Tell whether what is open may be taken anew: the time of all of it is over, or it is the attempt's own.

        Not while an acknowledgement of it is being stored: that would come too late.
        """
        for point in self._points:
            if point.settling:
                return False
            if not _same(point, attempt) and any(point.until_ms(at) > now_ms for at in self._of(point)):
                return False
        return True

    def coming(self) -> list[int]:
        """Return the offsets of what comes next."""
        return sorted({at for point in self._points for at in self._of(point)})

    def times(self, offsets: Sequence[int], attempt: str) -> tuple[int, ...]:
        """Return how often each of these was taken before; the same attempt is no other taking."""
        known: dict[int, int] = {}
        for point in self._points:
            before = () if point.order is None else point.order.times
            for at, times in zip(point.offsets, before, strict=True):
                known[at] = max(known.get(at, 0), times + (not _same(point, attempt)))
        return tuple(known[at] for at in offsets)

    def ended(self, over: Collection[int]) -> tuple[Ended, ...]:
        """Return what is over when these were taken anew, or are gone."""
        return tuple(
            (point, mine)
            for point in self._points
            if (mine := [at for at in point.open_offsets() if at in over or at >= self.offset])
        )

    def moot(self) -> tuple[Ended, ...]:
        """Return what is over when the queue goes on."""
        return self.ended(())

    def _of(self, point: CheckPoint) -> list[int]:
        return [at for at in point.open_offsets() if at < self.offset]


def _same(point: CheckPoint, attempt: str) -> bool:
    return point.order is not None and bool(attempt) and point.order.attempt == attempt
