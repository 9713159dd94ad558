"""Reads the check points and acknowledgements of the revive queues into the table, on the broker that leads."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from broker.pop.check_points import CheckPoint, CheckPointTable, PutOff
from broker.pop.records import read_record
from remoting.record import RecordError
from store.errors import RecordDamaged
from store.types import QueueEntry

_log = logging.getLogger(__name__)

# Records that are read before others get their turn: some milliseconds.
PER_TURN = 100
# Seconds before a record is asked for again that another member of the group is to give back.
MEND_SECONDS = 1.0


class ReviveStore(Protocol):
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


class ReviveFeed:
    """Keeps a table up to the queues of one topic."""

    def __init__(self, store: ReviveStore, topic: str, queues: int, now_ms: Callable[[], int], *, mends: bool) -> None:
        """`mends`: damaged records are given back by other members of a Raft group, and waited for (R18)."""
        self._store, self._topic, self._queues = store, topic, queues
        self._now_ms = now_ms
        self._mends = mends
        self.table = CheckPointTable()
        # By queue, the next offset to be read.
        self._next: dict[int, int] = {}
        self.ends: dict[tuple[str, str, int], int] = {}
        """By group, topic and queue, up to where messages were taken since a time; see begin()."""
        self._ends_since_ms = 0
        self._begins = False

    def begin(self, committed: Callable[[int], int], ends_since_ms: int) -> None:
        """Know nothing, and read from these offsets on. Ends are noted of what was taken since a time."""
        self.ends, self._ends_since_ms = {}, ends_since_ms
        store, topic = self._store, self._topic
        self.table = CheckPointTable()
        self._begins = True
        for queue_id in range(self._queues):
            low, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            self._next[queue_id] = max(low, min(committed(queue_id), end))

    def low(self, queue_id: int) -> int:
        """Return from where on a queue is still needed."""
        first = self.table.low(queue_id)
        return self._next[queue_id] if first is None else first

    async def read(self) -> None:
        """Read what there is, in pieces."""
        for queue_id in range(self._queues):
            while entries := self._store.queue_entries(self._topic, queue_id, self._next[queue_id], PER_TURN):
                for entry in entries:
                    await self._take(queue_id, entry.physical_offset)
                    self._next[queue_id] += 1
                await asyncio.sleep(0)
        self._begins = False

    async def _take(self, queue_id: int, position: int) -> None:
        view = await self._record(position)
        if view is None:
            return
        try:
            found = read_record(view, queue_id, self._next[queue_id])
        except RecordError as error:
            _log.warning("%s: message %d is passed over: %s", self._topic, self._next[queue_id], error)
            return
        key, now_ms = found.key, self._now_ms()
        if self._begins and key.pop_ms >= now_ms:
            # Also what acknowledges one that need not be read any more: it will be read again, and is for no other.
            self.table.use(key)
        if isinstance(found, CheckPoint):
            self.table.add(found, now_ms)
            if key.pop_ms >= self._ends_since_ms:
                place = (key.group, key.topic, key.queue_id)
                self.ends[place] = max(self.ends.get(place, 0), found.offsets[-1] + 1)
        elif isinstance(found, PutOff):
            self.table.put_off(found)
        else:
            self.table.acknowledge(found.key, found.offsets)

    async def _record(self, position: int) -> memoryview | None:
        while True:
            try:
                return self._store.record_at(position)
            except RecordDamaged as error:
                if not self._mends:
                    _log.error("%s: a message is passed over: %s", self._topic, error)
                    return None
            await asyncio.sleep(MEND_SECONDS)
