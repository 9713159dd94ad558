"""Administration of topics."""

from collections.abc import Mapping

from client.admin.base import AdminBase
from remoting.bodies.registry import GroupList, TopicConfig, TopicConfigTable, TopicList, TopicStatsTable
from remoting.codes import Perm, RequestCode, ResponseCode
from remoting.errors import ResponseError
from remoting.headers.registry import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from remoting.topics import AUTO_CREATE_TOPIC, check_topic

QUEUES_DEFAULT = 8


class TopicAdmin(AdminBase):
    """Topics."""

    async def topics(self, cluster: str | None = None) -> list[str]:
        """Return the names of all topics (of one cluster), sorted."""
        if cluster is None:
            answer = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            answer = await self._ask(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return sorted(TopicList.decode(answer.body).topicList)

    async def system_topics(self) -> list[str]:
        """Return the names that belong to the system (clusters', brokers', internal ones), sorted."""
        answer = await self._ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        found = set(TopicList.decode(answer.body).topicList)
        for address in await self.masters():
            answer = await self._call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            found.update(TopicList.decode(answer.body).topicList)
        return sorted(found)

    async def create_topic(
        self,
        topic: str,
        *,
        read_queues: int = QUEUES_DEFAULT,
        write_queues: int = QUEUES_DEFAULT,
        perm: int = Perm.READ | Perm.WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        address: str | None = None,
    ) -> list[str]:
        """Create or change a topic at one broker or at all masters; returns the addresses.

        Raises ValueError for a bad name, InvokeError at the first broker that refuses.
        """
        wrong = check_topic(topic)
        if wrong is not None:
            raise ValueError(wrong)
        header = CreateTopicRequestHeader(
            topic=topic,
            defaultTopic=AUTO_CREATE_TOPIC,
            readQueueNums=read_queues,
            writeQueueNums=write_queues,
            perm=int(perm),
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=order,
            attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()) or None,
        )
        targets = await self.masters(cluster, address)
        for target in targets:
            await self._call(target, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        return targets

    async def delete_topic(self, topic: str, cluster: str | None = None) -> list[str]:
        """Delete a topic and its offsets at all brokers and NameServers; returns the brokers' addresses."""
        targets = await self.masters(cluster)
        for target in targets:
            await self._call(target, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, clusterName=cluster)
        await self._nameservers.call_all(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        return targets

    async def topic_config(self, topic: str, address: str) -> TopicConfig | None:
        """Return how a broker has configured a topic, None when it does not know it."""
        try:
            answer = await self._call(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return TopicConfig.decode(answer.body)

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Return all topics of a broker."""
        answer = await self._call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigTable.decode(answer.body).topicConfigTable

    async def topic_stats(self, topic: str) -> TopicStatsTable:
        """Return the offsets of all queues of a topic, over all its brokers; RouteError when there is no such topic."""
        merged = TopicStatsTable(offsetTable={})
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        for address in (await self._topic_brokers(topic)).values():
            answer = await self._call(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            stats = TopicStatsTable.decode(answer.body)
            merged.offsetTable.update(stats.offsetTable)
            merged.topicPutTps += stats.topicPutTps
        return merged

    async def topic_groups(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have offsets in it, sorted."""
        found: set[str] = set()
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        for address in (await self._topic_brokers(topic)).values():
            answer = await self._call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            found.update(GroupList.decode(answer.body).groupList)
        return sorted(found)
