"""Reading the undecided halves from the two topics, when this broker begins to lead.

In pieces, so that others get their turn. What a RocketMQ broker left behind is read in the same way.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from broker.transactions.halves import HalfTable
from broker.transactions.records import commit_of, over, read_half
from remoting.record import RecordError, decode_record
from remoting.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.errors import RecordDamaged
from store.types import QueryResult, QueueEntry

_log = logging.getLogger(__name__)

GROUP = "CID_RMQ_SYS_TRANS"
# Records that are read before others get their turn: some milliseconds.
PER_TURN = 100
# Records with one key that are looked at: a producer that sends a half again gives it the same one.
QUERY_MAX = 64
# Op messages that are looked through for the end of one half: some 20 ms.
OPS_MAX = 2000
QUERY_END_MS = 1 << 62
# Seconds before a record is asked for again that another member of the group is to give back.
MEND_SECONDS = 1.0


class TransactionStore(Protocol):
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

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Return records of a topic with this key."""
        ...

    @property
    def written(self) -> int:
        """The position behind the last written record."""
        ...

    @property
    def flushed(self) -> int:
        """Everything before this position is on disk."""
        ...

    def flush_soon(self, position: int) -> None:
        """Ask for fdatasync up to a position."""
        ...


Committed = Callable[[str], int]
"""The offset that GROUP has committed in queue 0 of a topic, below 0 for none."""


class QueueReader:
    """Reads the records of a queue from an offset on, up to its end as that is by then."""

    def __init__(self, store: TransactionStore, topic: str, start: int, *, mends: bool) -> None:
        """`mends`: what is damaged will be given back by another member, and must not be passed over (R18)."""
        self._store, self._topic, self._mends = store, topic, mends
        self.offset = start
        self.ended = False

    async def some(self) -> list[tuple[int, int, memoryview]]:
        """Return the next records with their offsets and positions; sets `ended` when there are no more."""
        entries = self._store.queue_entries(self._topic, 0, self.offset, PER_TURN)
        self.ended = not entries
        found = []
        for entry in entries:
            view = await self._record(entry.physical_offset)
            if view is not None:
                found.append((self.offset, entry.physical_offset, view))
            self.offset += 1
        return found

    async def _record(self, position: int) -> memoryview | None:
        while True:
            try:
                return self._store.record_at(position)
            except RecordDamaged as error:
                if not self._mends:
                    _log.error("%s: message at %d is passed over: %s", self._topic, position, error)
                    return None
            await asyncio.sleep(MEND_SECONDS)


def start_of(store: TransactionStore, committed: Committed, topic: str) -> int:
    """Return from where on a topic's queue is read: the committed offset, within what the queue still has."""
    low, end = store.min_offset(topic, 0), store.max_offset(topic, 0)
    return max(low, min(committed(topic), end))


async def load(store: TransactionStore, committed: Committed, *, mends: bool) -> HalfTable:
    """Return the table of what is undecided."""
    ops = QueueReader(store, TRANS_OP_HALF_TOPIC, start_of(store, committed, TRANS_OP_HALF_TOPIC), mends=mends)
    halves = QueueReader(store, TRANS_HALF_TOPIC, start_of(store, committed, TRANS_HALF_TOPIC), mends=mends)
    table = HalfTable(halves.offset, ops.offset)
    done: dict[int, int] = {}
    while not ops.ended:
        for offset, position, view in await ops.some():
            named = _named(view)
            table.named(offset, named)
            done.update(dict.fromkeys(named, position))
        await asyncio.sleep(0)
    while not halves.ended:
        for offset, _position, view in await halves.some():
            try:
                table.stored(read_half(view), fresh=False)
            except RecordError as error:
                _log.error("half message %d is passed over: %s", offset, error)
        if not halves.ended:
            await asyncio.sleep(0)
    table.halves.end, table.ops.end = halves.offset, ops.offset
    table.take_out(done)
    return table


def committed_real(store: TransactionStore, topics: tuple[str, ...], key: str, root: int, position: int) -> bool:
    """Tell whether the log holds the real message of a half, found by its key in the index.

    It names the root, as all copies but the first do, or the position of the first copy.
    """
    if not key:
        return False
    for topic in topics:
        for view in store.query(topic, key, QUERY_MAX, 0, QUERY_END_MS).records:
            found = commit_of(view)
            if found is not None and (found[0] == position if found[1] < 0 else found[1] == root):
                return True
    return False


def ended_since(store: TransactionStore, root: int, since_ms: int) -> bool:
    """Tell whether a half that was discarded then has ended later, as far as the newest OPS_MAX op messages say.

    One op message names it for having been discarded, with the same store time; a second one for its end.
    """
    end = store.max_offset(TRANS_OP_HALF_TOPIC, 0)
    start = max(store.min_offset(TRANS_OP_HALF_TOPIC, 0), end - OPS_MAX)
    times = 0
    for entry in reversed(store.queue_entries(TRANS_OP_HALF_TOPIC, 0, start, end - start)):
        try:
            view = store.record_at(entry.physical_offset)
            if view is None or decode_record(view).store_timestamp < since_ms:
                break
        except (RecordDamaged, RecordError):
            continue
        times += root in _named(view)
    return times > 1


def _named(view: memoryview) -> list[int]:
    try:
        return list(over(view))
    except RecordError:
        return []
