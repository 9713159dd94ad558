"""Administration of consumer groups: configuration, members, progress, offsets."""

from dataclasses import dataclass

from client.admin.base import AdminBase
from client.errors import RouteError
from remoting.bodies.registry import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    MessageQueue,
    MessageRequestModeTable,
    ProducerConnection,
    ResetOffsetBody,
    SetMessageRequestModeBody,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import InvokeError, ResponseError
from remoting.headers.registry import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ResetOffsetRequestHeader,
)
from remoting.topics import check_group, retry_topic

# What a broker says of a group that it has nothing of.
_NOTHING_HERE = frozenset(
    {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.CONSUMER_NOT_ONLINE}
)
TO_THE_END = -1


@dataclass(frozen=True, slots=True, order=True)
class QueueProgress:
    """How far a group has come in one queue; `consumed_ms` is the store time of the last message consumed."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    consumed_ms: int

    @property
    def lag(self) -> int:
        """Return how many messages are to be consumed; never negative, whatever the two offsets say."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come; `tps` is what it consumes per second."""

    group: str
    queues: list[QueueProgress]
    tps: float

    @property
    def lag(self) -> int:
        """Return how many messages are to be consumed in all queues."""
        return sum(queue.lag for queue in self.queues)


class GroupAdmin(AdminBase):
    """Consumer groups."""

    async def groups(
        self, *, cluster: str | None = None, address: str | None = None
    ) -> dict[str, SubscriptionGroupConfig]:
        """Return all groups by name, over one broker or all masters (the first broker's configuration counts)."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for target in await self.masters(cluster, address):
            answer = await self._call(target, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            for name, config in SubscriptionGroupTable.decode(answer.body).subscriptionGroupTable.items():
                found.setdefault(name, config)
        return dict(sorted(found.items()))

    async def create_group(
        self, config: SubscriptionGroupConfig | str, *, cluster: str | None = None, address: str | None = None
    ) -> list[str]:
        """Create or change a group at one broker or at all masters; returns the addresses. A name takes the defaults.

        Raises ValueError for a bad name, InvokeError at the first broker that refuses.
        """
        wanted = SubscriptionGroupConfig(groupName=config) if isinstance(config, str) else config
        wrong = check_group(wanted.groupName)
        if wrong is not None:
            raise ValueError(wrong)
        targets = await self.masters(cluster, address)
        for target in targets:
            await self._call(target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=wanted.encode())
        return targets

    async def delete_group(
        self, group: str, *, clean_offsets: bool = False, cluster: str | None = None, address: str | None = None
    ) -> list[str]:
        """Delete a group, with its offsets if asked; returns the addresses."""
        header = DeleteSubscriptionGroupRequestHeader(groupName=group, cleanOffset=clean_offsets)
        targets = await self.masters(cluster, address)
        for target in targets:
            await self._call(target, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        return targets

    async def consumer_connection(self, group: str) -> ConsumerConnection | None:
        """Return a group's members and subscriptions, over all brokers; None when nobody is online."""
        header = GetConsumerConnectionListRequestHeader(consumerGroup=group)
        found: ConsumerConnection | None = None
        for address in await self.masters():
            try:
                answer = await self._call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            except ResponseError as error:
                if error.code in _NOTHING_HERE:
                    continue
                raise
            here = ConsumerConnection.decode(answer.body)
            if found is None:
                found = here
                continue
            known = {connection.clientId for connection in found.connectionSet}
            found.connectionSet += [new for new in here.connectionSet if new.clientId not in known]
            found.subscriptionTable = {**here.subscriptionTable, **found.subscriptionTable}
        return found

    async def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """Return the members of a producer group at the brokers of a topic."""
        header = GetProducerConnectionListRequestHeader(producerGroup=group)
        found = ProducerConnection(connectionSet=[])
        for address in (await self._topic_brokers(topic)).values():
            try:
                answer = await self._call(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except ResponseError as error:
                if error.code == ResponseCode.SYSTEM_ERROR:
                    continue
                raise
            known = {connection.clientId for connection in found.connectionSet}
            here = ProducerConnection.decode(answer.body).connectionSet
            found.connectionSet += [new for new in here if new.clientId not in known]
        return found

    async def consume_progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """Return how far a group has come, in one topic or in all that it consumes."""
        header = GetConsumeStatsRequestHeader(consumerGroup=group, topic=topic)
        queues: list[QueueProgress] = []
        tps = 0.0
        for address in await self.masters():
            try:
                answer = await self._call(address, RequestCode.GET_CONSUME_STATS, header)
            except ResponseError as error:
                if error.code in _NOTHING_HERE:
                    continue
                raise
            stats = ConsumeStats.decode(answer.body)
            tps += stats.consumeTps
            queues += [
                QueueProgress(queue, at.brokerOffset, at.consumerOffset, at.lastTimestamp)
                for queue, at in stats.offsetTable.items()
            ]
        return GroupProgress(group, sorted(queues), tps)

    async def group_topics(self, group: str) -> list[str]:
        """Return the topics that a group has offsets in or subscribes, sorted."""
        header = QueryTopicsByConsumerRequestHeader(group=group)
        found: set[str] = set()
        for address in await self.masters():
            try:
                answer = await self._call(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
            except ResponseError as error:
                if error.code in _NOTHING_HERE:
                    continue
                raise
            found.update(TopicList.decode(answer.body).topicList)
        found.discard(retry_topic(group))
        return sorted(found)

    async def reset_offset(
        self, group: str, topic: str, *, timestamp_ms: int = TO_THE_END, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Set a group's offsets in a topic to a time (-1: to the end); members that are online go on there.

        Without `force` an offset is only moved back. Returns the new offsets.
        """
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=timestamp_ms, isForce=force)
        found: dict[MessageQueue, int] = {}
        for address in (await self._topic_brokers(topic)).values():
            answer = await self._call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            found.update(ResetOffsetBody.decode(answer.body).offsetTable)
        return found

    async def reset_queue_offset(self, group: str, queue: MessageQueue, offset: int) -> dict[MessageQueue, int]:
        """Set a group's offset in one queue; returns the new offset by queue."""
        header = ResetOffsetRequestHeader(
            group=group, topic=queue.topic, queueId=queue.queueId, offset=offset, timestamp=TO_THE_END, isForce=True
        )
        address = (await self._topic_brokers(queue.topic)).get(queue.brokerName)
        if address is None:
            raise RouteError(f"topic {queue.topic} has no broker {queue.brokerName}", retriable=False)
        answer = await self._call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return ResetOffsetBody.decode(answer.body).offsetTable

    async def clone_offsets(self, source: str, target: str, topic: str | None = None) -> None:
        """Give one group the offsets of another."""
        header = CloneGroupOffsetRequestHeader(srcGroup=source, destGroup=target, topic=topic)
        for address in await self.masters():
            await self._call(address, RequestCode.CLONE_GROUP_OFFSET, header)

    async def request_modes(
        self, *, cluster: str | None = None, address: str | None = None
    ) -> list[SetMessageRequestModeBody]:
        """Return the topics whose way of being read was set for a group, over one broker or all masters."""
        found: dict[tuple[str, str], SetMessageRequestModeBody] = {}
        for target in await self.masters(cluster, address):
            answer = await self._call(target, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
            for topic, groups in MessageRequestModeTable.decode(answer.body).messageRequestModeMap.items():
                for group, mode in groups.items():
                    share = mode.get("popShareQueueNum")
                    here = SetMessageRequestModeBody(
                        group, str(mode.get("mode")), share if isinstance(share, int) else 0, topic
                    )
                    found.setdefault((group, topic), here)
        return [found[key] for key in sorted(found)]

    async def set_request_mode(
        self, mode: SetMessageRequestModeBody, *, cluster: str | None = None, address: str | None = None
    ) -> list[str]:
        """Say how a group is to read a topic: its mode PULL or POP; returns the addresses of the brokers told.

        Members that ask (push consumers of RocketMQ with clientRebalance=false) pop then; a PushConsumer of ours takes
        no queues of what is popped.
        """
        targets = await self.masters(cluster, address)
        for target in targets:
            await self._call(target, RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode())
        return targets

    async def consumer_running_info(self, group: str, client_id: str) -> ConsumerRunningInfo:
        """Ask a member, through a broker that it is connected to, what it is doing; raises the last InvokeError."""
        header = GetConsumerRunningInfoRequestHeader(consumerGroup=group, clientId=client_id, jstackEnable=False)
        failure: InvokeError | None = None
        for address in await self.masters():
            try:
                answer = await self._call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            except InvokeError as error:
                failure = error
                continue
            return ConsumerRunningInfo.decode(answer.body)
        assert failure is not None, "masters() returns at least one"
        raise failure
