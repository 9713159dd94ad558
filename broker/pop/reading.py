"""Reads what a pop may take: the queues of a topic and of the group's retry topic, one after the other.

What was taken in order of a queue and is open holds up all that follows there (broker/pop/held.py); once it may be
taken anew it is what comes next. Nothing is taken here: a part says what is to be noted.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from broker.context import BrokerContext, Tables
from broker.filters.sql import SqlFilter
from broker.pop.asking import PopChecks, PopQuestion
from broker.pop.check_points import CheckPointTable
from broker.pop.held import Ended, HeldQueue
from remoting.topics import is_retry_topic
from store.types import GetResult, GetStatus

# Bytes of messages of one answer; one message always goes.
ANSWER_BYTES = 4 * 1024 * 1024

Place = tuple[str, str, int]
"""Group, topic, queue."""


class Part(NamedTuple):
    """What was read of one queue."""

    kind: str
    place: Place
    result: GetResult
    offsets: tuple[int, ...]
    times: tuple[int, ...]
    """How often each was taken in order before."""
    ended: tuple[Ended, ...] = ()
    """What is over with this taking."""
    again: bool = False
    """Whether it was taken before, so that the group goes on where it does already."""


class PopReader:
    """Reads for one broker, and knows where groups go on."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        checks: PopChecks,
        open_points: Callable[[], CheckPointTable | None],
    ) -> None:
        """`open_points` returns the table of check points, None while it is being read."""
        self._store, self._clock, self._threads = context.store, context.clock, context.threads
        self._offsets = tables.offsets
        self._checks = checks
        self._open = open_points
        self.busy: set[Place] = set()
        """Queues that are being taken from."""
        # Where the next pop of a queue begins, while a commit of that is on its way.
        self._next: dict[Place, int] = {}

    async def read(self, asked: PopQuestion, *, locks: bool) -> tuple[list[Part], int]:
        """Return what the queues have, and how much is left; with `locks` those of the parts are busy from then on."""
        parts: list[Part] = []
        held: list[Place] = []
        # A peek neither waits for others nor keeps any away.
        busy = self.busy if locks else set[Place]()
        wanted, room, rest = asked.most, ANSWER_BYTES, 0
        try:
            for topic, kind, queues in self._checks.sources(asked):
                for queue in queues:
                    place = (asked.group, topic, queue)
                    if wanted <= 0 or room <= 0 or place in busy:
                        offset = self.offset(place, from_end=asked.from_end)
                        rest += max(0, self._store.max_offset(topic, queue) - offset)
                        continue
                    busy.add(place)
                    held.append(place)
                    part = await self._read_queue(asked._replace(most=wanted), kind, place, room)
                    if part is None:
                        busy.discard(held.pop())
                        continue
                    parts.append(part)
                    wanted -= len(part.offsets)
                    room -= part.result.size
                    rest += max(0, part.result.max_offset - part.result.next_offset)
        except BaseException:
            busy.difference_update(held)
            raise
        return parts, rest

    def has(self, asked: PopQuestion, place: Place) -> bool:
        """Tell whether there is something to be taken of a queue."""
        _group, topic, queue = place
        offset = self.offset(place, from_end=False)
        held = self._held(place, offset)
        if not held:
            return self._store.max_offset(topic, queue) > offset
        return held.free(asked.attempt, self._clock.now_ms())

    def offset(self, place: Place, *, from_end: bool) -> int:
        """Return where a group goes on in a queue."""
        group, topic, queue = place
        offsets, store = self._offsets, self._store
        reset = offsets.take_reset(group, topic, queue)
        if reset >= 0:
            self._next.pop(place, None)
            return reset
        coming = self._next.get(place)
        if coming is not None:
            if offsets.pending(group, topic, queue):
                return coming
            del self._next[place]
        known = offsets.query(group, topic, queue)
        if known >= 0:
            return known
        if from_end and not is_retry_topic(topic):
            # As RocketMQ: the newest message is one of the new ones.
            return max(store.min_offset(topic, queue), store.max_offset(topic, queue) - 1, 0)
        return store.min_offset(topic, queue)

    def came_to(self, part: Part) -> None:
        """Have a group go on behind what was read."""
        (group, topic, queue), offset = part.place, part.result.next_offset
        self._next[part.place] = offset
        self._offsets.commit(group, topic, queue, offset, self._store.max_offset(topic, queue), None)

    async def _read_queue(self, asked: PopQuestion, kind: str, place: Place, room: int) -> Part | None:
        """Read one queue; None when it has nothing, and its offset stays where it is."""
        _group, topic, queue = place
        offset = self.offset(place, from_end=asked.from_end)
        held = self._held(place, offset)
        if held:
            if not held.free(asked.attempt, self._clock.now_ms()):
                return None
            return await self._read_again(asked, kind, place, held, room)
        for _ in range(2):
            if isinstance(asked.accepts, SqlFilter):
                result = self._store.sift(topic, queue, offset, asked.most, room, asked.accepts.matches)
            else:
                result = self._store.get(topic, queue, offset, asked.most, room, asked.accepts)
            result = await self._whole(result)
            if result.status not in {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY}:
                break
            # The messages there are gone, or the queue is another one.
            offset = result.next_offset
        if result.status is GetStatus.FOUND and result.count:
            found = tuple(_offsets(result.buffers))
            return Part(kind, place, result, found, (0,) * len(found), held.moot())
        moved = result.status is GetStatus.NO_MATCHED_MESSAGE and result.next_offset > offset
        return Part(kind, place, result, (), (), held.moot()) if moved else None

    async def _whole(self, result: GetResult) -> GetResult:
        if result.cold:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, self._store.read_cold, result)
            self._store.verify_cold(result)
        return result

    def _held(self, place: Place, offset: int) -> HeldQueue:
        table = self._open()
        group, topic, queue = place
        return HeldQueue([] if table is None else table.in_order(topic, group, queue), offset)

    async def _read_again(self, asked: PopQuestion, kind: str, place: Place, held: HeldQueue, room: int) -> Part | None:
        """Read what was taken in order before and is open, one by one: other messages may lie between."""
        _group, topic, queue = place
        whole = GetResult(GetStatus.FOUND, held.offset, 0, self._store.max_offset(topic, queue))
        found: list[int] = []
        over: set[int] = set()
        for at in held.coming():
            if len(found) >= asked.most or whole.size >= room:
                break
            result = await self._whole(self._store.get(topic, queue, at, 1, 1, None))
            if result.unread or (result.damaged >= 0 and not result.count):
                # It cannot be read now, and nothing behind it comes before it.
                break
            over.add(at)
            if result.status is GetStatus.FOUND and result.count:
                found.append(at)
                whole.buffers += result.buffers
                whole.count += 1
                whole.size += result.size
        if not over:
            return None
        return Part(kind, place, whole, tuple(found), held.times(found, asked.attempt), held.ended(over), again=True)


def _offsets(buffers: Iterable[memoryview | bytes]) -> Iterator[int]:
    """Yield the offset of each record."""
    for buffer in buffers:
        at, end = 0, len(buffer)
        while at < end:
            yield int.from_bytes(buffer[at + 20 : at + 28], "big")
            at += int.from_bytes(buffer[at : at + 4], "big")
