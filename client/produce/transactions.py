"""Sending in transactions: a message becomes visible when, and only when, a local transaction has committed.

The half message is stored first, where no consumer sees it; then the local part runs; then END_TRANSACTION (37) tells
the broker to deliver it or to forget it. Who dies in between is asked later: the broker's CHECK_TRANSACTION_STATE (39)
goes to any live producer of the group, and `on_check` answers from what the local transaction has left.
"""

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any, TypedDict, Unpack, cast

from client.compression import Codec
from client.credentials import Credentials
from client.errors import ClientClosed, ClientError, MessageRefused, RouteError, SendFailed
from client.hooks import SendHook
from client.instance import ClientInstance
from client.message import PROPERTIES_BYTES_MAX, Message, SendStatus
from client.produce.arguments import seconds
from client.produce.batching import Batching
from client.produce.checks import CheckAnswers
from client.produce.outgoing import Outgoing, Selector
from client.produce.producer import Producer
from client.produce.transaction import (
    CHECK_IMMUNITY,
    CheckListener,
    HalfMessage,
    LocalPart,
    Transaction,
    TransactionResult,
    TransactionState,
    end_header,
    half_message,
)
from client.retry import with_retries
from client.trace.ends import end_of
from remoting.bodies.registry import MessageQueue
from remoting.codes import MessageSysFlag, RequestCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.topics import AUTO_CREATE_TOPIC
from runtime.tls import ClientTls

_log = logging.getLogger(__name__)

# Pauses between looks for the routes that tell which brokers are to know this producer, until all are known.
LOOK_S = 5.0
# How long an attempt to tell an end waits for a newer route.
ROUTE_S_MAX = 0.5
CHECKS_AT_A_TIME_MAX = 256
# How often an end is tried to be told to a broker whose connection ended under it; who is not reached is not counted.
TELL_ATTEMPTS = 3


class ProducerOptions(TypedDict, total=False):
    """What a TransactionProducer takes of a Producer's options."""

    send_timeout: float
    retries: int
    compress_over: int
    codec: Codec
    max_message_bytes: int
    default_topic_queues: int
    latency_tolerance: bool
    detector: bool
    retry_weak: bool
    batching: Batching | None
    trace: bool | str
    hooks: Sequence[SendHook]
    idempotent: bool
    in_flight_max: int
    in_flight_bytes_max: int
    tls: bool | ClientTls | None
    instance_name: str | None
    instance: ClientInstance | None
    credentials: Credentials | None


class _Where(TypedDict):
    queue: MessageQueue | None
    selector: Selector | None
    arg: Any


