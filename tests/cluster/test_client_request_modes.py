"""A group that is set to pop a topic: a PushConsumer beside members that pop takes nothing, and then all, once."""

import asyncio
import logging

import pytest

from client.admin.client import AdminClient
from client.consume import request_modes
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.message import ConsumeFrom
from remoting.bodies.registry import SetMessageRequestModeBody
from tests.cluster.conftest import Cluster
from tests.cluster.consuming import Seen, send

FIRST = ConsumeFrom.FIRST_OFFSET


async def test_nothing_is_consumed_twice_by_members_that_pull_beside_those_that_pop(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await send(cluster, 20)
    seen = Seen()
    pushed = PushConsumer("mixed", cluster.namesrv, from_where=FIRST)
    pushed.subscribe("T")
    pushed.on_message(seen)
    async with AdminClient(cluster.namesrv) as admin, asyncio.timeout(40):
        assert await admin.request_modes() == []
        await admin.set_request_mode(SetMessageRequestModeBody("mixed", "POP", 0, "T"))
        assert await admin.request_modes() == [SetMessageRequestModeBody("mixed", "POP", 0, "T")]
        with caplog.at_level(logging.ERROR):
            await pushed.start()
            while not caplog.records:
                await asyncio.sleep(0.01)
        assert "is set to be popped" in caplog.text
        assert [queue for queue in pushed._assignment.queues if queue.topic == "T"] == []
        async with SimpleConsumer("mixed", cluster.namesrv, from_where=FIRST) as popping:
            popping.subscribe("T")
            came: set[bytes] = set()
            while len(came) < 20:
                for message in await popping.receive(wait=2):
                    came.add(bytes(message.body))
                    await message.ack()
        assert seen.bodies == []
        # Set to be pulled, it goes on where the others had come to; a topic's mode is asked for again now.
        monkeypatch.setattr(request_modes, "ASK_S", 0.0)
        await admin.set_request_mode(SetMessageRequestModeBody("mixed", "PULL", 0, "T"))
        pushed.rebalance_soon()
        await send(cluster, 3, start=20)
        assert sorted(map(int, await seen.reaches(3))) == [20, 21, 22]
        await pushed.close()
