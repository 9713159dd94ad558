"""A master and a slave with real stores and a real HA port between them, in one loop; requests are answered here."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from broker.classic_config import ASYNC_MASTER, ClassicKeys
from broker.ha_client import HaClient, State
from broker.ha_compare import Verdict
from broker.ha_server import HaServer
from broker.reborn import RestartAction
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError
from store.cutting import cut_folder
from store.messagestore import MessageStore
from tests.unit.slave_tools import contents, open_master, send
from tests.unit.store_tools import HOST, make_config

BROKER = "10.0.0.1:10911"
HEARTBEAT_MS = 40
IDLE_MS = 400


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class Master:
    """A master's store, HA port, and what it answers; `invoke` stands for the network to its broker port."""

    def __init__(self, folder: Path, threads: ThreadPoolExecutor) -> None:
        self.folder = folder
        self.threads = threads
        self.role = ASYNC_MASTER
        self.epoch = 0
        self.incarnation = 0
        self.up = True
        self.asked: list[int] = []
        # Called before a request is answered; may raise, or answer in place of the master.
        self.meddle: Callable[[int], Awaitable[Command | None]] | None = None
        self.port = 0
        self.store: MessageStore
        self.ha: HaServer

    async def start(self) -> None:
        self.store = open_master(self.folder)
        self.incarnation += 1
        self.up = True
        keys = ClassicKeys(haSendHeartbeatInterval=HEARTBEAT_MS, haHousekeepingInterval=IDLE_MS)
        self.ha = HaServer(self.store, lambda: keys, asyncio.get_running_loop(), self.threads)
        await self.ha.start("127.0.0.1", self.port)
        self.port = self.ha.port

    async def stop(self) -> None:
        if self.up:
            self.up = False
            await self.ha.close()
            self.store.close()

    async def restart(self, lost_from: int | None = None) -> None:
        """Stop and start; from a position on, what was written is gone."""
        await self.stop()
        if lost_from is not None:
            cut_folder(make_config(self.folder), lost_from)
        await self.start()

    def send(self, count: int, first: int = 0) -> None:
        send(self.store, count, first)
        self.ha.advanced()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:  # noqa: ARG002 # as RemotingClient
        assert address == BROKER
        self.asked.append(request.code)
        await asyncio.sleep(0)
        if self.meddle is not None and (answer := await self.meddle(request.code)) is not None:
            return answer
        if not self.up:
            raise ConnectError("connection refused")
        if request.code == ClassicCode.STATUS:
            begin, end = self.store.log_range()
            status = {"role": self.role, "incarnation": self.name, "epoch": self.epoch, "fenced": None}
            status |= {"min": begin, "max": end, "fileBytes": self.store.file_bytes}
            return said(status)
        assert request.code == ClassicCode.DIGEST
        ranges = orjson.loads(bytes(request.body))["ranges"]
        return said({"incarnation": self.name, "digests": [self.store.digest(*each) for each in ranges]})

    @property
    def name(self) -> str:
        return f"start {self.incarnation}"


def said(content: Any) -> Command:
    return Command.response(ResponseCode.SUCCESS, None, None, orjson.dumps(content))


class Slave:
    """A slave's store and client; hears what the client tells."""

    def __init__(
        self, folder: Path, master: Master, threads: ThreadPoolExecutor, *, sync_flush: bool = False, **keys: Any
    ) -> None:
        self.folder = folder
        self.master = master
        self.threads = threads
        self.sync_flush = sync_flush
        self.values = ClassicKeys(
            **{"haSendHeartbeatInterval": HEARTBEAT_MS, "haHousekeepingInterval": IDLE_MS, **keys}
        )
        self.config = make_config(folder)
        self.epoch = 0
        self.alive: list[bool] = []
        self.actions: list[RestartAction] = []
        self.verdicts: list[Verdict] = []
        self.store: MessageStore
        self.client: HaClient

    async def start(self) -> None:
        self.store = MessageStore.open(self.config, store_host=HOST, slave=True, stepped=True)
        self.client = HaClient(
            self.store,
            lambda: self.values,
            self.master,
            asyncio.get_running_loop(),
            self.threads,
            sync_flush=self.sync_flush,
            events=self,
            root=self.config.root,
            epoch=lambda: self.epoch,
        )
        await self.client.start()

    async def stop(self) -> None:
        await self.client.close()
        self.store.close()

    async def obey(self) -> None:
        """Do what the broker does when it must start again."""
        await self.stop()
        (action,) = self.actions
        self.actions.clear()
        assert action.act is not None
        action.act(self.config)
        await self.start()
        self.follow()

    def follow(self) -> None:
        self.client.set_master(BROKER, self.master.address)

    async def state(self, state: State) -> None:
        await until(lambda: self.client.state is state)

    async def caught_up(self) -> None:
        log = self.store.slave
        assert log is not None
        await until(lambda: log.dispatched == self.master.store.written)

    @property
    def written(self) -> int:
        return self.store.log_range()[1]

    def master_changed(self, alive: bool) -> None:
        self.alive.append(alive)

    def must_restart(self, action: RestartAction) -> None:
        self.actions.append(action)

    def judged(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)


@asynccontextmanager
async def pair(folder: Path, *, sync_flush: bool = False, **keys: Any) -> AsyncIterator[tuple[Master, Slave]]:
    """A running master with some messages, and a slave that knows no master yet."""
    with ThreadPoolExecutor(2) as threads:
        master = Master(folder / "m", threads)
        await master.start()
        master.send(300)
        slave = Slave(folder / "s", master, threads, sync_flush=sync_flush, **keys)
        await slave.start()
        try:
            yield master, slave
        finally:
            await slave.stop()
            await master.stop()


@asynccontextmanager
async def followed(folder: Path, **keys: Any) -> AsyncIterator[tuple[Master, Slave]]:
    """The same, and the slave has everything."""
    async with pair(folder, **keys) as (master, slave):
        slave.follow()
        await slave.caught_up()
        yield master, slave


async def same_bytes(master: Master, slave: Slave) -> None:
    """Close both and compare their folders."""
    await slave.caught_up()
    await slave.client.close()
    slave.store.close()
    await master.stop()
    assert contents(slave.folder) == contents(master.folder)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
