"""One queue while it belongs to this consumer: where it stands, what is unfinished, and the loop that fetches more."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from client.api import OFFSET_RESET, UNMOVED, BrokerApi, PullAnswer, PullRequest, PullStatus
from client.consume.offsets import OffsetStore, refresh_quietly
from client.consume.options import check_limits
from client.consume.processqueue import ProcessQueue
from client.consume.replica import ReplicaChoice
from client.consume.rewinds import Rewinds
from client.consume.subscription import Subscription
from client.errors import ClientError, RouteError
from client.instance import ClientInstance
from client.retry import grown, until_done
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from remoting.errors import InvokeError, RemotingError, ResponseError
from remoting.message import MessageExt

_log = logging.getLogger(__name__)

# Answers that mean: this broker does not know the consumer (yet).
_UNKNOWN_HERE = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 1.0
BUSY_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Bounds of one queue, and of a topic: beyond any but the first three nothing is fetched until something ends."""

    count: int = 32
    bytes_max: int = 256 * 1024
    suspend_ms: int = 15_000
    unfinished_max: int = 1000
    unfinished_bytes_max: int = 100 * 1024 * 1024
    # Offsets between the lowest and the highest unfinished one: how much is repeated after a crash at worst.
    span_max: int = 2000
    # Of all queues of a topic that this member has, each of which has its share (one message, at least). None: no bound
    # but those of each queue.
    topic_unfinished_max: int | None = None
    topic_unfinished_bytes_max: int | None = None

    def __post_init__(self) -> None:
        check_limits(self)

    def share(self, queues: Callable[[], int]) -> tuple[int, int]:
        """Return how many messages and bytes one of so many `queues` of a topic may have unfinished."""
        count, size = self.unfinished_max, self.unfinished_bytes_max
        if self.topic_unfinished_max is not None:
            count = min(count, max(self.topic_unfinished_max // max(queues(), 1), 1))
        if self.topic_unfinished_bytes_max is not None:
            size = min(size, max(self.topic_unfinished_bytes_max // max(queues(), 1), 1))
        return count, size


@dataclass(slots=True)
class PullContext:
    """What the queues of one consumer have in common."""

    group: str
    instance: ClientInstance
    offsets: OffsetStore
    limits: PullLimits
    # Hands fetched messages to the application.
    deliver: Callable[["AssignedQueue", ProcessQueue, list[MessageExt]], None]
    # Finds the first offset of a queue; raises RemotingError or ClientError.
    begin: Callable[[MessageQueue], Awaitable[int]]
    # Waits until the queue may be consumed (its lock, for consumption in order).
    admit: Callable[[MessageQueue], Awaitable[None]] | None = None
    in_order: bool = False
    rewinds: Rewinds = field(default_factory=Rewinds)
    # The queues that the consumer has now (assignment.py).
    assigned: dict[MessageQueue, "AssignedQueue"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AssignedQueue:
    """A queue of this consumer. `unfinished` is replaced when the position is reset; the old one is then dropped.

    Once `retired` it is this consumer's no more: nothing begins to fetch from it again.
    """

    context: PullContext
    queue: MessageQueue
    subscription: Subscription
    unfinished: ProcessQueue = field(default_factory=ProcessQueue)
    retired: bool = False
    next_offset: int = -1
    last_pull_ms: int = 0
    last_consume_ms: int = 0
    positioned: asyncio.Event = field(default_factory=asyncio.Event)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _replica: ReplicaChoice = field(default_factory=lambda: ReplicaChoice(time.monotonic))

    def start(self, after: "asyncio.Task[None] | None" = None, wait_s: float = 0.0) -> None:
        """Begin to fetch, once `after` has ended; after `wait_s`, unless a lock tells when the queue is free."""
        if not self.retired and self._task is None:
            run = self._run(after, wait_s if self.context.admit is None else 0.0)
            self._task = asyncio.get_running_loop().create_task(run, name=f"pull {self.queue}")

    async def stop(self) -> None:
        """Fetch no more, and have what is unfinished forgotten when it ends."""
        self.unfinished.dropped = True
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop_fetching(self) -> None:
        """Fetch no more; what is being consumed may still end and count."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def restart(self, offset: int | None = None) -> None:
        """Forget what is unfinished and begin anew: at `offset`, or (None) where the offset store says."""
        await self.stop()
        if self.retired:
            return
        self.unfinished = ProcessQueue()
        self.next_offset = -1 if offset is None else offset
        self.positioned.clear()
        self.start()

    def finish(self, unfinished: ProcessQueue, messages: list[MessageExt]) -> None:
        """Note that messages were consumed; what may be stored goes to the offset store."""
        offset = unfinished.finish(messages)
        self.last_consume_ms = time.time_ns() // 1_000_000
        self._progress.set()
        if offset is None or unfinished.dropped:
            return
        if not unfinished:
            # Everything fetched so far is done, what was filtered out behind the last message included.
            offset = max(offset, self.next_offset)
        self.context.offsets.update(self.queue, offset)

    @property
    def _api(self) -> BrokerApi:
        return self.context.instance.api

    async def _run(self, after: "asyncio.Task[None] | None", wait_s: float) -> None:
        if after is not None:
            await asyncio.wait([after])
        if wait_s:
            await asyncio.sleep(wait_s)
        while True:
            try:
                await self._round()
            except Exception as error:
                await until_done(self._round, error, self._after)

    async def _round(self) -> None:
        """Fetch once, from where this queue is to begin or has come to."""
        if self.context.admit is not None:
            await self.context.admit(self.queue)
        if self.next_offset < 0:
            self.next_offset = await self.context.begin(self.queue)
            # Stored even if nothing comes: a group that began at the end must not begin at a later one.
            self.context.offsets.update(self.queue, self.next_offset)
        self.positioned.set()
        await self._room()
        await self._take(await self._api.pull(await self._address(), self._request()))

    async def _room(self) -> None:
        while self._full():
            self._progress.clear()
            await self._progress.wait()

    def _beside(self) -> int:
        """Return how many queues of the topic this consumer has."""
        return sum(queue.topic == self.queue.topic for queue in self.context.assigned)

    def _full(self) -> bool:
        limits, unfinished = self.context.limits, self.unfinished
        if not unfinished:
            return False
        count, size = limits.share(self._beside)
        return (
            len(unfinished) >= count
            or unfinished.size_bytes >= size
            or (not self.context.in_order and unfinished.span >= limits.span_max)
        )

    async def _address(self) -> str:
        route = await self.context.instance.routes.find(self.queue.topic)
        address = self._replica.choose(route, self.queue.brokerName)
        if address is None:
            raise RouteError(f"broker {self.queue.brokerName} of {self.queue.topic} is in no route", retriable=True)
        return address

    def _request(self) -> PullRequest:
        limits = self.context.limits
        self.last_pull_ms = time.time_ns() // 1_000_000
        return PullRequest(
            group=self.context.group,
            queue=self.queue,
            offset=self.next_offset,
            count=self._count(),
            expression=self.subscription.expression,
            version=self.subscription.version,
            suspend_ms=limits.suspend_ms,
            bytes_max=limits.bytes_max,
            kind=self.subscription.kind,
        )

    def _count(self) -> int:
        """Return how many messages to ask for: no more than there is room for, where a topic's share is small."""
        limits = self.context.limits
        if limits.topic_unfinished_max is None:
            return limits.count
        return max(min(limits.count, limits.share(self._beside)[0] - len(self.unfinished)), 1)

    async def _take(self, answer: PullAnswer) -> None:
        if answer.status in UNMOVED and answer.next_offset == self.next_offset:
            await self._look_round(answer.suggested_id)
            return
        self._replica.answered(answer.suggested_id)
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(answer)
            return
        wanted = [message for message in answer.messages if self.subscription.accepts(message)]
        fresh = self.unfinished.put(wanted)
        self.next_offset = answer.next_offset
        if fresh:
            self.context.deliver(self, self.unfinished, fresh)
        elif not self.unfinished and answer.next_offset > 0:
            # All that was filtered out counts as consumed, or a restart would fetch it again.
            self.context.offsets.update(self.queue, answer.next_offset)

    async def _look_round(self, suggested_id: int) -> None:
        """Wait a little after an answer that was none and find out who is there, unless another can be asked."""
        routes = self.context.instance.routes
        pause = self._replica.nothing_new(routes.cached(self.queue.topic), self.queue.brokerName, suggested_id)
        if pause:
            await refresh_quietly(routes, self.queue.topic)
            await asyncio.sleep(pause)

    async def _correct(self, answer: PullAnswer) -> None:
        """Go where the broker says: the offset is no longer, or not yet, in the queue."""
        context = self.context
        context.rewinds.moved(context.group, self.queue, self.next_offset, context.offsets.noted(self.queue), answer)
        if answer.next_offset == self.next_offset and answer.remark != OFFSET_RESET:
            # A broker that contradicts itself must not be asked in a tight loop.
            await asyncio.sleep(PAUSE_S_MAX)
        self.unfinished.dropped = True
        self.unfinished = ProcessQueue()
        self.next_offset = answer.next_offset
        self.context.offsets.update(self.queue, answer.next_offset, back=True)
        await self.context.offsets.persist([self.queue])

    async def _after(self, error: Exception, failures: int) -> float:
        """Do what the error asks for before the next attempt, and return the pause."""
        if not isinstance(error, RemotingError | ClientError):
            # A mistake of ours in one queue must neither end its consumption silently nor spin.
            _log.error("group %s: fetching from %s failed", self.context.group, self.queue, exc_info=error)
            return PAUSE_S_MAX
        self._replica.failed(error)
        code = error.code if isinstance(error, ResponseError) else None
        _log.log(
            logging.INFO if code in _UNKNOWN_HERE else logging.WARNING,
            "group %s: pull of %s: %s",
            self.context.group,
            self.queue,
            error,
        )
        if code == ResponseCode.SYSTEM_BUSY:
            return BUSY_PAUSE_S
        if code in _UNKNOWN_HERE:
            await self.context.instance.heartbeat()
        elif isinstance(error, RouteError) or (isinstance(error, InvokeError) and error.reroute):
            await refresh_quietly(self.context.instance.routes, self.queue.topic)
        return PAUSE_S_MAX if code == ResponseCode.NO_PERMISSION else grown(PAUSE_S_FIRST, PAUSE_S_MAX, failures)
