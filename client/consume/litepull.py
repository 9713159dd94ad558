"""Consuming by asking: the application polls, and moves its own position."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from client.consume.balancer import BalanceOptions, Balancer
from client.consume.filters import check_filters
from client.consume.leaving import Leaving
from client.consume.offsets import (
    LocalOffsets,
    OffsetStore,
    RemoteOffsets,
    broker_address,
    refresh_quietly,
    starting_offset,
)
from client.consume.options import check_start, limits_of, offset_path
from client.consume.poll_queue import FetchContext, FetchedQueue, FetchLimits
from client.consume.polled import PolledHooks
from client.consume.queuenews import LOOK_S, QueueListener, QueueNews
from client.consume.rebalance import Strategy, strategy_of
from client.consume.rewinds import Rewinds
from client.consume.runninginfo import polling_info
from client.consume.subscription import ALL, Subscription, subscribe_to
from client.credentials import Credentials
from client.errors import ClientClosed, ConsumeError, raises_client_errors
from client.hooks import ConsumeHook
from client.instance import ClientInstance
from client.lifecycle import Lifecycle, used_at_home
from client.message import ConsumeFrom, MessageModel
from client.options import group_of
from remoting.bodies.registry import ConsumeDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue
from remoting.message import MessageExt
from runtime.tasks import Tasks
from runtime.tls import ClientTls

_log = logging.getLogger(__name__)

COMMIT_S = 5.0
POLL_S = 5.0
# How long `close` waits for queues that are being handed over.
CLOSE_S = 5.0
HALF_HOUR_MS = 30 * 60 * 1000


@raises_client_errors
@used_at_home
class LitePullConsumer(Lifecycle):
    """Pulls the messages of a group: ``subscribe`` (queues are shared with the group) or ``assign`` (these ones).

    What `poll` returned counts as consumed with the next `poll`, with `commit`, and when ``async with`` ends without an
    exception; every 5 s (`auto_commit`), and at the end, that position is stored, by `commit` at once. What `poll`
    returned last before an exception, or a plain `close`, comes again. With `model` BROADCASTING each
    member gets all messages of a topic that it subscribed, and keeps its own positions below `offset_dir`.
    `trace` (True, or a topic) writes message traces; `hooks` see what `poll` is about to return, both calls one after
    the other: how the application fares with it nobody tells, so it counts as consumed (SUCCESS), as in RocketMQ.
    `credentials` sign all requests (client/credentials.py).
    """

    noun = "consumer"

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *,
        from_where: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        timestamp_ms: int | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        offset_dir: Path | None = None,
        auto_commit: bool = True,
        limits: FetchLimits | None = None,
        strategy: Strategy | str = "AVG",
        trace: bool | str = False,
        hooks: Sequence[ConsumeHook] = (),
        tls: bool | ClientTls | None = None,
        instance_name: str | None = None,
        instance: ClientInstance | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.group = group_of(group, ConsumeError)
        self.instance = instance or ClientInstance(
            namesrv, instance_name=instance_name, tls=tls, credentials=credentials
        )
        self._from_where = from_where
        self._timestamp_ms = check_start(from_where, timestamp_ms)
        self._model = model
        self._offset_path = offset_path(model, offset_dir, instance_name, group)
        self._auto_commit = auto_commit
        self._limits = limits_of(limits, FetchLimits())
        self._strategy = strategy_of(strategy)
        self._hooks = PolledHooks(group, trace, hooks)
        self._subscriptions: dict[str, Subscription] = {}
        self._queues: dict[MessageQueue, FetchedQueue] = {}
        self._paused: set[MessageQueue] = set()
        self._balancer: Balancer | None = None
        self._tasks = Tasks(f"lite consumer {group}")
        self._leaving = Leaving(self._tasks.spawn)
        self._news = QueueNews(self.instance)
        self._started = False
        self._arrived = asyncio.Event()
        self._turn = 0
        # How often a broker sent this consumer below what it had stored.
        self.rewinds = Rewinds()

    async def _start(self) -> None:
        # `subscribe` and `assign` may come before or after.
        await self.instance.enter()
        self._undo.push_async_callback(self.instance.leave)
        self._hooks.start(self.instance, self._undo)
        self._offsets: OffsetStore = (
            RemoteOffsets(self.group, self.instance.api, self.instance.routes, self.instance.be_known)
            if self._offset_path is None
            else LocalOffsets(self._offset_path)
        )
        for topic in self._subscriptions:
            await refresh_quietly(self.instance.routes, topic)
        filters = [*self._subscriptions.values(), *(fetched.subscription for fetched in self._queues.values())]
        await check_filters(self.instance, self.group, filters)
        self._undo.push_async_callback(self.instance.remove_consumer, self)
        await self.instance.add_consumer(self)
        self._started = True
        if self._auto_commit:
            self._tasks.every(COMMIT_S, self._persist, "commit")
        self._tasks.every(LOOK_S, self._news.look, "queues of topics", first=0.0)
        for fetched in self._queues.values():
            fetched.start(self._context())
        if self._subscriptions:
            self._join()

    async def _close(self) -> None:
        # Stop fetching, and store the positions.
        if not self._started:
            return
        await self._leaving.wait(CLOSE_S)
        self._started = False
        self._arrived.set()
        await self._tasks.close()
        await asyncio.gather(*(fetched.stop() for fetched in self._queues.values()))
        if self._auto_commit:
            await self._persist()
        self._queues.clear()
        self._balancer = None

    def _left_well(self) -> None:
        # Whoever leaves in good order has done its work with what it polled last.
        self._confirm()

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Share a topic's queues with the others of the group, filtered by tags or by SQL92; raises ConsumeError."""
        if self._queues and self._balancer is None:
            raise ConsumeError("queues were assigned by hand: subscribe and assign do not go together")
        self._subscriptions[topic] = subscribe_to(topic, expression, sql, time.time_ns() // 1_000_000)
        if self._started:
            self._join()

    async def assign(self, queues: Iterable[MessageQueue], expression: str = ALL, *, sql: str | None = None) -> None:
        """Pull exactly these queues from now on; those that were assigned before keep their position.

        Raises ConsumeError; once the consumer is started, with a broker's reason against a SQL92 filter.
        """
        if self._subscriptions:
            raise ConsumeError("topics were subscribed: subscribe and assign do not go together")
        now_ms = time.time_ns() // 1_000_000
        wanted = {queue: subscribe_to(queue.topic, expression, sql, now_ms) for queue in queues}
        if self._started:
            topics = {subscription.topic: subscription for subscription in wanted.values()}
            await check_filters(self.instance, self.group, topics.values())
        self._set_queues(wanted)
        await self._leaving.wait()

    def _apply(self, subscription: Subscription, mine: list[MessageQueue], wait_s: float) -> None:
        """Take this member's share of one topic."""
        others = {queue: old.subscription for queue, old in self._queues.items() if queue.topic != subscription.topic}
        self._set_queues(others | dict.fromkeys(mine, subscription), wait_s)

    def _set_queues(self, wanted: Mapping[MessageQueue, Subscription], wait_s: float = 0.0) -> None:
        """Make the assigned queues exactly those of `wanted`, in one step; handing over takes its time beside it."""
        for queue in [queue for queue in self._queues if queue not in wanted]:
            self._leaving.begin(queue, partial(self._hand_over, self._queues.pop(queue)))
        for queue, subscription in wanted.items():
            old = self._queues.get(queue)
            if old is not None and old.subscription.same_as(subscription):
                continue
            position = None if old is None else old.position
            if old is not None:
                self._leaving.begin(queue, old.stop)
            new = self._queues[queue] = FetchedQueue(queue, subscription, position, paused=queue in self._paused)
            new.acknowledged = None if old is None else old.acknowledged
            if self._started:
                new.start(self._context(), self._leaving.get(queue), wait_s if old is None else 0.0)

    async def _hand_over(self, fetched: FetchedQueue) -> None:
        """Fetch no more, and store how far this member has come."""
        await fetched.stop()
        if self._auto_commit and self._started:
            self._note(fetched)
            await self._offsets.persist([fetched.queue])
        if self._started:
            # Told again, to a new master, it would take back what its next owner has stored. Even if that is this one,
            # which asks only now where to begin.
            self._offsets.forget(fetched.queue)

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are pulled now."""
        return sorted(self._queues)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic that can be read; raises RouteError."""
        self._check_started()
        return list((await self.instance.routes.find(topic)).read_queues)

    async def poll(self, timeout: float = POLL_S) -> list[MessageExt]:
        """Return messages that were fetched, waiting up to `timeout` s for the first; empty when none came."""
        self._check_started()
        self._confirm()
        deadline = time.monotonic() + timeout
        while True:
            self._arrived.clear()
            messages = self._next_batch()
            left = deadline - time.monotonic()
            if messages or left <= 0 or not self._started:
                return messages
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()

    async def commit(self) -> None:
        """Store the position behind all that `poll` returned; raises ConsumeError when a broker has not got it."""
        self._check_started()
        self._confirm()
        if failed := await self._persist():
            raise ConsumeError(f"the positions of {len(failed)} queues are not stored (the log says why): {failed}")

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue, None when there is none."""
        self._check_started()
        return await self._offsets.load(queue)

    async def position(self, queue: MessageQueue, timeout: float = POLL_S) -> int:
        """Return the offset of the next message that `poll` returns of a queue.

        Raises ConsumeError when no broker has told it within `timeout` s, or the queue goes to another member.
        """
        self._check_started()
        try:
            async with asyncio.timeout(timeout):
                return await self._fetched(queue).positioned()
        except TimeoutError:
            raise ConsumeError(f"the position of {queue} is not known after {timeout:g} s: no broker answers") from None

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was fetched and not returned is forgotten. Raises ConsumeError."""
        if offset < 0:
            raise ConsumeError(f"{offset} is no offset: it takes 0 or more")
        self._fetched(queue).seek(offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message that is still there."""
        self._check_started()
        self.seek(queue, await self.instance.api.min_offset(await broker_address(self.instance.routes, queue), queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that will be stored."""
        self._check_started()
        self.seek(queue, await self.instance.api.max_offset(await broker_address(self.instance.routes, queue), queue))

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time, the end when there is none."""
        self._check_started()
        address = await broker_address(self.instance.routes, queue)
        return await self.instance.api.offset_by_time(address, queue, timestamp_ms)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Return no messages of these queues until they are resumed."""
        for queue in queues:
            self._fetched(queue).paused = True
            self._paused.add(queue)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Undo `pause`."""
        for queue in queues:
            self._paused.discard(queue)
            self._fetched(queue).paused = False
        self._arrived.set()

    def on_queues(self, topic: str, listener: QueueListener) -> None:
        """Call `listener` with a topic and its queues, now and whenever they are others; raises ConsumeError."""
        self._news.listen(topic, listener)
        if self._started:
            self._tasks.spawn(self._news.look(), "queues of topics")

    # What the client instance and, through it, brokers ask for (serverrequests.ConsumerMember).

    def consumer_data(self) -> ConsumerData:
        """Return the consumer's part of the heartbeat."""
        return ConsumerData(
            groupName=self.group,
            consumeType="CONSUME_ACTIVELY",
            messageModel=self._model.value,
            consumeFromWhere=self._from_where.value,
            subscriptionDataSet=[subscription.data() for subscription in self._subscriptions.values()],
        )

    def topics(self) -> set[str]:
        """Return the subscribed topics."""
        return set(self._subscriptions)

    def rebalance_soon(self) -> None:
        """Share the queues anew, now."""
        if self._balancer is not None:
            self._balancer.soon()

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, as far as the queues are assigned here."""
        for queue, offset in offsets.items():
            if queue in self._queues:
                self.seek(queue, offset)
                self._offsets.update(queue, offset, back=True)
        await self._offsets.persist([queue for queue in offsets if queue in self._queues])

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return where each queue stands."""
        standing = {queue: fetched.position for queue, fetched in self._queues.items() if queue.topic == topic}
        return {queue: position for queue, position in standing.items() if position is not None}

    def running_info(self) -> ConsumerRunningInfo:
        """Tell what the consumer is doing."""
        return polling_info(self.instance, [each.data() for each in self._subscriptions.values()], self.rewinds)

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Refuse: messages go to whoever polls."""
        return ConsumeDirectlyResult(consumeResult="CR_LATER", remark=f"{message.msg_id}: this consumer polls")

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosed("this consumer is not started, or was closed")

    def _fetched(self, queue: MessageQueue) -> FetchedQueue:
        fetched = self._queues.get(queue)
        if fetched is None:
            raise ConsumeError(f"{queue} is not assigned to this consumer")
        return fetched

    def _context(self) -> FetchContext:
        begin, arrived = self._begin, self._arrived.set
        return FetchContext(self.group, self.instance, self._limits, begin, arrived, self.rewinds, self._queues)

    async def _begin(self, queue: MessageQueue) -> int:
        since_ms, now_ms = self._timestamp_ms, time.time_ns() // 1_000_000
        since_ms = now_ms - HALF_HOUR_MS if since_ms is None else since_ms
        api, routes = self.instance.api, self.instance.routes
        return await starting_offset(self._offsets, api, routes, queue, self._from_where, since_ms)

    def _join(self) -> None:
        if self._balancer is None:
            options = BalanceOptions(self._model, self._strategy)
            self._balancer = Balancer(self.group, self.instance, self._subscriptions, options, self._apply)
            self._tasks.spawn(self._balancer.run(), "rebalance")
        else:
            self._balancer.soon()

    def _next_batch(self) -> list[MessageExt]:
        """Take from one queue after the other, so that none starves."""
        queues = list(self._queues.values())
        for step in range(len(queues)):
            fetched = queues[(self._turn + step) % len(queues)]
            messages = fetched.take(self._limits.count)
            if messages:
                self._turn = (self._turn + step + 1) % len(queues)
                self._hooks.handed_out(messages)
                return messages
        return []

    def _confirm(self) -> None:
        """Take what was returned so far as consumed."""
        for fetched in self._queues.values():
            fetched.acknowledge()

    def _note(self, fetched: FetchedQueue) -> None:
        """Note a queue's position to be stored, behind what was confirmed."""
        if fetched.acknowledged is not None:
            # A seek backwards is the application's wish.
            self._offsets.update(fetched.queue, fetched.acknowledged, back=True)

    async def _persist(self) -> list[MessageQueue]:
        """Store where all queues stand; returns those that could not be stored."""
        for fetched in self._queues.values():
            self._note(fetched)
        return await self._offsets.persist(list(self._queues))
