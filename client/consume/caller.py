"""Calling the application once: whatever it does, what came of it is consumed or not."""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from client.hooks import ConsumeHooks, ConsumeOutcome
from client.lifecycle import CALLING, Calling
from client.message import ConsumeResult, RetryLater
from client.options import count_of, number_of_seconds
from remoting.message import MessageExt
from remoting.topics import is_retry_topic

_log = logging.getLogger(__name__)

# What is said of one message, or of all that were given.
Answer = ConsumeResult | RetryLater | None
Answers = Answer | Sequence[Answer]
Callback = Callable[[list[MessageExt]], Awaitable[Answers] | Answers]
# What came of one message: None when it is consumed.
Retry = RetryLater | None

LOCAL_RETRY_S = 5.0
# Callbacks that run at a time, of plain ones each in a thread, and messages of one call.
CONCURRENCY_MAX = 10_000
BATCH_MAX = 100_000
AGAIN = RetryLater()


@dataclass(slots=True)
class ListenerOptions:
    """How the application is called. `timeout_s`: a callback that takes longer counts as failed."""

    concurrency: int
    batch: int
    timeout_s: float
    # Failed messages are given up (broadcasting: nobody could be told).
    gives_up: bool = False
    # In order: how long a queue pauses after a failure, and how often a message is tried before it is sent back.
    suspend_s: float = 1.0
    attempts_max: int = 2**31 - 1
    # Concurrently: how long a message that could not be sent back waits here.
    local_retry_s: float = LOCAL_RETRY_S

    def __post_init__(self) -> None:
        count_of("concurrency", self.concurrency, CONCURRENCY_MAX)
        count_of("batch", self.batch, BATCH_MAX)
        number_of_seconds("consume_timeout", self.timeout_s, 0.0)
        number_of_seconds("local_retry", self.local_retry_s, 0.0)


@dataclass(slots=True)
class TopicCounters:
    """What became of a topic's messages since the start; `busy_ms` is the time that callbacks took."""

    succeeded: int = 0
    failed: int = 0
    busy_ms: float = 0.0


