"""Decides which bytes of the log may be handed out: what comes from the disk is checked by CRC first (R18).

What this process has written lately is what it was told to write. Everything else may have stood on the disk since,
where bytes rot without anybody noticing: it is checked when somebody asks for it, and again after a while. A record's
own CRC covers its body alone; a member of a group checks the whole entry (entrychecks.py), which covers every byte.
"""

import logging
import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from remoting.compiled.door import COMPILED, hotpath
from remoting.record import BORNHOST_V6, FIXED_BYTES, HEADS, MAGIC_V1, MAGIC_V2, STOREHOST_V6, SYSFLAG_AT
from runtime.clock import Clock
from runtime.crc import crc32
from store.integrity.ranges import Ranges
from store.log.commitlog import HOT_BYTES, CommitLog
from store.log.logscan import check_record

_LOG = logging.getLogger(__name__)

# How long a check holds, and what this process wrote counts as its own, at least; twice as long at most.
TRUST_SECONDS = 300.0
# Damaged places whose position is kept, so that each is logged once; more are only counted.
PLACES_MAX = 1024
_ENTRY_BAD = "an entry that does not match its CRC"
_QUEUE_WRONG = "the entry in its queue leads to "
_ADVICE = (
    "this record is refused. Its file may be intact on a slave or in a backup: stop the broker, put that file in its "
    "place, start. Or move the groups that stop there behind it (resetOffset), which gives this message up"
)
_QUEUE_ADVICE = "stop the broker, move the folder consumequeue away, start: it is built anew from the log"
_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
# The byte of the sysFlag that holds the host bits.
_FLAGS_AT = SYSFLAG_AT + 3
_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_OFFSET_AT = 20


