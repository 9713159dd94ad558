"""RaftMQ as it is measured beside others: a single broker, a master with its slave, a group of three."""

import asyncio
from pathlib import Path

from chaos.host.local import LocalCluster, Mode


class OurSystem:
    """A NameServer and its brokers on free ports of loopback."""

    protocol = "rocketmq"

    def __init__(self, folder: Path, mode: Mode, nodes: int, flush: str) -> None:
        settings: dict[str, object] = {"flushDiskType": flush}
        if mode == "sync":
            settings |= {"inSyncReplicas": 2}
        self._cluster = LocalCluster(folder, nodes=nodes, mode=mode, broker_settings=settings)

    def start(self) -> None:
        """Start everything and wait until it serves; raises ProcessError."""
        self._cluster.start()

    async def port(self) -> int:
        """Return where to send to: the leader, or the master. Raises ProcessError."""
        leader = await asyncio.to_thread(self._cluster.wait_for_leader)
        return int(leader.address.rpartition(":")[2])

    def settled(self) -> None:
        """Nothing has to be asked: it takes no send before its brokers are together."""

    def pids(self) -> list[int]:
        """Return the processes that were started."""
        return [server.pid for server in self._cluster.servers]

    def kill(self) -> None:
        """End everything at once."""
        self._cluster.kill()
