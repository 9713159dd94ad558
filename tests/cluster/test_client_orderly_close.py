"""A consumer in order that closes while a callback runs on: nobody else is handed its queue meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from client.api import BrokerApi
from client.consume.push import PushConsumer
from client.consume.queuelocks import RENEW_S
from client.instance import ClientInstance
from client.message import ConsumeFrom
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster
from tests.cluster.consuming import Seen, send

GROUP = "closing"
HELD, *FREE = (MessageQueue("T", "broker-a", number) for number in range(4))


class Blocking:
    """A plain callback: with a message of the queue `HELD` its thread waits until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, messages: list[MessageExt]) -> None:
        if messages[0].queue_id == HELD.queueId:
            self.begun.set()
            assert self.may_end.wait(60)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    made = Blocking()
    yield made
    made.may_end.set()


class Rival:
    """Another client of the group, which asks for locks and gives back what it got."""

    def __init__(self, cluster: Cluster, instance: ClientInstance) -> None:
        self._cluster, self._api = cluster, instance.api

    async def gets(self) -> list[MessageQueue]:
        where = (self._cluster.broker_address, GROUP, "rival")
        granted = await self._api.lock(*where, [HELD, *FREE])
        await self._api.unlock(*where, granted)
        return sorted(granted)


@pytest.fixture
async def rival(cluster: Cluster) -> AsyncIterator[Rival]:
    instance = ClientInstance(cluster.namesrv)
    await instance.enter()
    yield Rival(cluster, instance)
    await instance.leave()


def in_order(cluster: Cluster, callback: Any) -> PushConsumer:
    consumer = PushConsumer(GROUP, cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, orderly=True)
    consumer.subscribe("T")
    consumer.on_message(callback)
    return consumer


async def test_a_thread_that_runs_on_after_the_close_keeps_its_queue_and_no_other(
    cluster: Cluster, blocking: Blocking, rival: Rival
) -> None:
    mishaps: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: mishaps.append(context))
    await send(cluster, 8)
    first = in_order(cluster, blocking)
    async with asyncio.timeout(60):
        await first.start()
        assert await asyncio.to_thread(blocking.begun.wait, 30)
        assert await rival.gets() == []
        await first.close(grace=0.05)
        assert await rival.gets() == FREE
        seen = Seen()
        async with in_order(cluster, seen) as second:
            await send(cluster, 8, start=8)
            # Two of each queue: all that is another's to have, and nothing of what the thread may still be at.
            while len({message.body for message in seen.messages if int(message.body) >= 8}) < 6:
                await seen.reaches(len(seen.messages) + 1)
            assert HELD.queueId not in {message.queue_id for message in seen.messages}
            assert not second._locks.held(HELD)
        assert first._listener.busy(HELD)  # type: ignore[union-attr] # it is in order
        blocking.may_end.set()
        await first._listener.idle(HELD)  # type: ignore[union-attr] # it is in order
        # Nobody is there any more who would give it back: it runs out.
        assert await rival.gets() == FREE
    assert mishaps == []


async def test_locks_are_renewed_while_a_close_lets_callbacks_end(
    cluster: Cluster, blocking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace may be longer than a broker keeps a lock that nobody renews."""
    await send(cluster, 4)
    first = in_order(cluster, blocking)
    renewed = asyncio.Event()

    async def noted(address: str, group: str, me: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        mine = await BrokerApi.lock(first.instance.api, address, group, me, queues)
        if HELD in mine:
            renewed.set()
        return mine

    async with asyncio.timeout(60):
        await first.start()
        assert await asyncio.to_thread(blocking.begun.wait, 30)
        closing = asyncio.create_task(first.close(grace=50))
        while not first._listener._closing:
            await asyncio.sleep(0.001)
        monkeypatch.setattr(first.instance.api, "lock", noted)
        first._locks._locked_at[HELD] -= RENEW_S
        first._locks._hurry.set()
        async with asyncio.timeout(15):
            await renewed.wait()
        blocking.may_end.set()
        await closing
    assert not first._locks.held(HELD)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(f"consumer {GROUP}")]


async def test_a_coroutine_has_ended_when_its_cancellation_has(cluster: Cluster, rival: Rival) -> None:
    begun, cancelled, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def callback(messages: list[MessageExt]) -> None:
        if messages[0].queue_id == HELD.queueId:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
                await may_end.wait()

    await send(cluster, 4)
    first = in_order(cluster, callback)
    async with asyncio.timeout(60):
        await first.start()
        await begun.wait()
        closing = asyncio.create_task(first.close(grace=0.05))
        await cancelled.wait()
        assert await rival.gets() == []
        may_end.set()
        await closing
        assert await rival.gets() == [HELD, *FREE]
