"""Sending. The first attempt costs no task; whatever goes wrong is carried on by one, under the retry policy."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from client.api import FORWARDED
from client.compression import Codec
from client.credentials import Credentials
from client.errors import (
    ClientClosed,
    ClientError,
    MessageRefused,
    RouteError,
    SendBacklogFull,
    SendFailed,
)
from client.flight import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, Flight
from client.hooks import SendHook
from client.instance import ClientInstance
from client.message import BODY_BYTES_MAX, STATUS_BY_CODE, Message, SendResult
from client.options import count_of, group_of, number_of_seconds
from client.produce.arguments import check_choice, pack_options, seconds, selected
from client.produce.batching import Batching
from client.produce.extras import SendExtras, detect
from client.produce.hooked import Gathered
from client.produce.latency import LatencyTable
from client.produce.outgoing import Outgoing, Packer, Selector
from client.produce.recalls import RecallingClient
from client.produce.requester import Requester
from client.produce.routenews import RouteNews
from client.produce.sendpolicy import QueuePicker
from client.retry import with_retries
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue
from remoting.command import Command
from remoting.errors import InvokeError, RemotingError, ResponseError
from remoting.headers.registry import SendMessageResponseHeader
from remoting.msgid import UniqKeys
from runtime.clock import SystemClock
from runtime.tasks import Tasks
from runtime.tls import ClientTls

# By so much may a send outlive its deadline, whatever goes wrong.
DEADLINE_GRACE_S = 0.5


class Producer(Requester, RecallingClient):
    """Sends messages of one producer group. Use as ``async with Producer(...) as producer``.

    `send_timeout` (s) bounds a send with all its attempts; `retries` is how often an attempt that reached a broker
    is repeated (with 0, not even an unreachable one is tried again); bodies longer than `compress_over` bytes are
    compressed by `codec`; `latency_tolerance` leaves slow brokers alone for a while, and with `detector` unreachable
    ones until a probe reaches them; `retry_weak` sends again, to another broker, what was stored less safely than
    asked; `batching` lets messages wait for others; `trace` (True, or a topic) writes message traces; `hooks` see every
    send. A topic that does not exist is created with `default_topic_queues` queues where brokers allow it. `idempotent`
    asks brokers to answer a repeated attempt with the first one's result. `credentials` sign
    all requests (client/credentials.py). `close` waits for what is on its way.
    """

    noun = "producer"

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *,
        send_timeout: float = 3.0,
        retries: int = 2,
        compress_over: int = 4096,
        codec: Codec = Codec.ZLIB,
        max_message_bytes: int = BODY_BYTES_MAX,
        default_topic_queues: int = 4,
        latency_tolerance: bool = False,
        idempotent: bool = True,
        detector: bool = False,
        retry_weak: bool = False,
        batching: Batching | None = None,
        trace: bool | str = False,
        hooks: Sequence[SendHook] = (),
        in_flight_max: int = IN_FLIGHT_MAX,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        tls: bool | ClientTls | None = None,
        instance_name: str | None = None,
        instance: ClientInstance | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.group = group_of(group, ClientError)
        self.instance = instance or ClientInstance(
            namesrv,
            instance_name=instance_name,
            tls=tls,
            in_flight_max=in_flight_max,
            in_flight_bytes_max=in_flight_bytes_max,
            credentials=credentials,
        )
        self._timeout = number_of_seconds("send_timeout", send_timeout, 0.0)
        self._attempts = 1 + count_of("retries", retries, least=0)
        self._default_queues = count_of("default_topic_queues", default_topic_queues)
        self._latency = LatencyTable(SystemClock(), detected=detector) if latency_tolerance or detector else None
        self._picker = QueuePicker(self._latency)
        self._pack_options = pack_options(compress_over, max_message_bytes, codec, idempotent=idempotent)
        self._packer: Packer | None = None
        self._flight = Flight(in_flight_max, in_flight_bytes_max, self.instance.flight)
        self._retry_weak = retry_weak
        self._extras = SendExtras(group, batching, trace, hooks)
        self._drained: asyncio.Future[None] | None = None
        self._tasks = Tasks(f"producer {group}")

    async def _start(self) -> None:
        # Brokers are contacted with the first message to each.
        await self.instance.enter()
        self._undo.push_async_callback(self.instance.leave)
        over, most, codec, once = self._pack_options
        keys = UniqKeys(self.instance.ip)
        packer = Packer(keys, compress_over=over, body_bytes_max=most, codec=codec, idempotent=once)
        self.instance.add_producer(self.group)
        self._undo.push_async_callback(self.instance.remove_producer, self.group)
        self._loop = asyncio.get_running_loop()
        self._routes, self._remoting = self.instance.routes, self.instance.remoting
        self._news = RouteNews(self.instance, self._default_queues, self._tasks.spawn)
        self._extras.start(self.instance, self._flight, self._send_gathered, most, self._tasks, self._undo)
        detect(self._latency, self.instance, self._tasks)
        self._packer = packer

    async def _close(self) -> None:
        # Take no more messages, and wait for those on their way: each has a deadline.
        await self._extras.close()
        self._packer = None
        self._flight.wake_all()
        if self._flight.count:
            self._drained = self._loop.create_future()
            await self._drained
        await self._tasks.close()

    async def send(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, or several as one batch, and wait until a broker has acknowledged it.

        `queue` names the queue; `selector` chooses among the topic's queues by the message and `arg`: always the same
        one keeps the order. Raises MessageRefused, RouteError, SendFailed, ClientClosed.
        """
        timeout = seconds(timeout, self._timeout)
        self._check_home()
        if self._flight.full:
            began = time.monotonic()
            # When there is still no room in time, send_async says so.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.room()
            timeout -= time.monotonic() - began
        return await self.send_async(message, queue=queue, selector=selector, arg=arg, timeout=timeout)

    def send_async(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send without waiting: the future has the result or the error that `send` would raise.

        For a callback use the future's ``add_done_callback``. With too many sends unanswered the future fails at once
        with SendBacklogFull: ``await producer.room()`` before sending on.
        """
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        try:
            self._check_home()
            bound = seconds(timeout, self._timeout)
            check_choice(queue, selector)
            batcher = self._extras.batcher
            if self._flight.full:
                raise SendBacklogFull(f"{self._flight.describe()}: await producer.room()")
            if batcher is not None and self._packer is not None and batcher.takes(message, selector):
                return batcher.add(message, queue, bound)
            out = self._pack(message)
        except ClientError as error:
            future.set_exception(error)
            return future
        self._flight.enter(len(out.body))
        out.future, out.queue, out.selector, out.arg = future, queue, selector, arg
        out.deadline = out.started + bound
        self._launch(out)
        return future

    async def _send_gathered(self, gathered: Gathered, *, queue: MessageQueue | None, timeout: float) -> SendResult:
        """Send what waited in a batch: its messages are counted as on their way already, and need no room."""
        out = self._pack(gathered)
        out.counted = False
        out.future, out.queue = asyncio.get_running_loop().create_future(), queue
        out.deadline = out.started + timeout
        self._launch(out)
        return await out.future

    def _launch(self, out: Outgoing) -> None:
        """Begin the first attempt of a send; its future is told how it ends."""
        route = self._routes.cached(out.topic)
        if route is None or not route.write_queues:
            self._tasks.spawn(self._carry(out, None), "send")
            return
        try:
            chosen, answer = self._submit(out, route)
        except BaseException as error:
            self._settle_failed(out, error)
            if not isinstance(error, Exception):
                # Such as a selector's sys.exit().
                raise
        else:
            answer.add_done_callback(partial(self._answered, out, chosen))

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, selector: Selector | None = None, arg: Any = None
    ) -> None:
        """Send without an acknowledgement: fast, and nobody notices a loss. Raises what `send` does before sending.

        Waits, up to the producer's `send_timeout`, while the broker does not take what it was sent before.
        """
        self._check_home()
        check_choice(queue, selector)
        out = self._pack(message)
        out.queue, out.selector, out.arg = queue, selector, arg
        out.deadline = out.started + self._timeout
        with self._extras.hooks.around(out):
            route = await self._news.in_time(out)
            chosen = self._choose(out, route)
            request = out.request(self.group, chosen, self._default_queues, oneway=True)
            left = max(out.deadline - time.monotonic(), 0.001)
            try:
                await self._remoting.oneway(self._address(route, chosen, None), request, left)
            except RemotingError as error:
                raise SendFailed(f"one-way send to topic {out.topic}: {error}", sent=False) from error

    async def room(self) -> None:
        """Wait until one more send may be on its way."""
        self._check_loop()
        while self._packer is not None and self._flight.full:
            await self._flight.room()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a selector would be given; raises RouteError."""
        self._check_home()
        return list((await self._routes.find_for_send(topic, self._default_queues)).write_queues)

    def _pack(self, message: Message | Sequence[Message]) -> Outgoing:
        if self._packer is None:
            raise ClientClosed("this producer is not started, or was closed")
        return self._packer.pack(message, self._extras.hooks)

    def _submit(self, out: Outgoing, route: TopicRoute) -> tuple[MessageQueue, asyncio.Future[Command]]:
        """Begin one attempt; raises ClientError when there is nowhere to send it."""
        queue = self._choose(out, route)
        out.attempts += 1
        out.assumed = route.assumed
        out.attempted = time.monotonic()
        left = out.deadline - out.attempted
        # A broker that hangs must leave time for another attempt, if there may be one.
        timeout = left if out.attempts >= self._attempts or out.queue is not None else left / 2
        request = out.request(self.group, queue, self._default_queues)
        out.address = self._address(route, queue, out.avoid)
        return queue, self._remoting.submit(out.address, request, max(timeout, 0.001))

    def _choose(self, out: Outgoing, route: TopicRoute) -> MessageQueue:
        if out.queue is None and out.selector is not None:
            queues = list(route.write_queues)
            try:
                chosen = out.selector(queues, out.message, out.arg)
            except Exception as error:
                raise MessageRefused(f"the queue selector failed: {type(error).__name__}: {error}") from error
            out.queue = selected(chosen, route.write_queues)
        return out.queue or self._picker.pick(out.topic, *out.choice(route.write_queues))

    def _address(self, route: TopicRoute, queue: MessageQueue, avoid: str | None) -> str:
        address = route.for_writing(queue.brokerName, avoid)
        if address is None:
            raise RouteError(f"broker {queue.brokerName} of topic {route.topic} is in no route now", retriable=True)
        return address

    def _answered(self, out: Outgoing, queue: MessageQueue, answer: asyncio.Future[Command]) -> None:
        """End a first attempt; on anything but success the retry policy takes over."""
        try:
            result = self._result(out, queue, answer.result())
        except (RemotingError, ClientError) as error:
            self._note_failure(out, queue, error)
            if self._attempts > 1:
                self._tasks.spawn(self._carry(out, error), "send again")
            else:
                self._settle_failed(out, error)
        except asyncio.CancelledError:
            self._settle_failed(out, ClientClosed("the client was closed before the answer came"))
        except Exception as error:
            self._settle_failed(out, error)
        else:
            self._settle(out, result)

    def _result(self, out: Outgoing, queue: MessageQueue, answer: Command) -> SendResult:
        """Read an answer; raises ResponseError for a refusal."""
        status = STATUS_BY_CODE.get(answer.code)
        if status is None:
            raise ResponseError(answer.code, answer.remark, queue.brokerName)
        out.may_be_stored = True  # whatever becomes of reading where
        place = answer.header(SendMessageResponseHeader)
        if FORWARDED in answer.ext:
            self._news.passed_on(out.topic)
        if self._latency is not None:
            self._latency.answered(queue.brokerName, (time.monotonic() - out.attempted) * 1000)
        where = queue if place.queueId == queue.queueId else MessageQueue(queue.topic, queue.brokerName, place.queueId)
        result = SendResult(
            status, out.msg_id, place.msgId, where, place.queueOffset, place.transactionId, place.recallHandle
        )
        out.answer = answer.ext
        if self._retry_weak:
            out.want_better(result, queue.brokerName)
        return result

    async def _carry(self, out: Outgoing, failed: BaseException | None) -> None:
        """See a send through: from its first attempt, or from the error that the first one ended with."""

        async def attempt() -> SendResult:
            nonlocal failed
            if failed is not None:
                error, failed = failed, None
                raise error
            return await self._attempt(out)

        try:
            # Each step has its bound; this one is for whatever nobody has thought of.
            async with asyncio.timeout(max(out.deadline - time.monotonic(), 0.0) + DEADLINE_GRACE_S):
                result = await with_retries(
                    attempt,
                    attempts=self._attempts,
                    deadline=out.deadline,
                    again=out.again,
                    at_once=lambda: out.attempts == 1 and self._has_other_broker(out),
                )
        except asyncio.CancelledError:
            out.may_be_stored |= out.attempts > 0
            self._settle_failed(out, ClientClosed("the producer was closed before the message was sent"))
            raise
        except BaseException as error:
            self._settle_failed(out, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._settle(out, result)

    async def _attempt(self, out: Outgoing) -> SendResult:
        queue, answer = self._submit(out, await self._news.in_time(out))
        try:
            return self._result(out, queue, await answer)
        except InvokeError as error:
            self._note_failure(out, queue, error)
            raise

    def _note_failure(self, out: Outgoing, queue: MessageQueue, error: BaseException) -> None:
        out.failed(queue, error)
        self._picker.failed(queue.brokerName, error)

    def _has_other_broker(self, out: Outgoing) -> bool:
        route = self._routes.cached(out.topic)
        return route is not None and any(queue.brokerName != out.failed_broker for queue in route.write_queues)

    def _settle(self, out: Outgoing, result: SendResult) -> None:
        if out.future is not None and not out.future.done():
            out.future.set_result(result)
        self._leave_flight(out)
        self._extras.hooks.ended(out, result)
        if out.assumed:
            self._news.created(out.topic)

    def _settle_failed(self, out: Outgoing, error: BaseException) -> None:
        if out.weak is not None:
            self._settle(out, out.weak)
            return
        told = out.explained(error)
        if out.future is not None and not out.future.done():
            out.future.set_exception(told)
        self._leave_flight(out)
        self._extras.hooks.ended(out, error=told)

    def _leave_flight(self, out: Outgoing) -> None:
        if out.counted:
            self._flight.leave(len(out.body))
        if not self._flight.count and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
