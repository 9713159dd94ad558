"""Real server processes for the demo, the local cluster, benchmarks and tests: started, awaited, killed, stopped.

Readiness is what the process itself says at ``/readyz``. Whatever a process prints goes to a log file, whose last
lines are part of the error when it does not come up. None outlives the process that started it (chaos/host/guard.py).
"""

import http.client
import ipaddress
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from chaos.host.begun import Begun, begin
from chaos.host.guard import watch
from chaos.host.interpreter import MODULE
from chaos.host.localfolder import kept_peers, kept_port, kept_values
from chaos.host.ports import Ports, is_free
from runtime.config import format_properties

HOST = "127.0.0.1"
# What a start reads at least on a busy machine: a broker whose queues are lost reads its whole log.
READ_BYTES_PER_S = 4 * 1024 * 1024
READY_TIMEOUT_S = 30.0  # a broker that recovers a large log says 503 meanwhile; these logs are small
STOP_TIMEOUT_S = 45.0  # a member of a group forwards for clients with an old route, which last 30 s
POLL_S = 0.02
HTTP_S = 2.0  # for each step of asking: to connect, to be answered
LOG_LINES_SHOWN = 15
# A file with one of these is for its owner alone.
_SECRET_KEYS = frozenset(
    {
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "tls.server.keyPassword",
        "tls.client.keyPassword",
    }
)
HA_CLOSED = -1  # haListenPort: no port for slaves

PORTS = Ports()
"""Those of this process."""
free_ports = PORTS.take
"""Returns so many ports that nobody listens on, nor will by chance; see Ports.take."""


class ProcessError(Exception):
    """A server process did not come up or go down; the text holds its last words."""


class ProcessEnded(ProcessError):
    """A server process ended by itself where it was to serve."""


