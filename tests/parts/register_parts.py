"""NameServers that remember what they are told, and what of a broker tells them."""

import asyncio
from pathlib import Path

from broker.metadata.topics import TopicTable
from broker.registration.registration import Registration
from broker.settings.config import LiveConfig, load_broker_config
from remoting.bodies.registry import QueueData, RegisterBrokerBody, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
)
from remoting.server import Connection, RemotingServer
from runtime.clock import ManualClock
from runtime.late import late
from tests.parts.raft_parts import SetRole


class NameServer:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.headers: list[RegisterBrokerRequestHeader] = []
        self.bodies: list[RegisterBrokerBody] = []
        self.changed = False
        self.routes: list[tuple[str, QueueData]] = []
        self.knows_singles = True
        # What it names as the group's master and the HA address of it.
        self.master = ("", "")
        codes = (
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        )
        self.server = RemotingServer(dict.fromkeys(codes, self._handle), name="namesrv")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _handle(self, _connection: Connection, request: Command) -> Command:
        self.codes.append(request.code)
        if request.code == RequestCode.QUERY_DATA_VERSION:
            return Command.response(ResponseCode.SUCCESS, header=QueryDataVersionResponseHeader(changed=self.changed))
        if request.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            if not self.knows_singles:
                return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            (queues,) = TopicRouteData.decode(request.body).queueDatas
            self.routes.append((request.header(RegisterTopicRequestHeader).topic, queues))
        if request.code == RequestCode.REGISTER_BROKER:
            header = request.header(RegisterBrokerRequestHeader)
            decode = RegisterBrokerBody.decode_compressed if header.compressed else RegisterBrokerBody.decode
            self.headers.append(header)
            self.bodies.append(decode(request.body))
            address, ha_address = self.master
            return Command.response(
                ResponseCode.SUCCESS, header=RegisterBrokerResponseHeader(masterAddr=address, haServerAddr=ha_address)
            )
        return Command.response(ResponseCode.SUCCESS)


class Setting:
    def __init__(self, folder: Path, name_servers: list[NameServer], **values: str) -> None:
        addresses = ";".join(server.address for server in name_servers)
        config, store_config, _ = load_broker_config({"brokerName": "b", "namesrvAddr": addresses, **values})
        self.live = LiveConfig(config, store_config)
        self.heard: list[tuple[str | None, str | None]] = []
        self.topics = TopicTable(
            folder / "topics.json", self.live, ManualClock(), on_change=late(lambda: self.registration.changed)
        )
        self.client = RemotingClient()
        self.role = SetRole()
        self.role.set(1, "n1")
        self.registration: Registration = Registration(
            self.live,
            self.role,
            self.topics,
            self.client,
            "192.0.2.1:10911",
            lambda master, ha_address: self.heard.append((master, ha_address)),
        )

    async def close(self) -> None:
        await self.registration.close()
        await self.topics.close()
        await self.client.close()


async def told(name_server: NameServer, count: int) -> None:
    async with asyncio.timeout(20):
        while len(name_server.headers) < count:
            await asyncio.sleep(0.001)
