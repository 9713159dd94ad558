"""Conversions while clients send without a pause, some of them with a route that is long out of date (R2, R16)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.raft_group.mode import FORWARDS
from client.admin.client import AdminClient
from client.errors import ClientError
from client.message import Message, SendStatus
from client.produce.producer import Producer
from remoting.errors import RemotingError
from tests.cluster.classic_senders import QUEUES as STALE_QUEUES
from tests.cluster.classic_senders import TOPIC as STALE_TOPIC
from tests.cluster.classic_senders import History, Senders
from tests.cluster.raft_site import NAME, TOPIC, stop
from tests.cluster.test_broker_convert import Pair

# Seconds without SUCCESS that a conversion may cost on a machine that does ten other things; alone it takes below 3.
# Whoever waited for clients with an old route would do so for 35 s.
GAP_MAX_S = 20.0
STALE_SENDERS = 4
MOMENT = 20
# A member that stops for good forwards until its clients have been quiet for so long.
FORWARDING = {"shutdownForwardMs": 1000}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.close()


class Going:
    """A client that sends on and on, where the route leads. `longest`: seconds between two SUCCESS."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.acknowledged = 0
        self.longest = 0.0
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._send())

    async def more(self, count: int = MOMENT) -> None:
        """Wait for so many more messages to be acknowledged."""
        goal = self.acknowledged + count
        async with asyncio.timeout(60):
            while self.acknowledged < goal:
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._over.set()
        await self._task

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        async with Producer("going-on", self.namesrv) as producer:
            while not self._over.is_set():
                try:
                    sent = await producer.send(Message(TOPIC, b"x" * 100))
                except (ClientError, RemotingError):
                    await asyncio.sleep(0.02)
                    continue
                if sent.status is SendStatus.SEND_OK:
                    self.acknowledged += 1
                    self.longest, last = max(self.longest, loop.time() - last), loop.time()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_conversion_waits_for_no_client_whose_route_is_out_of_date(pair: Pair, role: str) -> None:
    brokers = pair.classic(role, **FORWARDING)
    await pair.following(brokers)
    await pair.create()
    async with AdminClient(pair.namesrv.address) as admin:
        await admin.create_topic(STALE_TOPIC, read_queues=STALE_QUEUES, write_queues=STALE_QUEUES)
    going = Going(pair.namesrv.address)
    # They send to one broker each, whatever it answers: clients that look at routes every 30 s.
    stale = [Senders(broker.address, History(), senders=STALE_SENDERS) for broker in brokers]
    await going.more()
    await pair.to_raft()
    await pair.until_voting(brokers)
    await going.more()
    to_raft, going.longest = going.longest, 0.0
    await pair.cli("to-classic", NAME, "--role", role)
    await going.more()
    to_classic = going.longest
    for sender in stale:
        await sender.stop()
    await going.stop()
    for broker in brokers:
        assert FORWARDS not in broker.log.read_text(), "a broker that starts again at once forwards for nobody"
    assert max(to_raft, to_classic) < GAP_MAX_S, (to_raft, to_classic)
    await pair.following(brokers)
    stop(brokers)
