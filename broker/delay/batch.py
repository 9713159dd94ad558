"""What becomes of timer messages whose time has come: delivered, recalled, or stored anew to go on waiting."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from broker.delay.feed import TimerStore
from broker.messages.timed_record import Timed, TimerLimits, delivered, read_timed, rolled
from remoting.record import RecordError
from store.errors import RecordDamaged
from store.timerruns import DELETES, ROLLS, TimerEntry, TimerRun, deletes_of
from store.types import PendingRecord, QueueEntry

_log = logging.getLogger(__name__)

Slots = tuple[int, int]


class Made(NamedTuple):
    """What becomes of one entry; without a record nothing does."""

    slot: int
    offset: int
    record: PendingRecord | None = None
    store_ms: int = 0
    rolls: bool = False
    recalled: bool = False


class Recalls:
    """The recalls of some slots that are closed, so that none is added; by the hash of what they recall."""

    def __init__(self) -> None:
        self._from = self._upto = -1
        self._of: dict[tuple[int, int], list[int]] = {}

    def forget(self, slot: int) -> None:
        """Forget all before a slot."""
        if slot != self._from:
            self._from = slot
            self._of = {key: found for key, found in self._of.items() if key[0] >= slot}

    def wanted(self, entries: Sequence[TimerEntry]) -> Slots | None:
        """Return the slots, first and last, that are not known yet and of which `entries` are."""
        first, last = entries[0].slot, entries[-1].slot
        return None if last <= self._upto else (max(first, self._upto + 1), last)

    def read(self, runs: Sequence[TimerRun], slots: Slots | None) -> list[TimerEntry]:
        """Return those of runs. For any thread. Raises OSError."""
        return [] if slots is None else deletes_of(runs, *slots)

    def add(self, slots: Slots, found: Sequence[TimerEntry]) -> None:
        """Take the recalls of slots."""
        self._upto = slots[1]
        for entry in found:
            if not entry.flags & ROLLS:
                self._of.setdefault((entry.slot, entry.hash), []).append(entry.position)

    def of(self, entry: TimerEntry) -> list[int]:
        """Return where in the log those stand that may recall an entry."""
        return self._of.get((entry.slot, entry.hash), [])


def make_batch(
    store: TimerStore,
    entries: Sequence[TimerEntry],
    recalls: Recalls,
    now_ms: int,
    limits: TimerLimits,
    *,
    mends: bool,
) -> list[Made]:
    """Return what becomes of each entry. Raises RecordDamaged when one is being mended."""
    made = []
    for entry in entries:
        try:
            made.append(_made(store, entry, recalls, now_ms, limits))
        except RecordDamaged as error:
            if mends:
                raise
            made.append(_lost(entry, str(error)))
        except RecordError as error:
            made.append(_lost(entry, str(error)))
    return made


def stretches(entries: Sequence[TimerEntry] | Sequence[QueueEntry]) -> list[tuple[int, int]]:
    """Return where entries stand in the log, position and bytes; those next to one another as one."""
    found: list[tuple[int, int]] = []
    for position, size in sorted(_place(entry) for entry in entries):
        if found and found[-1][0] + found[-1][1] == position:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((position, size))
    return found


def _place(entry: TimerEntry | QueueEntry) -> tuple[int, int]:
    return (entry.position if isinstance(entry, TimerEntry) else entry.physical_offset), entry.size


def _made(store: TimerStore, entry: TimerEntry, recalls: Recalls, now_ms: int, limits: TimerLimits) -> Made:
    if entry.flags & DELETES and not entry.flags & ROLLS:
        return Made(entry.slot, entry.offset)
    view = store.record_at(entry.position)
    if view is None:
        return _lost(entry, "its record is gone")
    if entry.flags & ROLLS:
        return Made(entry.slot, entry.offset, rolled(view, now_ms, limits), rolls=True)
    found = read_timed(view)
    if any(_recalls(store, position, found) for position in recalls.of(entry)):
        return Made(entry.slot, entry.offset, recalled=True)
    return Made(entry.slot, entry.offset, delivered(view, found, now_ms), found.store_ms)


def _recalls(store: TimerStore, position: int, found: Timed) -> bool:
    """Tell whether the message at a position recalls another: a hash alone does not decide about a message."""
    view = store.record_at(position)
    if view is None:
        return False
    other = read_timed(view)
    return other.deletes and (other.topic, other.key) == (found.topic, found.key)


def _lost(entry: TimerEntry, reason: str) -> Made:
    _log.error("timer message %d cannot be delivered: %s", entry.offset, reason)
    return Made(entry.slot, entry.offset)
