"""Finds entries by their index: in memory, else by the ConsumeQueue of RMQ_SYS_RAFT, which is a hint and no more (R10).

Every use of the hint reads the control record there and believes that alone; where the hint misleads, the log is walked
from the nearest entry that is found.
"""

import logging
import struct

from raft.protocol.types import Entry
from remoting.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES
from remoting.topics import RAFT_TOPIC
from runtime.crc import crc32
from store.controlrecord import Control, ControlError, decode_control
from store.derived.consumequeue import ConsumeQueues
from store.log.commitlog import CommitLog
from store.log.logscan import check_record
from store.raftlog.entrycache import EntryCache

_LOG = logging.getLogger(__name__)

# A control record is no larger: what claims to be is none, and is not read.
CONTROL_BYTES_MAX = 16 * 1024 * 1024
# What is read at first: nearly all control records are smaller, and are read at once.
USUAL_BYTES = 256
# A hint that misleads costs a walk over at most so many entries, some 20 us each; beyond it the entry cannot be read.
WALK_ENTRIES_MAX = 4096
# Hints tried side by side at each distance.
WALK_TRIES = 16
# What was mended and is kept for the dispatching.
MENDED_BYTES_MAX = 8 * 1024 * 1024
MENDED_CONTROLS_MAX = 4096
# Control records kept that were read: what is dispatched late is asked for by one part after the other.
FOUND_MAX = 1024
_SIZE_AND_MAGIC = struct.Struct(">iI")
_new = tuple.__new__  # without the frame of the NamedTuple's own function


