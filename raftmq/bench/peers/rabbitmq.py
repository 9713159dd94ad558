"""RabbitMQ: three Erlang nodes on loopback, with a name service of their own, and a quorum queue on all of them."""

import json
import shutil
import socket
from pathlib import Path

from chaos.host.processes import HOST, ProcessError, free_ports
from raftmq.bench.peers.processes import PeerProcess, run_to_end

NODES = 3
TOOL_TIMEOUT_S = 90.0
# Debian's commands of these names change to the service's user and its folders; behind them are RabbitMQ's own.
DEBIAN = Path("/usr/lib/rabbitmq/bin")


def program(name: str) -> str | None:
    """Return one of RabbitMQ's programs, None when it is not installed."""
    return shutil.which(name, path=str(DEBIAN)) or shutil.which(name)


class RabbitSystem:
    """The nodes, and the queue that the load's client declares."""

    protocol = "amqp"

    def __init__(self, folder: Path, queue: str) -> None:
        self._folder = folder
        self._queue = queue
        epmd_port, *ports = free_ports(1 + 2 * NODES)
        self._ports = ports[:NODES]
        folder.mkdir(parents=True)
        cookie = folder / ".erlang.cookie"
        cookie.write_text("PEERSSIDEBYSIDE")
        cookie.chmod(0o400)
        self._common = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            # What the machine's own service is told is not for these.
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-env.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "no-advanced.config"),
            "RABBITMQ_CONFIG_FILES": str(folder / "no-more"),
        }
        self._epmd = PeerProcess("epmd", ["epmd"], folder / "epmd.log", self._common)
        self._nodes = [
            self._node(number, port, dist)
            for number, (port, dist) in enumerate(zip(self._ports, ports[NODES:], strict=True))
        ]

    def start(self) -> None:
        """Start the nodes, the first one alone, so that the others find it; raises ProcessError."""
        self._epmd.launch()
        self._epmd.wait_until(lambda: _listens(int(self._common["ERL_EPMD_PORT"])))
        for node, port in zip(self._nodes, self._ports, strict=True):
            node.launch()
            node.wait_until(lambda port=port: _listens(port))  # type: ignore[misc]

    async def port(self) -> int:
        """Return the first node's port: a queue is led by the node on which it was declared."""
        return self._ports[0]

    def settled(self) -> None:
        """Make sure that the queue has a member on each node and is led by the first; raises ProcessError."""
        tool = program("rabbitmqctl")
        assert tool is not None
        columns = ("name", "leader", "members")
        command = [tool, "-q", "-n", _name(0), "list_queues", *columns, "--formatter", "json"]
        said = run_to_end(command, TOOL_TIMEOUT_S, self._common)
        try:
            (found,) = json.loads(said)
            good = len(found["members"]) == NODES and found["leader"] == _name(0)
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise ProcessError(f"the quorum queue is not led by {_name(0)} with {NODES} members: {said[:500]}")

    def pids(self) -> list[int]:
        """Return the processes that were started."""
        return [process.pid for process in (self._epmd, *self._nodes)]

    def kill(self) -> None:
        """End everything at once."""
        for process in (*self._nodes, self._epmd):
            process.kill()

    def _node(self, number: int, port: int, dist_port: int) -> PeerProcess:
        home = self._folder / f"node{number}"
        home.mkdir()
        config, plugins = home / "rabbitmq.conf", home / "enabled_plugins"
        joined = [_name(0)] if number == 0 else [_name(0), _name(number)]
        lines = [
            f"listeners.tcp.1 = {HOST}:{port}",
            "log.file.level = warning",
            "cluster_formation.peer_discovery_backend = classic_config",
            *(f"cluster_formation.classic_config.nodes.{place} = {name}" for place, name in enumerate(joined, 1)),
        ]
        config.write_text("\n".join(lines) + "\n")
        plugins.write_text("[].\n")
        environment = {
            **self._common,
            "RABBITMQ_NODENAME": _name(number),
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # The script becomes the node, instead of waiting for it.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        return PeerProcess(_name(number), [program("rabbitmq-server") or ""], home / "node.log", environment)


def _name(number: int) -> str:
    return f"peer{number}@localhost"


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
