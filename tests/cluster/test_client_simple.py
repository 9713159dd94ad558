"""SimpleConsumer against brokers of ours: taken, acknowledged, put off, over a change of the lead."""

import asyncio
from pathlib import Path

from raftmq import ConsumeFrom, Message, Producer, SimpleConsumer
from tests.cluster.conftest import Cluster
from tests.cluster.process_group import leader_of, process_group


async def send(namesrv: str, count: int) -> set[bytes]:
    bodies = {b"%03d" % number for number in range(count)}
    async with Producer("makers", namesrv, send_timeout=10.0) as producer:
        await asyncio.gather(*(producer.send(Message("Work", body)) for body in bodies))
    return bodies


async def test_each_is_settled_by_itself(cluster: Cluster) -> None:
    bodies = await send(cluster.namesrv, 30)
    async with SimpleConsumer("workers", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe("Work")
        put_off: set[bytes] = set()
        done: set[bytes] = set()
        async with asyncio.timeout(30):
            while done != bodies:
                for message in await consumer.receive(wait=2.0, invisible=20.0):
                    body = bytes(message.body)
                    assert body not in done
                    if body.endswith(b"7") and body not in put_off:
                        put_off.add(body)
                        await message.nak(delay=0.2)
                    else:
                        done.add(body)
                        await message.ack()
        assert put_off == {b"007", b"017", b"027"}
        assert await consumer.receive(wait=0.5) == []


async def test_a_group_goes_on_with_the_next_leader(tmp_path: Path) -> None:
    with process_group(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as (namesrv, members):
        bodies = await send(namesrv.address, 60)
        async with SimpleConsumer("workers", namesrv.address, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
            consumer.subscribe("Work")
            first = await consumer.receive(invisible=5.0)
            acknowledged = {bytes(message.body) for message in first[:5]}
            for message in first[:5]:
                await message.ack()
            leader = await leader_of(members)
            leader.kill()
            seen = set(acknowledged)
            async with asyncio.timeout(60):
                while seen != bodies:
                    for message in await consumer.receive(wait=1.0, invisible=20.0):
                        body = bytes(message.body)
                        assert body not in acknowledged
                        await message.ack()
                        seen.add(body)
