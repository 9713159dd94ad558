"""A broker's answer 21 that lies below what a consumer has stored: obeyed, said aloud and counted."""

import asyncio
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import client.consume.poll_queue
import client.consume.push_queue
from client.api import PullAnswer, PullRequest, PullStatus
from client.consume.litepull import LitePullConsumer
from client.consume.offsets import OffsetStore
from client.consume.poll_queue import FetchContext, FetchedQueue, FetchLimits
from client.consume.push_queue import AssignedQueue, PullContext, PullLimits
from client.consume.subscription import subscribe_by_tags
from client.instance import ClientInstance
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt

QUEUE = MessageQueue("T", "b", 0)
HOST = ("127.0.0.1", 1)
ROUTE = TopicRoute("T", (), (), {"b": {0: "m:1"}})


class Offsets:
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.known: dict[MessageQueue, int] = {}

    async def load(self, queue: MessageQueue) -> int | None:
        return self.known.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, back: bool = False) -> None:
        if back or offset > self.known.get(queue, -1):
            self.known[queue] = offset

    def noted(self, queue: MessageQueue) -> int | None:
        return self.known.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> list[MessageQueue]:
        assert queues is None or list(queues) == [QUEUE]
        return []

    def forget(self, queue: MessageQueue) -> None:
        self.known.pop(queue, None)


class Broker:
    """Answers the first pulls as it is told to, and holds the next."""

    def __init__(self, *answers: PullAnswer) -> None:
        self._answers = answers
        self.asked: list[int] = []
        self.asked_again = asyncio.Event()

    async def pull(self, address: str, request: PullRequest) -> PullAnswer:
        assert address == "m:1"
        self.asked.append(request.offset)
        if len(self.asked) <= len(self._answers):
            return self._answers[len(self.asked) - 1]
        self.asked_again.set()
        await asyncio.Event().wait()
        raise AssertionError("never answered")

    def instance(self) -> ClientInstance:
        async def find(topic: str) -> TopicRoute:
            assert topic == "T"
            return ROUTE

        return cast("ClientInstance", SimpleNamespace(api=self, routes=SimpleNamespace(find=find)))


def moved(following: int, remark: str = "OFFSET_OVERFLOW_BADLY") -> PullAnswer:
    return PullAnswer(PullStatus.OFFSET_ILLEGAL, [], following, 0, following, 0, remark)


async def begin(queue: MessageQueue) -> int:
    assert queue == QUEUE
    return 100


async def pushed(broker: Broker) -> PullContext:
    context = PullContext("G", broker.instance(), cast("OffsetStore", Offsets()), PullLimits(), _no_delivery, begin)
    assigned = AssignedQueue(context, QUEUE, subscribe_by_tags("T", "*", 0))
    assigned.start()
    await asyncio.wait_for(broker.asked_again.wait(), 5)
    await assigned.stop()
    return context


async def polled(broker: Broker) -> FetchContext:
    context = FetchContext("G", broker.instance(), FetchLimits(), begin, lambda: None)
    fetched = FetchedQueue(QUEUE, subscribe_by_tags("T", "*", 0), None)
    fetched.start(context)
    await asyncio.wait_for(broker.asked_again.wait(), 5)
    await fetched.stop()
    return context


def _no_delivery(*_: Any) -> None:
    raise AssertionError("nothing was found")