class EntryFinder:
    """Reads of entries below `last`. For the loop; may wait for the disk when an entry has long been written."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, cache: EntryCache, *, file_bytes: int) -> None:
        self._log = log
        self._queues = queues
        self._cache = cache
        self._file_bytes = file_bytes
        # What was mended lately, which is soon asked for: it is to be dispatched.
        self._mended = EntryCache(bytes_max=MENDED_BYTES_MAX, controls_max=MENDED_CONTROLS_MAX)
        self._found: dict[int, Control] = {}

    def control(self, index: int) -> Control | None:
        """Return the control record of an entry that is kept; None when it cannot be read."""
        known = self._cache.control(index) or self._mended.control(index) or self._found.get(index)
        if known is not None:
            return known
        control = self._by_hint(index) or self._walk(index)
        if control is not None:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[index] = control
        return control

    def mended(self, control: Control, data: bytes | memoryview) -> None:
        """Take an entry that was written again."""
        self._found.pop(control.index, None)
        self._mended.forget(control.index)
        self._mended.add(control, data)

    def cut(self, last: int) -> None:
        """Forget every entry behind `last`: others may come to stand there."""
        self._mended.cut(last)
        self._found.clear()

    def kept(self, index: int) -> Control:
        """Return the control record of an entry that must be there; LookupError when it cannot be read."""
        control = self.control(index)
        if control is None:
            raise LookupError(f"entry {index} cannot be read")
        return control

    def read(self, index: int, last: int, bytes_max: int) -> list[Entry]:
        """Return entries from `index` to at most `last`: the first whatever its size, more while they fit.

        Nothing from the first one on that does not match its CRC any more.
        """
        found: list[Entry] = []
        room = bytes_max
        while index <= last:
            control, data = self._cache.control(index), self._cache.data(index)
            if control is None or data is None:
                part = self._window(index, last, room, first=not found)
            elif len(data) <= room or not found:
                found.append(_new(Entry, (index, control.term, control.position, data)))
                index += 1
                room -= len(data)
                continue
            else:
                break
            if not part:
                break
            found += part
            index += len(part)
            room -= sum([len(entry.data) for entry in part])
        return found

    def data(self, control: Control) -> bytes | memoryview:
        """Return all bytes of an entry. Raises OSError."""
        data = self._cache.data(control.index)
        if data is None:
            data = self._mended.data(control.index)
        return data if data is not None else self.bytes_at(control.position, control.entry_bytes)

    def bytes_at(self, position: int, size: int) -> bytes | memoryview:
        """Return written bytes of one file. Raises OSError."""
        data = self._log.read(position, size)
        return self._log.read_blocking(position, size) if data is None else data

    def control_at(self, position: int) -> Control | None:
        """Return the control record that begins at a position, None when none does."""
        log = self._log
        if not log.contains(position, FIXED_BYTES):
            return None
        try:
            end = min(position + USUAL_BYTES, log.written, self._file_end(position))
            data = self.bytes_at(position, end - position)
            size = _SIZE_AND_MAGIC.unpack_from(data)[0]
            if size > CONTROL_BYTES_MAX or not log.contains(position, size):
                return None
            if size > len(data):
                data = self.bytes_at(position, size)
            return _decoded(memoryview(data), 0, position)
        except (OSError, EOFError) as error:
            _LOG.warning("the CommitLog cannot be read at %d: %s", position, error)
            return None

    def _next_position(self, end: int) -> int:
        """Return where the entry behind `end`, which is not the log's end, begins: there or in the next file."""
        try:
            _, magic = _SIZE_AND_MAGIC.unpack(self.bytes_at(end, BLANK_BYTES))
        except (OSError, EOFError):
            return end
        return end if magic != BLANK_MAGIC else self._file_end(end)

    def _file_end(self, position: int) -> int:
        """Return where the file that holds a position ends."""
        return position + self._file_bytes - position % self._file_bytes

    def _by_hint(self, index: int) -> Control | None:
        for position, _, _ in self._queues.entries(RAFT_TOPIC, 0, index, 1):
            found = self.control_at(position)
            if found is not None and found.index == index:
                return found
        return None

    def _walk(self, index: int) -> Control | None:
        """Go forward from the nearest earlier entry that its hint leads to, as far as that is worth it."""
        control = self._nearest(index)
        steps = 0
        while control is not None and control.index < index and control.end < self._log.written:
            steps += 1
            following = self.control_at(self._next_position(control.end)) if steps < WALK_ENTRIES_MAX else None
            control = following if following is not None and following.index == control.index + 1 else None
        return control if control is not None and control.index == index else None

    def _nearest(self, index: int) -> Control | None:
        """Return an entry before `index` that its hint leads to: the nearest one of those that are tried."""
        low = max(self._queues.min_offset(RAFT_TOPIC, 0), index - WALK_ENTRIES_MAX)
        # Its neighbours one by one; from there on some at each distance, which doubles.
        at, distance = index - 1, WALK_TRIES
        while at >= low:
            for tried in range(at, max(at - WALK_TRIES, low - 1), -1):
                if (control := self._by_hint(tried)) is not None:
                    return control
            distance *= 2
            at = min(at - WALK_TRIES, index - distance)
        return self._by_hint(low) if low < index else None

    def _window(self, index: int, last: int, room: int, *, first: bool) -> list[Entry]:
        """Read entries that stand side by side in one file, in one read."""
        control = self.control(index)
        if control is None or (control.entry_bytes > room and not first):
            return []
        start = control.position
        size = max(control.entry_bytes, min(room, self._file_end(start) - start, self._log.written - start))
        try:
            view = memoryview(self.bytes_at(start, size))
        except (OSError, EOFError) as error:
            _LOG.warning("%d bytes of the CommitLog cannot be read at %d: %s", size, start, error)
            return []
        if _decoded(view, 0, start) != control:
            # It was known from an earlier reading, or from its writing.
            return []
        found: list[Entry] = []
        at = 0
        while control is not None and at + control.entry_bytes <= size:
            data = view[at : at + control.entry_bytes]
            if crc32(data[control.size :]) != control.covered_crc:
                break
            found.append(Entry(control.index, control.term, start + at, data))
            at += control.entry_bytes
            if control.index == last:
                break
            following = _decoded(view, at, start + at)
            control = following if following is not None and following.index == control.index + 1 else None
        return found


def _decoded(view: memoryview, at: int, position: int) -> Control | None:
    if isinstance(check_record(view, at, position, check_crc=True), str):
        return None
    try:
        return decode_control(view, at)
    except ControlError:
        return None
