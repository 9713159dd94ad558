"""One ConsumeQueue: what is in its files, what waits to be written, and where it begins and ends."""

import logging
import os
from collections.abc import Mapping

from remoting.compiled.door import COMPILED, hotpath
from store.derived.queuescan import find_bounds
from store.errors import StoreDamaged
from store.files.queuefile import ENTRY_BYTES, Entry, QueueFiles, list_files
from store.types import Dispatched

# Entries that are worth to be looked at queue by queue.
USUAL_MIN = 4

_LOG = logging.getLogger(__name__)


class Queue:
    """Numbers are entry numbers = queue offsets.

    files_from ≤ low ≤ end: files hold [files_from, persisted), the tail [persisted, end), readable is [low, end).
    """

    __slots__ = ("end", "files_from", "folder", "low", "newest_end", "persisted", "tail", "unfilled")

    def __init__(self, folder: str, start: int, per_file: int) -> None:
        self.folder = folder
        self.files_from = start // per_file * per_file
        self.low = self.persisted = self.end = start
        # Where the newest entry's record ends in the CommitLog.
        self.newest_end = 0
        self.tail: list[Entry] = []
        # Whether what stands in the first file before the first entry is not written yet.
        self.unfilled = start > self.files_from


def append_usual(queues: Mapping[tuple[str, int], Queue], dirty: dict[Queue, None], batch: list[Dispatched]) -> bool:
    """Append entries queue by queue, if each one's simply follow its last; False: nothing was done.

    `dirty` gets the queues that have a tail now.
    """
    groups = hotpath.by_queue(batch) if COMPILED and len(batch) >= USUAL_MIN else None
    if groups is None:
        return False
    found = []
    for topic, queue_id, offset, physical, _end, _entries in groups:
        queue = queues.get((topic, queue_id))
        if queue is None or offset != queue.end or physical < queue.newest_end:
            return False
        found.append(queue)
    for queue, (_topic, _id, _offset, _physical, end, entries) in zip(found, groups, strict=True):
        if not queue.tail:
            dirty[queue] = None
        queue.tail += entries
        queue.end += len(entries)
        queue.newest_end = end
    return True


def load_queue(files: QueueFiles, folder: str) -> Queue | None:
    """Return the queue whose files stand in a folder, None when there are none. Raises StoreDamaged, OSError."""
    found = list_files(folder)
    if not found:
        return None
    file_bytes = files.file_bytes
    last = found[-1][0]
    for start, size in found:
        torn = start == last and size < file_bytes
        if start % file_bytes or (size != file_bytes and not torn):
            raise StoreDamaged(
                f"{folder}/{start:020d} has {size} bytes: mappedFileSizeConsumeQueue is {file_bytes}; "
                "set it to the size that the files were made with"
            )
        if torn:
            # The process died between making the file and sizing it.
            os.truncate(f"{folder}/{start:020d}", file_bytes)
    first = last
    for start, _ in reversed(found[:-1]):
        if start != first - file_bytes:
            _LOG.warning("%s: a file is missing behind %020d, what stands before it is left alone", folder, start)
            break
        first = start
    queue = Queue(folder, first // ENTRY_BYTES, files.per_file)
    queue.low, queue.end = find_bounds(files, folder, first // ENTRY_BYTES, last // ENTRY_BYTES)
    queue.persisted = queue.end
    return queue
