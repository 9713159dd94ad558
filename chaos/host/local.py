"""A cluster on this machine: a NameServer and one broker group, each a real process, all files in one folder.

The group is a single broker, a Raft group, which elects its leader, or a master and its slaves.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from chaos.host.localfolder import kept_ports
from chaos.host.processes import (
    PORTS,
    READY_TIMEOUT_S,
    ProcessError,
    ServerProcess,
    broker_process,
    classic_processes,
    namesrv_process,
    raft_processes,
)
from chaos.host.security import Security

POLL_S = 0.02

Mode = Literal["single", "async", "sync", "raft"]
# brokerRole of the master.
ROLES: Mapping[Mode, str] = {"async": "ASYNC_MASTER", "sync": "SYNC_MASTER"}


class LocalCluster:
    """Use as a context manager: started on entry, stopped in good order on exit."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        mode: Mode | None = None,
        namesrv_port: int = 0,
        broker_port: int = 0,
        broker_settings: Mapping[str, object] | None = None,
        security: Security | None = None,
        keep: bool = False,
    ) -> None:
        """Port 0 takes a free one; `broker_settings` are keys of broker.conf.

        `nodes` is the number of brokers. `mode` is by default a single broker when it is 1, and else a Raft group;
        "async" and "sync" make the first one the master and the others its slaves. `keep`: the folder may hold a
        cluster of the same kind already, whose ports and configuration files stay (not with "async" and "sync").
        `security`: all take TLS and signed requests only.
        """
        if keep:
            # First: of their blocks none is chosen for a newcomer, nor by other processes.
            for port in kept_ports(folder):
                PORTS.keep(port)
        self.folder = folder
        self.mode: Mode = mode or ("single" if nodes == 1 else "raft")
        secured = None if security is None else security.settings()
        self.namesrv = namesrv_process(folder / "namesrv", port=namesrv_port, settings=secured, keep=keep)
        if security is not None:
            broker_settings = {**(broker_settings or {}), **security.broker_settings(raft=self.mode == "raft")}
        address = self.namesrv.address
        match self.mode:
            case "single":
                single = broker_process(
                    folder / "broker", namesrv=address, port=broker_port, settings=broker_settings, keep=keep
                )
                self.brokers = [single]
            case "raft":
                self.brokers = raft_processes(
                    folder, nodes, namesrv=address, port=broker_port, settings=broker_settings, keep=keep
                )
            case "async" | "sync":
                self.brokers = classic_processes(
                    folder,
                    nodes - 1,
                    role=ROLES[self.mode],
                    namesrv=address,
                    port=broker_port,
                    settings=broker_settings,
                )

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
        """Return the broker that leads and serves, or the master; None while there is none."""
        if self.mode == "single":
            return self.broker if self.broker.running else None
        for broker in self.brokers:
            state = self.state_of(broker)
            if state is not None and self._leads(state):
                return broker
        return None

    def state_of(self, broker: ServerProcess) -> dict[str, Any] | None:
        """Return what a broker tells about its group (/v1/raft, /v1/ha), None when it does not answer."""
        return broker.state("/v1/raft" if self.mode == "raft" else "/v1/ha") if broker.running else None

    def caught_up(self) -> bool:
        """Tell whether all brokers run and their logs have come to the same end, and slaves are in sync."""
        if self.mode == "single":
            return self.broker.running
        states = [state for broker in self.brokers if (state := self.state_of(broker)) is not None]
        if len(states) < len(self.brokers):
            return False
        if self.mode == "raft":
            return len({state["last"] for state in states}) == 1
        followed = [len(state["slaves"]) for state in states if self._leads(state)]
        return followed == [len(states) - 1] and len({state.get("dispatched", state["max"]) for state in states}) == 1

    def wait_caught_up(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until `caught_up`; raises ProcessError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while not self.caught_up():
            if time.monotonic() > deadline:
                raise ProcessError(f"not every broker caught up within {timeout_s:g} s:\n{self._last_words()}")
            time.sleep(POLL_S)

    def wait_for_leader(self, timeout_s: float = READY_TIMEOUT_S) -> ServerProcess:
        """Wait until a broker leads; raises ProcessError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while (leader := self.leader()) is None:
            if time.monotonic() > deadline:
                raise ProcessError(f"no broker led the group after {timeout_s:g} s:\n{self._last_words()}")
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
            if self.mode in ROLES:
                self.wait_caught_up()
        except ProcessError as error:
            warnings = self._warnings()
            self.kill()
            raise ProcessError("\n".join([*warnings, str(error)])) from error
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

    def _leads(self, state: Mapping[str, Any]) -> bool:
        if self.mode == "raft":
            return bool(state["leads"])
        return state["brokerId"] == 0 and not state["fenced"]

    def _warnings(self) -> list[str]:
        """Return what the members of a Raft group find wrong, each once."""
        states = [state for broker in self.brokers if (state := self.state_of(broker)) is not None]
        return list(dict.fromkeys(warning for state in states for warning in state.get("warnings", ())))

    def _last_words(self) -> str:
        return "\n".join(f"{broker.name}:\n{broker.last_words()}" for broker in self.brokers)
