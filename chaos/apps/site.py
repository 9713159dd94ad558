"""What the applications use: a Raft group of three brokers, and two NameServers that know nothing of one another."""

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from chaos.apps.names import QUEUES, TOPICS
from chaos.host.processes import ServerProcess, namesrv_process, raft_processes
from chaos.site.settings import GROUP, SETTINGS
from client.admin.client import AdminClient
from client.admin.raft import RaftAdmin
from client.errors import ClientError
from remoting.errors import RemotingError

BROKERS, NAMESRVS = 3, 2
READY_S, STOP_S = 60.0, 60.0
POLL_S = 0.05
# How long an administrator's request is repeated while nobody can do it.
INSIST_S = 30.0


class SiteError(Exception):
    """The cluster did not do what a run needs of it; the text says what."""


class AppSite:
    """The servers, each a process. What takes long runs in threads."""

    def __init__(self, folder: Path) -> None:
        self.namesrvs = [namesrv_process(folder / f"namesrv{number}") for number in range(NAMESRVS)]
        self.address = ";".join(server.address for server in self.namesrvs)
        self.brokers = raft_processes(folder, BROKERS, namesrv=self.address, settings=SETTINGS)

    @property
    def servers(self) -> list[ServerProcess]:
        """All of them, NameServers first."""
        return [*self.namesrvs, *self.brokers]

    async def open(self) -> None:
        """Start everything, and make the topics; raises ProcessError or SiteError."""
        await self.start(self.servers)
        await self.leader()
        async with AdminClient(self.address) as admin:
            for topic in TOPICS:
                await self.insist(partial(admin.create_topic, topic, read_queues=QUEUES, write_queues=QUEUES))

    async def start(self, servers: Sequence[ServerProcess]) -> None:
        """Start those that are down, and wait until they serve."""
        down = [server for server in servers if not server.running]
        for server in down:
            server.launch()
        await asyncio.gather(*(asyncio.to_thread(server.wait_ready, READY_S) for server in down))

    async def stop(self, servers: Sequence[ServerProcess]) -> None:
        """Have them end in good order, all at once."""
        await asyncio.gather(*(asyncio.to_thread(server.stop, STOP_S) for server in servers))

    async def kill(self, servers: Sequence[ServerProcess]) -> None:
        """End them at once, also those that stand still."""
        await asyncio.gather(*(asyncio.to_thread(server.kill) for server in servers))

    def freeze(self, servers: Sequence[ServerProcess]) -> None:
        """Have them stand still."""
        for server in servers:
            server.signal(signal.SIGSTOP)

    def thaw(self, servers: Sequence[ServerProcess]) -> None:
        """Have them go on."""
        for server in servers:
            server.signal(signal.SIGCONT)

    async def leader(self) -> ServerProcess:
        """Return the broker that leads; raises SiteError when nobody does for long."""
        return (await self._leading())[0]

    async def hand_over(self, to: str) -> tuple[str, str]:
        """Hand the lead to a member; returns who led before and who leads then."""
        before = (await self._leading())[1]["leader"]
        async with RaftAdmin(self.address) as admin:
            await self.insist(lambda: admin.transfer_leader(GROUP, to))
        return str(before), str((await self._leading())[1]["leader"])

    async def insist(self, act: Any) -> None:
        """Ask again until it is done; raises SiteError when it is not for long."""
        deadline = asyncio.get_running_loop().time() + INSIST_S
        while True:
            try:
                await act()
                return
            except (ClientError, RemotingError) as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise SiteError(f"the cluster does not do it: {error}") from error
                await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """End everything at once."""
        await self.kill(self.servers)

    async def _leading(self) -> tuple[ServerProcess, dict[str, Any]]:
        deadline = asyncio.get_running_loop().time() + READY_S
        while asyncio.get_running_loop().time() < deadline:
            running = [broker for broker in self.brokers if broker.running]
            states = await asyncio.gather(*(asyncio.to_thread(broker.state, "/v1/raft") for broker in running))
            answers = zip(running, states, strict=True)
            leading = [(broker, state) for broker, state in answers if state is not None and state["leads"]]
            if leading:
                return max(leading, key=lambda one: int(one[1]["term"]))
            await asyncio.sleep(POLL_S)
        words = "\n".join(f"-- {broker.name}\n{broker.last_words()}" for broker in self.brokers)
        raise SiteError(f"nobody led for {READY_S:g} s:\n{words}")
