"""Queues are given back before they are taken: who had one lets its callbacks end, who takes it waits for that."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from client.consume.balancer import HAND_OVER_S, TAKE_S, BalanceOptions, Balancer
from client.consume.caller import CallbackCaller
from client.consume.listeners import ConcurrentListener
from client.consume.processqueue import ProcessQueue
from client.consume.rebalance import average
from client.consume.subscription import Subscription, subscribe_by_tags
from client.instance import ClientInstance
from client.message import MessageModel
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.unit.test_client_listeners import Source, message, options, until

QUEUES = tuple(MessageQueue("T", "b", number) for number in range(4))


@pytest.mark.parametrize(
    ("model", "members", "share", "wait_s"),
    [
        (MessageModel.CLUSTERING, ["me", "you"], QUEUES[:2], TAKE_S),
        # Nobody had them.
        (MessageModel.CLUSTERING, ["me"], QUEUES, 0.0),
        (MessageModel.BROADCASTING, ["me", "you"], QUEUES, 0.0),
    ],
)
async def test_who_takes_queues_waits_where_others_may_have_had_them(
    model: MessageModel, members: list[str], share: tuple[MessageQueue, ...], wait_s: float
) -> None:
    async def consumer_ids(_address: str, _group: str) -> list[str]:
        return members

    route = TopicRoute("T", (), QUEUES, {"b": {0: "m:1"}})
    instance = SimpleNamespace(
        api=SimpleNamespace(consumer_ids=consumer_ids), routes=SimpleNamespace(cached=lambda _: route), client_id="me"
    )
    applied: list[tuple[list[MessageQueue], float]] = []

    def apply(_subscription: Subscription, mine: list[MessageQueue], wait: float) -> None:
        applied.append((mine, wait))

    subscriptions = {"T": subscribe_by_tags("T", "*", 0)}
    balancer = Balancer("G", cast("ClientInstance", instance), subscriptions, BalanceOptions(model, average), apply)
    running = asyncio.create_task(balancer.run())
    await asyncio.wait_for(balancer.first_round.wait(), 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert applied == [(list(share), wait_s)]
    assert HAND_OVER_S < TAKE_S


async def test_who_gives_a_queue_lets_its_callbacks_end_and_begins_no_other() -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def callback(messages: list[MessageExt]) -> None:
        begun.append(messages[0].queue_offset)
        await go_on.wait()

    async def send_back(_failed: MessageExt, _level: int) -> bool:
        raise AssertionError

    source, unfinished = Source(), ProcessQueue()
    listener = ConcurrentListener(CallbackCaller(callback, options()), options(concurrency=2), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(number) for number in range(5)]))
    await until(lambda: len(begun) == 2)
    giving = asyncio.create_task(listener.hand_over(unfinished, 5.0))
    await asyncio.sleep(0.01)
    assert not giving.done()
    go_on.set()
    await giving
    assert (begun, source.finished, unfinished.committable) == ([0, 1], [0, 1], 2)
    await listener.close(1)
    assert begun == [0, 1]


async def test_a_callback_that_goes_on_for_long_is_not_waited_for() -> None:
    never = asyncio.Event()

    async def callback(_messages: list[MessageExt]) -> None:
        await never.wait()

    async def send_back(_failed: MessageExt, _level: int) -> bool:
        raise AssertionError

    unfinished = ProcessQueue()
    source: Any = Source()
    listener = ConcurrentListener(CallbackCaller(callback, options(timeout_s=60)), options(), send_back)
    listener.deliver(source.as_queue(), unfinished, unfinished.put([message(0)]))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(listener.hand_over(unfinished, 0.02), 5)
    assert unfinished.committable == 0
    await listener.close(0)
