"""A master and a slave with real stores and a real HA port between them, in one loop; requests are answered here."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from broker.master_slave.ha_client import HaClient, State
from broker.master_slave.ha_compare import LogVerdict
from broker.master_slave.ha_server import HaServer
from broker.master_slave.ha_state import Followed
from broker.settings.pair_keys import ASYNC_MASTER, ClassicKeys
from broker.settings.restart import RestartAction
from chaos.host.processes import free_ports
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError
from runtime.late import late
from runtime.tls import Contexts, ServerTls
from store.messagestore import MessageStore
from store.slave.truncation import cut_folder
from tests.parts.slave_tools import contents, open_master, send
from tests.parts.store_tools import HOST, make_config
from tests.parts.told import Told

BROKER = "10.0.0.1:10911"
HEARTBEAT_MS = 40
IDLE_MS = 400


def intervals(**keys: Any) -> ClassicKeys:
    """Return settings whose intervals a test can wait for; both sides close what is silent, so both have the same."""
    return ClassicKeys(**{"haSendHeartbeatInterval": HEARTBEAT_MS, "haHousekeepingInterval": IDLE_MS, **keys})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


class Master:
    """A master's store, HA port, and what it answers; `invoke` stands for the network to its broker port."""

    def __init__(self, folder: Path, threads: ThreadPoolExecutor, **keys: Any) -> None:
        self.folder = folder
        self.threads = threads
        self.values = intervals(**keys)
        self.role = ASYNC_MASTER
        self.epoch = 0
        self.incarnation = 0
        self.log_id = "the log"
        # Else whoever sends is believed.
        self.tells_slaves = True
        self.up = True
        self.asked: list[int] = []
        # Called before a request is answered; may raise, or answer in place of the master.
        self.meddle: Callable[[int], Awaitable[Command | None]] | None = None
        self.port = 0
        self.secrets: tuple[bytes, ...] = ()
        self.tls: ServerTls | None = None
        self.store: MessageStore
        self.ha: HaServer

    async def start(self) -> None:
        self.store = open_master(self.folder)
        self.incarnation += 1
        self.up = True
        self.ha = HaServer(self.store, lambda: self.values, asyncio.get_running_loop(), self.threads)
        await self.ha.start("127.0.0.1", self.port, self.secrets, self.tls)
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
            status |= {"min": begin, "max": end, "fileBytes": self.store.file_bytes, "logId": self.log_id}
            if self.tells_slaves:
                status["slaves"] = self.ha.status()
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
        self.values = intervals(**keys)
        self.config = make_config(folder)
        self.epoch = 0
        self.alive: list[bool] = []
        self.actions: list[RestartAction] = []
        self.verdicts: list[LogVerdict] = []
        self.masters: list[Followed] = []
        self.secrets: tuple[bytes, ...] = ()
        self.tls: Contexts | None = None
        self.store: MessageStore
        self.client: HaClient

    async def start(self) -> None:
        told = Told()
        self.store = MessageStore.open(self.config, store_host=HOST, slave=True, stepped=True, events=told.events)
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
        # A test may put another one in its place.
        told.flushed = late(lambda: self.client.flushed_in_thread)
        await self.client.start(self.secrets, self.tls)

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

    def judged(self, verdict: LogVerdict) -> None:
        self.verdicts.append(verdict)

    def follows(self) -> None:
        assert self.client.followed is not None
        self.masters.append(self.client.followed)


@asynccontextmanager
async def pair(folder: Path, *, sync_flush: bool = False, **keys: Any) -> AsyncIterator[tuple[Master, Slave]]:
    """A running master with some messages, and a slave that knows no master yet."""
    with ThreadPoolExecutor(2) as threads:
        master = Master(folder / "m", threads, **keys)
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
    """One that no other process is given meanwhile."""
    return free_ports(1)[0]
