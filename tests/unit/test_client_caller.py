"""What an application's callback may do wrong without ending who calls it."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from client.consume.caller import CallbackCaller, ExclusiveRun
from client.consume.listeners import ConcurrentListener, OrderlyListener
from client.consume.processqueue import ProcessQueue
from client.hooks import ConsumeCall, ConsumeHooks, ConsumeOutcome
from client.message import RetryLater
from remoting.message import MessageExt
from tests.unit.test_client_listeners import Source, message, options, until


async def test_a_cancellation_of_the_callbacks_own_is_a_failed_message(caplog: pytest.LogCaptureFixture) -> None:
    async def callback(_messages: list[MessageExt]) -> None:
        raise asyncio.CancelledError

    with caplog.at_level(logging.ERROR):
        assert not await CallbackCaller(callback, options()).call([message(1)])
    assert "CancelledError of its own" in caplog.text


async def test_a_cancellation_of_the_caller_goes_through() -> None:
    begun = asyncio.Event()

    async def callback(_messages: list[MessageExt]) -> None:
        begun.set()
        await asyncio.sleep(60)

    call = asyncio.create_task(CallbackCaller(callback, options(timeout_s=60)).call([message(1)]))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("plain", [True, False])
async def test_sys_exit_in_a_callback_is_a_failed_message(plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    def in_thread(_messages: list[MessageExt]) -> None:
        raise SystemExit(3)

    async def in_loop(_messages: list[MessageExt]) -> None:
        raise SystemExit(3)

    caller = CallbackCaller(in_thread if plain else in_loop, options())
    with caplog.at_level(logging.ERROR):
        assert not await caller.call([message(1)])
    assert "sys.exit(3)" in caplog.text
    caller.close()


class Outcomes:
    """A hook that keeps how each call of the callback ended."""

    def __init__(self) -> None:
        self.seen: list[ConsumeOutcome | None] = []

    def before_consume(self, consuming: ConsumeCall) -> None:
        assert consuming.outcome is None

    def after_consume(self, consuming: ConsumeCall) -> None:
        self.seen.append(consuming.outcome)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("in_order", [True, False])
async def test_a_timeout_of_the_callbacks_own_is_told_as_such(
    plain: bool, in_order: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def in_thread(_messages: list[MessageExt]) -> None:
        raise TimeoutError("the database")

    async def in_loop(_messages: list[MessageExt]) -> None:
        raise TimeoutError("the database")

    outcomes = Outcomes()
    hooks = ConsumeHooks("g", [outcomes])
    caller = CallbackCaller(in_thread if plain else in_loop, options(timeout_s=900), hooks=hooks)
    with caplog.at_level(logging.ERROR):
        assert await caller.consume([message(1)], ExclusiveRun() if in_order else None) == [RetryLater()]
    assert "the database" in caplog.text
    assert "took more than" not in caplog.text
    assert outcomes.seen == [ConsumeOutcome.EXCEPTION]
    caller.close()


async def test_workers_go_on_after_cancellations_of_callbacks() -> None:
    count = 0

    async def callback(_messages: list[MessageExt]) -> None:
        nonlocal count
        count += 1
        if count <= 5:
            raise asyncio.CancelledError

    async def send_back(_message: MessageExt, _level: int) -> bool:
        return True

    source, unfinished = Source(), ProcessQueue()
    unfinished.put([message(n) for n in range(10)])
    listener = ConcurrentListener(CallbackCaller(callback, options()), options(concurrency=2), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.head(10))
    await until(lambda: len(source.finished) == 10)
    await listener.close(1)


async def test_a_worker_that_ends_is_told_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def callback(_messages: list[MessageExt]) -> None:
        return

    async def send_back(_message: MessageExt, _level: int) -> bool:
        return True

    source, unfinished = Source(), ProcessQueue()
    listener = ConcurrentListener(CallbackCaller(callback, options()), options(concurrency=2), send_back)
    with caplog.at_level(logging.ERROR):
        for worker in list(listener._workers):
            worker.cancel()
        await until(lambda: "another one takes its place" in caplog.text)
    unfinished.put([message(n) for n in range(3)])
    listener.deliver(source.as_queue(), unfinished, unfinished.head(3))
    await until(lambda: len(source.finished) == 3)
    await listener.close(1)
    assert not listener._workers


async def test_in_order_a_thread_that_takes_too_long_is_never_beside_its_own_repetition() -> None:
    running = together = calls = 0
    lock, hold = threading.Lock(), threading.Event()

    def callback(_messages: list[MessageExt]) -> None:
        nonlocal running, together, calls
        with lock:
            running += 1
            together = max(together, running)
            calls += 1
            first = calls == 1
        if first:
            hold.wait(10)
        with lock:
            running -= 1

    async def send_back(_message: MessageExt, _level: int) -> bool:
        return True

    source, unfinished = Source(), ProcessQueue()
    source.queue = "q"  # type: ignore[attr-defined] # only compared
    chosen = options(timeout_s=0.05, suspend_s=0.01, concurrency=4)
    listener = OrderlyListener(CallbackCaller(callback, chosen), chosen, send_back, lambda _queue: True)
    unfinished.put([message(0)])
    listener.deliver(source.as_queue(), unfinished, unfinished.head(1))
    await until(lambda: listener.busy("q"))  # type: ignore[arg-type] # only compared
    # The queue went and came back meanwhile, and the message with it.
    listener.retire(unfinished)
    again = ProcessQueue()
    again.put([message(0)])
    listener.deliver(source.as_queue(), again, again.head(1))
    await asyncio.sleep(0.2)
    assert calls == 1
    hold.set()
    await until(lambda: source.finished == [0])
    assert (together, calls) == (1, 2)
    await listener.close(1)


async def test_in_order_a_queue_is_busy_until_its_thread_has_ended_though_the_close_did_not_wait() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def callback(_messages: list[MessageExt]) -> None:
        begun.set()
        may_end.wait(30)

    async def send_back(_message: MessageExt, _level: int) -> bool:
        return True

    source, unfinished = Source(), ProcessQueue()
    queue: Any = "q"
    source.queue = queue  # type: ignore[attr-defined] # only compared
    listener = OrderlyListener(CallbackCaller(callback, options()), options(), send_back, lambda _queue: True)
    unfinished.put([message(0)])
    listener.deliver(source.as_queue(), unfinished, unfinished.head(1))
    assert await asyncio.to_thread(begun.wait, 20)
    await listener.close(0.0)
    assert listener.busy(queue)
    idle = asyncio.create_task(listener.idle(queue))
    await asyncio.sleep(0)
    assert not idle.done()
    may_end.set()
    await asyncio.wait_for(idle, 20)
    assert not listener.busy(queue)
    # What it was called with was not waited for: it comes again, and is not done with.
    assert source.finished == []


def test_in_order_a_thread_may_end_when_its_loop_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    threads: list[threading.Thread] = []
    begun, may_end = threading.Event(), threading.Event()

    def callback(_messages: list[MessageExt]) -> None:
        threads.append(threading.current_thread())
        begun.set()
        may_end.wait(30)

    async def send_back(_message: MessageExt, _level: int) -> bool:
        return True

    async def run() -> None:
        source, unfinished = Source(), ProcessQueue()
        source.queue = "q"  # type: ignore[attr-defined] # only compared
        listener = OrderlyListener(CallbackCaller(callback, options()), options(), send_back, lambda _queue: True)
        unfinished.put([message(0)])
        listener.deliver(source.as_queue(), unfinished, unfinished.head(1))
        assert await asyncio.to_thread(begun.wait, 20)
        await listener.close(0.0)

    asyncio.run(run())
    may_end.set()
    threads[0].join(20)
    assert not threads[0].is_alive()
    assert caplog.records == []


async def test_in_order_a_mistake_of_ours_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broken = True

    async def callback(_messages: list[MessageExt]) -> None:
        return

    async def send_back(_message: MessageExt, _level: int) -> bool:
        return True

    def is_mine(_queue: Any) -> bool:
        nonlocal broken
        if broken:
            broken = False
            raise KeyError("ours")
        return True

    source, unfinished = Source(), ProcessQueue()
    source.queue = "q"  # type: ignore[attr-defined] # only compared
    chosen = options(suspend_s=0.01)
    listener = OrderlyListener(CallbackCaller(callback, chosen), chosen, send_back, is_mine)
    unfinished.put([message(0)])
    with caplog.at_level(logging.ERROR):
        listener.deliver(source.as_queue(), unfinished, unfinished.head(1))
        await until(lambda: source.finished == [0])
    assert "it is tried again" in caplog.text
    await listener.close(1)