class EntryChecks(Protocol):
    """What a member of a group can say of its entries."""

    def checked(self, position: int) -> tuple[int, int] | None:
        """Check the entry that covers a position, and perhaps later ones; return from where to where all is right.

        None when it is damaged: it will be fetched from a peer. A range without bytes when no entry covers it.
        """
        ...

    @property
    def begin(self) -> int:
        """The position from which on every record is of an entry."""
        ...

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged that is known."""
        ...


class Asked(NamedTuple):
    """What a read of a queue must find."""

    topic: bytes
    queue_id: int
    offset: int
    """Of the first record, at least."""
    end: int
    """All offsets are less."""


class Bad(NamedTuple):
    """The first record of an answer that must not go, and what is right before it."""

    position: int
    reason: str
    run: int
    """The run in which it stands."""
    at: int
    """Where it begins in its run."""
    right: int
    """Right records before it."""
    next_offset: int
    """Behind the last right one, in the queue."""


class Verifier:
    """Knows what was checked and what was found damaged. For the store's thread.

    `fresh_from`: everything behind it was written by this process lately. `found`: damaged places that were met.
    """

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.entries: EntryChecks | None = None
        self._ranges = Ranges()
        self.fresh_from = self._mark = log.written
        self._turn_at = clock.monotonic() + TRUST_SECONDS
        self.found = 0
        self._places: dict[int, str] = {}

    def tick(self) -> None:
        """Let what was written long ago, or far behind the end, count as the disk's; unmap it now and then."""
        written = self._log.written
        # A log that was cut grows again from there.
        self._mark = min(self._mark, written)
        if self._clock.monotonic() >= self._turn_at:
            self._turn_at = self._clock.monotonic() + TRUST_SECONDS
            self.fresh_from, self._mark = max(self.fresh_from, self._mark), written
            self._ranges.turn()
            self._log.unmap_old()
        self.fresh_from = max(self.fresh_from, written - HOT_BYTES)
        if self._places and self.entries is not None and self.entries.whole:
            # It was fetched and written anew.
            self._places = {at: why for at, why in self._places.items() if why.startswith(_QUEUE_WRONG)}

    def trusts(self, start: int, end: int) -> bool:
        """Tell whether a stretch of the log was written lately, or checked: all records in it may go."""
        return start >= self.fresh_from or self._ranges.covers(start, end)

    def judged(self, runs: list[tuple[int, int]]) -> None:
        """Remember records, (position, size) of each, that were found to be right."""
        self._ranges.add(runs)

    def knows(self, position: int) -> bool:
        """Tell whether a place is known to be damaged. For any thread."""
        return position in self._places

    def places(self) -> dict[int, str]:
        """Return the damaged places that are known: position → what is wrong."""
        return dict(self._places)

    def first_bad(self, runs: list[tuple[int, int]], buffers: list[memoryview | bytes], asked: Asked) -> Bad | None:
        """Check an answer; return its first record that must not go, None when all may. Raises OSError."""
        if runs and self._ranges.covers(min(runs)[0], max([position + size for position, size in runs])):
            # One look in place of one for each run: of several queues that are read side by side, all was checked.
            return None
        offset, first = asked.offset, 0
        if COMPILED and self.entries is None:
            first, offset = hotpath.judge_runs(
                runs, buffers, asked.topic, asked.queue_id, offset, asked.end, MAGIC_V1, crc32
            )
        right = runs[:first]
        for number in range(first, len(runs)):
            position, size = runs[number]
            if position >= self.fresh_from or self._ranges.covers(position, position + size):
                continue
            damaged, reason = self._entries_bad(position, position + size) or (position + size, "")
            view = memoryview(buffers[number])
            at = 0
            while at < size:
                verdict = reason if position + at >= damaged else _judge(view, at, position + at, asked, offset)
                if isinstance(verdict, str):
                    self.note(position + at, verdict)
                    count, behind = _passed([*buffers[:number], view[:at]], asked.offset)
                    self._ranges.add(right)
                    return Bad(position + at, verdict, number, at, count, behind)
                taken, offset = verdict
                at += taken
            right.append(runs[number])
        self._ranges.add(right)
        return None

    def unread(self, run: int, position: int, reason: str, buffers: Sequence[memoryview | bytes], asked: Asked) -> Bad:
        """Return what first_bad() would for a run that the disk does not give at all; `buffers` before it are right."""
        self.note(position, reason)
        if self.entries is not None:
            self.entries.checked(position)
        return Bad(position, reason, run, 0, *_passed(buffers, asked.offset))

    def record_bad(self, view: memoryview, position: int) -> str:
        """Return why a record must not go, "" when it may. Raises OSError."""
        end = position + len(view)
        if position >= self.fresh_from or self._ranges.covers(position, end):
            return ""
        bad = self._entries_bad(position, end)
        verdict = bad[1] if bad is not None else check_record(view, 0, position, check_crc=True)
        if isinstance(verdict, str):
            self.note(position, verdict)
            return verdict
        self._ranges.add([(position, end - position)])
        return ""

    def entry_bad(self, position: int) -> str:
        """Return why no record may stand at a position of a group's log, "" when nothing is wrong. Raises OSError."""
        if position >= self.fresh_from or self.entries is None or self.entries.checked(position) is not None:
            return ""
        self.note(position, _ENTRY_BAD)
        return _ENTRY_BAD

    def note(self, position: int, reason: str) -> None:
        """Count a damaged place, and log it, once."""
        if position in self._places:
            return
        self.found += 1
        if len(self._places) >= PLACES_MAX:
            return
        self._places[position] = reason
        if reason.startswith(_QUEUE_WRONG):
            what = _QUEUE_ADVICE
        else:
            what = _ADVICE if self.entries is None else "it is fetched from another member"
        _LOG.error("the CommitLog cannot be served at %d (%s): %s", position, reason, what)

    def right_bytes(self, position: int) -> tuple[int, memoryview | bytes] | None:
        """Return what is right around a position, as memory holds it, and where that begins; None when it is wrong too.

        Raises OSError.
        """
        log = self._log
        if self.entries is not None:
            right = self.entries.checked(position)
            if right is None:
                return None
            if right[0] < right[1]:
                file_start = position - position % log.file_bytes
                start, end = max(right[0], file_start), min(right[1], file_start + log.file_bytes)
                return start, log.read_blocking(start, end - start)
        if not log.contains(position, FIXED_BYTES):
            return None
        size = _SIZE.unpack(log.read_blocking(position, _SIZE.size))[0]
        if not log.contains(position, size):
            return None
        data = log.read_blocking(position, size)
        return (
            None if isinstance(check_record(memoryview(data), 0, position, check_crc=True), str) else (position, data)
        )

    def _entries_bad(self, start: int, end: int) -> tuple[int, str] | None:
        """Check the entries that cover a range; return the position from which on they are damaged, and why."""
        if self.entries is None:
            return None
        while start < end:
            right = self.entries.checked(start)
            if right is None:
                return start, _ENTRY_BAD
            if right[0] == right[1]:
                # What stands before the first entry has only its records' own CRCs.
                return None
            self._ranges.add([(right[0], right[1] - right[0])])
            start = right[1]
        return None


def _judge(view: memoryview, at: int, position: int, asked: Asked, offset: int) -> tuple[int, int] | str:
    """Return the size of the record at `at` and the offset behind it, or why it is not what was asked for."""
    if COMPILED:
        usual = hotpath.judge_record(
            view, at, position, asked.topic, asked.queue_id, offset, asked.end, MAGIC_V1, crc32
        )
        if usual is not None:
            return usual
    verdict = check_record(view, at, position, check_crc=True)
    if isinstance(verdict, str):
        return verdict
    head = HEADS[view[at + _FLAGS_AT] & _HOST_BITS]
    fields = head.unpack_from(view, at)
    wide = 2 if fields[1] == MAGIC_V2 else 1
    name_at = at + head.size + fields[14] + wide
    name_end = name_at + int.from_bytes(view[name_at - wide : name_at], "big")
    if fields[3] != asked.queue_id or view[name_at:name_end] != asked.topic:
        return _QUEUE_WRONG + "a record of another one"
    if not offset <= fields[5] < asked.end:
        return f"{_QUEUE_WRONG}a record of offset {fields[5]}, where {offset} to {asked.end - 1} are due"
    return verdict[0], fields[5] + 1


def _passed(buffers: Sequence[memoryview | bytes], offset: int) -> tuple[int, int]:
    """Return how many records stand in buffers that are right, and the offset behind the last one."""
    count = 0
    for data in buffers:
        at = 0
        while at < len(data):
            offset = _OFFSET.unpack_from(data, at + _OFFSET_AT)[0] + 1
            at += _SIZE.unpack_from(data, at)[0]
            count += 1
    return count, offset
