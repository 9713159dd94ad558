"""The last delivery of timer messages may be torn by a kill, without a group: how much of it stands in the log."""

import logging
from collections.abc import Callable, Sequence

from broker.delay.batch import Made
from broker.delay.feed import TimerStore
from broker.delay.index import TimerIndex
from broker.delay.marks import MARK_QUEUE, MarkKind, TimerMark, read_mark
from broker.messages.delayed_record import pending, without
from broker.messages.timed_record import OF_ROLL, bare
from remoting.message import MessageExt
from remoting.record import RecordError, decode_record
from remoting.topics import TIMER_TOPIC
from store.errors import RecordDamaged
from store.timerruns import Key, TimerEntry

_log = logging.getLogger(__name__)


def torn(
    store: TimerStore, index: TimerIndex, make: Callable[[Sequence[TimerEntry], int], list[Made]], count: int
) -> TimerMark | None:
    """Return a mark that says how much of the last batch there is, None when all of it is.

    `make`: what becomes of entries, at a time; no batch has more than `count`.
    """
    end = store.max_offset(TIMER_TOPIC, MARK_QUEUE)
    entries = store.queue_entries(TIMER_TOPIC, MARK_QUEUE, end - 1, 1) if end else []
    try:
        view = store.record_at(entries[0].physical_offset) if entries else None
        mark = None if view is None else read_mark(view)
    except (RecordError, RecordDamaged):
        return None
    if mark is None or mark.kind is not MarkKind.DONE or not mark.records:
        return None
    before, last = (mark.before_slot, mark.before_offset), (mark.slot, mark.offset)
    made = make(index.batch(count, last, before), mark.dequeue_ms)
    place = entries[0]
    reached = stored_behind(store, place.physical_offset + place.size, made, before)
    if reached == last:
        return None
    _log.warning("the last delivery of timer messages was cut off by the end of this broker: it is completed")
    return TimerMark(MarkKind.DONE, *reached, *before)


def stored_behind(store: TimerStore, position: int, made: Sequence[Made], before: Key) -> Key:
    """Return up to where of `made` the records stand from a position in the log on."""
    reached = before
    for each in made:
        if each.record is not None:
            try:
                view = store.record_at(position)
                stored = None if view is None else decode_record(view)
            except (RecordError, RecordDamaged):
                stored = None
            if view is None or stored is None:
                return reached
            if not _same(each, view, stored):
                return reached
            position += stored.size
        reached = each.slot, each.offset
    return reached


def _same(each: Made, view: memoryview, stored: MessageExt) -> bool:
    """Tell whether a record is what was made of an entry."""
    if each.record is None:
        return False
    for option in (each.record, bare(each.record)):
        if (stored.topic, stored.queue_id) != (option.topic, option.queue_id):
            continue
        if bytes(stored.body) != bytes(option.body):
            continue
        passed_over = OF_ROLL if each.rolls else ()
        if without(pending(view).properties, passed_over) == without(option.properties, passed_over):
            return True
    return False
