"""Administration of brokers and NameServers: configuration, figures, permissions, KV settings."""

from collections.abc import Mapping

from client.admin.base import AdminBase
from remoting.bodies.registry import BrokerStatsData, KVTable, ProducerTableInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ResponseError
from remoting.headers.registry import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from runtime.config import format_properties, parse_properties


class ClusterAdmin(AdminBase):
    """Brokers and NameServers."""

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return a broker's effective configuration."""
        answer = await self._call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(bytes(answer.body).decode())

    async def update_broker_config(
        self, values: Mapping[str, object], *, cluster: str | None = None, address: str | None = None
    ) -> list[str]:
        """Change keys at one broker or at all masters; returns the addresses, raises at the first that refuses."""
        body = format_properties(values).encode()
        targets = await self.masters(cluster, address)
        for target in targets:
            await self._call(target, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        return targets

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return a broker's figures under RocketMQ's names."""
        answer = await self._call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answer.body).table

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData:
        """Return one counter of a broker, such as TOPIC_PUT_NUMS of a topic, over a minute, an hour and a day."""
        header = ViewBrokerStatsDataRequestHeader(statsName=name, statsKey=key)
        return BrokerStatsData.decode((await self._call(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body)

    async def producers(self, address: str) -> ProducerTableInfo:
        """Return all producers that are connected to a broker, by group."""
        return ProducerTableInfo.decode((await self._call(address, RequestCode.GET_ALL_PRODUCER_INFO)).body)

    async def wipe_write_perm(self, broker: str) -> int:
        """Have every NameServer take write permission from a broker's topics; returns how many lost it, summed up."""
        header = WipeWritePermOfBrokerRequestHeader(brokerName=broker)
        self._open()
        answers = await self._nameservers.call_all(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return sum(answer.header(WipeWritePermOfBrokerResponseHeader).wipeTopicCount for answer in answers)

    async def add_write_perm(self, broker: str) -> int:
        """Have every NameServer give write permission to a broker's topics; returns how many got it, summed up."""
        header = AddWritePermOfBrokerRequestHeader(brokerName=broker)
        self._open()
        answers = await self._nameservers.call_all(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return sum(answer.header(AddWritePermOfBrokerResponseHeader).addTopicCount for answer in answers)

    async def clean_expired_queues(self, *, cluster: str | None = None, address: str | None = None) -> list[str]:
        """Have brokers drop ConsumeQueue files that lead nowhere; returns the addresses."""
        return await self._everywhere(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, address)

    async def delete_expired_commitlog(self, *, cluster: str | None = None, address: str | None = None) -> list[str]:
        """Have brokers run retention now; returns the addresses."""
        return await self._everywhere(RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, address)

    async def clean_unused_topics(self, *, cluster: str | None = None, address: str | None = None) -> list[str]:
        """Have brokers drop queues of topics that no longer exist; returns the addresses."""
        return await self._everywhere(RequestCode.CLEAN_UNUSED_TOPIC, cluster, address)

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the configuration of every NameServer, by address."""
        remoting = self._open()
        found: dict[str, dict[str, str]] = {}
        for address in self._addresses:
            answer = await remoting.call(address, RequestCode.GET_NAMESRV_CONFIG, timeout=self._timeout)
            found[address] = parse_properties(bytes(answer.body).decode())
        return found

    async def update_namesrv_config(self, values: Mapping[str, object]) -> None:
        """Change keys at every NameServer."""
        self._open()
        await self._nameservers.call_all(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_properties(values).encode())

    async def kv_get(self, namespace: str, key: str) -> str | None:
        """Return a KV setting, None when there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        try:
            answer = await self._ask(RequestCode.GET_KV_CONFIG, header)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return answer.header(GetKVConfigResponseHeader).value

    async def kv_put(self, namespace: str, key: str, value: str) -> None:
        """Set a KV setting at every NameServer."""
        self._open()
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._nameservers.call_all(RequestCode.PUT_KV_CONFIG, header)

    async def kv_delete(self, namespace: str, key: str) -> None:
        """Remove a KV setting at every NameServer."""
        self._open()
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        await self._nameservers.call_all(RequestCode.DELETE_KV_CONFIG, header)

    async def kv_list(self, namespace: str) -> dict[str, str]:
        """Return all KV settings of a namespace."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        try:
            answer = await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return KVTable.decode(answer.body).table

    async def _everywhere(self, code: int, cluster: str | None, address: str | None) -> list[str]:
        targets = await self.masters(cluster, address)
        for target in targets:
            await self._call(target, code)
        return targets
