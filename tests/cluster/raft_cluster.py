"""A NameServer and a Raft group of brokers in this process, on free ports, with stores of small files."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from broker.server import Broker
from broker.settings.config import load_broker_config
from chaos.host.processes import free_ports
from client.errors import RouteError
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.message import MessageExt
from tests.cluster.test_client_producer import everything

FAST = {"raftHeartbeatMs": "50", "raftElectionMsMin": "300", "raftElectionMsMax": "600", "shutdownForwardMs": "200"}
# For what is about one leader from beginning to end: with FAST a busy machine deposes it now and then.
CALM = {"raftElectionMsMin": "2500", "raftElectionMsMax": "3000"}


async def read_all(namesrv: str, topic: str, count: int) -> list[MessageExt]:
    """Read a topic from its start, as soon as the NameServer knows it: a new one is registered after the first send."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RouteError):
                return await everything(namesrv, topic, count)
            await asyncio.sleep(0.02)


class RaftCluster:
    """`brokers` by member id; a stopped one is not among them."""

    def __init__(self, folder: Path, size: int = 3, values: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._values = dict(values or {})
        self.ids = [f"n{number}" for number in range(size)]
        self._raft_ports = free_ports(size)
        # Not those that the system gives away: each is used again after a stop.
        self._ports = dict(zip(self.ids, free_ports(size), strict=True))
        self.name_server = NameServer(
            NamesrvConfig(
                bindAddress="127.0.0.1",
                listenPort=0,
                httpEnable=False,
                kvConfigPath=str(folder / "namesrv" / "kvConfig.json"),
                configStorePath=str(folder / "namesrv" / "namesrv.properties"),
            )
        )
        self.brokers: dict[str, Broker] = {}
        self.namesrv = ""

    def have(self, values: Mapping[str, str]) -> None:
        """Add to the configuration of whoever is started from now on."""
        self._values.update(values)

    async def start(self) -> None:
        """Start everything; returns when all brokers are up, elected or not."""
        await self.name_server.start()
        self.namesrv = f"127.0.0.1:{self.name_server.port}"
        await asyncio.gather(*(self.start_broker(member) for member in self.ids))

    def add(self, member: str) -> str:
        """Name one more member, to be started; returns the address of its Raft port."""
        self.ids.append(member)
        self._raft_ports += free_ports(1)
        (self._ports[member],) = free_ports(1)
        return f"127.0.0.1:{self._raft_ports[-1]}"

    @property
    def peers(self) -> str:
        """dLegerPeers."""
        return ";".join(f"{member}-127.0.0.1:{port}" for member, port in zip(self.ids, self._raft_ports, strict=True))

    async def start_broker(self, member: str, **changes: str) -> Broker:
        """Start a member, on the ports that it had before."""
        config, store_config, unknown = load_broker_config(
            {
                "brokerName": "broker-a",
                "brokerIP1": "127.0.0.1",
                "bindAddress": "127.0.0.1",
                "listenPort": str(self._ports[member]),
                "namesrvAddr": self.namesrv,
                "httpEnable": "false",
                "vipPortEnable": "false",
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "g",
                "dLegerPeers": self.peers,
                "dLegerSelfId": member,
                "storePathRootDir": str(self._folder / member),
                "mappedFileSizeCommitLog": str(4 << 20),
                "mappedFileSizeConsumeQueue": "20000",
                "maxHashSlotNum": "1000",
                "maxIndexNum": "4000",
                "messageDelayLevel": "1s 1s 1s 1s 1s",
                "diskMaxUsedSpaceRatio": "97",
                "diskSpaceCleanForciblyRatio": "98",
                "diskSpaceWarningLevelRatio": "99",
                **FAST,
                **self._values,
                **changes,
            }
        )
        assert unknown == []
        broker = Broker(config, store_config)
        await broker.start()
        self._ports[member] = broker.port
        self.brokers[member] = broker
        return broker

    async def stop_broker(self, member: str) -> None:
        """Stop a member in good order."""
        await self.brokers.pop(member).close()

    def leaders(self) -> list[str]:
        """Return the members that lead and serve."""
        return [member for member, broker in self.brokers.items() if broker.role.leads]

    async def leader(self, within: float = 60.0) -> str:
        """Return the one that leads, once there is one that all others know."""
        async with asyncio.timeout(within):
            while True:
                leaders = self.leaders()
                if len(leaders) == 1:
                    address = self.brokers[leaders[0]].address
                    others = [broker for member, broker in self.brokers.items() if member != leaders[0]]
                    if all(broker.role.leader_address == address for broker in others):
                        return leaders[0]
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(*(broker.close() for broker in self.brokers.values()))
        await self.name_server.close()


@contextlib.asynccontextmanager
async def led_cluster(folder: Path, values: Mapping[str, str] | None = None) -> AsyncIterator[RaftCluster]:
    """Run a group that has a leader; it is closed in the end, whatever came of its start."""
    running = RaftCluster(folder, values=values)
    try:
        await running.start()
        await running.leader()
        yield running
    finally:
        await running.close()
