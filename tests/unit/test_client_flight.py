"""Bounds of what is on its way: who waits gets room, whoever else gives up."""

import asyncio

import pytest

from client.errors import MessageRefused, SendBacklogFull
from client.flight import Flight
from client.instance import ClientInstance
from client.message import Message, SendResult
from client.produce.producer import Producer
from tests.parts.pair_of_masters import Pair


async def turn(flight: Flight, taken: list[int], name: int) -> None:
    while flight.full:
        await flight.room()
    flight.enter(1)
    taken.append(name)


async def settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_who_waits_gets_room_in_order() -> None:
    flight, taken = Flight(1, 100), list[int]()
    flight.enter(1)
    tasks = [asyncio.create_task(turn(flight, taken, name)) for name in range(3)]
    await settled()
    assert taken == []
    for expected in ([0], [0, 1], [0, 1, 2]):
        flight.leave(1)
        await settled()
        assert taken == expected
    await asyncio.gather(*tasks)


async def test_one_that_gives_up_does_not_take_the_others_turn_along() -> None:
    flight, taken = Flight(1, 100), list[int]()
    flight.enter(1)
    tasks = [asyncio.create_task(turn(flight, taken, name)) for name in range(3)]
    await settled()
    tasks[0].cancel()
    await settled()
    flight.leave(1)
    # The second one is woken and cancelled in the same turn: it never takes the place that it was given.
    tasks[1].cancel()
    await settled()
    assert taken == [2]
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_that_is_woken_and_does_not_use_its_place_leaves_it_to_the_next() -> None:
    flight, taken = Flight(1, 100), list[int]()
    flight.enter(1)

    async def look_only() -> None:
        await flight.room()

    first = asyncio.create_task(look_only())
    await settled()
    second = asyncio.create_task(turn(flight, taken, 2))
    await settled()
    flight.leave(1)
    await settled()
    assert taken == [2]
    await asyncio.gather(first, second)


async def test_what_is_shared_bounds_all_that_count_against_it() -> None:
    shared = Flight(10, 100)
    one, other = Flight(10, 100, shared), Flight(10, 100, shared)
    one.enter(100)
    assert one.full
    assert other.full
    assert "of all producers of this instance" in other.describe()
    taken = list[int]()
    waiting = asyncio.create_task(turn(other, taken, 1))
    await settled()
    assert taken == []
    one.leave(100)
    await settled()
    assert taken == [1]
    await waiting


async def test_nobody_waits_any_more_when_all_are_woken() -> None:
    flight = Flight(1, 100)
    flight.enter(1)
    waiting = [asyncio.create_task(flight.room()) for _ in range(3)]
    await settled()
    flight.wake_all()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)


async def test_what_one_producer_has_on_its_way_fills_its_whole_instance(pair: Pair) -> None:
    instance = ClientInstance(pair.namesrv, in_flight_bytes_max=100)
    async with Producer("one", instance=instance) as one, Producer("two", instance=instance) as two:
        first = one.send_async(Message("T", bytes(100)))
        with pytest.raises(SendBacklogFull, match="of all producers of this instance"):
            await two.send_async(Message("T", b"x"))
        await first
        # Who waits for room is told of what the other one gives back.
        first = one.send_async(Message("T", bytes(100)))
        await asyncio.wait_for(two.send(Message("T", b"x"), timeout=60), 20)
        await first


async def test_with_one_at_a_time_no_turn_is_lost_on_who_does_not_use_it(pair: Pair) -> None:
    async with Producer("p", pair.namesrv, in_flight_max=1, send_timeout=120) as producer:
        # Each third one is woken for a message that is refused, each third one gives up while it waits.
        bodies = [(b"x", b"", b"x")[number % 3] for number in range(90)]
        sends = [asyncio.create_task(producer.send(Message("T", body))) for body in bodies]
        await settled()
        given_up = sends[2::3]
        for send in given_up:
            send.cancel()
        async with asyncio.timeout(20):
            results = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(result) for result in results] == [SendResult, MessageRefused, asyncio.CancelledError] * 30
    assert len(pair.sent) == 30
