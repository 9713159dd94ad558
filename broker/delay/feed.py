"""Reads rmq_sys_wheel_timer's two queues into the index, in the order of the log, on every member."""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.delay.index import IndexStamp, TimerIndex
from broker.delay.marks import MARK_QUEUE, MarkKind, TimerMark, read_mark
from broker.messages.timed_record import Timed, read_timed
from remoting.record import RecordError, decode_record
from remoting.topics import TIMER_TOPIC
from runtime.timings import Timings
from store.errors import RecordDamaged
from store.timerruns import DELETES, OFFSET_MAX, ROLLS, TOPIC_SHIFT, TimerEntry
from store.types import QueueEntry

_log = logging.getLogger(__name__)

# Recalls that were read before anybody asked whether they came in time: they are asked for once they are as safe as
# the mode says. Far more than can be on their way.
VERDICTS_MAX = 65_536
# ms by which RocketMQ may have stored a message anew later than its record says: twice is better than never.
FOREIGN_ROLL_MS = 5000
# RocketMQ's: a minute, ten, an hour, twelve, a day and three.
AHEAD_BOUNDS_S = (60.0, 600.0, 3600.0, 43_200.0, 86_400.0, 259_200.0)


class TimerStore(Protocol):
    """What is needed of the store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest offset of a queue."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> list[QueueEntry]:
        """Return entries of a queue."""
        ...

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the record at a position."""
        ...

    def read_piece_cold(self, position: int, size_max: int) -> memoryview | bytes:
        """Read bytes of the log, in any thread."""
        ...

    @property
    def file_bytes(self) -> int:
        """The size of a CommitLog file."""
        ...

    @property
    def flushed(self) -> int:
        """Everything before this position is on disk."""
        ...

    @property
    def written(self) -> int:
        """The position behind the last record."""
        ...


class Base(NamedTuple):
    """What RocketMQ delivered: all that stands before an offset and was due up to a slot."""

    slot: int
    offset: int


def key_hash(topic: str, key: bytes) -> int:
    """Return by what a message and its recall are found to belong together."""
    return int.from_bytes(hashlib.blake2b(topic.encode() + b"\0" + key, digest_size=8).digest(), "little")


