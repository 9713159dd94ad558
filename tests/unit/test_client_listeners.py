import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from client.consume.caller import CallbackCaller, ListenerOptions
from client.consume.listeners import ConcurrentListener
from client.consume.processqueue import ProcessQueue
from client.consume.push_queue import AssignedQueue
from client.message import ConsumeResult
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

    async def send_back(failed: MessageExt) -> bool:
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

    async def send_back(_failed: MessageExt) -> bool:
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

    async def send_back(_failed: MessageExt) -> bool:
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

    async def send_back(_failed: MessageExt) -> bool:
        return True

    source, unfinished = Source(), ProcessQueue()
    listener = ConcurrentListener(CallbackCaller(callback, options(timeout_s=60)), options(), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(1), message(2), message(3)]))
    await asyncio.sleep(0.01)
    await listener.close(0.3)
    assert ended == ["by itself", "cancelled"]
    assert source.finished == [1]
    assert unfinished.committable == 2
