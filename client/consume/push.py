"""Consuming by callback: messages come to the application as they arrive."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from client.consume.assignment import Assignment
from client.consume.balancer import HAND_OVER_S, BalanceOptions, Balancer
from client.consume.caller import Callback, CallbackCaller, ListenerOptions
from client.consume.filters import check_filters
from client.consume.listeners import ConcurrentListener, OrderlyListener
from client.consume.offsets import (
    LocalOffsets,
    OffsetStore,
    RemoteOffsets,
    refresh_quietly,
    starting_offset,
)
from client.consume.options import check_start, limits_of, offset_path
from client.consume.push_queue import AssignedQueue, PullContext, PullLimits
from client.consume.queuelocks import QueueLocks
from client.consume.rebalance import Strategy, strategy_of
from client.consume.rewinds import Rewinds
from client.consume.runninginfo import running_info
from client.consume.subscription import Subscription, subscribe_to
from client.credentials import Credentials
from client.errors import ClientClosed, ConsumeError, RouteError, raises_client_errors
from client.hooks import ConsumeHook
from client.instance import ClientInstance
from client.lifecycle import Lifecycle, used_at_home
from client.message import ConsumeFrom, MessageModel
from client.options import count_of, group_of, number_of_seconds
from client.telemetry import PROCESS, telemetry_hooks
from client.trace.dispatcher import trace_topic
from client.trace.hooks import consume_hooks
from remoting.bodies.registry import ConsumeDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue
from remoting.errors import RemotingError
from remoting.message import MessageExt
from remoting.topics import retry_topic
from runtime.tasks import Tasks
from runtime.tls import ClientTls

_log = logging.getLogger(__name__)

COMMIT_S = 5.0
# How long start waits for the first share of queues, and close for callbacks that run.
START_S = 3.0
CLOSE_S = 5.0
HALF_HOUR_MS = 30 * 60 * 1000
# What brokers take when nothing is said.
ATTEMPTS_MAX_DEFAULT = 16
TOPICS_MAX = 1024


@raises_client_errors
@used_at_home
class PushConsumer(Lifecycle):
    """A member of a consumer group. Subscribe and set the callback before `start`; ``async with`` starts and closes.

    The callback gets a list of up to `batch` messages and returns ConsumeResult (None is SUCCESS) or RetryLater, or a
    list of these, one for each message; it may be a coroutine function, or plain, which then runs in one of
    `concurrency` threads. With `orderly` it sees each queue's messages one after the other, and what stands behind a
    failed one comes again too. `from_where` says where a group begins that has no offset stored (`timestamp_ms`: for
    TIMESTAMP, by default half an hour ago). A failed message comes again, at most `attempts_max` times (-1: 16, or in
    order without end), then it is a dead letter. BROADCASTING keeps offsets below `offset_dir`. `trace` (True, or a
    topic) writes message traces; `hooks` see every call of the callback. `credentials` sign all requests
    (client/credentials.py). `start` returns when the first queues are positioned, or after 3 s; `close`, and the end of
    ``async with``, wait up to `grace` s for callbacks that run.
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
        orderly: bool = False,
        concurrency: int = 20,
        batch: int = 1,
        consume_timeout: float = 15 * 60.0,
        attempts_max: int = -1,
        local_retry: float = 5.0,
        limits: PullLimits | None = None,
        strategy: Strategy | str = "AVG",
        offset_dir: Path | None = None,
        grace: float = CLOSE_S,
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
        self._orderly = orderly
        self._attempts_max = count_of("attempts_max", attempts_max, least=-1)
        self._limits = limits_of(limits, PullLimits())
        self._options = ListenerOptions(
            concurrency=concurrency,
            batch=batch,
            timeout_s=consume_timeout,
            gives_up=model is MessageModel.BROADCASTING,
            attempts_max=attempts_max if attempts_max >= 0 else 2**31 - 1,
            local_retry_s=local_retry,
        )
        self._strategy = strategy_of(strategy)
        self._hooks_given, self._trace_topic = tuple(hooks), trace_topic(trace)
        self._offset_path = offset_path(model, offset_dir, instance_name, group)
        self._subscriptions: dict[str, Subscription] = {}
        self._callback: Callback | None = None
        self._tasks = Tasks(f"consumer {group}")
        # Ends later than they do: locks are kept while a close lets callbacks end.
        self._renewing = Tasks(f"consumer {group} in order")
        self._started = False
        self._grace = number_of_seconds("grace", grace, 0.0)
        self.started_ms = 0
        # How often a broker sent this consumer below what it had stored.
        self.rewinds = Rewinds()

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> None:
        """Want a topic's messages: all (``"*"``), of tags (``"TagA || TagB"``), or by properties (``sql="a > 5"``).

        Raises ConsumeError. Brokers read SQL92; what they refuse is raised at the start.
        """
        wish = subscribe_to(topic, expression, sql, time.time_ns() // 1_000_000)
        if topic not in self._subscriptions and len(self._subscriptions) >= TOPICS_MAX:
            raise ConsumeError(f"a consumer takes {TOPICS_MAX} topics at most")
        self._subscriptions[topic] = wish
        self._changed()

    def unsubscribe(self, topic: str) -> None:
        """Want a topic's messages no more."""
        if self._subscriptions.pop(topic, None) is not None and self._started:
            self._assignment.drop_topic(topic)
        self._changed()

    def on_message(self, callback: Callback) -> None:
        """Set what is called with messages; raises ConsumeError for what cannot be called."""
        if not callable(callback):
            raise ConsumeError(f"the callback is {callback!r}: it takes a function of a list of messages")
        self._callback = callback

    async def _start(self) -> None:
        # Join the group; done when the first queues are positioned, or after START_S.
        if self._callback is None or not self._subscriptions:
            raise ConsumeError("a consumer needs a callback (on_message) and a topic (subscribe) before it starts")
        await self.instance.enter()
        self._undo.push_async_callback(self.instance.leave)
        if self._model is MessageModel.CLUSTERING:
            now_ms = time.time_ns() // 1_000_000
            topic = retry_topic(self.group)
            self._subscriptions[topic] = Subscription(topic, "*", frozenset(), now_ms)
        self.started_ms = time.time_ns() // 1_000_000
        self._build(self._callback)
        self._undo.push_async_callback(self._listener.close, 0.0)
        for topic in list(self._subscriptions):
            await refresh_quietly(self.instance.routes, topic)
        await check_filters(self.instance, self.group, list(self._subscriptions.values()))
        self._undo.push_async_callback(self._leave_group)
        await self.instance.add_consumer(self)
        self._started = True
        self._tasks.spawn(self._balancer.run(), "rebalance")
        self._tasks.every(COMMIT_S, self.commit, "commit")
        if self._orderly:
            self._renewing.spawn(self._locks.run(), "locks")
            self.instance.on_lost.append(self._locks.connection_lost)
            self._undo.callback(self.instance.on_lost.remove, self._locks.connection_lost)
        try:
            async with asyncio.timeout(START_S):
                await self._balancer.first_round.wait()
                for assigned in list(self._assignment.queues.values()):
                    await assigned.positioned.wait()
        except TimeoutError:
            _log.warning("group %s: not every queue could be reached yet; consumption begins as they can", self.group)

    async def close(self, grace: float | None = None) -> None:
        """Take no more messages, let callbacks end (up to `grace` s), store offsets, leave the group; see Lifecycle."""
        if self._closing is None and grace is not None:
            self._grace = grace
        await super().close()

    async def _close(self) -> None:
        if not self._started:
            return
        self._started = False
        queues = list(self._assignment.queues.values())
        for assigned in queues:
            assigned.retired = True
        await self._tasks.close()
        await asyncio.gather(*(assigned.stop_fetching() for assigned in queues))
        await self._listener.close(self._grace)
        await self._assignment.close(CLOSE_S)
        await self._renewing.close()
        await self._offsets.persist()
        for assigned in queues:
            assigned.unfinished.dropped = True
        if self._orderly:
            await self._give_locks_back([assigned.queue for assigned in queues])
        self._assignment.queues.clear()

    async def commit(self) -> None:
        """Store the offsets of all queues now."""
        if not self._started:
            raise ClientClosed("this consumer is not started, or was closed")
        await self._offsets.persist()

    def assigned(self) -> list[MessageQueue]:
        """Return the queues that this member has now, the retry topic's included."""
        return sorted(self._assignment.queues) if self._started else []

    # What the client instance and, through it, brokers ask for (serverrequests.ConsumerMember).

    def consumer_data(self) -> ConsumerData:
        """Return the consumer's part of the heartbeat."""
        return ConsumerData(
            groupName=self.group,
            consumeType="CONSUME_PASSIVELY",
            messageModel=self._model.value,
            consumeFromWhere=self._from_where.value,
            subscriptionDataSet=[subscription.data() for subscription in self._subscriptions.values()],
        )

    def topics(self) -> set[str]:
        """Return the subscribed topics."""
        return set(self._subscriptions)

    def rebalance_soon(self) -> None:
        """Share the queues anew, now."""
        self._balancer.soon()

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, as far as the queues are this member's."""
        for queue, offset in offsets.items():
            assigned = self._assignment.queues.get(queue)
            if assigned is not None:
                await assigned.stop()
                self._offsets.update(queue, offset, back=True)
                await self._offsets.persist([queue])
                await assigned.restart(offset)

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets that would be stored now."""
        noted = {queue: self._offsets.noted(queue) for queue in self._assignment.queues if queue.topic == topic}
        return {queue: offset for queue, offset in noted.items() if offset is not None}

    def running_info(self) -> ConsumerRunningInfo:
        """Tell what the consumer is doing."""
        return running_info(
            self.instance,
            [subscription.data() for subscription in self._subscriptions.values()],
            list(self._assignment.queues.values()),
            self._caller.counters,
            self.rewinds,
            started_ms=self.started_ms,
            orderly=self._orderly,
            concurrency=self._options.concurrency,
            locked=self._locks.held if self._orderly else None,
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Hand one message to the callback, whoever owns its queue."""
        began = time.monotonic()
        consumed = await self._caller.call([message])
        return ConsumeDirectlyResult(
            order=self._orderly,
            consumeResult="CR_SUCCESS" if consumed else "CR_LATER",
            spentTimeMills=round((time.monotonic() - began) * 1000),
        )

    def _build(self, callback: Callback) -> None:
        """Make the parts, now that a loop runs."""
        hooks = [*telemetry_hooks(PROCESS), *self._hooks_given]
        given = consume_hooks(self.group, self.instance, hooks, self._trace_topic, self._undo)
        self._caller = CallbackCaller(callback, self._options, self, given)
        self._offsets: OffsetStore = (
            LocalOffsets(self._offset_path)
            if self._offset_path is not None
            else RemoteOffsets(self.group, self.instance.api, self.instance.routes, self.instance.be_known)
        )
        self._locks = QueueLocks(self.group, self.instance, self._lock_lost)
        locks_needed = self._orderly and self._model is MessageModel.CLUSTERING
        self._listener: ConcurrentListener | OrderlyListener = (
            OrderlyListener(
                self._caller,
                self._options,
                self._send_back,
                lambda assigned: not locks_needed or self._locks.held(assigned.queue),
            )
            if self._orderly
            else ConcurrentListener(self._caller, self._options, self._send_back)
        )
        context = PullContext(
            group=self.group,
            instance=self.instance,
            offsets=self._offsets,
            limits=self._limits,
            deliver=self._listener.deliver,
            begin=self._begin,
            admit=self._locks.acquire if locks_needed else None,
            in_order=self._orderly,
            rewinds=self.rewinds,
        )
        self._assignment = Assignment(context, self._released)
        self._balancer = Balancer(
            self.group,
            self.instance,
            self._subscriptions,
            BalanceOptions(self._model, self._strategy, asks_mode=not self._orderly),
            self._assignment.apply,
        )

    async def _begin(self, queue: MessageQueue) -> int:
        timestamp_ms = self._timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self.started_ms - HALF_HOUR_MS
        api, routes = self.instance.api, self.instance.routes
        return await starting_offset(self._offsets, api, routes, queue, self._from_where, timestamp_ms)

    async def _released(self, assigned: AssignedQueue) -> None:
        """Hand a queue over: its offset first, then its lock."""
        if isinstance(self._listener, OrderlyListener):
            # A callback that runs may end; nothing of the queue begins after it.
            self._listener.retire(assigned.unfinished)
            await self._listener.idle(assigned.queue)
        else:
            await self._listener.hand_over(assigned.unfinished, HAND_OVER_S)
        await self._offsets.persist([assigned.queue])
        assigned.unfinished.dropped = True
        self._offsets.forget(assigned.queue)
        if self._orderly:
            await self._locks.release([assigned.queue])

    async def _give_locks_back(self, queues: list[MessageQueue]) -> None:
        """Release the locks of queues whose callback has ended; brokers let go of the others by themselves."""
        assert isinstance(self._listener, OrderlyListener)
        busy = [queue for queue in queues if self._listener.busy(queue)]
        if busy:
            _log.warning("group %s: callbacks still run, so their locks are left to expire: %s", self.group, busy)
        await self._locks.release([queue for queue in queues if queue not in busy])

    async def _leave_group(self) -> None:
        callbacks_run = isinstance(self._listener, OrderlyListener) and self._listener.any_busy
        await self.instance.remove_consumer(self, keeps_locks=callbacks_run)

    async def _lock_lost(self, queue: MessageQueue) -> None:
        assigned = self._assignment.queues.get(queue)
        if assigned is not None:
            await assigned.restart()

    async def _send_back(self, message: MessageExt, level: int) -> bool:
        routes = self.instance.routes
        route = routes.cached(message.topic)
        address = route.for_writing(message.broker_name) if route is not None else None
        if address is None and (replicas := routes.brokers().get(message.broker_name)):
            address = replicas[min(replicas)]
        if address is None:
            return False
        most = self._attempts_max if self._attempts_max >= 0 else ATTEMPTS_MAX_DEFAULT
        try:
            await self.instance.api.send_back(address, self.group, message, level, most)
        except (RemotingError, RouteError) as error:
            _log.warning(
                "group %s: message %s cannot be sent back and is consumed again here in %s s: %s",
                self.group,
                message.msg_id,
                self._options.local_retry_s,
                error,
            )
            return False
        if not any(queue.topic == retry_topic(self.group) for queue in self._assignment.queues):
            # The broker may just have made the retry topic: do not wait for the next poll to find it.
            self.rebalance_soon()
        return True

    def _changed(self) -> None:
        """Let brokers and the next round know of a changed subscription."""
        if self._started:
            self._tasks.spawn(self.instance.heartbeat(), "subscription changed")
            self._balancer.soon()