class TimerFeed:
    """Keeps an index up to the queues; what it makes of them depends on nothing but the log."""

    def __init__(self, store: TimerStore, index: TimerIndex, *, mends: bool, base: Base | None = None) -> None:
        """`mends`: damaged records are being fetched from others, and waited for. `base`: see Base."""
        self._store = store
        self.index = index
        self._mends = mends
        self.base = base
        # What RocketMQ's file says, once it is known that its timer had read all that stood in the queue then.
        self._said, self._ran_after = base, False
        self.last_mark: TimerMark | None = None
        """The newest mark that moved the cursor."""
        self.enqueued = 0
        self.ahead = Timings(AHEAD_BOUNDS_S)
        """How long messages are to wait, from when they were stored."""
        self.begun = False
        # By offset: who wants to know whether a recall came in time, and of the latest ones whether they did.
        self._waiting: dict[int, Callable[[bool], None]] = {}
        self._verdicts: OrderedDict[int, bool] = OrderedDict()

    def fits(self) -> bool:
        """Tell whether the index belongs to this log."""
        stamp = self.index.stamp
        if self.overtaken:
            return False
        return self._stands(0, stamp.taken, stamp.position) and self._stands(
            MARK_QUEUE, stamp.marks, stamp.mark_position
        )

    def _stands(self, queue_id: int, end: int, position: int) -> bool:
        """Tell whether what was read last of a queue is still where it was, unless it has expired."""
        if position < 0 or end <= self._store.min_offset(TIMER_TOPIC, queue_id):
            return True
        last = self._store.queue_entries(TIMER_TOPIC, queue_id, end - 1, 1)
        return bool(last) and last[0].physical_offset == position

    @property
    def overtaken(self) -> bool:
        """Whether the queues end before what was read: a slave's log was cut to its master's."""
        stamp, store = self.index.stamp, self._store
        return stamp.taken > store.max_offset(TIMER_TOPIC, 0) or stamp.marks > store.max_offset(TIMER_TOPIC, MARK_QUEUE)

    def begin(self) -> None:
        """Find the place from which to read. Raises OSError."""
        store, index = self._store, self.index
        if not self.fits():
            _log.warning("the index of timer messages does not fit the log, it is built anew from it")
            index.reset()
        if self._said is not None and not self.begun:
            self._ran_after = self._said.offset >= store.max_offset(TIMER_TOPIC, 0)
        self.begun = True
        low = store.min_offset(TIMER_TOPIC, MARK_QUEUE)
        first = store.queue_entries(TIMER_TOPIC, MARK_QUEUE, low, 1)
        if first:
            try:
                mark = self._mark(first[0].physical_offset)
            except RecordDamaged:
                mark = None
            self.base = Base(mark.slot, mark.offset) if mark is not None and mark.kind is MarkKind.BASE else None
        if self.base is not None and index.stamp == IndexStamp():
            slot = self.base.slot
            index.move(IndexStamp(closed=slot, slot=slot, offset=OFFSET_MAX))

    def foreign_progress(self) -> TimerMark | None:
        """Return a mark of what RocketMQ delivered since this broker last did; None when it did not run in between."""
        said, stamp = self._said, self.index.stamp
        if said is None or not stamp.marks or not self._ran_after or said.slot <= stamp.closed:
            return None
        return TimerMark(MarkKind.DONE, said.slot, OFFSET_MAX, *self.index.cursor)

    @property
    def behind(self) -> int:
        """How many messages were not read yet."""
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self.index.stamp.taken)

    def behind_ms(self, now_ms: int) -> int:
        """Return for how long the first message waits that was not read yet."""
        position = self.next_position()
        try:
            view = self._store.record_at(position) if position >= 0 else None
            return 0 if view is None else max(0, now_ms - decode_record(view).store_timestamp)
        except (RecordDamaged, RecordError):
            return 0

    def next_position(self) -> int:
        """Return where the next message stands that was not read yet, -1 when all were."""
        entries = self._store.queue_entries(TIMER_TOPIC, 0, self.index.stamp.taken, 1)
        return entries[0].physical_offset if entries else -1

    @property
    def whole(self) -> bool:
        """Whether everything was read."""
        return not self.behind and self.index.stamp.marks >= self._store.max_offset(TIMER_TOPIC, MARK_QUEUE)

    def step(self, count: int) -> bool:
        """Read up to `count` messages and as many marks; tell whether there are more that can be read now."""
        store, index = self._store, self.index
        stamp = index.stamp
        taken = max(stamp.taken, store.min_offset(TIMER_TOPIC, 0))
        marks = max(stamp.marks, store.min_offset(TIMER_TOPIC, MARK_QUEUE))
        messages = store.queue_entries(TIMER_TOPIC, 0, taken, count)
        noted = store.queue_entries(TIMER_TOPIC, MARK_QUEUE, marks, count)
        more = taken + len(messages) < store.max_offset(TIMER_TOPIC, 0)
        more_marks = marks + len(noted) < store.max_offset(TIMER_TOPIC, MARK_QUEUE)
        at = mark_at = 0
        while at < len(messages) or mark_at < len(noted):
            if (more and at == len(messages)) or (more_marks and mark_at == len(noted)):
                # What comes next in the log is not known.
                return True
            if mark_at == len(noted) or (
                at < len(messages) and messages[at].physical_offset < noted[mark_at].physical_offset
            ):
                if index.full or not self._take(taken + at, messages[at]):
                    return False
                at += 1
            else:
                if not self._note(marks + mark_at, noted[mark_at].physical_offset):
                    return False
                mark_at += 1
        return bool(messages or noted) and (more or more_marks)

    def _take(self, offset: int, entry: QueueEntry) -> bool:
        """Take a message into the index; tell whether that is done."""
        index = self.index
        try:
            view = self._store.record_at(entry.physical_offset)
            found = None if view is None else read_timed(view)
        except RecordDamaged:
            if self._mends:
                # It is being fetched from another member, and must not be passed over (R18).
                return False
            found = None
        except RecordError as error:
            _log.error("timer message %d can never be delivered: %s", offset, error)
            found = None
        in_time = True
        if found is not None:
            in_time = self._add(offset, entry, found)
        index.move(index.stamp._replace(taken=offset + 1, position=entry.physical_offset))
        if found is not None and found.deletes:
            self._judged(offset, in_time)
        return True

    def verdict(self, offset: int, tell: Callable[[bool], None]) -> None:
        """Tell whether the recall at an offset came before its slot was closed, as soon as that is read."""
        if offset < self.index.stamp.taken:
            tell(self._verdicts.pop(offset, False))
        else:
            self._waiting[offset] = tell

    def _judged(self, offset: int, in_time: bool) -> None:
        if (tell := self._waiting.pop(offset, None)) is not None:
            tell(in_time)
            return
        self._verdicts[offset] = in_time
        if len(self._verdicts) > VERDICTS_MAX:
            self._verdicts.popitem(last=False)

    def _add(self, offset: int, entry: QueueEntry, found: Timed) -> bool:
        """Add what was found; tell whether it came before its slot was closed."""
        slot = found.roll_ms or found.out_ms
        base, closed = self.base, self.index.stamp.closed
        # RocketMQ counts from when its wheel took a message, up to some seconds after it was stored.
        slack = FOREIGN_ROLL_MS if found.roll_ms else 0
        if base is not None and offset < base.offset and slot + slack <= base.slot:
            return False
        flags = (DELETES if found.deletes else 0) | (ROLLS if found.roll_ms else 0)
        flags |= self.index.topics.number(found.topic) << TOPIC_SHIFT
        self.enqueued += 1
        self.ahead.add(max(0, found.out_ms - found.store_ms) / 1000)
        self.index.add(
            TimerEntry(
                max(slot, closed + 1), offset, entry.physical_offset, entry.size, flags,
                key_hash(found.topic, found.key),
            )
        )  # fmt: skip
        return found.out_ms > closed and slot > closed

    def _note(self, number: int, position: int) -> bool:
        """Take a mark; tell whether that is done."""
        index = self.index
        try:
            mark = self._mark(position)
        except RecordDamaged:
            return False
        stamp = index.stamp._replace(marks=number + 1, mark_position=position)
        if mark is not None:
            if mark.kind is MarkKind.CLOSE:
                stamp = stamp._replace(closed=max(stamp.closed, mark.slot))
            elif mark.kind is MarkKind.DONE:
                self.last_mark = mark
                stamp = stamp._replace(slot=mark.slot, offset=mark.offset, closed=max(stamp.closed, mark.slot))
        index.move(stamp)
        return True

    def _mark(self, position: int) -> TimerMark | None:
        try:
            view = self._store.record_at(position)
            return None if view is None else read_mark(view)
        except RecordDamaged:
            if self._mends:
                raise
        except RecordError as error:
            _log.error("a mark of the timer's at %d is passed over: %s", position, error)
        return None
