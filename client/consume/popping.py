"""Popping in turn: one topic and broker after the other is asked, so that none starves, and the last of them waits.

A pop that nobody waits for any more (its receive was cancelled, or its broker answers late) is left to its end: what it
brings is the next receive's, unless its invisible time is over by then.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from client.consume.popapi import PopApi, PopRequest, PopStatus
from client.consume.popbrokers import PopBrokers
from client.consume.popped import PoppedMessage, Settler, popped
from client.consume.subscription import Subscription
from client.errors import ClientError, RouteError
from client.routes import Routes
from remoting.errors import InvokeError, InvokeTimeout, RemotingError
from remoting.topics import is_retry_topic
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# How long one of several brokers or topics is waited at before all are asked again, more where there are many, so that
# no more than some 50 are asked a second; and a single one at most.
SLICE_S = 0.5
SLICE_S_EACH = 0.02
SLICE_S_MAX = 30.0
# How long a broker may take to answer that was not asked to wait, before the next one is asked.
PROMPT_S = 1.0
# How much longer than it was to wait a pop may take, and a receive, while an answer may be on its way.
ANSWER_S = 1.5
GRACE_S = 2.0
# A round that ended sooner was not waited for: a pause follows, growing to the second figure.
PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 0.5
# Messages kept of pops that nobody waited for; those beyond come again when their invisible time is over.
KEPT_MAX = 1024


class PopPlace(NamedTuple):
    """What is asked at a time."""

    topic: str
    broker: str


class PopWish(NamedTuple):
    """What one receive wants."""

    most: int
    invisible_ms: int


@dataclass(frozen=True, slots=True)
class PopContext:
    """What pops are made with."""

    group: str
    api: PopApi
    brokers: PopBrokers
    routes: Routes
    settler: Settler
    from_end: bool
    ordered: bool = False


@dataclass(slots=True)
class _Round:
    """How a receive has fared so far."""

    until: float
    answered: bool = False
    error: Exception | None = None
    pause_s: float = PAUSE_S_FIRST

    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def failed(self, error: Exception) -> None:
        """Note an error that may pass; raises one that will not."""
        # Topics may be made yet, and groups elect their leaders.
        passes = isinstance(error, RouteError) or (isinstance(error, InvokeError) and error.retriable)
        if not passes:
            raise error
        self.error = error


_Pop = asyncio.Task[tuple[PopStatus, list[PoppedMessage]]]


class _Left(NamedTuple):
    """A pop that nobody waits for, and when its answer should have come."""

    task: _Pop
    due: float


class Poller:
    """The pops of one consumer; must be made inside its loop."""

    def __init__(self, context: PopContext, subscriptions: Mapping[str, Subscription]) -> None:
        self._context = context
        self._subscriptions = subscriptions
        self._tasks: set[_Pop] = set()
        # Pops that nobody waits for, and what such have brought.
        self._left: dict[PopPlace, _Left] = {}
        self._kept: deque[PoppedMessage] = deque()
        # In order: the name of a pop that had no answer. The next one of its name has at once what it has taken.
        self._attempts: dict[PopPlace, str] = {}
        self._background = Tasks(f"pops of {context.group}")
        self._turn = 0
        self._closing = asyncio.Event()

    async def receive(self, wish: PopWish, wait_s: float) -> list[PoppedMessage]:
        """Return up to `wish.most` messages, waiting `wait_s` for the first; [] when none came, or at the close.

        Raises what hinders it when no broker gave a good answer, and at once what will not pass.
        """
        so_far = _Round(time.monotonic() + wait_s)
        try:
            async with asyncio.timeout(wait_s + GRACE_S):
                return await self._receive(wish, so_far)
        except TimeoutError:
            if so_far.error is not None and not so_far.answered:
                raise so_far.error from None
            return []

    async def close(self) -> list[PoppedMessage]:
        """Wait for nothing any more; returns what nobody has received."""
        self._closing.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._background.close()
        kept, self._kept = list(self._kept), deque()
        return kept

    async def _receive(self, wish: PopWish, so_far: _Round) -> list[PoppedMessage]:
        while not self._closing.is_set():
            began = time.monotonic()
            if found := self._take(wish.most):
                return found
            places = await self._places(so_far)
            found = await self._ask_all(places, wish, so_far) if len(places) != 1 else []
            if not found and (places or self._left) and not (len(places) > 1 and so_far.left() <= 0):
                found = await self._wait_at(places, wish, so_far)
            if found:
                return found
            if so_far.left() <= 0:
                break
            await self._pause(began, so_far)
        if so_far.error is not None and not so_far.answered and not self._closing.is_set():
            raise so_far.error
        return []

    async def _places(self, so_far: _Round) -> list[PopPlace]:
        """Return whom to ask, beginning with whose turn it is."""
        found = []
        for topic in list(self._subscriptions):
            try:
                route = await self._context.routes.find(topic)
            except (RouteError, RemotingError) as error:
                so_far.failed(error)
                continue
            found += [PopPlace(topic, broker) for broker in sorted({queue.brokerName for queue in route.read_queues})]
        if not found and so_far.error is None:
            names = ", ".join(sorted(self._subscriptions))
            so_far.error = RouteError(f"no queue of {names} can be read now", retriable=True)
        start = self._turn % len(found) if found else 0
        return found[start:] + found[:start]

    async def _ask_all(self, places: list[PopPlace], wish: PopWish, so_far: _Round) -> list[PoppedMessage]:
        """Ask each of several without waiting; returns what the first one has that has something."""
        for place in places:
            self._turn += 1
            if place in self._left:
                continue
            found = await self._pop(place, wish, 0.0, PROMPT_S, so_far)
            if found or self._closing.is_set():
                return found
        return []

    async def _wait_at(self, places: list[PopPlace], wish: PopWish, so_far: _Round) -> list[PoppedMessage]:
        """Have the next one wait for a message."""
        free = [place for place in places if place not in self._left]
        among_several = max(SLICE_S, len(places) * SLICE_S_EACH)
        slice_s = min(so_far.left(), SLICE_S_MAX if len(places) == 1 else among_several)
        if free:
            self._turn += 1
            return await self._pop(free[0], wish, slice_s, slice_s + ANSWER_S, so_far)
        # All wait already, for receives that have ended: what they bring comes here.
        await self._any_of(self._left_tasks(), slice_s)
        if self._left and all(left.due <= time.monotonic() for left in self._left.values()):
            so_far.error = InvokeTimeout(f"no answer from {', '.join(sorted({place.broker for place in self._left}))}")
        return self._take(wish.most)

    def _left_tasks(self) -> set[_Pop]:
        return {left.task for left in self._left.values()}

    async def _pop(
        self, place: PopPlace, wish: PopWish, poll_s: float, within_s: float, so_far: _Round
    ) -> list[PoppedMessage]:
        subscription = self._subscriptions.get(place.topic)
        if subscription is None:
            return []
        task: _Pop = asyncio.get_running_loop().create_task(
            self._asked(place, subscription, wish, poll_s), name=f"pop {place.topic} at {place.broker}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        taken, due = False, time.monotonic() + within_s
        try:
            await self._any_of({task, *self._left_tasks()}, within_s)
            if not task.done() and time.monotonic() >= due:
                so_far.error = InvokeTimeout(f"no answer from {place.broker} within {within_s:g} s")
            if not task.done() or task.cancelled():
                return self._take(wish.most)
            taken = True
            try:
                status, messages = task.result()
            except (RemotingError, ClientError) as error:
                so_far.failed(error)
                return []
            so_far.answered |= status is not PopStatus.LATE
            for message in messages[wish.most :]:
                self._keep(message)
            return messages[: wish.most]
        finally:
            if not taken:
                self._leave(place, task, due)

    async def _asked(
        self, place: PopPlace, subscription: Subscription, wish: PopWish, poll_s: float
    ) -> tuple[PopStatus, list[PoppedMessage]]:
        """Ask a broker, and return what it gave, but for what a tag's hash let through by accident."""
        context, brokers, address = self._context, self._context.brokers, ""
        attempt = self._attempts.setdefault(place, uuid.uuid4().hex) if context.ordered else None
        try:
            address = await brokers.address(place.topic, place.broker)
            request = PopRequest(
                context.group, subscription, wish.most, wish.invisible_ms, round(poll_s * 1000),
                brokers.now_ms(place.broker), context.from_end, attempt,
            )  # fmt: skip
            status, messages, pop_ms = await context.api.pop(address, place.broker, request)
        except (RouteError, InvokeError) as error:
            await brokers.failed(place.topic, place.broker, address, error)
            raise
        self._attempts.pop(place, None)
        if status is PopStatus.LATE:
            brokers.called_late(place.broker)
        brokers.heard(place.broker, pop_ms)
        expires_at = time.monotonic() + wish.invisible_ms / 1000
        wanted: list[PoppedMessage] = []
        for message, handle in messages:
            if is_retry_topic(message.topic):
                message.topic = place.topic
            one = popped(message, origin=place.topic, handle=handle, expires_at=expires_at, settler=context.settler)
            if subscription.accepts(message):
                wanted.append(one)
            else:
                self._background.spawn(self._pass_over(one), "not wanted")
        return status, wanted

    async def _pass_over(self, message: PoppedMessage) -> None:
        try:
            await message.ack()
        except ClientError as error:
            _log.warning("message %s, which has no wanted tag, comes again: %s", message.msg_id, error)

    def _leave(self, place: PopPlace, task: _Pop, due: float) -> None:
        """Let a pop end by itself, and keep what it brings."""
        mine = _Left(task, due)
        self._left.setdefault(place, mine)

        def ended(task: _Pop) -> None:
            if self._left.get(place) is mine:
                del self._left[place]
            if task.cancelled():
                return
            if (error := task.exception()) is not None:
                _log.info("group %s: a pop that nobody waited for: %s", self._context.group, error)
                return
            for message in task.result()[1]:
                self._keep(message)

        task.add_done_callback(ended)

    def _keep(self, message: PoppedMessage) -> None:
        if len(self._kept) < KEPT_MAX:
            self._kept.append(message)

    def _take(self, count: int) -> list[PoppedMessage]:
        """Take what was kept, as far as it is still this consumer's."""
        found: list[PoppedMessage] = []
        now = time.monotonic()
        while self._kept and len(found) < count:
            message = self._kept.popleft()
            if message.expires_at > now and message.origin in self._subscriptions:
                found.append(message)
        return found

    async def _pause(self, began: float, so_far: _Round) -> None:
        """Do not ask again at once when nobody had the last round wait."""
        if time.monotonic() - began >= PAUSE_S_FIRST:
            so_far.pause_s = PAUSE_S_FIRST
            return
        await self._any_of(self._left_tasks(), min(so_far.pause_s, so_far.left()))
        so_far.pause_s = min(2 * so_far.pause_s, PAUSE_S_MAX)

    async def _any_of(self, tasks: set[_Pop], seconds: float) -> None:
        """Wait until one of these has ended, the consumer is being closed, or the time is over."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({closing, *tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
