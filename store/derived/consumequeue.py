"""The ConsumeQueues of all topics: which record of the CommitLog is message n of a queue.

New entries gather in memory, one tail per queue, and are written by persist(); reads join files and tail. So a queue
may lag behind the log on disk, and never leads it. What is derived can be made again: queues are cut and filled from
the log at start. Not for several threads at once; only the descriptors below may be shared.
"""

import contextlib
import logging
import os
import shutil
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from remoting.topics import RAFT_TOPIC
from store.derived.queuescan import intact_entries
from store.derived.queuestate import Queue, append_usual, load_queue
from store.errors import QueueShorter, StoreError, is_full
from store.files.descriptors import DESCRIPTORS_MAX, Descriptors
from store.files.disk import Disk
from store.files.queuefile import ENTRY_BYTES, FILLER, ZEROS, Entry, QueueFiles, entry_end, pack_entries
from store.types import Dispatched

_LOG = logging.getLogger(__name__)

# Entries in all tails together, about 150 bytes each: 40 MB. At the limit everything is written at once.
BUFFERED_ENTRIES_MAX = 262_144


class QueueOrderError(StoreError):
    """An entry does not follow its queue's last one: the queue lacks entries, rebuild it from the log."""


class ConsumeQueues:
    """The table of all queues of a store folder's `consumequeue`; opening it finds the end of each.

    Raises StoreDamaged when files have another size than configured.
    """

    def __init__(self, folder: Path, *, file_bytes: int, descriptors_max: int = DESCRIPTORS_MAX) -> None:
        self._folder = folder
        self._descriptors = Descriptors(descriptors_max)
        self._files = QueueFiles(self._descriptors, file_bytes=file_bytes)
        self._queues: dict[tuple[str, int], Queue] = {}
        # With a tail, oldest first.
        self._dirty: dict[Queue, None] = {}
        self.buffered = 0
        """Entries that are not written yet, of all queues."""
        self._load()

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    @property
    def dirty(self) -> int:
        """Queues with entries that are not written yet."""
        return len(self._dirty)

    # -- asking

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the queue's next entry gets."""
        return self.bounds(topic, queue_id)[1]

    max_offset = next_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest readable offset; 0 when the queue is unknown."""
        return self.bounds(topic, queue_id)[0]

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return min_offset() and max_offset()."""
        queue = self._queues.get((topic, queue_id))
        return (queue.low, queue.end) if queue is not None else (0, 0)

    def known(self, topic: str, queue_id: int) -> bool:
        """Tell whether the queue ever had a message here."""
        return (topic, queue_id) in self._queues

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        """Return up to `count` entries (position, size, tags code) from `offset` on.

        Nothing outside [min_offset, max_offset) and for an unknown queue.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or offset < queue.low or count <= 0:
            return []
        in_tail = offset - queue.persisted
        if in_tail >= 0:
            return queue.tail[in_tail : in_tail + count]
        found = self._files.read(queue.folder, offset, min(count, -in_tail))
        if count > -in_tail:
            found += queue.tail[: count + in_tail]
        return found

    def packed(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Return what entries() does, as a queue's files have it."""
        queue = self._queues.get((topic, queue_id))
        data = b""
        if queue is not None and 0 < count <= queue.persisted - offset and queue.low <= offset:
            data = self._files.raw(queue.folder, offset, offset + count)
        return data if len(data) == count * ENTRY_BYTES else pack_entries(self.entries(topic, queue_id, offset, count))

    def topics(self) -> dict[str, list[int]]:
        """Return the queue ids of each topic, in order."""
        topics: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._queues):
            topics.setdefault(topic, []).append(queue_id)
        return topics

    def totals(self, below: int | None = None) -> tuple[int, int]:
        """Return the number of queues, messages' only, and the sum of their ends; `below`: as if it ended there."""
        queues = [queue for (topic, _), queue in self._queues.items() if topic != RAFT_TOPIC]
        ends = [queue.end if below is None else self._end_below(queue, below) for queue in queues]
        return sum(end > 0 for end in ends), sum(ends)

    def _end_below(self, queue: Queue, physical: int) -> int:
        """Return where a queue would end if the log ended at `physical`."""
        if queue.newest_end <= physical:
            return queue.end
        if queue.tail and entry_end(queue.tail[0]) <= physical:
            return queue.persisted + bisect_right(queue.tail, physical, key=entry_end)
        return self._files.find(
            queue.folder, queue.low, queue.persisted, lambda entry: entry != ZEROS and entry_end(entry) <= physical
        )

    def max_physical(self) -> int:
        """Return the CommitLog position behind the newest record that any queue knows; 0 when there is none."""
        return max((queue.newest_end for queue in self._queues.values()), default=0)

    # -- growing

    def append(self, topic: str, queue_id: int, offset: int, physical: int, size: int, tags_code: int) -> None:
        """Append one entry, as append_many does."""
        self.append_many((Dispatched(topic, queue_id, offset, physical, size, tags_code, 0, b"", b"", 0),))

    def append_many(self, batch: Sequence[Dispatched], *, rebuilding: bool = False) -> None:
        """Append the entries of records in log order.

        What a queue has already (its record ends at or before the newest one's end) is skipped, so that a part of the
        log may be dispatched again. The first entry of a queue may have any offset: fillers stand before it. Otherwise
        an offset that is not the next one raises QueueOrderError, one below the end QueueShorter, or with `rebuilding`
        cuts the queue there: its topic was deleted and made anew, which a log without META entries does not tell.
        """
        if type(batch) is list and append_usual(self._queues, self._dirty, batch):
            self.buffered += len(batch)
            batch = ()
        queues, dirty, buffered = self._queues, self._dirty, self.buffered
        queue: Queue | None = None
        last_topic, last_id = "", -1
        for entry in batch:
            topic, queue_id, offset, physical, size, code, _, _, _, _, _ = entry
            # A batch's messages stand in one queue, one after the other.
            if queue_id != last_id or topic is not last_topic or queue is None:
                queue = queues.get((topic, queue_id))
                last_topic, last_id = topic, queue_id
            if queue is None or offset != queue.end or physical < queue.newest_end:
                self.buffered = buffered
                queue = self._admit(entry, rebuilding=rebuilding)
                buffered = self.buffered
                if queue is None:
                    continue
            tail = queue.tail
            if not tail:
                dirty[queue] = None
            tail.append((physical, size, code))
            queue.end = offset + 1
            queue.newest_end = physical + size
            buffered += 1
        self.buffered = buffered
        if buffered > BUFFERED_ENTRIES_MAX:
            self._persist_if_room()

    def _admit(self, entry: Dispatched, *, rebuilding: bool) -> Queue | None:
        """Make the queue ready for an entry that is not simply the next one; None when it has it already."""
        topic, queue_id, offset, physical = entry[:4]
        queue = self._queues.get((topic, queue_id))
        if queue is not None and physical < queue.newest_end:
            return None
        end = self.max_offset(topic, queue_id)
        wrong = f"queue {topic}/{queue_id} ends at {end}, the record at {physical} has offset {offset}"
        shorter = queue is not None and queue.newest_end > 0 and offset < queue.end
        if queue is not None and shorter:
            if not rebuilding:
                raise QueueShorter(wrong)
            _LOG.warning("queue %s/%d starts again at %d, it had ended at %d", topic, queue_id, offset, end)
            if offset > queue.low:
                self._cut(queue, offset)
                return queue
        if queue is not None and (shorter or queue.newest_end == 0):
            # If it never held an entry, where it begins is for the log to say.
            self._forget(topic, queue_id)
            queue = None
        if queue is None:
            queue = self._make(topic, queue_id, offset)
        elif offset != queue.end:
            raise QueueOrderError(wrong)
        return queue

    def replace(self, topic: str, queue_id: int, offset: int, entries: Sequence[Entry]) -> None:
        """Put other entries in the place of some that a queue has. Raises OSError."""
        queue = self._queues[topic, queue_id]
        until = offset + len(entries)
        assert queue.low <= offset < until <= queue.end, "only what is there is replaced"
        written = max(0, min(until, queue.persisted) - offset)
        self._files.write(queue.folder, offset, pack_entries(entries[:written]))
        queue.tail[max(0, offset - queue.persisted) : max(0, until - queue.persisted)] = entries[written:]
        if until == queue.end:
            queue.newest_end = entry_end(entries[-1])

    def begin(self, topic: str, queue_id: int, offset: int) -> bool:
        """Let a queue without readable entries begin at `offset`, if that is behind its end; tell whether it does."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None and (queue.low < queue.end or offset <= queue.end):
            return False
        if queue is not None:
            self._forget(topic, queue_id)
        self._make(topic, queue_id, offset)
        return True

    def _make(self, topic: str, queue_id: int, offset: int) -> Queue:
        queue = self._queues[topic, queue_id] = Queue(self._queue_folder(topic, queue_id), offset, self._files.per_file)
        if queue.unfilled:
            self._dirty[queue] = None
            self._persist_if_room([queue])
        return queue

    # -- disk

    def persist(self, *, sync: bool = False, queues_max: int | None = None) -> None:
        """Write the tails, at most of `queues_max` queues, oldest first; with `sync` bring them to the disk.

        Raises OSError; what could not be written stays in memory and is tried again next time.
        """
        for queue in list(islice(self._dirty, queues_max)):
            self._settle(queue)
        if sync and self._folder.is_dir():
            Disk().sync_tree(self._folder)

    def _persist_if_room(self, queues: Sequence[Queue] | None = None) -> None:
        try:
            for queue in list(self._dirty) if queues is None else queues:
                self._settle(queue)
        except OSError as error:
            if not is_full(error) or self.buffered > 4 * BUFFERED_ENTRIES_MAX:
                raise

    def close(self) -> None:
        """Write what is in memory and close all files."""
        try:
            self.persist()
        finally:
            self._descriptors.close()

    def scan(self, files_max: int = 3) -> int:
        """Cut each queue where the entries of its last files stop holding together; return how many were cut.

        For an unclean stop, after which unsynced pages may be missing. Whatever stands behind a queue's end is zeroed.
        """
        cut = 0
        for queue in self._queues.values():
            self._settle(queue)
            number = max(queue.files_from, self._file_start(queue.end - 1) - (files_max - 1) * self._files.per_file)
            intact = number
            position = 0
            while intact == number < queue.persisted:
                held, position = intact_entries(self._files.raw(queue.folder, number, queue.persisted), position)
                intact += held
                number += self._files.per_file
            cut += intact < queue.persisted
            self._cut(queue, min(intact, queue.persisted))
        return cut

    def truncate_above(self, physical: int) -> None:
        """Cut every entry whose record ends behind `physical`, the end of the log, and what is not an entry."""
        for (topic, queue_id), queue in list(self._queues.items()):
            if queue.newest_end <= physical:
                continue
            self._settle(queue)
            end = self._end_below(queue, physical)
            if end == queue.files_from == 0:
                # Nothing is left and nothing was before: as if the queue had never been.
                self._forget(topic, queue_id)
            else:
                self._cut(queue, end)

    def cut_queue(self, topic: str, queue_id: int, end: int) -> None:
        """Make `end` the end of one queue, when it has more."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or queue.end <= end:
            return
        if end <= queue.low:
            self._forget(topic, queue_id)
        else:
            self._cut(queue, end)

    def delete_below(self, physical: int) -> int:
        """Raise each queue's smallest offset to its first record at or behind `physical`, the head of the log.

        Files that hold only smaller ones are deleted, except a queue's last: it keeps the offset. Returns how many.
        """
        deleted = 0
        for queue in self._queues.values():
            if queue.low == queue.end or self._first_physical(queue) >= physical:
                continue
            self._settle(queue)
            queue.low = self._files.find(
                queue.folder, queue.low, queue.end, lambda entry: entry == FILLER or entry[0] < physical
            )
            keep = min(self._file_start(queue.low), self._file_start(queue.end - 1))
            self._files.delete(queue.folder, queue.files_from, keep)
            deleted += (keep - queue.files_from) // self._files.per_file
            queue.files_from = keep
        return deleted

    def delete_topic(self, topic: str, before: int | None = None) -> None:
        """Forget all queues of a topic, with `before` those that end at or before it, and delete their files."""
        for queue_id in self.topics().get(topic, []):
            if before is None or self._queues[topic, queue_id].newest_end <= before:
                self._forget(topic, queue_id)
        if not any(known == topic for known, _ in self._queues):
            shutil.rmtree(self._topic_folder(topic), ignore_errors=True)

    def clear(self, below: int = 0) -> None:
        """Forget all queues and delete their files, before they are built from the log anew.

        Save those whose records all stand before `below`, where the log begins: nothing else knows their ends.
        """
        for (topic, queue_id), queue in list(self._queues.items()):
            if topic == RAFT_TOPIC or not 0 < queue.newest_end <= below:
                self._forget(topic, queue_id)

    # -- within

    def _load(self) -> None:
        if not self._folder.is_dir():
            return
        with os.scandir(self._folder) as topics:
            for topic in topics:
                if topic.is_dir():
                    with os.scandir(topic.path) as queues:
                        for queue in queues:
                            if queue.name.isdecimal():
                                self._load_queue(topic.name, int(queue.name), queue.path)

    def _load_queue(self, topic: str, queue_id: int, folder: str) -> None:
        queue = load_queue(self._files, folder)
        if queue is not None:
            self._note_newest(queue)
            self._queues[topic, queue_id] = queue

    def _note_newest(self, queue: Queue) -> None:
        known = queue.end > queue.files_from
        queue.newest_end = entry_end(self._files.entry(queue.folder, queue.end - 1)) if known else 0

    def _first_physical(self, queue: Queue) -> int:
        return (queue.tail[0] if queue.low == queue.persisted else self._files.entry(queue.folder, queue.low))[0]

    def _file_start(self, number: int) -> int:
        return max(number, 0) // self._files.per_file * self._files.per_file

    def _settle(self, queue: Queue) -> None:
        """Write fillers and tail of the queue, so that the files alone tell about it."""
        if queue.unfilled:
            fillers = pack_entries([FILLER]) * (queue.persisted - queue.files_from)
            self._files.write(queue.folder, queue.files_from, fillers)
            queue.unfilled = False
        if queue.tail:
            self._files.write(queue.folder, queue.persisted, pack_entries(queue.tail))
            self.buffered -= len(queue.tail)
            queue.persisted = queue.end
            queue.tail.clear()
        self._dirty.pop(queue, None)

    def _cut(self, queue: Queue, end: int) -> None:
        """Make `end` the queue's end, and everything behind it in the files zero."""
        self._settle(queue)
        self._files.cut(queue.folder, end, queue.files_from, queue.end)
        queue.end = queue.persisted = end
        queue.low = min(queue.low, end)
        self._note_newest(queue)

    def _forget(self, topic: str, queue_id: int) -> None:
        queue = self._queues.pop((topic, queue_id))
        self._dirty.pop(queue, None)
        self.buffered -= len(queue.tail)
        self._files.delete(queue.folder, queue.files_from, max(queue.end, queue.files_from + 1))
        with contextlib.suppress(OSError):
            Path(queue.folder).rmdir()

    def _topic_folder(self, topic: str) -> Path:
        if "/" in topic or "\0" in topic or topic in {"", ".", ".."}:
            raise StoreError(f"{topic!r} cannot be a topic: it is no name of a folder")
        return self._folder / topic

    def _queue_folder(self, topic: str, queue_id: int) -> str:
        return f"{self._topic_folder(topic)}/{queue_id}"
