"""Reads the records of one answer out of the log, as few times as may be.

The messages of a queue lie scattered among those of the others. What stands near one another is read together: to copy
what lies between costs less than to ask the kernel once more.
"""

from store.log.commitlog import CommitLog

# What is read together at most, and over how much that nobody asked for.
WINDOW_BYTES, GAP_BYTES = 256 * 1024, 16 * 1024

Runs = list[tuple[int, int]]


def read_runs(log: CommitLog, runs: Runs) -> list[memoryview | bytes] | None:
    """Return the bytes of each (position, size), None when one of them is not in memory; for the log's own thread.

    Unless they are the mapping's they keep no more than twice their size in memory, as long as somebody holds them.
    """
    buffers: list[memoryview | bytes] = []
    hot = log.hot_from
    start = end = 0
    view, sparse = memoryview(b""), False
    for at, (position, size) in enumerate(runs):
        if not (start <= position and position + size <= end):
            file, sparse = log.opened(position), False
            if position >= hot:
                start, end = file.start, file.end
                view = file.view(start, file.size)
            else:
                until, wanted = _window(runs, at, file.end)
                found = file.read_cached(position, until - position)
                if found is None and until > position + size:
                    # A part of what lies between may be on the disk only, and nobody needs it.
                    found = file.read_cached(position, size)
                if found is None:
                    return None
                sparse = len(found) > 2 * wanted
                start, end, view = position, position + len(found), found
        part = view[position - start : position - start + size]
        buffers.append(bytes(part) if sparse else part)
    return buffers


def _window(runs: Runs, first: int, file_end: int) -> tuple[int, int]:
    """Return the end of what is read together with a run, those behind it that are near, and the bytes of them all."""
    position, size = runs[first]
    until, last, wanted = position + size, min(position + WINDOW_BYTES, file_end), size
    for at in range(first + 1, len(runs)):
        position, size = runs[at]
        if not 0 <= position - until <= GAP_BYTES or position + size > last:
            break
        until = position + size
        wanted += size
    return until, wanted
