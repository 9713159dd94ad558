"""One NameServer and one broker in this process, on free ports, with a store of small files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import BrokerConfig
from chaos.host.processes import free_ports
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from store.config import StoreConfig


class Cluster:
    """The running servers; `namesrv` is the address that clients take."""

    def __init__(self, folder: Path, *, delay_levels: str = "1s 1s 1s 1s 1s") -> None:
        self._folder = folder
        self._delay_levels = delay_levels
        self.name_server = NameServer(
            NamesrvConfig(
                bindAddress="127.0.0.1",
                listenPort=0,
                httpEnable=False,
                kvConfigPath=str(folder / "namesrv" / "kvConfig.json"),
                configStorePath=str(folder / "namesrv" / "namesrv.properties"),
            )
        )
        self.broker: Broker | None = None
        self.namesrv = ""
        # Not one of those that the system gives away: it is used again after a stop.
        (self._broker_port,) = free_ports(1)

    async def start(self) -> None:
        await self.name_server.start()
        self.namesrv = f"127.0.0.1:{self.name_server.port}"
        await self.start_broker()

    async def start_broker(self) -> None:
        """Start the broker, on the port that it had before."""
        broker = Broker(
            BrokerConfig(
                brokerName="broker-a",
                brokerIP1="127.0.0.1",
                bindAddress="127.0.0.1",
                listenPort=self._broker_port,
                namesrvAddr=self.namesrv,
                httpEnable=False,
                vipPortEnable=False,
                enablePropertyFilter=True,
                haListenPort=-1,  # the number after a port that was free need not be
            ),
            StoreConfig(
                storePathRootDir=str(self._folder / "broker"),
                mappedFileSizeCommitLog=4 * 1024 * 1024,
                mappedFileSizeConsumeQueue=20 * 1000,
                maxHashSlotNum=1000,
                maxIndexNum=4000,
                messageDelayLevel=self._delay_levels,
                # The machine that runs the tests may have a full disk.
                diskMaxUsedSpaceRatio=97,
                diskSpaceCleanForciblyRatio=98,
                diskSpaceWarningLevelRatio=99,
            ),
        )
        await broker.start()
        self._broker_port = broker.port
        self.broker = broker

    async def stop_broker(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.close()

    async def close(self) -> None:
        await self.stop_broker()
        await self.name_server.close()

    @property
    def broker_address(self) -> str:
        assert self.broker is not None
        return self.broker.address


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    running = Cluster(tmp_path)
    try:
        await running.start()
        yield running
    finally:
        await running.close()
