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
from client.consume.offsets import OffsetStore
from client.consume.poll_queue import FetchContext, FetchedQueue, FetchLimits
from client.consume.push_queue import AssignedQueue, PullContext, PullLimits
from client.consume.subscription import subscribe_by_tags
from client.instance import ClientInstance
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue

QUEUE = MessageQueue("T", "b", 0)
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
    """Answers the first pull as it is told to, and holds the second."""

    def __init__(self, answer: PullAnswer) -> None:
        self._answer = answer
        self.asked: list[int] = []
        self.asked_again = asyncio.Event()

    async def pull(self, address: str, request: PullRequest) -> PullAnswer:
        assert address == "m:1"
        self.asked.append(request.offset)
        if len(self.asked) == 1:
            return self._answer
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
