"""A cluster on this machine: a NameServer and one broker group, each a real process, all files in one folder.

With one node the group is a single broker; with more it is a Raft group, which elects its leader.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from raftmq.processes import (
    READY_TIMEOUT_S,
    ProcessError,
    ServerProcess,
    broker_process,
    namesrv_process,
    raft_processes,
)

POLL_S = 0.02


class LocalCluster:
    """Use as a context manager: started on entry, stopped in good order on exit."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        namesrv_port: int = 0,
        broker_port: int = 0,
        broker_settings: Mapping[str, object] | None = None,
    ) -> None:
        """Port 0 takes a free one; `broker_settings` are keys of broker.conf."""
        self.folder = folder
        self.namesrv = namesrv_process(folder / "namesrv", port=namesrv_port)
        address = self.namesrv.address
        if nodes == 1:
            single = broker_process(folder / "broker", namesrv=address, port=broker_port, settings=broker_settings)
            self.brokers = [single]
        else:
            self.brokers = raft_processes(folder, nodes, namesrv=address, port=broker_port, settings=broker_settings)

    @property
    def address(self) -> str:
        """The NameServer's address, which clients take."""
        return self.namesrv.address

    @property
    def broker(self) -> ServerProcess:
        """The first broker, or the only one."""
        return self.brokers[0]

    @property
    def servers(self) -> list[ServerProcess]:
        """All processes, in the order of their start."""
        return [self.namesrv, *self.brokers]

    def leader(self) -> ServerProcess | None:
        """Return the broker that leads and serves, None while there is none; a single broker always does."""
        if len(self.brokers) == 1:
            return self.broker if self.broker.running else None
        for broker in self.brokers:
            if broker.running:
                state = broker.state("/v1/raft")
                if state is not None and state["leads"]:
                    return broker
        return None

    def wait_for_leader(self, timeout_s: float = READY_TIMEOUT_S) -> ServerProcess:
        """Wait until a broker leads; raises ProcessError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while (leader := self.leader()) is None:
            if time.monotonic() > deadline:
                words = "\n".join(f"{broker.name}:\n{broker.last_words()}" for broker in self.brokers)
                raise ProcessError(f"no broker led the group after {timeout_s:g} s:\n{words}")
            time.sleep(POLL_S)
        return leader

    def start(self) -> None:
        """Start everything and wait until it serves; raises ProcessError, and then nothing is left running."""
        try:
            self.namesrv.start()
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_ready()
            self.wait_for_leader()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop everything in good order, the brokers first: all at once, for no member is to take the lead."""
        for broker in self.brokers:
            broker.terminate()
        for server in reversed(self.servers):
            server.stop()

    def kill(self) -> None:
        """End everything at once."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
