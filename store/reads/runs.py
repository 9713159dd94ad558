"""Reads the records of one answer out of the log, as few times as may be.

The messages of a queue lie scattered among those of the others. What stands near one another is read together: to copy
what lies between costs less than to ask the kernel once more.
"""

from store.log.commitlog import CommitLog

# What is read together at most, and over how much that nobody asked for.
WINDOW_BYTES, GAP_BYTES = 256 * 1024, 16 * 1024

Runs = list[tuple[int, int]]


def read_runs(log: CommitLog, runs: Runs, scratch: memoryview) -> list[memoryview | bytes] | None:
    """Return the bytes of each (position, size), None when one of them is not in memory; for the log's own thread.

    Unless they are the mapping's they keep no more than twice their size in memory, as long as somebody holds them.
    `scratch`: WINDOW_BYTES that nobody else uses meanwhile.
    """
    buffers: list[memoryview | bytes] = []
    found: memoryview | None
    hot, at, count = log.hot_from, 0, len(runs)
    while at < count:
        position, size = runs[at]
        file = log.opened(position)
        start = position
        if position >= hot:
            start, until, last = file.start, file.end, count
            found = file.view(start, file.size)
        else:
            last, until, wanted = _window(runs, at, file.end)
            if until - position > 2 * wanted:
                found = file.read_cached(position, until - position, scratch)
                if found is not None:
                    buffers += [bytes(found[place - start : place - start + part]) for place, part in runs[at:last]]
                    at = last
                    continue
            else:
                found = file.read_cached(position, until - position)
            if found is None and last > at + 1:
                # A part of what lies between may be on the disk only, and nobody needs it.
                found, until, last = file.read_cached(position, size), position + size, at + 1
            if found is None:
                return None
        for place, part in runs[at:last]:
            # The first one in any case: a rotten queue may lead over the end of a file, and who judges it says so.
            if place != position and (place + part > until or place < start):
                break
            buffers.append(found[place - start : place - start + part])
            at += 1
    return buffers


def _window(runs: Runs, first: int, file_end: int) -> tuple[int, int, int]:
    """Return the runs behind those that are read together with a run, where they end, and the bytes of them all."""
    position, size = runs[first]
    until, most, wanted = position + size, min(position + WINDOW_BYTES, file_end), size
    for last in range(first + 1, len(runs)):
        position, size = runs[last]
        if not 0 <= position - until <= GAP_BYTES or position + size > most:
            return last, until, wanted
        until = position + size
        wanted += size
    return len(runs), until, wanted
