"""Which offset of a queue belongs to a point in time: binary search, since store timestamps never go back in a log."""

from collections.abc import Callable


def offset_by_time(
    low: int, end: int, timestamp_ms: int, store_time: Callable[[int], int], *, upper: bool = False
) -> int:
    """Return the offset in the queue [low, end) that belongs to `timestamp_ms`.

    Lower (the default): the first message stored at or after it, `end` when all are older. `upper`: the last message
    stored at or before it, `low` when all are newer. An empty queue answers `low`. `store_time` returns a message's
    time in ms, negative when its record is gone: records go from the low end, so a gone one counts as older than all.
    """
    if low >= end:
        return low
    if not upper:
        return _first(low, end, lambda offset: store_time(offset) >= timestamp_ms)
    behind = _first(low, end, lambda offset: store_time(offset) > timestamp_ms)
    return max(behind - 1, low)


def _first(low: int, end: int, holds: Callable[[int], bool]) -> int:
    """Return the first offset from which on `holds` is true, `end` when it never is."""
    while low < end:
        middle = (low + end) // 2
        if holds(middle):
            end = middle
        else:
            low = middle + 1
    return low
