"""Automatic batching: messages that are sent one by one travel together, as RocketMQ's ProduceAccumulator has it.

Messages of one topic and queue wait for up to `linger_ms` or until `batch_bytes` are there. Each of their senders gets
a result of its own. What no batch can hold goes alone and at once: delayed and timer messages, half messages, those
with a priority or for a retry topic, replies, sends with a selector, long ones, and all of them while `total_bytes`
wait already.

All of them count against the bounds of what is on its way, from the call to the answer, as a message does that goes
alone; and so do the bytes of `total_bytes`, as RocketMQ has it.
"""

import asyncio
import math
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

from client.errors import MessageRefused
from client.flight import Flight
from client.hooks import SendCall
from client.message import BATCH_ENTRY_BYTES, Message, SendResult, alone_because, check_message
from client.produce.hooked import Gathered, SendHooks, split_result
from remoting.bodies.registry import MessageQueue
from runtime.tasks import Tasks

# RocketMQ's bounds and defaults.
LINGER_MS_MAX = 30_000
BATCH_BYTES_MAX = 2 * 1024 * 1024
# Longer timeouts, infinite ones too, are taken for this: eleven days.
TIMEOUT_S_MAX = 1_000_000.0
PLACEHOLDER = "0" * 56  # as long as the longest unique key


class SendBatch(Protocol):
    """Sends a batch, as Producer.send, but without waiting for room."""

    def __call__(
        self, message: Gathered, /, *, queue: MessageQueue | None, timeout: float
    ) -> Coroutine[Any, Any, SendResult]:
        """Send it within `timeout` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Batching:
    """What a Producer's `batching` is: how long messages wait for others (ms), and how many bytes at most.

    `linger_ms` is 1 to 30,000, `batch_bytes` 1 to 2 MiB; `total_bytes` is what may
    wait in all batches together, until they are answered.
    Raises ValueError for what is none.
    """

    linger_ms: int = 10
    batch_bytes: int = 32 * 1024
    total_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        for name, most in (("linger_ms", LINGER_MS_MAX), ("batch_bytes", BATCH_BYTES_MAX), ("total_bytes", math.inf)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
                raise ValueError(f"{name} is {value!r}: it takes a whole number from 1 to {most}")


@dataclass(slots=True)
class _Waiting:
    """One message, and who waits for it."""

    message: Message
    sendings: tuple[SendCall, ...]
    future: "asyncio.Future[SendResult]"


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages that travel together: `size` bytes on the wire, `body_bytes` of bodies."""

    deadline: float
    timer: asyncio.TimerHandle | None = None
    size: int = 0
    body_bytes: int = 0
    waiting: list[_Waiting] = field(default_factory=list)


