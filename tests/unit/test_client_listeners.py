import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from client.consume.caller import CallbackCaller, ListenerOptions
from client.consume.listeners import ConcurrentListener, OrderlyListener
from client.consume.processqueue import ProcessQueue
from client.consume.push_queue import AssignedQueue
from client.errors import ConsumeError
from client.message import ConsumeResult, RetryLater
from remoting.message import MessageExt


def message(offset: int, **properties: str) -> MessageExt:
    return MessageExt(
        "%RETRY%g" if properties else "T",
        0,
        offset,
        0,
        0,
        0,
        0,
        ("127.0.0.1", 1),
        0,
        ("127.0.0.1", 2),
        0,
        0,
        b"",
        0,
        properties,
        1,
    )


def options(**changes: Any) -> ListenerOptions:
    return ListenerOptions(**{"concurrency": 2, "batch": 1, "timeout_s": 1.0, "local_retry_s": 0.01} | changes)


class Source:
    """Stands for a queue of the consumer: notes what was finished."""

    def __init__(self) -> None:
        self.finished: list[int] = []

    def finish(self, unfinished: ProcessQueue, messages: list[MessageExt]) -> None:
        unfinished.finish(messages)
        self.finished += [done.queue_offset for done in messages]

    def as_queue(self) -> AssignedQueue:
        return cast(AssignedQueue, self)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("answer", "consumed"),
    [(None, True), (ConsumeResult.SUCCESS, True), (ConsumeResult.RECONSUME_LATER, False), ("yes", False)],
)
async def test_what_a_callback_may_answer(answer: Any, consumed: bool) -> None:
    async def callback(_messages: list[MessageExt]) -> Any:
        return answer

    assert await CallbackCaller(callback, options()).call([message(1)]) is consumed


SOON, DEAD = RetryLater(1), RetryLater(-1)


@pytest.mark.parametrize(
    ("answer", "retries"),
    [
        (SOON, [SOON, SOON]),
        ([None, SOON], [None, SOON]),
        ((ConsumeResult.RECONSUME_LATER, ConsumeResult.SUCCESS), [RetryLater(), None]),
        # One too few, and no answer at all: nothing of it counts.
        ([None], [RetryLater(), RetryLater()]),
        ([None, "yes"], [None, RetryLater()]),
    ],
)
async def test_a_callback_may_answer_for_each_message(answer: Any, retries: list[RetryLater | None]) -> None:
    async def callback(_messages: list[MessageExt]) -> Any:
        return answer

    caller = CallbackCaller(callback, options(batch=2))
    assert await caller.consume([message(1), message(2)]) == retries
    assert caller.counters["T"].failed == sum(retry is not None for retry in retries)


@pytest.mark.parametrize("fields", [{"level": -2}, {"level": True}, {"pause": -1.0}, {"pause": 31.0}])
def test_a_retry_that_cannot_be_meant_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConsumeError):
        RetryLater(**fields)


async def test_of_a_batch_each_message_that_failed_goes_back_with_its_own_delay() -> None:
    sent_back: list[tuple[int, int]] = []

    async def callback(_messages: list[MessageExt]) -> list[RetryLater | None]:
        return [None, RetryLater(5), DEAD]

    async def send_back(failed: MessageExt, level: int) -> bool:
        sent_back.append((failed.queue_offset, level))
        return True

    source, unfinished, three = Source(), ProcessQueue(), options(batch=3)
    listener = ConcurrentListener(CallbackCaller(callback, three), three, send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(1), message(2), message(3)]))
    await until(lambda: not unfinished)
    await listener.close(1)
    assert sent_back == [(2, 5), (3, -1)]
    assert source.finished == [1, 2, 3]


async def test_in_order_what_stands_behind_a_failure_comes_again() -> None:
    calls: list[list[int]] = []

    async def callback(messages: list[MessageExt]) -> list[RetryLater | None]:
        calls.append([each.queue_offset for each in messages])
        return [None, RetryLater(pause=0.0), None] if len(calls) == 1 else [None] * len(messages)

    async def send_back(_failed: MessageExt, _level: int) -> bool:
        raise AssertionError

    source, unfinished = Source(), ProcessQueue()
    source.queue = "q"  # type: ignore[attr-defined] # only compared
    # A pause of a minute, had the callback not said another one.
    three = options(batch=3, suspend_s=60.0)
    listener = OrderlyListener(CallbackCaller(callback, three), three, send_back, lambda _queue: True)
    unfinished.put([message(1), message(2), message(3)])
    listener.deliver(source.as_queue(), unfinished, [])
    await until(lambda: not unfinished)
    await listener.close(1)
    assert calls == [[1, 2, 3], [2, 3]]


