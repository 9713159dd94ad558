"""Codes 200050, 200052, 200054, 200055: messages are taken, looked at, or waited for.

A pop reads the queues of a topic, and of the group's retry topic, one after the other; what it took of each is a check
point, and all of one pop are stored together before it is answered. While a queue is being taken from, others of the
group pass it by.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from broker.context import BrokerContext, Tables
from broker.pop.asking import PopChecks, PopQuestion
from broker.pop.check_points import CheckPoint, CheckPointKey, CheckPointTable, TakenInOrder
from broker.pop.held import Ended
from broker.pop.reading import Part, Place, PopReader
from broker.pop.records import ORDERED_QUEUE, ack_record, check_point_record
from broker.pop.waiting import PopWaiter, PopWaiting
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from remoting.server import Connection, Handler
from store.types import PendingRecord

# How long a pop may wait at most, in milliseconds: below the idle close of a connection (120 s).
POLL_MS_MAX = 90_000
# Seconds before an offset that was not taken is committed again.
AGAIN_SECONDS = 0.1
_NOTHING = {"invisibleTime": "0", "restNum": "0", "popTime": "0", "reviveQid": "0"}
_WELL = "not set any response code"

Append = Callable[[Sequence[PendingRecord]], Awaitable[bool]]


class PopTaken(NamedTuple):
    """What a pop brings."""

    pop_ms: int
    revive_queue: int
    parts: list[Part]
    rest: int


class PopHandlers:
    """Handlers of the requests that take; must be made inside the loop."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        topic: str,
        append: Append,
        open_points: Callable[[], CheckPointTable | None],
        loaded: Callable[[], Awaitable[CheckPointTable]],
    ) -> None:
        """`topic`: of check points; `open_points` returns the table, None while it is being read; `loaded` waits."""
        self._context, self._tables = context, tables
        self._live, self._store, self._role, self._clock = context.live, context.store, context.role, context.clock
        self._topic = topic
        self._append = append
        self._open, self._loaded = open_points, loaded
        self._checks = PopChecks(context, tables, open_points)
        self._loop = asyncio.get_running_loop()
        config = context.live.broker
        self.waiting = PopWaiting(self._loop, config.popPollingSize, config.maxPopPollingSize)
        self.reader = PopReader(context, tables, self._checks, open_points)
        self._revive_queue = 0
        self.taken = 0

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling,
        }

    # -- requests

    def pop(self, connection: Connection, request: Command) -> Awaitable[Command]:
        """200050: take messages, or wait for some."""
        header = request.header(PopMessageRequestHeader)
        request.forget(header)
        return self._pop(connection, header)

    async def _pop(self, connection: Connection, header: PopMessageRequestHeader) -> Command:
        try:
            self._checks.in_time(header.bornTime, header.pollTime)
            asked = self._checks.pop(connection, header)
            taken = await self._poll(connection, asked, header.pollTime, lambda: self._take(asked))
        except CommandError as error:
            error.ext = dict(_NOTHING)
            raise
        if isinstance(taken, Command):
            return taken
        return self._answer(asked, taken)

    async def peek(self, connection: Connection, request: Command) -> Command:
        """200052: return what a pop would bring, and leave it there."""
        header = request.header(PeekMessageRequestHeader)
        try:
            asked = self._checks.checked(connection, header, header.maxMsgNums)
        except CommandError as error:
            error.ext = dict(_NOTHING)
            raise
        parts, rest = await self.reader.read(asked, locks=False)
        said = PopMessageResponseHeader(popTime=0, invisibleTime=0, reviveQid=0, restNum=rest)
        if not parts:
            return Command.response(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", said)
        return Command.response(ResponseCode.SUCCESS, "FOUND", said, _bodies(parts))

    def notify(self, connection: Connection, request: Command) -> Awaitable[Command]:
        """200054: tell whether there is something to take, or wait until there is."""
        header = request.header(NotificationRequestHeader)
        request.forget(header)
        return self._notify(connection, header)

    async def _notify(self, connection: Connection, header: NotificationRequestHeader) -> Command:
        self._checks.in_time(header.bornTime, header.pollTime)
        asked = self._checks.in_order(self._checks.checked(connection, header, 1), header)

        async def there_is() -> bool:
            return any(
                self.reader.has(asked, (asked.group, topic, queue))
                for topic, _kind, queues in self._checks.sources(asked)
                for queue in queues
            )

        found = await self._poll(connection, asked, header.pollTime, there_is)
        full = isinstance(found, Command)
        said = NotificationResponseHeader(hasMsg=not full and bool(found), pollingFull=full)
        return Command.response(ResponseCode.SUCCESS, _WELL, said)

    def polling(self, connection: Connection, request: Command) -> Command:
        """200055: tell how many pops wait."""
        header = request.header(PollingInfoRequestHeader)
        self._checks.checked(connection, header, 1)
        number = self.waiting.count(header.topic, header.consumerGroup)
        return Command.response(ResponseCode.SUCCESS, _WELL, PollingInfoResponseHeader(pollingNum=number))

    def arrived(self, topics: Iterable[str]) -> None:
        """Wake who waits for one of these."""
        self.waiting.arrived(topics)

    # -- waiting

    async def _poll(
        self, connection: Connection, asked: PopQuestion, poll_ms: int, attempt: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the first result that is something, or the last one when the time is over.

        A Command is returned when there is nothing and too many wait.
        """
        deadline = self._loop.time() + min(poll_ms, POLL_MS_MAX) / 1000
        while True:
            # Before it looks: what arrives meanwhile wakes it.
            waiter = self.waiting.enter(connection, asked.group, asked.topics) if poll_ms > 0 else None
            ends = True
            try:
                got = await attempt()
                if not got and waiter is not None:
                    ends = not await self._woken(waiter, deadline) or connection.closed
            finally:
                if waiter is not None:
                    self._leave(waiter, ends=ends)
            if ends:
                break
            if not self._role.leads:
                raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker leads no more, it gives nothing")
        if not got and poll_ms > 0 and waiter is None:
            said = PopMessageResponseHeader(popTime=0, invisibleTime=0, reviveQid=0, restNum=0)
            return Command.response(ResponseCode.POLLING_FULL, "POLLING_FULL", said)
        return got

    async def _woken(self, waiter: PopWaiter, deadline: float) -> bool:
        """Wait until there may be something; tell whether there is time to look."""
        left = deadline - self._loop.time()
        if left > 0 and not waiter.woken.done():
            await asyncio.wait([waiter.woken], timeout=left)
        return left > 0 and waiter.woken.done()

    def _leave(self, waiter: PopWaiter, *, ends: bool) -> None:
        woken = waiter.woken.done()
        self.waiting.leave(waiter)
        if woken and ends:
            # It was woken for something that it does not take, or by itself: the next one looks.
            for topic in waiter.topics:
                self.waiting.more(topic, waiter.group)

    # -- taking

    async def _take(self, asked: PopQuestion) -> "PopTaken | None":
        """Take what there is; None for nothing."""
        # What was taken before says where to begin.
        table = await self._loaded()
        parts, rest = await self.reader.read(asked, locks=True)
        places = [part.place for part in parts]
        try:
            found = [part for part in parts if part.offsets]
            self._revive_queue = (self._revive_queue + 1) % self._live.broker.reviveQueueNum
            points = self._points(asked, found, table)
            await self._note(points, [each for part in parts for each in part.ended], table)
            for part in parts:
                if not part.offsets and not part.again:
                    self.reader.came_to(part)
            # In a group whoever leads next must know, or it gives the same ones again.
            await asyncio.gather(*(self._go_on(part, table) for part in found if not part.again))
        finally:
            self.reader.busy.difference_update(places)
            anybody = asked._replace(attempt="")
            for place in places:
                if self.reader.has(anybody, place):
                    self.waiting.more(place[1], asked.group)
        if not found:
            return None
        for part in found:
            self.taken += len(part.offsets)
            result, (_group, topic, queue) = part.result, part.place
            self._tables.stats.got(
                asked.group, topic, result.count, result.size, queue=queue, behind=result.behind_bytes
            )
        revive_queue = ORDERED_QUEUE if asked.ordered else points[0].revive_queue
        return PopTaken(points[0].key.pop_ms, revive_queue, found, rest)

    def _points(self, asked: PopQuestion, found: Sequence[Part], table: CheckPointTable) -> list[CheckPoint]:
        """Return the check points of what was found."""
        now_ms, broker = self._clock.now_ms(), self._live.broker.name()
        keys = table.fresh(
            CheckPointKey(topic, asked.group, queue, part.offsets[0], now_ms)
            for part in found
            for _group, topic, queue in [part.place]
        )
        return [
            CheckPoint(
                key, asked.invisible_ms, broker, self._revive_queue, part.offsets,
                order=TakenInOrder(asked.attempt, part.times) if asked.ordered else None,
            )
            for key, part in zip(keys, found, strict=True)
        ]  # fmt: skip

    async def _note(self, points: Sequence[CheckPoint], ended: Sequence[Ended], table: CheckPointTable) -> None:
        """Store what was taken, and what is over with it, together. Raises CommandError when that is not safe."""
        if not points and not ended:
            return
        host, now_ms = self._context.store_host, self._clock.now_ms()
        records = [check_point_record(self._topic, point, host) for point in points]
        records += [ack_record(self._topic, point, offsets, now_ms, host) for point, offsets in ended]
        if not await self._append(records):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "what was taken cannot be noted: try again")
        for point in points:
            table.add(point)
        for point, offsets in ended:
            table.acknowledge(point.key, offsets)

    async def _go_on(self, part: Part, table: CheckPointTable) -> None:
        """Have the group go on behind what it took, and return when that is safe; the messages are its only then.

        Raises CommandError when the lead was lost: whoever leads next gives the messages, once (service.py).
        """
        while self._open() is table:
            try:
                self.reader.came_to(part)
                code = await self._settled(part.place)
            except CommandError as error:
                code = error.code
            if code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(AGAIN_SECONDS)
        raise CommandError(ResponseCode.SYSTEM_ERROR, "the lead was lost before the pop was agreed upon: pop again")

    async def _settled(self, place: Place) -> int:
        """Wait until the commit of an offset is applied, or never will be, and return its code."""
        told: asyncio.Future[int] = self._loop.create_future()
        self._tables.offsets.wait(*place, lambda code: None if told.done() else told.set_result(code))
        return await told

    def _answer(self, asked: PopQuestion, taken: PopTaken | None) -> Command:
        if taken is None:
            now_ms, revive_queue = self._clock.now_ms(), ORDERED_QUEUE if asked.ordered else self._revive_queue
            said = PopMessageResponseHeader(
                popTime=now_ms, invisibleTime=asked.invisible_ms, reviveQid=revive_queue, restNum=0,
                startOffsetInfo="", msgOffsetInfo="", orderCountInfo="" if asked.ordered else None,
            )  # fmt: skip
            return Command.response(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", said)
        starts, offsets = [], []
        for part in taken.parts:
            queue = part.place[2]
            starts.append(f"{part.kind} {queue} {part.offsets[0]}")
            offsets.append(f"{part.kind} {queue} {','.join(map(str, part.offsets))}")
        said = PopMessageResponseHeader(
            popTime=taken.pop_ms,
            invisibleTime=asked.invisible_ms,
            reviveQid=taken.revive_queue,
            restNum=taken.rest,
            startOffsetInfo=";".join(starts),
            msgOffsetInfo=";".join(offsets),
            orderCountInfo=";".join(_counts(taken.parts)) if asked.ordered else None,
        )
        return Command.response(ResponseCode.SUCCESS, "FOUND", said, _bodies(taken.parts))


def _counts(parts: Iterable[Part]) -> Iterator[str]:
    """Yield how often what was taken in order had been before: by message, and the least by queue for old clients."""
    for part in parts:
        queue = part.place[2]
        for offset, times in zip(part.offsets, part.times, strict=True):
            if times:
                yield f"{part.kind} qo{queue}%{offset} {times}"
        yield f"{part.kind} {queue} {min(part.times)}"


def _bodies(parts: Iterable[Part]) -> list[memoryview | bytes]:
    return [buffer for part in parts for buffer in part.result.buffers]