class Batcher:
    """The batches of one producer that are being gathered or sent."""

    def __init__(
        self,
        options: Batching,
        hooks: SendHooks,
        flight: Flight,
        send: SendBatch,
        body_bytes_max: int,
        tasks: Tasks,
    ) -> None:
        self._options = options
        self._hooks = hooks
        self._flight = flight
        self._send = send
        self._body_bytes_max = body_bytes_max
        self._tasks = tasks
        self._batches: dict[tuple[str, MessageQueue | None, bool, float], _Batch] = {}
        self._bytes = 0
        self._sending: set[asyncio.Task[None]] = set()
        self._closing = False

    def takes(self, message: Any, selector: object) -> TypeGuard[Message]:
        """Tell whether a message may wait for others; what is not even well formed goes alone, and is refused."""
        if self._closing or selector is not None or not isinstance(message, Message):
            return False
        if self._bytes >= self._options.total_bytes or not isinstance(message.body, bytes):
            return False
        if not isinstance(message.properties, dict) or not isinstance(message.topic, str):
            return False
        return len(message.body) < self._options.batch_bytes and alone_because(message) is None

    def add(self, message: Message, queue: MessageQueue | None, timeout: float) -> "asyncio.Future[SendResult]":
        """Let a message wait; raises MessageRefused when it can never be sent."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SendResult] = loop.create_future()
        message, sendings = self._hooks.begin(message)
        try:
            size = self._size(message)
        except MessageRefused as error:
            self._hooks.end(sendings, error=error)
            raise
        one = _Waiting(message, sendings, future)
        # Those that waited for room have a little less than their producer's timeout left, each its own.
        timeout = math.floor(min(timeout, TIMEOUT_S_MAX) * 10) / 10 or timeout
        if sendings and alone_because(message) is not None:
            # A hook's properties have made it one.
            batch = _Batch(time.monotonic() + timeout)
            self._put(batch, one, size)
            self._spawn(batch, queue)
            return future
        key = (message.topic, queue, bool(message.wait), timeout)
        waiting = self._batches.get(key)
        if waiting is not None and waiting.size + size > self._body_bytes_max:
            self._flush(key)
            waiting = None
        if waiting is None:
            waiting = self._batches[key] = _Batch(time.monotonic() + timeout)
            waiting.timer = loop.call_later(self._options.linger_ms / 1000, self._flush, key)
        self._put(waiting, one, size)
        if self._flight.full:
            # Nobody else may come before some of these are answered.
            self._flush_all()
        elif waiting.size >= self._options.batch_bytes:
            self._flush(key)
        return future

    async def close(self) -> None:
        """Send what waits, and wait for what is on its way; each batch has a deadline."""
        self._closing = True
        self._flush_all()
        if self._sending:
            await asyncio.wait(self._sending)

    def _size(self, message: Message) -> int:
        try:
            check_message(message, self._body_bytes_max)
            properties = message.properties_text(PLACEHOLDER).encode()
        except MessageRefused:
            raise
        except Exception as error:
            raise MessageRefused(f"the message cannot be sent as it is: {type(error).__name__}: {error}") from error
        return BATCH_ENTRY_BYTES + len(message.body) + len(properties)

    def _put(self, batch: _Batch, one: _Waiting, size: int) -> None:
        body = len(one.message.body)
        self._flight.enter(body)
        self._bytes += size
        batch.waiting.append(one)
        batch.size += size
        batch.body_bytes += body

    def _flush_all(self) -> None:
        for key in list(self._batches):
            self._flush(key)

    def _flush(self, key: tuple[str, MessageQueue | None, bool, float]) -> None:
        batch = self._batches.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        self._spawn(batch, key[1])

    def _spawn(self, batch: _Batch, queue: MessageQueue | None) -> None:
        task = self._tasks.spawn(self._carry(batch, queue), "batch")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _carry(self, batch: _Batch, queue: MessageQueue | None) -> None:
        # Who gave up before it was sent does not want it sent.
        waiting = [one for one in batch.waiting if not one.future.cancelled()]
        for one in batch.waiting:
            if one.future.cancelled():
                self._hooks.end(one.sendings, error=asyncio.CancelledError())
        sendings = [sending for one in waiting for sending in one.sendings]
        try:
            if not waiting:
                return
            gathered = Gathered((one.message for one in waiting), sendings)
            left = max(batch.deadline - time.monotonic(), 0.001)
            results = split_result(await self._send(gathered, queue=queue, timeout=left), len(waiting))
        except BaseException as error:
            self._hooks.end(sendings, error=error)
            for one in waiting:
                if not one.future.done():
                    one.future.set_exception(_copy(error))
            if not isinstance(error, Exception):
                raise
            return
        finally:
            self._bytes -= batch.size
            self._flight.leave(batch.body_bytes, len(batch.waiting))
        for one, result in zip(waiting, results, strict=True):
            if not one.future.done():
                one.future.set_result(result)


def _copy(error: BaseException) -> BaseException:
    """Return an error like this one: each that waits gets its own, with its own trace."""
    if isinstance(error, asyncio.CancelledError):
        return asyncio.CancelledError()
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
