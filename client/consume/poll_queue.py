"""One queue of a polling consumer: its position, and a small buffer that is filled in the background."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from client.api import OFFSET_RESET, UNMOVED, PullAnswer, PullRequest, PullStatus
from client.consume.offsets import refresh_quietly
from client.consume.options import check_limits
from client.consume.replica import ReplicaChoice
from client.consume.rewinds import Rewinds
from client.consume.subscription import Subscription
from client.errors import ClientError, ConsumeError, RouteError
from client.instance import ClientInstance
from client.retry import grown, until_done
from remoting.bodies.registry import MessageQueue
from remoting.errors import InvokeError, RemotingError
from remoting.message import MessageExt

_log = logging.getLogger(__name__)

PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 1.0
# How often who waits for room that others take up looks again (RocketMQ's figure).
FULL_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one queue and of all: beyond any of the last four, nothing is fetched until something is taken.

    `topic_buffered_max`: of all queues of a topic, each of which has its share; `all_buffered_max`: of the consumer.
    """

    count: int = 32
    bytes_max: int = 256 * 1024
    suspend_ms: int = 15_000
    buffered_max: int = 1000
    buffered_bytes_max: int = 16 * 1024 * 1024
    topic_buffered_max: int | None = None
    all_buffered_max: int = 10_000

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(slots=True)
class FetchContext:
    """What the queues of one consumer have in common. `arrived` is called when there is something to take."""

    group: str
    instance: ClientInstance
    limits: FetchLimits
    begin: Callable[[MessageQueue], Awaitable[int]]
    arrived: Callable[[], None]
    rewinds: Rewinds = field(default_factory=Rewinds)
    # The queues that the consumer has now.
    queues: Mapping[MessageQueue, "FetchedQueue"] = field(default_factory=dict)


