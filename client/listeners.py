"""Calling the application: concurrently, or in the order of each queue."""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from client.assigned import AssignedQueue
from client.message import ConsumeResult
from client.processqueue import ProcessQueue
from remoting.message import MessageExt
from remoting.topics import is_retry_topic

_log = logging.getLogger(__name__)

Callback = Callable[[list[MessageExt]], Awaitable[ConsumeResult | None] | ConsumeResult | None]
# Tries to have a message delivered again by its broker; False: it must be consumed again here.
SendBack = Callable[[MessageExt], Awaitable[bool]]

LOCAL_RETRY_S = 5.0


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


@dataclass(slots=True)
class TopicCounters:
    """What became of a topic's messages since the start; `busy_ms` is the time that callbacks took."""

    succeeded: int = 0
    failed: int = 0
    busy_ms: float = 0.0


class Caller:
    """Calls one callback, be it a coroutine function or a plain one (run in threads of its own)."""

    def __init__(self, callback: Callback, options: ListenerOptions) -> None:
        self._callback = callback
        self._timeout = options.timeout_s
        target = callback if inspect.isroutine(callback) else type(callback).__call__
        self._threads = (
            None
            if inspect.iscoroutinefunction(target)
            else ThreadPoolExecutor(options.concurrency, thread_name_prefix="consume")
        )
        self.counters: dict[str, TopicCounters] = {}

    async def call(self, messages: list[MessageExt]) -> bool:
        """Return whether the application consumed the messages; its exceptions are logged and mean no."""
        for message in messages:
            _restore_topic(message)
        topic = messages[0].topic
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._answer(messages)
        except TimeoutError:
            _log.error("consuming %s took more than %s s: it counts as failed", _names(messages), self._timeout)
            consumed = False
        except Exception:
            _log.exception("consuming %s failed", _names(messages))
            consumed = False
        else:
            consumed = answer is None or answer is ConsumeResult.SUCCESS
            if not consumed and answer is not ConsumeResult.RECONSUME_LATER:
                _log.error("a consumer callback returned %r: it takes a ConsumeResult or None", answer)
        counters = self.counters.setdefault(topic, TopicCounters())
        counters.busy_ms += (time.monotonic() - began) * 1000
        if consumed:
            counters.succeeded += len(messages)
        else:
            counters.failed += len(messages)
        return consumed

    def close(self) -> None:
        """Let the threads end; a callback that runs on is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, messages: list[MessageExt]) -> ConsumeResult | None:
        if self._threads is not None:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._callback, messages)
        else:
            answer = self._callback(messages)
        # A plain callable may still hand back an awaitable (a lambda around a coroutine function).
        return await answer if inspect.isawaitable(answer) else answer


@dataclass(slots=True)
class _Batch:
    source: AssignedQueue
    unfinished: ProcessQueue
    messages: list[MessageExt]


class ConcurrentListener:
    """Up to `concurrency` callbacks at a time, messages of a queue side by side.

    What waits here is bounded by the unfinished messages of each queue (PullLimits).
    """

    def __init__(self, caller: Caller, options: ListenerOptions, send_back: SendBack) -> None:
        self._caller = caller
        self._options = options
        self._send_back = send_back
        self._waiting: asyncio.Queue[_Batch | None] = asyncio.Queue()
        self._later: set[asyncio.TimerHandle] = set()
        self._closing = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work(), name=f"consume {n}") for n in range(options.concurrency)]

    def deliver(self, source: AssignedQueue, unfinished: ProcessQueue, messages: list[MessageExt]) -> None:
        """Queue messages in batches."""
        size = self._options.batch
        for start in range(0, len(messages), size):
            self._waiting.put_nowait(_Batch(source, unfinished, messages[start : start + size]))

    async def close(self, grace_s: float) -> None:
        """Let running callbacks end, up to `grace_s`."""
        self._closing.set()
        for handle in self._later:
            handle.cancel()
        self._later.clear()
        for _worker in self._workers:
            self._waiting.put_nowait(None)
        await asyncio.wait(self._workers, timeout=grace_s)
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._caller.close()

    async def _work(self) -> None:
        while not self._closing.is_set():
            batch = await self._waiting.get()
            if batch is None or batch.unfinished.dropped or self._closing.is_set():
                continue
            try:
                await self._consume(batch)
            except Exception:
                _log.exception("consuming %s: it is tried again later", _names(batch.messages))
                self._again(batch)
            # Callbacks that never wait must leave the loop to others between messages.
            await asyncio.sleep(0)

    async def _consume(self, batch: _Batch) -> None:
        if await self._caller.call(batch.messages):
            batch.source.finish(batch.unfinished, batch.messages)
            return
        if self._options.gives_up:
            _log.warning("broadcast %s failed and will not come again", _names(batch.messages))
            batch.source.finish(batch.unfinished, batch.messages)
            return
        for message in batch.messages:
            if batch.unfinished.dropped:
                return
            if await self._send_back(message):
                batch.source.finish(batch.unfinished, [message])
            else:
                message.reconsume_times += 1
                self._again(_Batch(batch.source, batch.unfinished, [message]))

    def _again(self, batch: _Batch) -> None:
        """Consume once more here, later; the message stays unfinished, so that its offset is not stored."""
        if self._closing.is_set():
            return

        def due() -> None:
            self._later.discard(handle)
            self._waiting.put_nowait(batch)

        handle = asyncio.get_running_loop().call_later(self._options.local_retry_s, due)
        self._later.add(handle)


@dataclass(slots=True, eq=False)
class _OrderedQueue:
    source: AssignedQueue
    unfinished: ProcessQueue
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    retired: bool = False

    @property
    def over(self) -> bool:
        """Whether no further message of the queue is to be consumed here."""
        return self.retired or self.unfinished.dropped


class OrderlyListener:
    """One callback at a time for each queue, in the order of its offsets; up to `concurrency` queues at a time."""

    def __init__(
        self, caller: Caller, options: ListenerOptions, send_back: SendBack, is_mine: Callable[[AssignedQueue], bool]
    ) -> None:
        """`is_mine` tells whether a queue's lock is held right now."""
        self._caller = caller
        self._options = options
        self._send_back = send_back
        self._is_mine = is_mine
        self._turns = asyncio.Semaphore(options.concurrency)
        self._closing = False
        self._queues: dict[ProcessQueue, _OrderedQueue] = {}

    def deliver(self, source: AssignedQueue, unfinished: ProcessQueue, messages: list[MessageExt]) -> None:
        """Wake the queue's own task."""
        del messages  # they are in `unfinished`, in order
        ordered = self._queues.get(unfinished)
        if ordered is None and not self._closing:
            ordered = self._queues[unfinished] = _OrderedQueue(source, unfinished)
            ordered.task = asyncio.get_running_loop().create_task(self._run(ordered), name=f"consume {source.queue}")
        if ordered is not None:
            ordered.arrived.set()

    async def close(self, grace_s: float) -> None:
        """Let the callbacks that run end, up to `grace_s`."""
        self._closing = True
        tasks = []
        for ordered in self._queues.values():
            ordered.arrived.set()
            if ordered.task is not None:
                tasks.append(ordered.task)
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._caller.close()

    def retire(self, unfinished: ProcessQueue) -> None:
        """Begin nothing more of a queue; a callback that runs may end and count."""
        ordered = self._queues.get(unfinished)
        if ordered is not None:
            ordered.retired = True
            ordered.arrived.set()

    async def idle(self, unfinished: ProcessQueue, grace_s: float) -> None:
        """Wait until no callback runs for a queue that was dropped, so that its lock can be given back."""
        ordered = self._queues.get(unfinished)
        if ordered is not None and ordered.task is not None:
            ordered.arrived.set()
            await asyncio.wait([ordered.task], timeout=grace_s)

    async def _run(self, ordered: _OrderedQueue) -> None:
        try:
            while not self._closing and not ordered.over:
                batch = ordered.unfinished.head(self._options.batch)
                if not batch:
                    ordered.arrived.clear()
                    if not ordered.unfinished.head(1):
                        await self._wait(ordered)
                elif not self._is_mine(ordered.source):
                    await asyncio.sleep(0.1)
                else:
                    await self._consume(ordered, batch)
        finally:
            self._queues.pop(ordered.unfinished, None)

    async def _wait(self, ordered: _OrderedQueue) -> None:
        # A dropped queue gets no more messages; look from time to time whether it was.
        try:
            async with asyncio.timeout(1.0):
                await ordered.arrived.wait()
        except TimeoutError:
            return

    async def _consume(self, ordered: _OrderedQueue, batch: list[MessageExt]) -> None:
        async with self._turns:
            if self._closing or ordered.over:
                return
            consumed = await self._caller.call(batch)
        if consumed:
            ordered.source.finish(ordered.unfinished, batch)
            return
        if self._options.gives_up:
            _log.warning("broadcast %s failed and will not come again", _names(batch))
            ordered.source.finish(ordered.unfinished, batch)
            return
        for message in batch:
            message.reconsume_times += 1
            if message.reconsume_times > self._options.attempts_max and await self._send_back(message):
                ordered.source.finish(ordered.unfinished, [message])
        await asyncio.sleep(self._options.suspend_s)


def _restore_topic(message: MessageExt) -> None:
    """Show a message that comes from the retry topic under the topic that it was sent to."""
    origin = message.properties.get("RETRY_TOPIC")
    if origin and is_retry_topic(message.topic):
        message.topic = origin


def _names(messages: list[MessageExt]) -> str:
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f"message {first.msg_id} of topic {first.topic}{more}"
