"""Heartbeats that a broker did not take are repeated soon, not with the next round."""

import asyncio

import pytest

from client import instance
from client.instance import ClientInstance
from client.message import Message
from client.produce.producer import Producer
from tests.parts.pair_of_masters import Pair


async def until_known(client: ClientInstance, brokers: int) -> None:
    async with asyncio.timeout(20):
        while len(client._known_at) < brokers or client._telling:
            await asyncio.sleep(0.005)


async def test_a_heartbeat_that_is_refused_is_repeated_long_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instance, "HEARTBEAT_S", 3600.0)
    pair = Pair()
    pair.beats_refused = 5
    await pair.start()
    async with Producer("p", pair.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        await until_known(producer.instance, 2)
        assert len(pair.beats) == 7
        # The periodic one, too; brokers that take it are told once.
        pair.beats_refused = 2
        await producer.instance.heartbeat()
        await until_known(producer.instance, 2)
        assert len(pair.beats) == 7 + 4
        await producer.instance.heartbeat()
        assert len(pair.beats) == 7 + 4 + 2
    await pair.close()


async def test_who_is_not_there_is_left_to_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "HEARTBEAT_S", 3600.0)
    monkeypatch.setattr(instance, "REJOIN_PAUSES_S", ())
    pair = Pair()
    await pair.start()
    async with Producer("p", pair.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        await until_known(producer.instance, 2)
        await pair.servers["a"].close()
        async with asyncio.timeout(20):
            while len(producer.instance._known_at) == 2:
                await asyncio.sleep(0.005)
        await producer.instance.heartbeat()
        assert not producer.instance._telling
        assert len(producer.instance._known_at) == 1
    await pair.close()