@pytest.mark.parametrize("consume", [pushed, polled])
async def test_going_back_below_the_stored_offset_is_said_and_counted(
    consume: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(moved(40))
    with caplog.at_level(logging.WARNING):
        context = await consume(broker)
    assert broker.asked == [100, 40], "the broker is obeyed"
    assert (context.rewinds.count, context.rewinds.messages) == (1, 60)
    said = [record.getMessage() for record in caplog.records if "below its stored offset 100" in record.getMessage()]
    assert len(said) == 1
    assert "to 40 (OFFSET_OVERFLOW_BADLY)" in said[0]


@pytest.mark.parametrize("consume", [pushed, polled])
async def test_going_forward_is_said_and_not_counted(consume: Any, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(moved(400, "OFFSET_TOO_SMALL"))
    with caplog.at_level(logging.WARNING):
        context = await consume(broker)
    assert broker.asked == [100, 400]
    assert (context.rewinds.count, context.rewinds.messages) == (0, 0)
    (said,) = caplog.records
    assert said.getMessage().endswith("has offsets 0 to 400, not 100: going on at 400 (OFFSET_TOO_SMALL)")


@pytest.mark.parametrize("consume", [pushed, polled])
async def test_a_reset_to_where_the_consumer_stands_costs_no_pause(
    consume: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, other than the word of a broker that contradicts itself."""
    monkeypatch.setattr(client.consume.push_queue, "PAUSE_S_MAX", 3600.0)
    monkeypatch.setattr(client.consume.poll_queue, "PAUSE_S_MAX", 3600.0)
    broker = Broker(moved(100, "OFFSET_RESET"))
    context = await consume(broker)
    assert broker.asked == [100, 100]
    assert context.rewinds.count == 0


def found(first: int, count: int) -> PullAnswer:
    messages = [
        MessageExt("T", 0, offset, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, b"x", 0) for offset in range(first, first + count)
    ]
    return PullAnswer(PullStatus.FOUND, messages, first + count, 0, first + count, 0, "FOUND")


async def fetched_by(broker: Broker) -> tuple[FetchedQueue, FetchContext]:
    """Return a queue that has fetched what the broker gives."""
    context = FetchContext("G", broker.instance(), FetchLimits(), begin, lambda: None)
    fetched = FetchedQueue(QUEUE, subscribe_by_tags("T", "*", 0), None)
    fetched.start(context)
    await asyncio.wait_for(broker.asked_again.wait(), 5)
    return fetched, context


@pytest.mark.parametrize("to", [40, 110, 500], ids=["back", "to where it fetches", "forward"])
async def test_behind_a_reset_nothing_is_taken_or_stored_of_what_was_fetched_before(to: int) -> None:
    fetched, _context = await fetched_by(Broker(found(100, 10), moved(to, "OFFSET_RESET")))
    assert (fetched.take(32), fetched.buffered) == ([], 0)
    assert (fetched.position, fetched.acknowledged) == (to, to)
    fetched.acknowledge()
    assert fetched.acknowledged == to
    await fetched.stop()


async def test_what_a_broker_has_no_more_is_not_taken_and_not_stored() -> None:
    fetched, context = await fetched_by(Broker(found(100, 10), moved(40)))
    assert (fetched.take(32), fetched.position, fetched.acknowledged) == ([], 40, 40)
    assert context.rewinds.messages == 60, "from where it had been stored, not from where it had fetched"
    await fetched.stop()


async def test_what_was_fetched_before_older_messages_were_deleted_is_still_taken() -> None:
    fetched, _context = await fetched_by(Broker(found(100, 10), moved(500, "OFFSET_TOO_SMALL")))
    assert fetched.buffered == 10
    assert len(fetched.take(32)) == 10
    assert fetched.position == 500
    await fetched.stop()


class Held(Broker):
    """Holds the pull behind a first answer until it is told to go on."""

    def __init__(self, *answers: PullAnswer) -> None:
        super().__init__(*answers)
        self.first_given, self.goes_on = asyncio.Event(), asyncio.Event()

    async def pull(self, address: str, request: PullRequest) -> PullAnswer:
        if self.asked:
            self.first_given.set()
            await self.goes_on.wait()
        return await super().pull(address, request)


async def test_going_back_below_what_the_application_committed_itself_is_counted() -> None:
    broker = Held(found(100, 10), moved(105))
    consumer = LitePullConsumer("G", auto_commit=False, instance=broker.instance())
    context = FetchContext("G", broker.instance(), FetchLimits(), begin, lambda: None)
    fetched = consumer._queues[QUEUE] = FetchedQueue(QUEUE, subscribe_by_tags("T", "*", 0), None)
    consumer._offsets, consumer._started, consumer._home = Offsets(), True, asyncio.get_running_loop()
    fetched.start(context)
    async with asyncio.timeout(5):
        await broker.first_given.wait()
        assert len(fetched.take(32)) == 10
        await consumer.commit()
        assert consumer._offsets.noted(QUEUE) == 110
        broker.goes_on.set()
        await broker.asked_again.wait()
    assert (context.rewinds.count, context.rewinds.messages) == (1, 5)
    await fetched.stop()