class ServerProcess:
    """One server in a process of its own; `start` may be called again after `kill` or `stop`."""

    begin = staticmethod(begin)
    """How all of them are begun."""

    def __init__(
        self, name: str, arguments: Sequence[str], *, port: int, http_port: int, log: Path, host: str = HOST
    ) -> None:
        """`arguments` follow ``raftmq``; `port` is where it serves clients, `http_port` where it says it is ready."""
        self.name = name
        self.host = host
        self.address = f"{host}:{port}"
        self.http_port = http_port
        self.log = log
        self.arguments = tuple(arguments)
        """What follows ``raftmq``."""
        self.environment: dict[str, str] = {}
        """Variables that the next start has beside those of this process."""
        self.tls: ssl.SSLContext | None = None
        """What its HTTP port is asked with; None: plainly."""
        self.within: Sequence[str] = ()
        """The command that the next start is run by: ``nsenter …`` for a process in another namespace."""
        self._arguments = [*MODULE, "raftmq.cli.main", *arguments]
        self._process: Begun | None = None

    def run_by(self, program: Sequence[str]) -> None:
        """Have the next start run ``python -m program…`` with the same arguments, in place of ``raftmq``."""
        self._arguments = [*MODULE, *program, *self.arguments]

    def signal(self, number: int) -> None:
        """Send the process a signal; one that is gone gets none."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """The process's id; it must have been started."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before its first start."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the process and wait until it is ready; raises ProcessError."""
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start the process without waiting."""
        assert not self.running, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
            self._process = self.begin([*self.within, *self._arguments], log, environment | self.environment)
        watch(self._process.pid)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the process says that it serves; raises ProcessError when it ended or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if self.exit_code is not None:
                raise ProcessEnded(f"{self.name} ended with {self.exit_code} before it was ready:\n{self.last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ProcessError(f"{self.name} was not ready after {timeout_s:g} s:\n{self.last_words()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Ask the process to end in good order, without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Have the process end in good order; returns its exit code. Raises ProcessError when it does not."""
        if self._process is None:
            return 0
        self.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"{self.name} did not stop within {timeout_s:g} s:\n{self.last_words()}") from None

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has used, in user and system mode (Linux ``/proc``)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        # Fields 14 and 15 of proc(5), counted after the command name, are utime and stime in clock ticks.
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Return the memory that the process holds, in MB (resident set of Linux ``/proc``)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def anonymous_mb(self) -> float:
        """Return the memory that is the process's own, in MB: without the files that it maps (Linux ``/proc``)."""
        return anonymous_mb(self.pid)

    def disk_reads_mb(self) -> float:
        """Return what the process has had read from the disk so far, in MB: what the page cache did not have."""
        for line in Path(f"/proc/{self.pid}/io").read_text(encoding="ascii").splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1]) / 1e6
        raise ProcessError(f"this kernel does not tell what {self.name} reads")

    def last_words(self) -> str:
        """Return the end of the process's log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "(it left no log)"
        return "\n".join(lines[-LOG_LINES_SHOWN:]) or "(it said nothing)"

    def http(self) -> http.client.HTTPConnection:
        """Return a connection to its HTTP port, which is made when something is asked: OSError then."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.http_port, timeout=HTTP_S)
        return http.client.HTTPSConnection(self.host, self.http_port, timeout=HTTP_S, context=self.tls)

    def state(self, path: str) -> Any | None:
        """Return what the process tells at an HTTP path such as ``/v1/raft``, None when it does not answer with 200."""
        connection = self.http()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return orjson.loads(response.read()) if response.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
            return None
        finally:
            connection.close()

    def ready(self) -> bool:
        """Ask the process whether it serves (``/readyz``)."""
        connection = self.http()
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def anonymous_mb(pid: int | str) -> float:
    """Return a process's own memory in MB, without the files that it maps; "self": this one's (Linux ``/proc``)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessError(f"this kernel does not tell the memory of process {pid}")


def namesrv_process(
    folder: Path, *, port: int = 0, settings: Mapping[str, object] | None = None, keep: bool = False
) -> ServerProcess:
    """Make a NameServer whose files live in `folder`; port 0 takes a free one.

    `keep`: see broker_process.
    """
    path = folder / "namesrv.conf"
    port, http_port = _ports(path, port, keep=keep)
    values = {
        **(kept_values(path) if keep else {}),
        "listenPort": port,
        "bindAddress": HOST,
        "httpPort": http_port,
        "kvConfigPath": str(folder / "kvConfig.json"),
        **(settings or {}),
    }
    config = _write_config(path, values)
    arguments = ["namesrv", "-c", str(config)]
    log, host = folder / "namesrv.log", _reached_at(str(values["bindAddress"]))
    return ServerProcess("NameServer", arguments, port=port, http_port=http_port, log=log, host=host)


def broker_process(
    folder: Path,
    *,
    namesrv: str = "",
    port: int = 0,
    settings: Mapping[str, object] | None = None,
    name: str = "broker",
    force: bool = False,
    keep: bool = False,
) -> ServerProcess:
    """Make a broker whose store and log live in `folder`; port 0 takes a free one, `namesrv` may be empty.

    `force`: see ``raftmq broker --force``. `keep`: what its configuration file says from an earlier start stays, but
    for what is given here; port 0 is then the one it had.
    """
    path = folder / "broker.conf"
    port, http_port = _ports(path, port, keep=keep)
    values = {
        "brokerName": "broker-a",
        "brokerIP1": HOST,
        "bindAddress": HOST,
        "vipPortEnable": False,  # its port is listenPort-2, which another process may well have
        "haListenPort": HA_CLOSED,  # the same of listenPort+1; classic_processes opens one
        **(kept_values(path) if keep else {}),
        "listenPort": port,
        "httpPort": http_port,
        "namesrvAddr": namesrv,
        "storePathRootDir": str(folder / "store"),
        **(settings or {}),
    }
    config = _write_config(path, values)
    arguments = ["broker", "-c", str(config), *(["--force"] if force else [])]
    log, host = folder / "broker.log", _reached_at(str(values["bindAddress"]))
    return ServerProcess(name, arguments, port=port, http_port=http_port, log=log, host=host)


def raft_processes(
    folder: Path,
    nodes: int,
    *,
    namesrv: str = "",
    port: int = 0,
    settings: Mapping[str, object] | None = None,
    keep: bool = False,
) -> list[ServerProcess]:
    """Make the members n0, n1, … of one Raft group, in folders of these names below `folder`.

    `port` is the first member's listenPort, the others follow in steps of ten; 0 takes free ones. `keep`: see
    broker_process; the log of a group knows its members by their Raft ports.
    """
    ports = free_ports(2 * nodes)
    raft_ports, ha_ports = ports[:nodes], ports[nodes:]
    if keep:
        known = kept_peers(folder)
        raft_ports = [known.get(f"n{number}", fresh) for number, fresh in enumerate(raft_ports)]
        ha_ports = [
            kept_port(folder / f"n{number}" / "broker.conf", "haListenPort") or fresh
            for number, fresh in enumerate(ha_ports)
        ]
    peers = ";".join(f"n{number}-{HOST}:{raft_port}" for number, raft_port in enumerate(raft_ports))
    return [
        broker_process(
            folder / f"n{number}",
            namesrv=namesrv,
            port=port + 10 * number if port else 0,
            name=f"broker n{number}",
            settings={
                "enableDLegerCommitLog": True,
                "dLegerGroup": "broker-a",
                "dLegerPeers": peers,
                "dLegerSelfId": f"n{number}",
                "haListenPort": ha_ports[number],  # closed in a group; for what it may become
                **(settings or {}),
            },
            keep=keep,
        )
        for number in range(nodes)
    ]


def classic_processes(
    folder: Path,
    slaves: int,
    *,
    role: str,
    flush: str = "ASYNC_FLUSH",
    namesrv: str = "",
    port: int = 0,
    settings: Mapping[str, object] | None = None,
) -> list[ServerProcess]:
    """Make a master and its slaves, in folders "master", "slave1", … below `folder`; the master is the first.

    `role` is the master's brokerRole, `flush` the flushDiskType of all. Slaves find the master through the NameServer.
    `port` is the master's listenPort, the others follow in steps of ten; 0 takes free ones.
    """
    # Slaves have a port of their own too: one that is promoted opens it.
    ha_ports = free_ports(1 + slaves)
    return [
        broker_process(
            folder / (f"slave{number}" if number else "master"),
            namesrv=namesrv,
            port=port + 10 * number if port else 0,
            name=f"slave {number}" if number else "master",
            settings={
                "brokerRole": "SLAVE" if number else role,
                "brokerId": number,
                "haListenPort": ha_port,
                "flushDiskType": flush,
                **(settings or {}),
            },
        )
        for number, ha_port in enumerate(ha_ports)
    ]


def _ports(config: Path, port: int, *, keep: bool) -> tuple[int, int]:
    """Return where a server listens and has its HTTP port: as given, as its file says, or free ones."""
    free, http_port = free_ports(2)
    if not keep:
        return port or free, http_port
    kept = kept_port(config, "httpPort")
    # Nobody but us needs to know the HTTP port: one that somebody has taken meanwhile is no reason not to start.
    return port or kept_port(config, "listenPort") or free, kept if kept and is_free(kept) else http_port


def _reached_at(bind_address: str) -> str:
    """Return the address by which a server here is reached that listens there."""
    return HOST if ipaddress.ip_address(bind_address).is_unspecified else bind_address


def _write_config(path: Path, values: Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _SECRET_KEYS.isdisjoint(values):
        path.touch(mode=0o600)
        path.chmod(0o600)
    path.write_text(format_properties(values), encoding="utf-8")
    return path


def reading_s(store: Path) -> float:
    """Return how many seconds a start may take to read the whole log of a store."""
    return sum(path.stat().st_size for path in (store / "commitlog").glob("*")) / READ_BYTES_PER_S
