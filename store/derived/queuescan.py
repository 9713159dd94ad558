"""What can be told from a queue's files alone: where its entries begin and end, and whether they hold together."""

import numpy as np

from store.files.queuefile import ENTRY_BYTES, FILLER, ZEROS, QueueFiles

ENTRY_DTYPE = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags", ">i8")])
assert ENTRY_DTYPE.itemsize == ENTRY_BYTES, "the layout of an entry"


def find_bounds(files: QueueFiles, folder: str, first: int, last: int) -> tuple[int, int]:
    """Return (first readable, end) of a queue whose first and last files begin at entries `first` and `last`.

    The last file's entries stand before its zeros; a last file without any passes the question on to the one before.
    """
    start = last
    end = files.find(folder, start, start + files.per_file, lambda entry: entry != ZEROS)
    while end == start and start > first:
        start -= files.per_file
        end = files.find(folder, start, start + files.per_file, lambda entry: entry != ZEROS)
    low = first
    if first < end and files.entry(folder, first) == FILLER:
        low = files.find(folder, first, min(first + files.per_file, end), lambda entry: entry == FILLER)
    return low, end


def intact_entries(data: bytes, position: int) -> tuple[int, int]:
    """Return (entries, position behind the last one's record) of the part of `data` that holds together.

    Records follow one another in the log: each entry must have a size and a position at or behind the end of the one
    before, `position` for the first. Fillers may only stand first.
    """
    entries = np.frombuffer(data, ENTRY_DTYPE, count=len(data) // ENTRY_BYTES)
    starts = entries["physical"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    fillers = 0
    if position == 0:
        is_filler = (starts == FILLER[0]) & (sizes == FILLER[1])
        fillers = int(np.argmin(is_filler)) if not is_filler.all() else len(entries)
        starts, sizes = starts[fillers:], sizes[fillers:]
    ends = starts + sizes
    follows = np.empty(len(starts), dtype=bool)
    if len(starts):
        follows[0] = starts[0] >= position
        follows[1:] = starts[1:] >= ends[:-1]
    good = follows & (sizes > 0)
    count = int(np.argmin(good)) if not good.all() else len(good)
    return fillers + count, int(ends[count - 1]) if count else position
