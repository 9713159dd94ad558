"""What all themes of administration share: the connections, and which brokers a request goes to."""

from collections.abc import Sequence
from dataclasses import dataclass

from client.api import BrokerApi
from client.credentials import Credentials, credentials_for
from client.errors import ClientClosed, RouteError
from client.lifecycle import Lifecycle
from client.nameservers import NameServers, parse_addresses
from client.options import number_of_seconds
from client.routes import MASTER_ID
from client.tls import tls_of
from remoting.bodies.registry import ClusterInfo, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.base import Header
from runtime.tls import ClientTls

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, order=True)
class BrokerEntry:
    """One broker process as the NameServers know it; id 0 is the master."""

    cluster: str
    name: str
    broker_id: int
    address: str


class AdminBase(Lifecycle):
    """Connections of an administrator. Use as ``async with AdminClient(...) as admin``."""

    noun = "admin client"

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *,
        timeout: float = TIMEOUT_S,
        tls: bool | ClientTls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`timeout` (s) bounds each request. Connections are made when they are needed.

        `tls`: see client/tls.py; `credentials`: client/credentials.py.
        """
        self._tls, self._credentials = tls_of(tls), credentials_for(credentials)
        self._addresses = parse_addresses(namesrv)
        self._timeout = number_of_seconds("timeout", timeout, 0.0)
        self._remoting: RemotingClient | None = None

    async def _start(self) -> None:
        self._remoting = RemotingClient(tls=self._tls, credentials=self._credentials)
        self._nameservers = NameServers(self._remoting, self._addresses)
        self._api = BrokerApi(self._remoting, self._nameservers)

    async def _close(self) -> None:
        if self._remoting is not None:
            remoting, self._remoting = self._remoting, None
            await remoting.close()

    async def cluster_info(self) -> ClusterInfo:
        """Return all broker groups and the clusters that they make up."""
        return ClusterInfo.decode((await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def brokers(self, cluster: str | None = None) -> list[BrokerEntry]:
        """Return all broker processes (of one cluster), sorted; RouteError when there is no such cluster."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.clusterAddrTable:
            known = ", ".join(sorted(info.clusterAddrTable)) or "none"
            raise RouteError(f"the NameServers know no cluster {cluster} (they know: {known})", retriable=False)
        return sorted(
            BrokerEntry(data.cluster, data.brokerName, broker_id, address)
            for data in info.brokerAddrTable.values()
            if cluster is None or data.cluster == cluster
            for broker_id, address in data.brokerAddrs.items()
        )

    async def masters(self, cluster: str | None = None, address: str | None = None) -> list[str]:
        """Return `address`, or all masters (of one cluster); RouteError when there is none."""
        if address is not None:
            return [address]
        found = [broker.address for broker in await self.brokers(cluster) if broker.broker_id == MASTER_ID]
        if not found:
            raise RouteError(
                f"no broker has registered with the NameServers {self._nameservers.describe()}: start one",
                retriable=True,
            )
        return found

    async def route(self, topic: str) -> TopicRouteData | None:
        """Return where a topic's queues are, None when the NameServers do not know it."""
        self._open()
        return await self._api.route(topic)

    async def _topic_brokers(self, topic: str) -> dict[str, str]:
        """Return broker name → address of who answers for it; RouteError when the topic is not known."""
        route = await self.route(topic)
        if route is None:
            raise RouteError(
                f"No topic route info for topic {topic} (NameServers asked: {self._nameservers.describe()}): "
                f"`raftmq topic list` shows the topics that there are",
                retriable=False,
            )
        return {
            data.brokerName: data.brokerAddrs.get(MASTER_ID) or data.brokerAddrs[min(data.brokerAddrs)]
            for data in route.brokerDatas
            if data.brokerAddrs
        }

    async def _call(
        self, address: str, code: int, header: Header | None = None, body: bytes = b"", timeout: float | None = None
    ) -> Command:
        """Ask a broker; raises InvokeError."""
        return await self._open().call(address, code, header, body, self._timeout if timeout is None else timeout)

    async def _ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Ask any NameServer; raises ResponseError or RouteError."""
        self._open()
        return await self._nameservers.call(code, header, body)

    def _open(self) -> RemotingClient:
        if self._remoting is None:
            raise ClientClosed("this admin client is not started, or was closed")
        return self._remoting
