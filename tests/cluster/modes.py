"""The ways to replicate, each as a group of real processes: what promises the same is tested by the same bodies."""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from chaos.host.local import LocalCluster, Mode
from client.errors import ClientError, RouteError
from client.message import Message
from client.produce.producer import Producer
from remoting.errors import RemotingError
from remoting.message import MessageExt
from tests.cluster.raft_site import log_of
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

BROKER = "broker-a"


class Setup(NamedTuple):
    mode: Mode
    brokers: int


# A fifth way to replicate is one more line.
SETUPS = (
    Setup("single", 1),
    Setup("async", 2),
    Setup("sync", 2),
    Setup("raft", 3),
)
SMALL = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": 1 << 20,
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    # An open connection of the tests' is no reason to forward for it.
    "shutdownForwardMs": 50,
}


class Group:
    """A broker group and its NameServer. What takes long runs in a thread, so that clients of the same test go on."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.cluster = LocalCluster(folder, nodes=setup.brokers, mode=setup.mode, broker_settings=SMALL)
        self.mode = setup.mode

    @property
    def namesrv(self) -> str:
        return self.cluster.address

    @property
    def stores(self) -> list[Path]:
        return [broker.log.with_name("store") for broker in self.cluster.brokers]

    async def kill_leader(self) -> None:
        """End who takes messages with kill -9, and start it again."""
        leader = await asyncio.to_thread(self.cluster.wait_for_leader)
        leader.kill()
        await asyncio.to_thread(leader.start)
        await asyncio.to_thread(self.cluster.wait_caught_up)

    async def stop_equal(self) -> None:
        """Stop everything in good order, when all brokers have the same; their logs are equal byte for byte."""
        await asyncio.to_thread(self.cluster.wait_caught_up)
        # Members that stop hand over the lead, and whoever gets it begins with an entry of its own: up to here, then.
        states = [await asyncio.to_thread(self.cluster.state_of, broker) for broker in self.cluster.brokers]
        end = max(int(state["end" if self.mode == "raft" else "max"]) for state in states if state is not None)
        await asyncio.to_thread(self.cluster.stop)
        assert len({log_of(store, end) for store in self.stores}) == 1

    async def start(self) -> None:
        await asyncio.to_thread(self.cluster.start)

    async def read(self, topic: str, count: int) -> list[MessageExt]:
        """Read a topic from its start, as soon as the NameServer knows it: a new one comes after the first send."""
        async with asyncio.timeout(28):
            while True:
                with contextlib.suppress(RouteError):
                    return await everything(self.namesrv, topic, count)
                await asyncio.sleep(0.05)


async def send_numbers(producer: Producer, topic: str, numbers: Iterable[int]) -> list[int]:
    """Send numbers one after the other; returns those that were acknowledged, the first of them certainly."""
    told = []
    for number in numbers:
        with contextlib.suppress(ClientError, RemotingError):
            await producer.send(Message(topic, b"%d" % number))
            told.append(number)
    return told
