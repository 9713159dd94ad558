"""Administration of consumer offsets: 208 and 317 tell how far groups have come, 303 in time; 222 resets, 314 clones.

43 shows the whole table, 308 the lowest offsets of a topic's groups.
"""

import logging
from datetime import datetime

from broker.clients import GroupClient
from broker.context import BrokerContext, Tables
from broker.reply import OFFSET_MARK, WELL, Announce, ReportPace, no_group, no_topic, ok, whole_table
from remoting.bodies.registry import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpanBody,
    CorrectionOffsets,
    MessageQueue,
    OffsetWrapper,
    QueueOffset,
    QueueTimeSpan,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicConfig,
)
from remoting.codes import LanguageCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, InvokeError
from remoting.headers.registry import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)
from remoting.server import Connection, Handler

_log = logging.getLogger(__name__)

# What 308 answers for a queue in which the compared group is behind all others: nothing to correct (Java's Long.MAX).
_NOTHING_TO_CORRECT = 2**63 - 1


class AdminOffsets:
    """Handlers about consumer offsets."""

    def __init__(self, context: BrokerContext, tables: Tables, persist: Announce) -> None:
        """`persist` returns when the offsets are durable."""
        self._config, self._store, self._clock = context.live, context.store, context.clock
        self._topics, self._groups, self._offsets, self._clients, self._stats = tables
        self._address = context.address
        self._persist = persist

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def get_all(self, _connection: Connection, _request: Command) -> Command:
        """43: the whole table."""
        answer = ok(None, whole_table(self._offsets.encode(), "copy config/consumerOffset.json instead"))
        if self._offsets.lowerings is not None:
            answer.ext[OFFSET_MARK] = self._offsets.lowerings.mark
        return answer

    async def consume_stats(self, _connection: Connection, request: Command) -> Command:
        """208: how far a group has come in the topics named, or in all that it has an offset in."""
        header = request.header(GetConsumeStatsRequestHeader)
        wanted = [name for name in (header.topicList or "").split(";") if name]
        if header.topic:
            wanted = [header.topic]
        stats = ConsumeStats()
        pace = ReportPace()
        for topic in self._topics_of(header.consumerGroup, wanted):
            await self._add_stats(stats, header.consumerGroup, topic, pace)
        return ok(None, stats.encode())

    async def broker_consume_stats(self, _connection: Connection, request: Command) -> Command:
        """317: the same for all groups of this broker."""
        ordered_only = request.header(GetConsumeStatsInBrokerHeader).isOrder
        report = ConsumeStatsList(brokerAddr=self._address)
        pace = ReportPace()
        for group in list(self._groups.tables):
            of_group = []
            for topic in self._topics_of(group, []):
                if ordered_only and not topic.order:
                    continue
                stats = ConsumeStats()
                await self._add_stats(stats, group, topic, pace)
                report.totalDiff += stats.total_diff()
                report.totalInflightDiff += _inflight(stats)
                of_group.append(stats)
            if of_group:
                report.consumeStatsList.append({group: of_group})
            await pace.spend()
        return ok(None, report.encode())

    async def reset(self, _connection: Connection, request: Command) -> Command:
        """222: set a group's offsets in a topic to a time, to the end (-1), or in one queue to a number."""
        header = request.header(ResetOffsetRequestHeader)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise no_topic(header.topic)
        by_broker = self._config.broker.useServerSideResetOffset
        if self._groups.get(header.group) is None:
            raise _no_such_group(header.group, by_broker=by_broker)
        targets = self._targets(topic, header)
        online = self._clients.connections(header.group)
        if by_broker or not online:
            # Told at the next pull of whoever comes, or a consumer that is not heard of yet undoes it with a commit.
            # When resets are the clients' business, a group without any is only given the offsets.
            change = self._offsets.reset if by_broker else self._offsets.assign
            for queue, offset in targets.items():
                change(header.group, header.topic, queue.queueId, offset)
            await self._persist()
        else:
            self._tell_clients(online, header, targets)
        _log.info("group %s: offsets in %s reset by an administrator: %s", header.group, header.topic, _shown(targets))
        body = ResetOffsetBody(offsetTable=targets).encode()
        return Command.response(ResponseCode.SUCCESS, None if by_broker else WELL, None, body)

    async def time_span(self, _connection: Connection, request: Command) -> Command:
        """303: the times between which each queue's messages lie, and how late the group is."""
        header = request.header(QueryConsumeTimeSpanRequestHeader)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise no_topic(header.topic)
        spans = []
        pace = ReportPace()
        for queue_id in range(topic.writeQueueNums):
            spans.append(self._span(header.topic, header.group, queue_id))
            await pace.spend()
        return ok(None, ConsumeTimeSpanBody(consumeTimeSpanSet=spans).encode())

    def correction(self, _connection: Connection, request: Command) -> Command:
        """308: by queue, the lowest offset of a topic's groups, where the compared group is not behind it."""
        header = request.header(QueryCorrectionOffsetHeader)
        left_out = {name for name in (header.filterGroups or "").split(",") if name}
        lowest: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.offsets(group, header.topic).items():
                if offset >= self._store.min_offset(header.topic, queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        for queue_id, offset in self._offsets.offsets(header.compareGroup, header.topic).items():
            if lowest.get(queue_id, offset + 1) > offset:
                lowest[queue_id] = _NOTHING_TO_CORRECT
        return ok(None, CorrectionOffsets(correctionOffsets=lowest).encode())

    async def clone(self, connection: Connection, request: Command) -> Command:
        """314: give one group the offsets of another, in one topic or in all of them."""
        header = request.header(CloneGroupOffsetRequestHeader)
        # Made when it is new, as by its first consumer: the groups that there are bound what is kept of offsets.
        if self._groups.find(header.destGroup, connection) is None:
            raise no_group(header.destGroup)
        wanted = [header.topic] if header.topic else []
        for topic in self._topics_of(header.srcGroup, wanted, offline=header.offline):
            self._offsets.clone(header.srcGroup, header.destGroup, topic.topicName)
        await self._persist()
        return ok()

    def _topics_of(self, group: str, wanted: list[str], *, offline: bool = False) -> list[TopicConfig]:
        """Return the topics that count for a group: a connected one must subscribe to them still."""
        connected = None if offline else self._clients.consumer_group(group)
        found = []
        for name in wanted or self._offsets.topics_of(group):
            topic = self._topics.get(name)
            if topic is None:
                continue
            if connected is not None and connected.subscriptions and name not in connected.subscriptions:
                continue
            found.append(topic)
        return found

    async def _add_stats(self, stats: ConsumeStats, group: str, topic: TopicConfig, pace: ReportPace) -> None:
        name, broker = topic.topicName, self._config.broker.name()
        for queue_id in range(topic.readQueueNums):
            committed = self._offsets.query(group, name, queue_id)
            consumed = max(0, committed)
            stats.offsetTable[MessageQueue(name, broker, queue_id)] = OffsetWrapper(
                brokerOffset=max(0, self._store.max_offset(name, queue_id)),
                consumerOffset=consumed,
                pullOffset=consumed,
                lastTimestamp=max(0, self._store.store_time(name, queue_id, consumed - 1)) if consumed > 0 else 0,
            )
            await pace.spend()
        stats.consumeTps += self._stats.group_get_tps(group, name)

    def _targets(self, topic: TopicConfig, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        name, broker = topic.topicName, self._config.broker.name()
        if header.queueId >= topic.readQueueNums:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"topic {name} has no queue {header.queueId} on this broker"
            )
        if header.queueId >= 0 and header.offset is not None and header.offset >= 0:
            low, high = self._store.min_offset(name, header.queueId), self._store.max_offset(name, header.queueId)
            if not low <= header.offset <= high:
                raise CommandError(
                    ResponseCode.INVALID_PARAMETER,
                    f"offset {header.offset} is not in the queue's range {low} to {high}",
                )
            return {MessageQueue(name, broker, header.queueId): header.offset}
        queues = range(topic.readQueueNums) if header.queueId < 0 else (header.queueId,)
        targets = {}
        for queue_id in queues:
            if header.timestamp < 0:
                target = self._store.max_offset(name, queue_id)
            else:
                target = self._store.offset_by_time(name, queue_id, header.timestamp)
            known = self._offsets.query(header.group, name, queue_id)
            # Without force an offset only goes back, to see messages again; none are skipped.
            if not header.isForce and 0 <= known < target:
                target = known
            targets[MessageQueue(name, broker, queue_id)] = target
        return targets

    def _tell_clients(
        self, members: list[GroupClient], header: ResetOffsetRequestHeader, targets: dict[MessageQueue, int]
    ) -> None:
        """220: the clients stop, store the new offsets and go on from there."""
        for member in members:
            body: ResetOffsetBody | ResetOffsetBodyForC = ResetOffsetBody(offsetTable=targets)
            if member.language == LanguageCode.CPP:
                body = ResetOffsetBodyForC(
                    offsetTable=[
                        QueueOffset(
                            brokerName=queue.brokerName, offset=offset, queueId=queue.queueId, topic=queue.topic
                        )
                        for queue, offset in targets.items()
                    ]
                )
            told = ResetOffsetRequestHeader(
                # Whether by force was asked of the broker, which has decided.
                group=header.group,
                topic=header.topic,
                timestamp=header.timestamp,
                isForce=False,
            )
            request = Command.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body.encode(), oneway=True)
            try:
                member.connection.send_oneway(request)
            except InvokeError as error:
                _log.warning("client %s cannot be told its new offsets: %s", member.client_id, error)

    def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        first, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        first_time = self._store.store_time(topic, queue_id, first)
        consumed = self._offsets.query(group, topic, queue_id)
        consumed_time = self._store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else first_time
        next_time = self._store.store_time(topic, queue_id, max(consumed, first)) if consumed < end else -1
        last_time = self._store.store_time(topic, queue_id, end - 1)
        return QueueTimeSpan(
            consumeTimeStamp=consumed_time,
            consumeTimeStampStr=_time_text(consumed_time),
            delayTime=max(0, self._clock.now_ms() - next_time) if next_time >= 0 else 0,
            maxTimeStamp=last_time,
            maxTimeStampStr=_time_text(last_time),
            messageQueue=MessageQueue(topic, self._config.broker.name(), queue_id),
            minTimeStamp=first_time,
            minTimeStampStr=_time_text(first_time),
        )


def _time_text(timestamp_ms: int) -> str:
    """Return a time for people, in the broker's time zone, in the form that RocketMQ gives it."""
    seconds, rest_ms = divmod(timestamp_ms, 1000)
    try:
        moment = datetime.fromtimestamp(seconds).astimezone()
    except (OverflowError, OSError, ValueError):
        # What a damaged or foreign record may say.
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S},{rest_ms:03d}"


def _inflight(stats: ConsumeStats) -> int:
    return sum(max(0, queue.pullOffset - queue.consumerOffset) for queue in stats.offsetTable.values())


def _shown(targets: dict[MessageQueue, int]) -> str:
    return ", ".join(f"{queue.queueId}:{offset}" for queue, offset in targets.items())


def _no_such_group(group: str, *, by_broker: bool) -> CommandError:
    """Return what RocketMQ refuses the reset of an absent group with: another code where the clients do it."""
    if by_broker:
        return CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
    return CommandError(ResponseCode.SYSTEM_ERROR, f"The consumer group <{group}> not exist")
