"""SimpleConsumer at the real RocketMQ's broker: what it gives, takes back and gives again."""

import asyncio
import time
from pathlib import Path

import pytest

from chaos.host.processes import namesrv_process
from client.consume.popped import PoppedMessage
from client.consume.simple import SimpleConsumer
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from tests.interop.java_broker import JavaBroker

SETTINGS = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeTimerLog": 1024 * 1024,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}
# It has messages come again some seconds after their time; see reviveInterval and its timer wheel.
AGAIN_S = 60
INVISIBLE_S = 10


async def received(consumer: SimpleConsumer, count: int, within_s: float) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    deadline = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < deadline:
        found += await consumer.receive(5, wait=5, invisible=INVISIBLE_S)
    return found


def keys(messages: list[PoppedMessage]) -> list[str]:
    return sorted(message.keys[0] for message in messages)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_RocketMQ_gives_takes_back_and_gives_again(jars: str, tmp_path: Path) -> None:
    namesrv = namesrv_process(tmp_path / "namesrv", port=0)
    java = JavaBroker(tmp_path / "java", tmp_path / "store", jars, namesrv.address, SETTINGS)
    try:
        await asyncio.to_thread(namesrv.start)
        await asyncio.to_thread(java.start)
        async with Producer("producers", namesrv.address) as producer:
            for number in range(13):
                await producer.send(Message("orders", b"%d" % number, keys=f"{number:02}", tags="T"), timeout=20)
        member = SimpleConsumer("readers", namesrv.address, from_where=ConsumeFrom.FIRST_OFFSET)
        member.subscribe("orders", "T")
        async with member:
            taken = await received(member, 13, 30)
            assert keys(taken) == [f"{number:02}" for number in range(13)]
            by_key = {message.keys[0]: message for message in taken}
            # Singly, in a batch, and by a new handle; two are given back, one of them by a second handle. Nobody says
            # anything of the last one, so that it shows when the time of all is over.
            await by_key["00"].ack()
            await asyncio.gather(*(by_key[f"{number:02}"].ack() for number in range(1, 9)))
            await by_key["09"].change_invisible(INVISIBLE_S)
            await by_key["09"].ack()
            await by_key["10"].nak(delay=2)
            await by_key["11"].change_invisible(INVISIBLE_S)
            await by_key["11"].nak()
            again = await received(member, 3, AGAIN_S)
            assert keys(again) == ["10", "11", "12"]
            assert {(message.topic, message.reconsume_times, message.handle.retry) for message in again} == {
                ("orders", 1, "1")
            }
            await asyncio.gather(*(message.ack() for message in again))
            assert await received(member, 1, 2 * INVISIBLE_S) == []
    finally:
        java.kill()
        namesrv.kill()
