"""Answers to pulls in one step, by the compiled hot path: one copy of records that are in memory, and are right.

Everything that is not so usual is left to reads.py: what the disk would have to be asked for, what is larger than a
copy should be, and what is not what was written.
"""

from time import monotonic
from typing import NamedTuple

from remoting.compiled.door import hotpath
from remoting.record import MAGIC_V1
from remoting.topics import RAFT_TOPIC
from runtime.crc import crc32
from store.config import QUEUE_ENTRY_BYTES
from store.derived.consumequeue import ConsumeQueues
from store.files.mappedfile import LogFile
from store.files.queuefile import ENTRY, FILLER
from store.integrity.verifier import Verifier
from store.log.commitlog import CommitLog
from store.reads.readlimits import ReadLimits
from store.reads.runs import WINDOW_BYTES

_FILLER_SIZE = FILLER[1]
# Records among the newest that are copied into one piece; of more, each piece of the mapping leaves by itself. What is
# not new is copied in any case.
JOINED_BYTES_MAX = 64 * 1024
# Of how much at once the kernel is asked whether it has it in memory, and for how long its answer is taken for true,
# seconds. What leaves the page cache meanwhile is read by the loop itself: to ask each time cost a twelfth of a pull.
MEMORY_BYTES = 256 * 1024
MEMORY_SECONDS = 0.02
# Stretches of which that is remembered.
_STRETCHES_MAX = 1024
# Entries that are read with those of a pull, for pulls behind it: so many times as many.
AHEAD = 4

# The records of an answer, their number, entries passed, the end of the last record in the log, (position, size) of
# each that was judged, their size: see hotpath.gather.
Gathered = tuple[bytes, int, int, int, list[tuple[int, int]] | None, int]
# What of an answer's header stands before the offset to go on from; a template of what stands behind it, with the
# queue's ends, highest first, and two numbers more; these numbers.
Head = tuple[bytes, bytes, int, int]


class Framed(NamedTuple):
    """An answer as it leaves."""

    frame: bytes
    messages: int
    size: int
    behind_bytes: int
    max_offset: int


class Sitting:
    """What the reads of one turn share: nothing is written or removed meanwhile."""

    __slots__ = ("ahead", "entries", "files", "hot", "min_position", "written")

    def __init__(self, log: CommitLog, *, ahead: int) -> None:
        self.written, self.hot, self.min_position = log.written, log.hot_from, log.min_position
        self.ahead = ahead
        """How many times as many entries are read as a read needs, for those behind it."""
        self.entries: dict[tuple[str, int], tuple[int, bytes]] = {}
        """By queue: the offset of the first, and their bytes."""
        self.files: dict[int, tuple[LogFile, memoryview]] = {}
        """By where they begin: files that were opened, and all of each."""


class Gathering:
    """Gathers the records of one answer; for the store's own thread, and where the hot path is compiled."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, verifier: Verifier, limits: ReadLimits) -> None:
        self._log = log
        self._queues = queues
        self._verifier = verifier
        self._limits = limits
        # Which stretches of the log are in memory, and until when that is believed.
        self._in_memory: dict[int, float] = {}

    def sitting(self, reads: int) -> Sitting:
        """Return what so many reads of this turn share."""
        return Sitting(self._log, ahead=AHEAD if reads > 1 else 1)

    def framed(
        self, queue: tuple[str, int], offset: int, max_count: int, max_bytes: int, head: Head, sitting: Sitting
    ) -> Framed | None:
        """Return the answer to a read that is usual, in its frame; None: get() knows, and says why.

        Messages stand there from `offset` on, in memory, and right; `max_count` is 1 or more.
        """
        low, end = self._queues.bounds(*queue)
        if not low <= offset < end or queue[0] == RAFT_TOPIC:
            return None
        count = min(max_count, self._limits.most, end - offset)
        first, known = sitting.entries.get(queue, (0, b""))
        at = (offset - first) * QUEUE_ENTRY_BYTES
        until = at + count * QUEUE_ENTRY_BYTES
        if not 0 <= at < until <= len(known):
            known = self._queues.packed(*queue, offset, min(sitting.ahead * count, end - offset))
            sitting.entries[queue] = (offset, known)
            at, until = 0, count * QUEUE_ENTRY_BYTES
            if len(known) < until:
                return None
        before, behind, *numbers = head
        around = (offset, before, behind % (end, low, *numbers))
        whole = offset + count == end
        found = self.gathered(
            known[at:until], queue, offset, None, (max_count, max_bytes), sitting, around, whole=whole
        )
        if found is None:
            return None
        frame, messages, _, until, _, size = found
        return Framed(frame, messages, size, sitting.written - until, end)

    def gathered(
        self,
        entries: bytes,
        queue: tuple[str, int],
        offset: int,
        accepts: frozenset[int] | None,
        most: tuple[int, int],
        sitting: Sitting,
        around: tuple[int, bytes, bytes] | None = None,
        *,
        whole: bool,
    ) -> Gathered | None:
        """Return one copy of records that are in memory and found to be right, None when they are not all so.

        `entries`: as a queue's file has them, from `offset` on; `whole`: there are no more to look at than these.
        `most`: messages and bytes that are wanted. `around`: see hotpath.gather.
        """
        if not entries:
            return None
        verifier, written, hot = self._verifier, sitting.written, sitting.hot
        position = ENTRY.unpack_from(entries)[0]
        if not sitting.min_position <= position < written:
            return None
        start = position - position % self._log.file_bytes
        opened = sitting.files.get(start)
        if opened is None:
            file = self._log.opened(position)
            sitting.files[start] = opened = (file, file.view(file.start, file.size))
        file, view = opened
        asked, end = None, min(file.end, written)
        last, size, _ = ENTRY.unpack_from(entries, len(entries) - QUEUE_ENTRY_BYTES)
        if verifier.trusts(position, last + size):
            # And of nothing behind that, where entries that rot may lead.
            end = min(end, last + size)
        elif verifier.entries is not None:
            return None
        else:
            asked = (queue[0].encode(), queue[1], offset, MAGIC_V1, crc32)
        count_max, bytes_max = self._limits.of(written - position, *most)
        copied_max = JOINED_BYTES_MAX
        if position < hot:
            copied_max = WINDOW_BYTES
            if self._held(file, view, position, last + size):
                hot = position
        found = hotpath.gather(
            entries, accepts, view, start, end, hot, _FILLER_SIZE, count_max, bytes_max, copied_max, whole, asked,
            around,
        )  # fmt: skip
        if found is not None and (judged := found[4]) is not None:
            verifier.judged(judged)
        return found

    def _held(self, file: LogFile, view: memoryview, start: int, end: int) -> bool:
        """Tell whether bytes of a file are in memory, by what the kernel said of the stretches that they lie in."""
        held, now = self._in_memory, monotonic()
        at = start - (start - file.start) % MEMORY_BYTES
        if end - at > 2 * MEMORY_BYTES:
            return False
        while at < end:
            if held.get(at, 0.0) < now:
                # Of what is not written yet nobody knows: the pages of a hole are in no memory.
                until = min(at + MEMORY_BYTES, file.end, self._log.written)
                if not hotpath.in_memory(view, at - file.start, until - at):
                    return False
                if len(held) >= _STRETCHES_MAX:
                    held.clear()
                held[at] = now + MEMORY_SECONDS
            at += MEMORY_BYTES
        return True
