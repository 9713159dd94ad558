"""Brokers whose syncs are the kernel's: nothing acknowledged is lost over kills and stops, and the status says so."""

import asyncio
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster, Mode
from client.consume.litepull import LitePullConsumer
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from tests.cluster.process_group import told
from tests.cluster.small_files import SMALL_FILES

TOPIC = "Kept"
SETTINGS = {**SMALL_FILES, "flushDiskType": "SYNC_FLUSH", "kernelSyncEnable": True}


async def consumed(namesrv: str, wanted: set[bytes]) -> set[bytes]:
    """Return what a new group finds from the beginning on, once that is all."""
    found: set[bytes] = set()
    async with LitePullConsumer("group-kept", namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe(TOPIC)
        async with asyncio.timeout(30):
            while not wanted <= found:
                found |= {message.body for message in await consumer.poll(timeout=1.0)}
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mode", "nodes"), [("single", 1), ("raft", 3)])
async def test_what_the_kernel_synced_is_there_after_a_kill_and_after_a_stop(
    tmp_path: Path, mode: Mode, nodes: int
) -> None:
    cluster = LocalCluster(tmp_path, nodes=nodes, mode=mode, broker_settings=SETTINGS)
    bodies: set[bytes] = set()
    try:
        await asyncio.to_thread(cluster.start)
        for ending in ("kill", "stop"):
            leader = await asyncio.to_thread(cluster.wait_for_leader)
            for broker in cluster.brokers:
                state = told(broker, "/v1/status")
                assert state is not None
                assert state["store"]["syncedBy"] == "kernel"
            async with Producer("makers", cluster.address, send_timeout=20.0) as producer:
                mine = [b"%s %d" % (ending.encode(), number) for number in range(300)]
                await asyncio.gather(*(producer.send(Message(TOPIC, body)) for body in mine))
                bodies |= set(mine)
            await asyncio.to_thread(getattr(leader, ending))
            await asyncio.to_thread(leader.start)
        await asyncio.to_thread(cluster.wait_for_leader)
        assert await consumed(cluster.address, bodies) == bodies
    finally:
        await asyncio.to_thread(cluster.kill)