class CallbackCaller:
    """Calls one callback, be it a coroutine function or a plain one (run in threads of its own)."""

    def __init__(
        self, callback: Callback, options: ListenerOptions, client: object = None, hooks: ConsumeHooks | None = None
    ) -> None:
        """`client`: whose callback it is; `hooks` are called around each call."""
        self._hooks = hooks or ConsumeHooks("")
        self._callback = callback
        self._client = client
        self._timeout = options.timeout_s
        target = callback if inspect.isroutine(callback) else type(callback).__call__
        self._threads = (
            None
            if inspect.iscoroutinefunction(target)
            else ThreadPoolExecutor(options.concurrency, thread_name_prefix="consume")
        )
        self.counters: dict[str, TopicCounters] = {}

    async def call(self, messages: list[MessageExt]) -> bool:
        """Return whether the application consumed all of the messages; see `consume`."""
        return not any(await self.consume(messages))

    async def consume(self, messages: list[MessageExt], run: "ExclusiveRun | None" = None) -> list[Retry]:
        """Return of each message whether, and how, it must come again; whatever the application raises is logged.

        With a `run` this returns only when the callback has really ended, though it counts as failed once its time is
        over. Only when this is cancelled a thread may run on: `run` tells of its end.
        """
        for message in messages:
            _restore_topic(message)
        topic = messages[0].topic
        began = time.monotonic()
        consuming = self._hooks.begin(messages)
        outcome = ConsumeOutcome.EXCEPTION
        retries: list[Retry] = [AGAIN] * len(messages)
        try:
            outcome, retries = await self._outcome(messages, run)
        finally:
            self._hooks.end(consuming, outcome)
        counters = self.counters.setdefault(topic, TopicCounters())
        counters.busy_ms += (time.monotonic() - began) * 1000
        failed = sum(retry is not None for retry in retries)
        counters.succeeded += len(messages) - failed
        counters.failed += failed
        return retries

    def close(self) -> None:
        """Let the threads end; a callback that runs on is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _outcome(
        self, messages: list[MessageExt], run: "ExclusiveRun | None"
    ) -> tuple[ConsumeOutcome, list[Retry]]:
        all_again: list[Retry] = [AGAIN] * len(messages)
        try:
            if self._threads is not None:
                answer = await self._in_thread(self._threads, messages, run)
            else:
                answer = await self._in_loop(messages)
        except _TooLong:
            return ConsumeOutcome.TIME_OUT, all_again
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if mine is not None and mine.cancelling():
                raise
            _log.exception("consuming %s failed: the callback let a CancelledError of its own out", names_of(messages))
            return ConsumeOutcome.EXCEPTION, all_again
        except SystemExit as error:
            _log.error(
                "consuming %s failed: the callback called sys.exit(%r), which ends neither consumer nor program here",
                names_of(messages),
                error.code,
            )
            return ConsumeOutcome.EXCEPTION, all_again
        except Exception:
            _log.exception("consuming %s failed", names_of(messages))
            return ConsumeOutcome.EXCEPTION, all_again
        retries = _retries(answer, len(messages))
        return (ConsumeOutcome.FAILED if any(retries) else ConsumeOutcome.SUCCESS), retries

    async def _in_loop(self, messages: list[MessageExt], early: Any = None) -> Any:
        """Call a coroutine function, or await what a plain one handed back `early`."""
        calling = Calling(self._client)
        token = CALLING.set(calling)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                answer = self._callback(messages) if early is None else early
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            if limit.expired():
                self._tell_too_long(messages)
                raise _TooLong from None
            raise
        finally:
            CALLING.reset(token)
            calling.over = True

    async def _in_thread(
        self, threads: ThreadPoolExecutor, messages: list[MessageExt], run: "ExclusiveRun | None"
    ) -> Any:
        def called() -> Any:
            calling = Calling(self._client)
            token = CALLING.set(calling)
            try:
                return self._callback(messages)
            finally:
                CALLING.reset(token)
                calling.over = True

        # Nobody can stop a thread: whatever becomes of waiting for it, its late end is nobody's surprise.
        running = asyncio.get_running_loop().run_in_executor(threads, copy_context().run, called)
        running.add_done_callback(_look_at)
        if run is not None:
            run.thread = running
        ended, _ = await asyncio.wait([running], timeout=self._timeout)
        if not ended:
            self._tell_too_long(messages)
            if run is not None:
                await asyncio.wait([running])
            raise _TooLong
        answer = running.result()
        # A plain callable may still hand back an awaitable (a lambda around a coroutine function).
        return await self._in_loop(messages, answer) if inspect.isawaitable(answer) else answer

    def _tell_too_long(self, messages: list[MessageExt]) -> None:
        _log.error("consuming %s took more than %s s: it counts as failed", names_of(messages), self._timeout)


class ExclusiveRun:
    """One run of the callback that no other may be beside; `over` is set when it has really ended, its thread too."""

    def __init__(self) -> None:
        self.thread: asyncio.Future[Any] | None = None
        self.over = asyncio.Event()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call now, or once the thread has ended that still runs: never, when its loop is closed by then."""

        def ended(_thread: object) -> None:
            call()
            self.over.set()

        if self.thread is None or self.thread.done():
            ended(self.thread)
        else:
            self.thread.add_done_callback(ended)


class _TooLong(Exception):
    """The callback took longer than it may; it was told already."""


def _look_at(ended: "asyncio.Future[Any]") -> None:
    """Take note of an error that perhaps nobody waits for any more, so that asyncio does not complain of it."""
    if not ended.cancelled():
        ended.exception()


def _retries(answer: object, count: int) -> list[Retry]:
    """Return what an answer means for each of `count` messages; what it cannot mean is said, and counts as failed."""
    if isinstance(answer, list | tuple):
        if len(answer) == count:
            return [_retry(each) for each in answer]
        _log.error("a consumer callback returned %d answers for %d messages: all count as failed", len(answer), count)
        return [AGAIN] * count
    return [_retry(answer)] * count


def _retry(answer: object) -> Retry:
    if answer is None or answer is ConsumeResult.SUCCESS:
        return None
    if isinstance(answer, RetryLater):
        return answer
    if answer is not ConsumeResult.RECONSUME_LATER:
        _log.error("a consumer callback returned %r: it takes a ConsumeResult, a RetryLater or None", answer)
    return AGAIN


def _restore_topic(message: MessageExt) -> None:
    """Show a message that comes from the retry topic under the topic that it was sent to."""
    origin = message.properties.get("RETRY_TOPIC")
    if origin and is_retry_topic(message.topic):
        message.topic = origin


def names_of(messages: list[MessageExt]) -> str:
    """Return what a log line calls messages."""
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f"message {first.msg_id} of topic {first.topic}{more}"
