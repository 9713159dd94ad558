"""Timer messages are delivered: what is due is closed, read, stored in its own queue, and marked, a batch at a time.

One batch is on its way at a time: its mark first, then its messages, in one append (in a group: one entry). Where the
log says that delivery is, is what the feed has read of marks; nothing is remembered beside it. Whoever begins to
deliver in a group first appends a mark that says nothing, and goes on when that has come by: all of its predecessor's
marks have then. Without a group a batch may be torn by a kill; its last mark tells what should stand behind it.
"""

import contextlib
import logging
from collections.abc import Sequence
from functools import partial

from broker.delay.batch import Made, Recalls, make_batch, stretches
from broker.delay.feed import TimerFeed
from broker.delay.index import TimerIndex
from broker.delay.index_files import IndexFiles
from broker.delay.marks import MARK_QUEUE, MarkKind, TimerMark, mark_record
from broker.delay.read_ahead import ReadAhead
from broker.delay.timer_context import TimerContext
from broker.delay.torn import torn
from broker.messages.delay_queue import Cancellable
from broker.messages.timed_record import TimerLimits, bare
from remoting.topics import TIMER_TOPIC
from store.errors import RecordDamaged
from store.events import EVERYTHING_MAY_GO
from store.timerruns import OFFSET_MAX, ROLLS, Key, TimerEntry
from store.types import PutResult, PutStatus

_log = logging.getLogger(__name__)

# Messages that are read into the index in one turn of the loop, before others get theirs.
FEED_PER_TURN = 128
# Messages and bytes that one batch delivers. One is on its way at a time, so that a group of which much is overdue
# delivers so many in the time of one entry.
BATCH_MAX = 512
BATCH_BYTES = 512 * 1024
# Messages that are made of waiting ones in one turn of the loop: some milliseconds.
MADE_PER_TURN = 64
# By what part of it a batch gets smaller, one of whose messages is refused for good, until that is found.
SMALLER = 8
# Pending messages that are looked at to see how far a slot may be closed.
LOOK_AHEAD = 2048
# Seconds before what the store refused, or what is being mended, is tried again.
RETRY_SECONDS = 1.0
# Seconds after which a waiting timer looks at the clock again, whatever it waits for: somebody may have set it.
TIMER_SECONDS_MAX = 60.0
# Seconds between two looks at whether files are to be merged or removed.
FILES_SECONDS = 10.0
# Refusals that will not change.
_HOPELESS = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