class TransactionProducer(Producer):
    """Sends messages in transactions, beside what a Producer does.

        async with producer.transaction(Message("orders", b"…")) as tx:
            ...  # the local transaction; it stores tx.transaction_id

    The block's end commits, an exception rolls back and goes on to the caller. What ended the block from outside (a
    cancellation, a timeout around it, Ctrl-C, sys.exit) leaves it unknown: whether a commit under way came about, the
    check finds out.

    `on_check(message)`, a coroutine function or a plain one (run in threads of its own), answers brokers that ask of a
    transaction, also of one of another producer of the group, long ago: COMMIT when the local transaction
    `message.msg_id` is there, ROLLBACK when it is not and never will be, else UNKNOWN. One that raises, or takes longer
    than `check_timeout` s, counts as UNKNOWN: the broker asks again, 15 times. `check_concurrency` of them run at a
    time; 2,000 more checks (and 64 MiB of bodies) wait, and others are left for the broker to ask again. Of a
    transaction whose local part still runs in this producer UNKNOWN is answered without asking.

    `topics`: where halves of this group may be, besides the brokers of the default topic: their brokers know this
    producer from its start on, so that checks of what an earlier process left find it before it sends anything.
    """

    noun = "transaction producer"

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *,
        on_check: CheckListener,
        check_concurrency: int = 4,
        check_timeout: float = 30.0,
        topics: Sequence[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`options` are Producer's."""
        if not callable(on_check):
            raise ClientError(f"on_check is {on_check!r}: it takes a function of a message")
        if type(check_concurrency) is not int or not 1 <= check_concurrency <= CHECKS_AT_A_TIME_MAX:
            raise ClientError(f"check_concurrency is {check_concurrency!r}: it takes 1 to {CHECKS_AT_A_TIME_MAX}")
        if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
            raise ClientError(f"the topics are {topics!r}: it takes a sequence of names")
        super().__init__(group, namesrv, **options)
        self._on_check = on_check
        self._check_concurrency = check_concurrency
        self._check_timeout = seconds(check_timeout, 30.0)
        self._topics = (*topics, AUTO_CREATE_TOPIC)
        self._answers: CheckAnswers | None = None
        # Transactions whose local part runs here, or whose end is being told; and those tellings.
        self._open: set[str] = set()
        self._telling: set[asyncio.Task[None]] = set()

    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
        check_after: float | timedelta | None = None,
        on_error: TransactionState = TransactionState.ROLLBACK,
    ) -> AbstractAsyncContextManager[Transaction]:
        """Return what ``async with`` makes a transaction of: the half message is sent on entry, the end told on exit.

        `timeout` (s) bounds each of the two. `check_after` (s): no check before so long, for local parts that take
        longer than the broker's `transactionTimeOut` (6 s); an end that is told later than that is left to the check.
        `on_error` is told when the block raises.
        Entering raises what `send` does, and SendFailed when the half message is stored less safely than configured:
        it is rolled back then, as RocketMQ does. Leaving raises nothing of its own: an end that nobody could be told is
        logged and `told` is False: the broker asks for it.
        """
        where = _Where(queue=queue, selector=selector, arg=arg)
        return _Block(lambda: self._begin(message, where, timeout, check_after), self._end, on_error)

    async def send_in_transaction(
        self,
        message: Message,
        execute: LocalPart,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
        check_after: float | timedelta | None = None,
    ) -> TransactionResult:
        """Send a message in a transaction whose local part is `execute(transaction)`, and returns its state.

        A plain function runs in a thread. When it raises, or returns no TransactionState, nobody knows how far it came:
        the state is UNKNOWN, the broker asks, and the error goes on to the caller. Otherwise as `transaction`.
        """
        self._check_home()
        if not callable(execute):
            raise MessageRefused(f"the local part is {execute!r}: it takes a function of the transaction")
        block = self.transaction(
            message,
            queue=queue,
            selector=selector,
            arg=arg,
            timeout=timeout,
            check_after=check_after,
            on_error=TransactionState.UNKNOWN,
        )
        async with block as tx:
            tx.state = await _executed(execute, tx)
        return tx.result

    async def _start(self) -> None:
        await super()._start()
        if self.group in self.instance.checkers:
            raise ClientError(
                f"this client instance has a transaction producer of group {self.group} already: use another one"
            )
        self._answers = CheckAnswers(
            self.group,
            self._on_check,
            concurrency=self._check_concurrency,
            timeout_s=self._check_timeout,
            open_here=self._open.__contains__,
            client=self,
            trace=self._extras.trace,
        )
        self.instance.checkers[self.group] = self._answers
        self._tasks.spawn(self._be_known(), "routes of transactions")

    async def _close(self) -> None:
        answers, self._answers = self._answers, None
        if answers is not None:
            del self.instance.checkers[self.group]
            await answers.close()
        if self._telling:
            await asyncio.wait(self._telling)
        await super()._close()

    def _pack(self, message: Message | Sequence[Message]) -> Outgoing:
        if not isinstance(message, HalfMessage):
            return super()._pack(message)
        out = super()._pack(message.message)
        try:
            _prepare(out, message)
        except MessageRefused as error:
            self._extras.hooks.end(out.sendings, error=error)
            raise
        return out

    async def _begin(
        self, message: Message, where: _Where, timeout: float | None, check_after: float | timedelta | None
    ) -> tuple[Transaction, float]:
        """Store a half message; returns the transaction, and how long telling its end may take."""
        bound = seconds(timeout, self._timeout)
        half = half_message(self.group, message, check_after)
        # Packed as what it is, by _pack; whoever selects its queue sees the application's own message.
        sent = await self.send(cast(Message, half), timeout=bound, **where)
        tx = Transaction(half.message, sent)
        if sent.status is SendStatus.SEND_OK:
            self._open.add(tx.transaction_id)
            return tx, bound
        await asyncio.wait([self._end(tx, TransactionState.ROLLBACK, bound)])
        raise SendFailed(
            f"the half message of topic {half.message.topic} was stored less safely than configured "
            f"({sent.status.name}): it is rolled back, and the local part was not begun",
            sent=True,
        )

    def _end(self, tx: Transaction, state: TransactionState, timeout: float) -> asyncio.Task[None]:
        """Begin to tell the end; it is told whatever becomes of who waits for it, for it is decided."""
        tx.state = state
        telling = self._tasks.spawn(self._tell(tx, timeout), f"end of transaction {tx.transaction_id}")
        self._telling.add(telling)

        def told(ended: asyncio.Task[None]) -> None:
            self._telling.discard(ended)
            self._open.discard(tx.transaction_id)

        telling.add_done_callback(told)
        return telling

    async def _tell(self, tx: Transaction, timeout: float) -> None:
        broker, topic = tx.half.queue.brokerName, tx.message.topic
        deadline = time.monotonic() + timeout
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            if self._packer is None:
                raise ClientClosed("the producer was closed")
            if attempts > 1:
                # Another member of its group may lead now.
                with contextlib.suppress(RouteError, TimeoutError):
                    async with asyncio.timeout(min(ROUTE_S_MAX, max(deadline - time.monotonic(), 0.0))):
                        await self._routes.refresh(topic)
            route = self._routes.cached(topic)
            address = route.master(broker) if route is not None else None
            if address is None:
                raise RouteError(f"broker {broker} has no master in the route of topic {topic}", retriable=True)
            request = Command.request(RequestCode.END_TRANSACTION, end_header(self.group, tx), oneway=True)
            # Half of the time: one that cannot be connected to may have a successor.
            await self._remoting.oneway(address, request, max((deadline - time.monotonic()) / 2, 0.001))
            if (trace := self._extras.trace) is not None and trace.wanted_by(broker):
                half, state = tx.half, tx.state.value
                trace.add(end_of(self.group, tx.message, half.msg_id, tx.transaction_id, address, state))

        try:
            await with_retries(attempt, attempts=TELL_ATTEMPTS, deadline=deadline)
            tx.told = True
        except (RemotingError, ClientError, ValueError) as error:
            _log.warning(
                "transaction %s: broker %s could not be told of its %s, and will ask for it: %s",
                tx.transaction_id, broker, tx.state.name.lower(), error,
            )  # fmt: skip

    async def _be_known(self) -> None:
        """Learn the routes of the topics; their brokers get a heartbeat then, and the instance keeps them in mind."""
        while True:
            for topic in self._topics:
                if self._routes.cached(topic) is None:
                    with contextlib.suppress(RouteError):
                        await self._routes.refresh(topic)
            await asyncio.sleep(LOOK_S)


