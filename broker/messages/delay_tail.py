"""What of the delay levels was delivered behind the progress that is known: found in the end of the log.

A delivered message says from where it comes, in a field that only transactions use otherwise (see origin()). Progress
is written down, copied and agreed upon some time later, so whoever begins to deliver reads what was stored since the
first message that it knows nothing of was due. What lacks there was not delivered, or is lost with the log's end.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from broker.messages.delay_queue import Aside, DelayLevel
from broker.messages.recent_records import LogReads, RecordReads, begin_of, walk_piece
from remoting.codes import MessageSysFlag
from remoting.properties import PROPERTY_DELAY
from remoting.record import BORNHOST_AT, BORNHOST_V6, STOREHOST_V6, SYSFLAG_AT
from remoting.topics import SCHEDULE_TOPIC
from store.errors import RecordDamaged
from store.types import PendingRecord, QueueEntry

_log = logging.getLogger(__name__)

# ms by which the clocks of two brokers may differ: what one of them delivered, by its clock, before it was due.
SKEW_MS = 5000
# Queue entries that are looked at together.
AT_A_TIME = 1024
_LONG = struct.Struct(">q")
_SYSFLAG = struct.Struct(">i")
_COMMITTED = int(MessageSysFlag.TRANSACTION_COMMIT)
_TRANSACTION = int(MessageSysFlag.TRANSACTION_ROLLBACK)
_DELAY = f"{PROPERTY_DELAY}\x01".encode()
# Where preparedTransactionOffset stands, by the flags for the lengths of the hosts: they stand before it.
_PREPARED_AT = {
    born | stored: BORNHOST_AT + (20 if born else 8) + 8 + (20 if stored else 8) + 4
    for born in (0, BORNHOST_V6)
    for stored in (0, STOREHOST_V6)
}
_HOSTS = BORNHOST_V6 | STOREHOST_V6


class TailStore(RecordReads, LogReads, Protocol):
    """What is needed of the store."""

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> list[QueueEntry]:
        """Return entries of a queue."""
        ...

    @property
    def written(self) -> int:
        """The position behind the last written record."""
        ...


class Delivered(NamedTuple):
    """What the end of a log says of deliveries."""

    origins: set[int]
    """Positions of waiting messages that were delivered."""
    halves: set[int]
    """Positions of the halves of committed messages that waited and were delivered: those name these instead."""


def origin(record: PendingRecord, position: int) -> int:
    """Return the preparedTransactionOffset of a message that waited at a position: negative, as no half's is.

    That of a committed transaction stays: it names the half, which is as good.
    """
    return record.prepared_transaction_offset if record.sys_flag & _TRANSACTION == _COMMITTED else ~position


def delivered_since(store: LogReads, since_ms: int, end: int) -> Delivered:
    """Read what was delivered from a time on, in front of a position. For any thread."""
    found = Delivered(set(), set())

    def take(view: bytes, at: int, size: int, flags: int) -> None:
        (prepared,) = _LONG.unpack_from(view, at + _PREPARED_AT[flags & _HOSTS])
        if prepared < 0:
            found.origins.add(~prepared)
        elif prepared and flags & _TRANSACTION == _COMMITTED and view.find(_DELAY, at, at + size) >= 0:
            found.halves.add(prepared)

    position = begin_of(store, end, since_ms)
    while position < end:
        position = walk_piece(store, position, end, take)
    return found


class DeliveredTail:
    """Looks for it when a broker begins to deliver."""

    def __init__(self, store: TailStore, aside: Aside) -> None:
        self._store = store
        self._aside = aside

    def look(self, levels: Sequence[DelayLevel], now_ms: int, past_max: int, then: Callable[[], None]) -> bool:
        """Tell levels what was delivered of them, then call `then`; False, at once, when that can be nothing.

        `past_max`: so many of a level may have been on their way in front of one that was delivered.
        """
        horizon = now_ms + SKEW_MS
        heads = [(level, self._entries(level, level.next, 1)) for level in levels]
        due = [(level, found[0].tags_code) for level, found in heads if found and found[0].tags_code <= horizon]
        if not due:
            return False
        store, since_ms, end = self._store, min([moment for _, moment in due]) - SKEW_MS, self._store.written

        def told(found: Any) -> None:
            if isinstance(found, Delivered):
                count = sum([self._tell(level, found, past_max, horizon) for level, _ in due])
                if count:
                    _log.info("delay levels: %d messages past the progress that is known were delivered already", count)
            else:
                _log.error("delay levels: what was delivered last is not known, it may come again: %s", found)
            then()

        self._aside(lambda: delivered_since(store, since_ms, end), told)
        return True

    def _tell(self, level: DelayLevel, found: Delivered, past_max: int, horizon: int) -> int:
        """Tell a level what was delivered of it, of which nothing is due after `horizon`; return how much."""
        known, at = len(found.origins) + len(found.halves), level.next
        left = known + past_max if known else 0
        while left > 0 and (entries := self._entries(level, at, min(left, AT_A_TIME))):
            level.delivered.update([at + number for number, entry in enumerate(entries) if self._was(entry, found)])
            at += len(entries)
            left -= len(entries)
            if entries[-1].tags_code > horizon:
                break
        return len(level.delivered)

    def _entries(self, level: DelayLevel, at: int, count: int) -> list[QueueEntry]:
        return self._store.queue_entries(SCHEDULE_TOPIC, level.queue_id, at, count)

    def _was(self, entry: QueueEntry, found: Delivered) -> bool:
        if entry.physical_offset in found.origins:
            return True
        if not found.halves:
            return False
        try:
            view = self._store.record_at(entry.physical_offset)
        except RecordDamaged:
            return False
        if view is None:
            return False
        flags: int = _SYSFLAG.unpack_from(view, SYSFLAG_AT)[0]
        return _LONG.unpack_from(view, _PREPARED_AT[flags & _HOSTS])[0] in found.halves