class TimerService:
    """Delivers the timer messages of one broker. Everything happens in the event loop but what is done aside."""

    def __init__(self, context: TimerContext, index: TimerIndex, feed: TimerFeed) -> None:
        """Use begin() once the store is open, and start() when this broker delivers."""
        self._context = context
        self.index = index
        self.feed = feed
        self._store, self._clock = context.store, context.clock
        self._stopped = True
        self._begun = False
        self._closed = False
        # Each time as the one who delivers has a number; what comes back of an earlier one counts no more.
        self._life = 0
        self._flight = False
        self._halted = False
        self._looked = False
        self._awaits = 0
        # The next so many messages go in smaller batches, of that size: one of them is refused.
        self._careful, self._batch_max = 0, BATCH_MAX
        self._recalls = Recalls()
        self._woken = self._looks_at_files = False
        self._timer: Cancellable | None = None
        self._ahead = ReadAhead(context.store, context.aside, self._wake)
        self._files = IndexFiles(index, context.aside, lambda: self._store.flushed, self._wake)
        self.delivered = 0
        self.recalled = 0
        self.rolled = 0

    # -- life

    def begin(self) -> None:
        """Open the index and find the place in the log; when the disk refuses that, again a little later."""
        if self._closed:
            return
        try:
            self.index.open()
            self.feed.begin()
        except OSError as error:
            _log.error("no timer message is delivered, the index cannot be opened: %s", error)
            self._context.later(RETRY_SECONDS, self.begin)
            return
        self._begun = True
        self._wake()
        if not self._looks_at_files:
            self._looks_at_files = True
            self._look_at_files()

    def start(self) -> None:
        """Begin to deliver."""
        if self._begun and not self.feed.fits():
            # A slave's log was cut, and went on with other bytes.
            self._begun = False
            self.begin()
        self._life += 1
        self._stopped = self._halted = self._flight = False
        self._looked = False
        self._awaits = self._careful = 0
        self._batch_max = BATCH_MAX
        self._recalls = Recalls()
        self._wake()

    def stop(self) -> None:
        """Deliver nothing more; what is on its way may still be stored."""
        self._stopped = True
        self._life += 1
        self._cancel()

    def close(self) -> None:
        """Close the files, for good."""
        self.stop()
        self._closed = True
        if not self._begun:
            return
        try:
            self._files.finish()
        except OSError as error:
            _log.warning("the index of timer messages is not written, the next start reads them again: %s", error)
        self.index.close()

    def _look_at_files(self) -> None:
        if not self._closed:
            self._files.look(again=True)
            self._context.later(FILES_SECONDS, self._look_at_files)

    def arrived(self) -> None:
        """Look at what has come into rmq_sys_wheel_timer."""
        self._wake()

    def limits(self) -> TimerLimits:
        """Return what the configuration says."""
        return self._context.limits()

    def needed_from(self) -> int:
        """Return from which position on the log is needed for what waits."""
        if not self._begun:
            return 0
        lows = [position for position in (self.index.low, self.feed.next_position()) if position >= 0]
        return min(lows, default=EVERYTHING_MAY_GO)

    def lag_ms(self) -> int:
        """Return for how long the first message that is due has been waiting for its delivery, ms."""
        first = self.index.first() if self._begun else None
        due = self._clock.now_ms() - self._context.limits().precision_ms
        return 0 if first is None else max(0, due - first.slot)

    def overdue(self) -> int:
        """Return how many messages are due and not delivered."""
        return self.index.due(self._clock.now_ms() - self._context.limits().precision_ms) if self._begun else 0

    # -- one step at a time

    def _wake(self, seconds: float = 0.0) -> None:
        """Have the next step done; never at once, for this may be called from within an append."""
        if not self._woken and self._begun and not self._closed:
            self._woken = True
            self._context.later(seconds, self._step)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self, seconds: float) -> None:
        """Do nothing for some seconds, unless something arrives."""
        self._cancel()
        if not self._stopped:
            self._timer = self._context.later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _step(self) -> None:
        self._woken = False
        if self._closed or not self._begun:
            return
        try:
            self._go_on()
        except OSError as error:
            _log.error("the index of timer messages cannot be read, it is built anew from the log: %s", error)
            self._begun = False
            with contextlib.suppress(OSError):
                self.index.reset()
            self._context.later(RETRY_SECONDS, self.begin)

    def _go_on(self) -> None:
        if self.feed.overtaken:
            self._begun = False
            self.begin()
            return
        if not self._ahead.ready(self.index.stamp.taken, self.feed.behind):
            return
        before = self.index.cursor
        more = self.feed.step(FEED_PER_TURN)
        if self.index.cursor != before:
            self._files.moved(self._store.written, self._passed())
        if self.index.full:
            self._files.look()
        if more:
            self._wake()
        if not (self._stopped or self._halted or self._flight or self._files.reads or more):
            self._cancel()
            self._deliver()

    def _deliver(self) -> None:
        stamp = self.index.stamp
        if stamp.marks < self._awaits:
            return
        first = self.index.first()
        if not self._looked and (first is not None or not self._context.shared):
            if self.feed.whole:
                self._look(waiting=first is not None)
            else:
                self._rest(RETRY_SECONDS)
            return
        if first is None:
            return
        if first.slot <= stamp.closed:
            self._load()
            return
        due = self._clock.now_ms() - self._context.limits().precision_ms
        if first.slot > due:
            self._rest(min((first.slot - due) / 1000, TIMER_SECONDS_MAX))
        elif self.feed.whole:
            self._append([], TimerMark(MarkKind.CLOSE, self._close_at(due)))
        else:
            self._rest(RETRY_SECONDS)

    def _close_at(self, due: int) -> int:
        """Return up to which slot delivery goes next: one in which something waits, however far the clock is.

        Not past one at which messages are stored anew: they must come back before what lies beyond is closed.
        """
        ahead = self.index.batch(LOOK_AHEAD, (due, OFFSET_MAX))
        return next((entry.slot for entry in ahead if entry.flags & ROLLS), ahead[-1].slot)

    def _passed(self) -> Key:
        """Return up to where nothing is delivered again: without a group the last batch may be torn."""
        mark = self.feed.last_mark
        if self._context.shared or mark is None or mark.kind is not MarkKind.DONE:
            return self.index.cursor
        return min((mark.before_slot, mark.before_offset), self.index.cursor)

    # -- the beginning

    def _look(self, *, waiting: bool) -> None:
        """See what the log says before anything is added to it; nothing is, unless a message is `waiting`."""
        base = self.feed.base
        if waiting and base is not None and not self._store.max_offset(TIMER_TOPIC, MARK_QUEUE):
            self._append([], TimerMark(MarkKind.BASE, base.slot, base.offset), looks=True)
        elif self._context.shared:
            self._append([], TimerMark(MarkKind.LOOK), looks=True)
        else:
            mark = torn(self._store, self.index, self._made, BATCH_MAX) or self.feed.foreign_progress()
            if mark is not None:
                self._append([], mark, looks=True)
            else:
                self._looked = True
                self._wake()

    # -- a batch

    def _load(self) -> None:
        """Have what comes next read from the disk, and then deliver it."""
        entries = self._bounded(self.index.batch(self._batch_max, (self.index.stamp.closed, OFFSET_MAX)))
        recalls, runs = self._recalls, list(self.index.runs)
        recalls.forget(entries[0].slot)
        wanted = recalls.wanted(entries)
        # Now, as the runs: while they are read what is in memory may become one more.
        buffered = [] if wanted is None else self.index.deletes(*wanted)

        def work() -> object:
            # What is in the page cache then is read in the loop, with all checks.
            for position, size in stretches(entries):
                self._store.read_piece_cold(position, size)
            return [*recalls.read(runs, wanted), *buffered]

        self._files.reads += 1
        self._context.aside(work, partial(self._loaded, self._life, entries, wanted))

    def _bounded(self, entries: list[TimerEntry]) -> list[TimerEntry]:
        room = min(BATCH_BYTES, self._store.file_bytes // 4)
        size = 0
        for number, entry in enumerate(entries):
            size += entry.size + 256
            if number and size > room:
                return entries[:number]
        return entries

    def _loaded(self, life: int, entries: list[TimerEntry], wanted: tuple[int, int] | None, found: object) -> None:
        self._files.read()
        if life != self._life:
            self._wake()
            return
        if isinstance(found, FileNotFoundError | EOFError):
            # Some of it is gone; which, the loop will see.
            wanted = None
        elif isinstance(found, BaseException):
            _log.error("timer messages cannot be read: %s", found)
            self._rest(RETRY_SECONDS)
            return
        if wanted is not None:
            assert isinstance(found, list), "what recalls others"
            self._recalls.add(wanted, found)
        self._flight = True
        self._make(life, entries, [], self.index.cursor, self._clock.now_ms())

    def _make(self, life: int, entries: list[TimerEntry], made: list[Made], before: Key, now_ms: int) -> None:
        """Make what becomes of entries, some in each turn of the loop, and append it."""
        if life != self._life:
            return
        if before != self.index.cursor:
            # The index was built anew meanwhile.
            self._flight = False
            self._wake()
            return
        try:
            made += self._made(entries[len(made) : len(made) + MADE_PER_TURN], now_ms)
        except (RecordDamaged, OSError) as error:
            _log.warning("timer messages wait until they can be read: %s", error)
            self._flight = False
            self._rest(RETRY_SECONDS)
            return
        if len(made) < len(entries):
            self._context.later(0, partial(self._make, life, entries, made, before, now_ms))
            return
        for each in made:
            if each.record is not None and not each.rolls:
                self._context.comes_to(each.record.topic, each.record.queue_id, each.store_ms)
        last, count = entries[-1], sum([each.record is not None for each in made])
        self._append(made, TimerMark(MarkKind.DONE, last.slot, last.offset, *before, count, now_ms))

    def _made(self, entries: Sequence[TimerEntry], now_ms: int) -> list[Made]:
        context = self._context
        if entries and (wanted := self._recalls.wanted(entries)) is not None:
            found = self._recalls.read(self.index.runs, wanted)
            self._recalls.add(wanted, [*found, *self.index.deletes(*wanted)])
        return make_batch(self._store, entries, self._recalls, now_ms, context.limits(), mends=context.shared)

    def _append(self, made: Sequence[Made], mark: TimerMark, *, looks: bool = False) -> None:
        records = [each.record for each in made if each.record is not None]
        self._flight = True
        done = partial(self._stored, self._life, made, mark, looks)
        marked = mark_record(mark, self._clock.now_ms(), self._context.store_host)
        self._context.replication.append_batch([marked, *records], done)

    def _stored(
        self, life: int, made: Sequence[Made], mark: TimerMark, looks: bool, results: list[PutResult], _code: int
    ) -> None:
        """Take the acknowledgement; may come from within the append, when that is refused."""
        if life != self._life:
            return
        self._flight = False
        status = results[0].status
        if status is PutStatus.PUT_OK:
            self._awaits = results[0].queue_offset + 1
            self._careful = max(0, self._careful - len(made))
            if not self._careful:
                self._batch_max = BATCH_MAX
            self._looked = self._looked or looks
            self.delivered += sum([each.record is not None and not each.rolls for each in made])
            self.rolled += sum([each.record is not None and each.rolls for each in made])
            self.recalled += sum([each.recalled for each in made])
            self._wake()
        elif status is PutStatus.UNKNOWN_ERROR:
            # It may be stored, now or later: who leads next sees it.
            self._halted = True
        elif status in _HOPELESS and len(made) > 1:
            self._careful, self._batch_max = len(made), max(1, len(made) // SMALLER)
            self._wake()
        elif status in _HOPELESS and made and made[0].record is not None:
            self._smaller(made[0], mark, status)
        else:
            self._rest(RETRY_SECONDS)

    def _smaller(self, made: Made, mark: TimerMark, status: PutStatus) -> None:
        """Store a message without the times of its delivery, for which it has no room; or pass it over."""
        if made.record is not None and not made.rolls:
            record = bare(made.record)
            if record.properties != made.record.properties:
                self._append([made._replace(record=record)], mark)
                return
        _log.error("timer message %d is not delivered, it stays where it is: %s", made.offset, status.name)
        self._append([made._replace(record=None)], mark._replace(records=0))
