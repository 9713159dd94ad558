"""Handing messages to the application: concurrently, or in the order of each queue."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from client.consume.caller import CallbackCaller, ExclusiveRun, ListenerOptions, Retry, names_of
from client.consume.processqueue import ProcessQueue
from client.consume.push_queue import AssignedQueue
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt

_log = logging.getLogger(__name__)

# Tries to have a message delivered again by its broker, after a delay of that level; False: it must be consumed again
# here.
SendBack = Callable[[MessageExt, int], Awaitable[bool]]
# The level that makes a dead letter of a message.
DEAD = -1


@dataclass(slots=True)
class _Batch:
    source: AssignedQueue
    unfinished: ProcessQueue
    messages: list[MessageExt]


class ConcurrentListener:
    """Up to `concurrency` callbacks at a time, messages of a queue side by side.

    What waits here is bounded by the unfinished messages of each queue (PullLimits).
    """

    def __init__(self, caller: CallbackCaller, options: ListenerOptions, send_back: SendBack) -> None:
        self._caller = caller
        self._options = options
        self._send_back = send_back
        self._waiting: asyncio.Queue[_Batch | None] = asyncio.Queue()
        self._later: set[asyncio.TimerHandle] = set()
        self._closing = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        # How many callbacks run for a queue.
        self._running: Counter[ProcessQueue] = Counter()
        self._ended = asyncio.Event()
        for _number in range(options.concurrency):
            self._add_worker()

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
        workers = list(self._workers)
        for _worker in workers:
            self._waiting.put_nowait(None)
        if workers:
            await asyncio.wait(workers, timeout=grace_s)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._caller.close()

    async def hand_over(self, unfinished: ProcessQueue, within_s: float) -> None:
        """Begin nothing more of a queue, and let the callbacks that run for it end, up to `within_s`."""
        unfinished.retired = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._running[unfinished]:
                    self._ended.clear()
                    await self._ended.wait()

    def _add_worker(self) -> None:
        worker = asyncio.get_running_loop().create_task(self._work(), name="consume")
        self._workers.add(worker)
        worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """Put another one in the place of a worker that ended though nobody closed this."""
        self._workers.discard(worker)
        if not self._closing.is_set():
            error = None if worker.cancelled() else worker.exception()
            _log.error("a worker of this consumer ended (%r): another one takes its place", error)
            self._add_worker()

    async def _work(self) -> None:
        while not self._closing.is_set():
            batch = await self._waiting.get()
            if batch is None or batch.unfinished.dropped or batch.unfinished.retired or self._closing.is_set():
                continue
            self._running[batch.unfinished] += 1
            try:
                await self._consume(batch)
            except BaseException as error:
                # Not finished, so it must come again, also when this worker ends of it.
                self._again(batch)
                if not isinstance(error, Exception):
                    raise
                _log.exception("consuming %s: it is tried again later", names_of(batch.messages))
            finally:
                self._running[batch.unfinished] -= 1
                if not self._running[batch.unfinished]:
                    del self._running[batch.unfinished]
                self._ended.set()
            # Callbacks that never wait must leave the loop to others between messages.
            await asyncio.sleep(0)

    async def _consume(self, batch: _Batch) -> None:
        retries = await self._caller.consume(batch.messages)
        if any(retries) and self._options.gives_up:
            _log.warning("broadcast %s failed and will not come again", names_of(batch.messages))
            retries = [None] * len(retries)
        consumed = [message for message, retry in zip(batch.messages, retries, strict=True) if retry is None]
        if consumed:
            batch.source.finish(batch.unfinished, consumed)
        for message, retry in zip(batch.messages, retries, strict=True):
            if retry is None:
                continue
            if batch.unfinished.dropped:
                return
            if await self._send_back(message, retry.level):
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
        self,
        caller: CallbackCaller,
        options: ListenerOptions,
        send_back: SendBack,
        is_mine: Callable[[AssignedQueue], bool],
    ) -> None:
        """`is_mine` tells whether a queue's lock is held right now."""
        self._caller = caller
        self._options = options
        self._send_back = send_back
        self._is_mine = is_mine
        self._turns = asyncio.Semaphore(options.concurrency)
        self._closing = False
        self._queues: dict[ProcessQueue, _OrderedQueue] = {}
        # Queues whose callback runs now. It may outlive the queue's stay here, and the queue may come back meanwhile.
        self._busy: dict[MessageQueue, ExclusiveRun] = {}

    def deliver(self, source: AssignedQueue, unfinished: ProcessQueue, messages: list[MessageExt]) -> None:
        """Wake the queue's own task."""
        del messages  # they are in `unfinished`, in order
        ordered = self._queues.get(unfinished)
        if ordered is None and not self._closing:
            ordered = self._queues[unfinished] = _OrderedQueue(source, unfinished)
            self._begin(ordered)
        if ordered is not None:
            ordered.arrived.set()

    async def close(self, grace_s: float) -> None:
        """Let the callbacks that run end, up to `grace_s`; a plain one that does not keeps its queue busy."""
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

    async def idle(self, queue: MessageQueue) -> None:
        """Wait until no callback runs for a queue, so that its lock can be given back."""
        while (busy := self._busy.get(queue)) is not None:
            await busy.over.wait()

    def busy(self, queue: MessageQueue) -> bool:
        """Tell whether a callback runs for a queue."""
        return queue in self._busy

    @property
    def any_busy(self) -> bool:
        """Whether a callback runs for any queue."""
        return bool(self._busy)

    def _begin(self, ordered: _OrderedQueue) -> None:
        ordered.task = asyncio.get_running_loop().create_task(
            self._run(ordered), name=f"consume {ordered.source.queue}"
        )
        ordered.task.add_done_callback(lambda task: self._ended(ordered, task))

    def _ended(self, ordered: _OrderedQueue, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._closing or ordered.over:
            self._queues.pop(ordered.unfinished, None)
        else:
            _log.error("consuming of %s ended (%r): it begins again", ordered.source.queue, error)
            self._begin(ordered)

    async def _run(self, ordered: _OrderedQueue) -> None:
        while not self._closing and not ordered.over:
            batch = ordered.unfinished.head(self._options.batch)
            try:
                if not batch:
                    ordered.arrived.clear()
                    if not ordered.unfinished.head(1):
                        await self._wait(ordered)
                elif not self._is_mine(ordered.source):
                    await asyncio.sleep(0.1)
                else:
                    await self._consume(ordered, batch)
            except Exception:
                _log.exception("consuming %s: it is tried again", names_of(batch))
                await asyncio.sleep(self._options.suspend_s)

    async def _wait(self, ordered: _OrderedQueue) -> None:
        # A dropped queue gets no more messages; look from time to time whether it was.
        try:
            async with asyncio.timeout(1.0):
                await ordered.arrived.wait()
        except TimeoutError:
            return

    async def _consume(self, ordered: _OrderedQueue, batch: list[MessageExt]) -> None:
        queue = ordered.source.queue
        async with self._turns:
            await self.idle(queue)
            if self._closing or ordered.over:
                return
            run = self._busy[queue] = ExclusiveRun()
            try:
                retries = await self._caller.consume(batch, run)
            finally:
                # Nobody can stop a thread: when the close cancels this, the queue is busy until that has ended.
                run.when_over(partial(self._busy.__delitem__, queue))
        if any(retries) and self._options.gives_up:
            _log.warning("broadcast %s failed and will not come again", names_of(batch))
            retries = [None] * len(retries)
        # What stands before the first failure is done with; nothing behind it is, or it would be out of order.
        done = next((place for place, retry in enumerate(retries) if retry is not None), len(batch))
        if done:
            ordered.source.finish(ordered.unfinished, batch[:done])
        if done < len(batch):
            await self._again(ordered, batch[done:], retries[done:])

    async def _again(self, ordered: _OrderedQueue, batch: list[MessageExt], retries: list[Retry]) -> None:
        """Pause the queue; what has failed too often, or for good, becomes a dead letter and out of its way."""
        pauses: list[float] = []
        for message, retry in zip(batch, retries, strict=True):
            if retry is None:
                continue
            message.reconsume_times += 1
            hopeless = retry.level < 0 or message.reconsume_times > self._options.attempts_max
            if hopeless and await self._send_back(message, DEAD):
                ordered.source.finish(ordered.unfinished, [message])
            else:
                pauses.append(self._options.suspend_s if retry.pause is None else retry.pause)
        if pauses:
            await asyncio.sleep(max(pauses))