class _Block(AbstractAsyncContextManager[Transaction]):
    """One use of ``async with producer.transaction(…)``."""

    def __init__(
        self,
        begin: Callable[[], Awaitable[tuple[Transaction, float]]],
        end: Callable[[Transaction, TransactionState, float], asyncio.Task[None]],
        on_error: TransactionState,
    ) -> None:
        self._begin = begin
        self._end = end
        self._on_error = on_error
        self._begun: tuple[Transaction, float] | None = None

    async def __aenter__(self) -> Transaction:
        if self._begun is not None:
            raise ClientError("this transaction was begun before: make another one")
        if not isinstance(self._on_error, TransactionState):
            raise MessageRefused(f"on_error is {self._on_error!r}: it takes a TransactionState")
        self._begun = await self._begin()
        return self._begun[0]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._begun is not None, "it was entered"
        tx, bound = self._begun
        if error is None or isinstance(error, Exception):
            # Not a plain await: nothing that ends the telling is an error of the application's.
            await asyncio.wait([self._end(tx, tx.state if error is None else self._on_error, bound)])
        else:
            # From outside, in the midst of whatever it was: nobody knows, and nobody waits for anything now.
            self._end(tx, TransactionState.UNKNOWN, bound)


async def _executed(execute: LocalPart, tx: Transaction) -> TransactionState:
    target = execute if inspect.isroutine(execute) else type(execute).__call__
    answer = execute(tx) if inspect.iscoroutinefunction(target) else await asyncio.to_thread(execute, tx)
    return decided(await answer if inspect.isawaitable(answer) else answer)


def decided(state: Any) -> TransactionState:
    """Return what a local part has returned; raises MessageRefused when that is no TransactionState."""
    if not isinstance(state, TransactionState):
        raise MessageRefused(f"the local part returned {state!r}: it takes a TransactionState; the broker will ask")
    return state


def _prepare(out: Outgoing, half: HalfMessage) -> None:
    """Make a message that is packed a half message; raises MessageRefused."""
    if half.message.delayed:
        raise MessageRefused("a message with a delay cannot be sent in a transaction: commit it when it is due")
    if CHECK_IMMUNITY in half.message.properties and CHECK_IMMUNITY in half.more:
        raise MessageRefused(f"the message has the property {CHECK_IMMUNITY} as well as `check_after`")
    out.properties += half.more
    size = len(out.properties.encode())
    if size > PROPERTIES_BYTES_MAX:
        raise MessageRefused(
            f"the properties take {size} bytes with those of a half message, {PROPERTIES_BYTES_MAX} at most: "
            f"put data in the body"
        )
    out.sys_flag |= MessageSysFlag.TRANSACTION_PREPARED
