"""What tests of several NameServers share: three of them, brokers, and a gate between the two."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from broker.metadata.topics import TopicTable
from broker.registration.registration import Registration
from broker.server import Broker
from broker.settings.config import BrokerConfig, LiveConfig, load_broker_config
from chaos.host.processes import free_ports
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.bodies.registry import DataVersion, TopicConfig, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import GetRouteInfoRequestHeader
from runtime.clock import ManualClock
from runtime.late import late
from store.config import StoreConfig
from tests.parts.raft_parts import SetRole

HOST = "127.0.0.1"
PIECE_BYTES = 65536


def configuration(folder: Path, port: int = 0, **changes: Any) -> NamesrvConfig:
    fields: dict[str, Any] = {
        "bindAddress": HOST,
        "listenPort": port,
        "httpEnable": False,
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    return NamesrvConfig(**{**fields, **changes})


class NameServers:
    """Three of them, each with a clock of its own that stands still."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.clocks = [ManualClock() for _ in range(3)]
        # Not ports that the system gives away: each is used again after a kill.
        self.servers: list[NameServer | None] = [
            NameServer(configuration(folder, port), clock)
            for port, clock in zip(free_ports(3), self.clocks, strict=True)
        ]
        self.addresses: list[str] = []

    @property
    def all(self) -> str:
        return ";".join(self.addresses)

    async def start(self) -> None:
        for server in self.servers:
            assert server is not None
            await server.start()
            self.addresses.append(f"{HOST}:{server.port}")

    async def kill(self, number: int) -> None:
        """End one: it takes leave of nobody, and its tables are gone."""
        server, self.servers[number] = self.servers[number], None
        assert server is not None
        await server.close()

    async def restart(self, number: int, **changes: Any) -> NameServer:
        """Start one again on its port, empty."""
        port = int(self.addresses[number].rpartition(":")[2])
        server = self.servers[number] = NameServer(configuration(self._folder, port, **changes), self.clocks[number])
        await server.start()
        return server

    def server(self, number: int) -> NameServer:
        server = self.servers[number]
        assert server is not None
        return server

    async def close(self) -> None:
        for server in self.servers:
            if server is not None:
                await server.close()


@contextlib.asynccontextmanager
async def serving(folder: Path, namesrv: str, name: str = "broker-a") -> AsyncIterator[Broker]:
    broker = Broker(
        BrokerConfig(
            brokerName=name,
            brokerIP1=HOST,
            bindAddress=HOST,
            listenPort=0,
            namesrvAddr=namesrv,
            haListenPort=-1,
            httpEnable=False,
            vipPortEnable=False,
        ),
        StoreConfig(
            storePathRootDir=str(folder / name),
            mappedFileSizeCommitLog=1024 * 1024,
            mappedFileSizeConsumeQueue=20_000,
            maxHashSlotNum=1000,
            maxIndexNum=4000,
            # The machine that runs the tests may have a full disk.
            diskMaxUsedSpaceRatio=97,
            diskSpaceCleanForciblyRatio=98,
            diskSpaceWarningLevelRatio=99,
        ),
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


class Gate:
    """Stands before a NameServer: counts what passes, and passes nothing while it is cut."""

    def __init__(self, target: str) -> None:
        self._target = target.rpartition(":")[0], int(target.rpartition(":")[2])
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.passed = 0
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            others = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, others[1]), (others[0], writer)):
            pipe = asyncio.get_running_loop().create_task(self._pass(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(PIECE_BYTES):
                await self._open.wait()
                self.passed += len(data)
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            return
        finally:
            sink.close()


async def until(holds: Callable[[], bool], within: float = 15) -> None:
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.01)


async def asked(address: str, topic: str) -> Command:
    """Return what a NameServer answers for a topic's route."""
    client = RemotingClient()
    try:
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        return await client.invoke(address, request)
    finally:
        await client.close()


async def masters(address: str, topic: str) -> list[str]:
    """Return the masters that a NameServer names for a topic."""
    answer = await asked(address, topic)
    if answer.code != ResponseCode.SUCCESS:
        return []
    return sorted(each.brokerAddrs[0] for each in TopicRouteData.decode(answer.body).brokerDatas)


class Claimant:
    """A broker as NameServers see it: one process that registers as the master of group "g", of some epoch."""

    def __init__(self, folder: Path, namesrv: str, address: str, term: int, topics: int = 2, **values: str) -> None:
        config, store_config, _ = load_broker_config({"brokerName": "g", "namesrvAddr": namesrv, **values})
        self.live = LiveConfig(config, store_config)
        self.address = address
        self.topics = TopicTable(
            folder / address / "topics.json",
            self.live,
            ManualClock(),
            on_change=late(lambda: self.registration.changed),
        )
        self.client = RemotingClient()
        self.role = SetRole()
        self.role.set(term, "n1")
        self.registration: Registration = Registration(self.live, self.role, self.topics, self.client, address)
        table = {f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(topics)}
        self.topics.take_over(table, DataVersion(1, term, 1))

    async def __aenter__(self) -> Self:
        await self.registration.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.registration.close()
        await self.topics.close()
        await self.client.close()
