"""queuelocks.py: a lock is asked for again within 200 ms while its broker does not answer, and always given back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

import client.consume.queuelocks
from client.consume.queuelocks import RETRIES_S, QueueLocks
from client.instance import ClientInstance
from remoting.bodies.registry import MessageQueue
from remoting.errors import ConnectError, RemotingError

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


class World:
    """A broker, its route, and time: sleeping is its passing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.down: list[Exception] = []
        self.held: dict[MessageQueue, str] = {}
        self.asked: list[list[MessageQueue]] = []
        self.refreshed = 0
        self.lost: list[MessageQueue] = []
        self.routed = True
        instance = SimpleNamespace(api=self, client_id="me", routes=self)
        self.locks = QueueLocks("G", cast("ClientInstance", instance), self._lost)
        monkeypatch.setattr("client.consume.queuelocks.time", SimpleNamespace(monotonic=lambda: self.now))
        self.locks._hurry = cast("asyncio.Event", self)
        self.hurries = False
        self.allowed = 0.0
        passing = SimpleNamespace(sleep=self._sleep, timeout=self._timeout)
        monkeypatch.setattr("client.consume.queuelocks.asyncio", passing)
        monkeypatch.setattr("client.retry.asyncio", passing)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def _timeout(self, seconds: float) -> AsyncIterator[None]:
        self.allowed = seconds
        yield

    def set(self) -> None:
        self.hurries = True

    def clear(self) -> None:
        self.hurries = False

    async def wait(self) -> None:
        """Be the event that wakes who renews."""
        if not self.hurries:
            await self._sleep(self.allowed)

    def cached(self, _topic: str) -> Any:
        return SimpleNamespace(brokers={"b": {0: "b:1", 1: "b:2"}})

    async def _lost(self, queue: MessageQueue) -> None:
        self.lost.append(queue)

    async def find(self, _topic: str) -> Any:
        return SimpleNamespace(address=lambda _name: "b:1" if self.routed else None)

    async def refresh(self, _topic: str) -> None:
        self.refreshed += 1

    def _fail(self) -> None:
        if self.down:
            raise self.down.pop(0)

    async def lock(self, _address: str, _group: str, me: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        self.asked.append(list(queues))
        self._fail()
        return [queue for queue in queues if self.held.setdefault(queue, me) == me]

    async def unlock(self, _address: str, _group: str, me: str, queues: Sequence[MessageQueue]) -> None:
        self._fail()
        for queue in queues:
            if self.held.get(queue) == me:
                del self.held[queue]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_a_lock_is_asked_for_until_the_broker_answers(world: World) -> None:
    world.down = [ConnectError("gone"), ConnectError("gone"), RemotingError("new leader"), *[ConnectError("x")] * 3]
    await world.locks.acquire(Q0)
    assert world.locks.held(Q0)
    assert world.refreshed == 5, "where the route says: not for an answer that no other broker would give"
    assert max(world.pauses) <= 0.2


async def test_a_queue_of_another_client_is_asked_for_often_and_after_a_while_less(world: World) -> None:
    world.held[Q0] = "other"
    acquiring = asyncio.create_task(world.locks.acquire(Q0))
    while world.now < 10:
        await asyncio.sleep(0)
    assert not acquiring.done()
    del world.held[Q0]
    await acquiring
    assert max(world.pauses[:20]) <= 0.2
    assert world.pauses[-1] == 1.0


async def test_a_renewal_that_fails_is_tried_again_at_once_and_what_is_held_meanwhile_is_trusted(world: World) -> None:
    await world.locks.acquire(Q0)
    await world.locks.acquire(Q1)
    world.now = 21.0
    world.asked.clear()
    world.down = [ConnectError("gone")] * 6
    renewing = asyncio.create_task(world.locks.run())
    while world.down:
        await asyncio.sleep(0)
    assert world.locks.held(Q0)
    while len(world.asked) < 7:
        await asyncio.sleep(0)
    renewing.cancel()
    assert world.asked == [[Q0, Q1]] * 7, "one request for all queues of a broker"
    assert all(pause in RETRIES_S for pause in world.pauses[:6])
    assert sum(world.pauses[:6]) < 1


async def test_a_queue_in_no_route_is_looked_for_without_haste(world: World) -> None:
    await world.locks.acquire(Q0)
    world.routed = False
    world.now = 21.0
    assert not await world.locks.renew()
    assert world.refreshed == 1
    world.routed = True
    assert await world.locks.renew()
    world.now = 52.0
    assert not world.locks.held(Q0), "nobody renewed it for 30 s"


async def test_a_lock_that_went_to_another_client_is_told(world: World) -> None:
    await world.locks.acquire(Q0)
    world.held[Q0] = "other"
    assert await world.locks.renew(0.0)
    assert world.lost == [Q0]
    assert not world.locks.held(Q0)


async def test_renewing_goes_on_after_a_mistake(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.locks.acquire(Q0)
    world.now = 21.0
    world.down = [ValueError("a mistake of ours")]
    renewing = asyncio.create_task(world.locks.run())
    while len(world.asked) < 3:
        await asyncio.sleep(0)
    renewing.cancel()
    assert "renewing locks failed" in caplog.text


async def test_giving_back_is_tried_for_a_while(world: World) -> None:
    await world.locks.acquire(Q0)
    world.down = [ConnectError("gone")] * 3
    await world.locks.release([Q0, Q1])
    assert world.held == {}
    await world.locks.acquire(Q0)
    world.down = [ConnectError("gone")] * 100
    began = world.now
    await world.locks.release([Q0])
    assert client.consume.queuelocks.RELEASE_S <= world.now - began < 3.0
    assert not world.locks.held(Q0)


async def test_a_lock_whose_answer_nobody_waited_for_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebalance took the queue away while the question was on its way: the broker has granted it all the same."""
    asked = asyncio.Event()
    honest, gate = world.lock, asyncio.Event()

    async def slow(address: str, group: str, me: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        mine = await honest(address, group, me, queues)
        asked.set()
        await gate.wait()
        return mine

    monkeypatch.setattr(world, "lock", slow)
    acquiring = asyncio.create_task(world.locks.acquire(Q0))
    await asked.wait()
    acquiring.cancel()
    await asyncio.gather(acquiring, return_exceptions=True)
    assert world.held == {Q0: "me"}
    await world.locks.release([Q0])
    assert world.held == {}


async def test_nothing_is_trusted_when_the_connection_is_gone_before_it_is_renewed(world: World) -> None:
    """The broker gives the locks of a client away whose connection has closed."""
    await world.locks.acquire(Q0)
    await world.locks.acquire(Q1)
    world.locks.connection_lost("another:1")
    assert world.locks.held(Q0)
    world.locks.connection_lost("b:2")
    assert not world.locks.held(Q0)
    assert world.hurries
    world.held[Q1] = "other"
    world.asked.clear()
    renewing = asyncio.create_task(world.locks.run())
    while not world.asked:
        await asyncio.sleep(0)
    renewing.cancel()
    assert world.asked == [[Q0, Q1]]
    assert world.locks.held(Q0)
    assert world.lost == [Q1]


async def test_a_renewal_that_meets_giving_back_neither_has_the_lock_again_nor_calls_it_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    granted, gate = asyncio.Event(), asyncio.Event()
    honest = world.lock

    async def slow(address: str, group: str, me: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        mine = await honest(address, group, me, queues)
        granted.set()
        await gate.wait()
        return mine

    await world.locks.acquire(Q0)
    await world.locks.acquire(Q1)
    monkeypatch.setattr(world, "lock", slow)
    renewing = asyncio.create_task(world.locks.renew(0.0))
    await asyncio.wait_for(granted.wait(), 10)
    await world.locks.release([Q0])
    gate.set()
    assert await asyncio.wait_for(renewing, 10)
    assert world.held == {Q1: "me"}
    assert not world.locks.held(Q0), "the answer is of before it was given back"
    assert world.locks.held(Q1)
    assert world.lost == []
    assert "went to another client" not in caplog.text