class FetchedQueue:
    """`position` is the offset of the next message to be taken, None until it is known.

    Whatever sets the position ends the fetch that is under way: an answer to an earlier question never moves it.
    """

    def __init__(
        self, queue: MessageQueue, subscription: Subscription, position: int | None, *, paused: bool = False
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.position = position
        self.acknowledged = position
        self.paused = paused
        self._fetch_offset = position
        self._buffer: deque[MessageExt] = deque()
        self._buffered_bytes = 0
        self._taken = asyncio.Event()
        self._known = asyncio.Event()
        self._context: FetchContext | None = None
        self._task: asyncio.Task[None] | None = None
        # Fetches that were cancelled and have not ended yet.
        self._ending: set[asyncio.Task[None]] = set()
        self._replica = ReplicaChoice(time.monotonic)
        if position is not None:
            self._known.set()

    def start(self, context: FetchContext, after: "asyncio.Task[None] | None" = None, wait_s: float = 0.0) -> None:
        """Begin to fetch, once `after` has ended and after `wait_s`."""
        self._context = context
        self._begin_task(after, wait_s)

    async def stop(self) -> None:
        """Fetch no more; who waits for a position that is not known is told."""
        self._end_task()
        self._context = None
        self._known.set()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def seek(self, offset: int) -> None:
        """Go on at `offset`."""
        self._drop_buffer()
        self.position = self.acknowledged = self._fetch_offset = offset
        self._known.set()
        if self._context is not None:
            self._end_task()
            self._begin_task()

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._buffered_bytes = 0

    @property
    def buffered(self) -> int:
        """How many messages wait to be taken."""
        return len(self._buffer)

    async def positioned(self) -> int:
        """Wait until the position is known, and return it. Raises ConsumeError when the queue goes before that."""
        await self._known.wait()
        if self.position is None:
            raise ConsumeError(f"{self.queue} is no longer this consumer's, and its position was not known yet")
        return self.position

    def take(self, count: int) -> list[MessageExt]:
        """Return up to `count` messages and move behind them."""
        if self.paused or not self._buffer:
            return []
        messages = [self._buffer.popleft() for _ in range(min(count, len(self._buffer)))]
        self._buffered_bytes -= sum(message.size for message in messages)
        # Behind the last one of the buffer, what was filtered out need not be fetched again either.
        self.position = messages[-1].queue_offset + 1 if self._buffer else self._fetch_offset
        self._taken.set()
        return messages

    def acknowledge(self) -> None:
        """Count everything that was taken so far as consumed."""
        self.acknowledged = self.position

    def _begin_task(self, after: "asyncio.Task[None] | None" = None, wait_s: float = 0.0) -> None:
        assert self._context is not None
        work = self._run(self._context, after, wait_s)
        self._task = asyncio.get_running_loop().create_task(work, name=f"fetch {self.queue}")

    def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _run(self, context: FetchContext, after: "asyncio.Task[None] | None", wait_s: float) -> None:
        if after is not None:
            await asyncio.wait([after])
        if wait_s:
            await asyncio.sleep(wait_s)
        fetch = partial(self._round, context)
        while True:
            try:
                await fetch()
            except Exception as error:
                await until_done(fetch, error, partial(self._after, context))

    async def _round(self, context: FetchContext) -> None:
        """Fetch once, from where this queue is to begin or has come to."""
        if self._fetch_offset is None:
            # A seek meanwhile cancels this task, so the answer cannot overwrite it.
            self.position = self.acknowledged = self._fetch_offset = await context.begin(self.queue)
            self._known.set()
        answer = await self._pull(context, self._fetch_offset, await self._room(context))
        if answer.status in UNMOVED and answer.next_offset == self._fetch_offset:
            await self._look_round(context, answer.suggested_id)
        elif not self._accept(context, answer):
            await asyncio.sleep(PAUSE_S_MAX)

    async def _after(self, context: FetchContext, error: Exception, failures: int) -> float:
        """Do what the error asks for before the next attempt, and return the pause."""
        if not isinstance(error, RemotingError | ClientError):
            _log.error("group %s: fetching from %s failed", context.group, self.queue, exc_info=error)
            return PAUSE_S_MAX
        _log.warning("group %s: fetching from %s: %s", context.group, self.queue, error)
        self._replica.failed(error)
        if isinstance(error, RouteError) or (isinstance(error, InvokeError) and error.reroute):
            await refresh_quietly(context.instance.routes, self.queue.topic)
        return grown(PAUSE_S_FIRST, PAUSE_S_MAX, failures)

    async def _room(self, context: FetchContext) -> int:
        """Wait until something may be fetched; returns how many messages to ask for."""
        limits = context.limits
        while True:
            if len(self._buffer) >= limits.buffered_max or self._buffered_bytes >= limits.buffered_bytes_max:
                self._taken.clear()
                await self._taken.wait()
                continue
            room = self._shared_room(context)
            if room > 0:
                return min(limits.count, room)
            # Others take up the room: what they give back is not told here.
            await asyncio.sleep(FULL_PAUSE_S)

    def _shared_room(self, context: FetchContext) -> int:
        """Return how many messages may come before the topic, or the consumer, has as many as it may."""
        limits, queues = context.limits, context.queues
        room = limits.count
        if limits.topic_buffered_max is not None:
            beside = sum(queue.topic == self.queue.topic for queue in queues)
            room = max(limits.topic_buffered_max // max(beside, 1), 1) - len(self._buffer)
        # An upper bound first: few consumers have so many queues that they must be counted.
        if len(queues) * limits.buffered_max > limits.all_buffered_max:
            room = min(room, limits.all_buffered_max - sum(fetched.buffered for fetched in queues.values()))
        return room

    async def _pull(self, context: FetchContext, offset: int, count: int) -> PullAnswer:
        route = await context.instance.routes.find(self.queue.topic)
        address = self._replica.choose(route, self.queue.brokerName)
        if address is None:
            raise RouteError(f"broker {self.queue.brokerName} of {self.queue.topic} is in no route", retriable=True)
        request = PullRequest(
            group=context.group,
            queue=self.queue,
            offset=offset,
            count=count,
            expression=self.subscription.expression,
            version=self.subscription.version,
            suspend_ms=context.limits.suspend_ms,
            bytes_max=context.limits.bytes_max,
            lite=True,
            kind=self.subscription.kind,
        )
        return await context.instance.api.pull(address, request)

    async def _look_round(self, context: FetchContext, suggested_id: int) -> None:
        """Wait a little after an answer that was none and find out who is there, unless another can be asked."""
        routes = context.instance.routes
        pause = self._replica.nothing_new(routes.cached(self.queue.topic), self.queue.brokerName, suggested_id)
        if pause:
            await refresh_quietly(routes, self.queue.topic)
            await asyncio.sleep(pause)

    def _accept(self, context: FetchContext, answer: PullAnswer) -> bool:
        """Put an answer into the buffer; False when the broker asks for what was just done."""
        self._replica.answered(answer.suggested_id)
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            context.rewinds.moved(context.group, self.queue, self._fetch_offset, self.acknowledged, answer)
            reset = answer.remark == OFFSET_RESET
            if answer.next_offset == self._fetch_offset and not reset:
                return False
            assert self._fetch_offset is not None, "it was asked for"
            if reset or answer.next_offset < self._fetch_offset:
                # What was fetched is not what the group goes on with: nobody gets it, or stores how far it had come.
                self._drop_buffer()
                self.position = self.acknowledged = answer.next_offset
            elif not self._buffer:
                self.position = answer.next_offset
            self._fetch_offset = answer.next_offset
            return True
        wanted = [message for message in answer.messages if self.subscription.accepts(message)]
        self._fetch_offset = answer.next_offset
        if wanted:
            self._buffer.extend(wanted)
            self._buffered_bytes += sum(message.size for message in wanted)
            context.arrived()
        elif not self._buffer:
            self.position = answer.next_offset
        return True