@pytest.mark.parametrize(("answer", "attempts_max", "tries"), [(DEAD, 2**31 - 1, 1), (RetryLater(pause=0.0), 2, 3)])
async def test_in_order_what_is_hopeless_is_a_dead_letter_and_stands_in_nobodys_way(
    answer: RetryLater, attempts_max: int, tries: int
) -> None:
    seen: list[int] = []
    dead: list[tuple[int, int]] = []

    async def callback(messages: list[MessageExt]) -> RetryLater | None:
        seen.append(messages[0].queue_offset)
        return answer if messages[0].queue_offset == 1 else None

    async def send_back(failed: MessageExt, level: int) -> bool:
        dead.append((failed.queue_offset, level))
        return True

    source, unfinished = Source(), ProcessQueue()
    source.queue = "q"  # type: ignore[attr-defined] # only compared
    chosen = options(suspend_s=60.0, attempts_max=attempts_max)
    listener = OrderlyListener(CallbackCaller(callback, chosen), chosen, send_back, lambda _queue: True)
    unfinished.put([message(1), message(2)])
    listener.deliver(source.as_queue(), unfinished, [])
    await until(lambda: not unfinished)
    await listener.close(1)
    assert dead == [(1, -1)]
    assert seen == [1] * tries + [2]


async def test_plain_and_wrapped_callbacks_are_understood() -> None:
    async def later(_messages: list[MessageExt]) -> None:
        return None

    def plain(_messages: list[MessageExt]) -> None:
        return None

    def wrapped(messages: list[MessageExt]) -> Coroutine[Any, Any, None]:
        return later(messages)

    for callback in (plain, wrapped):
        caller = CallbackCaller(callback, options())
        assert await caller.call([message(1)])
        caller.close()


async def test_a_retried_message_shows_the_topic_it_was_sent_to() -> None:
    seen: list[str] = []

    async def callback(messages: list[MessageExt]) -> None:
        seen.append(messages[0].topic)

    await CallbackCaller(callback, options()).call([message(1, RETRY_TOPIC="Orders")])
    assert seen == ["Orders"]


async def test_a_message_that_was_sent_back_is_done_here() -> None:
    sent_back: list[int] = []

    async def callback(_messages: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    async def send_back(failed: MessageExt, _level: int) -> bool:
        sent_back.append(failed.queue_offset)
        return True

    source, unfinished = Source(), ProcessQueue()
    listener = ConcurrentListener(CallbackCaller(callback, options()), options(), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(1), message(2)]))
    await until(lambda: not unfinished)
    await listener.close(1)
    assert sorted(sent_back) == sorted(source.finished) == [1, 2]


async def test_a_message_that_cannot_be_sent_back_stays_until_it_is_consumed() -> None:
    times: list[int] = []

    async def callback(messages: list[MessageExt]) -> ConsumeResult:
        times.append(messages[0].reconsume_times)
        return ConsumeResult.SUCCESS if len(times) == 4 else ConsumeResult.RECONSUME_LATER

    async def send_back(_failed: MessageExt, _level: int) -> bool:
        return False

    source, unfinished = Source(), ProcessQueue()
    listener = ConcurrentListener(CallbackCaller(callback, options()), options(), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(1)]))
    await until(lambda: not unfinished)
    await listener.close(1)
    assert times == [0, 1, 2, 3]
    assert source.finished == [1]


async def test_nothing_of_a_dropped_queue_is_begun() -> None:
    called: list[int] = []

    async def callback(messages: list[MessageExt]) -> None:
        called.append(messages[0].queue_offset)
        unfinished.dropped = True

    async def send_back(_failed: MessageExt, _level: int) -> bool:
        return True

    unfinished = ProcessQueue()
    one = options(concurrency=1)
    listener = ConcurrentListener(CallbackCaller(callback, one), one, send_back)
    listener.deliver(Source().as_queue(), unfinished, unfinished.put([message(1), message(2), message(3)]))
    await until(lambda: bool(called))
    await asyncio.sleep(0.01)
    await listener.close(1)
    assert called == [1]


async def test_close_waits_for_a_callback_but_not_forever() -> None:
    ended: list[str] = []

    async def callback(messages: list[MessageExt]) -> None:
        try:
            await asyncio.sleep(0.05 if messages[0].queue_offset == 1 else 30)
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def send_back(_failed: MessageExt, _level: int) -> bool:
        return True

    source, unfinished = Source(), ProcessQueue()
    listener = ConcurrentListener(CallbackCaller(callback, options(timeout_s=60)), options(), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(1), message(2), message(3)]))
    await asyncio.sleep(0.01)
    await listener.close(4)
    assert ended == ["by itself", "cancelled"]
    assert source.finished == [1]
    assert unfinished.committable == 2
