"""The real RocketMQ: a NameServer and brokers with heaps of 1 GiB, their settings RocketMQ's own but for the roles.

And but for one: how long a send may wait in the broker's queue, 200 ms by default, beyond which it is refused. On a
small machine with many in flight that would end rounds in which all else goes well.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.host.processes import HOST, ProcessError, free_ports
from client.admin.client import AdminClient
from client.errors import ClientError
from raftmq.bench.peers.processes import PeerProcess
from remoting.errors import RemotingError
from runtime.config import format_properties

STARTED = "boot success"
QUEUED_MS_MAX = 5000
NAME, CLUSTER = "broker-a", "DefaultCluster"
# Heap and direct memory of a broker; G1 is what RocketMQ's own script takes.
BROKER_JAVA = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC")
NAMESRV_JAVA = ("-Xms128m", "-Xmx128m", "-XX:+UseSerialGC")

Settings = Mapping[str, object]


def single() -> list[Settings]:
    """Return the settings of one broker."""
    return [{"brokerId": 0, "brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH"}]


def pair() -> list[Settings]:
    """Return those of a master that waits for its slave, and of the slave."""
    both = {"flushDiskType": "ASYNC_FLUSH", "totalReplicas": 2, "inSyncReplicas": 2}
    return [{**both, "brokerId": 0, "brokerRole": "SYNC_MASTER"}, {**both, "brokerId": 1, "brokerRole": "SLAVE"}]


def dledger(nodes: int = 3) -> list[Settings]:
    """Return those of a DLedger group."""
    peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(free_ports(nodes)))
    return [
        {"enableDLegerCommitLog": True, "dLegerGroup": NAME, "dLegerPeers": peers, "dLegerSelfId": f"n{number}"}
        for number in range(nodes)
    ]


class RocketSystem:
    """A NameServer and its brokers."""

    protocol = "rocketmq"

    def __init__(self, folder: Path, jars: str, brokers: Sequence[Settings]) -> None:
        """`jars` is Java's class path; `brokers` are keys of each broker's configuration file."""
        namesrv_port, *ports = free_ports(1 + len(brokers))
        self._namesrv_address = f"{HOST}:{namesrv_port}"
        home = folder / "namesrv"
        values = {"listenPort": namesrv_port, "bindAddress": HOST, "kvConfigPath": home / "kvConfig.json"}
        startup = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self._namesrv = _server("RocketMQ's NameServer", home, jars, NAMESRV_JAVA, startup, values)
        self._brokers = []
        for number, (port, settings) in enumerate(zip(ports, brokers, strict=True)):
            home = folder / f"broker{number}"
            values = {
                "brokerClusterName": CLUSTER,
                "brokerName": NAME,
                "brokerIP1": HOST,
                "bindAddress": HOST,
                "listenPort": port,
                "haListenPort": port + 1,
                "namesrvAddr": self._namesrv_address,
                "storePathRootDir": home / "store",
                "storePathCommitLog": home / "store" / "commitlog",
                "waitTimeMillsInSendQueue": QUEUED_MS_MAX,
                **settings,
            }
            startup = "org.apache.rocketmq.broker.BrokerStartup"
            self._brokers.append(_server(f"RocketMQ's broker {number}", home, jars, BROKER_JAVA, startup, values))

    def start(self) -> None:
        """Start everything and wait until each says that it serves; raises ProcessError."""
        self._serve([self._namesrv])
        # Together: a slave asks for its master, and of a DLedger group two have to be there.
        self._serve(self._brokers)

    async def port(self) -> int:
        """Return the port of the broker that the route says is the master; raises ProcessError without one."""
        try:
            async with AdminClient(self._namesrv_address) as admin:
                masters = [broker.address for broker in await admin.brokers(None) if broker.broker_id == 0]
        except (ClientError, RemotingError) as error:
            raise ProcessError(f"RocketMQ's NameServer does not tell its brokers: {error}") from error
        if not masters:
            raise ProcessError("no broker of RocketMQ leads")
        return int(masters[0].rpartition(":")[2])

    def settled(self) -> None:
        """Nothing has to be asked: a master that waits for its slave answers an error until that has come."""

    def pids(self) -> list[int]:
        """Return the processes that were started."""
        return [server.pid for server in (self._namesrv, *self._brokers)]

    @staticmethod
    def _serve(servers: Sequence[PeerProcess]) -> None:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_until(lambda server=server: STARTED in server.said())  # type: ignore[misc]

    def kill(self) -> None:
        """End everything at once."""
        for server in (*self._brokers, self._namesrv):
            server.kill()


def _server(
    name: str, home: Path, jars: str, flags: Sequence[str], startup: str, values: Mapping[str, object]
) -> PeerProcess:
    home.mkdir(parents=True)
    config = home / "server.conf"
    config.write_text(format_properties(values))
    command = ["java", *flags, f"-Duser.home={home}", "-cp", jars, startup, "-c", str(config)]
    return PeerProcess(name, command, home / "java.log", {"ROCKETMQ_HOME": str(home)})
