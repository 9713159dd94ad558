"""Administration of topics: 17 and 18 create and change, 215 deletes, 21 and 351 show, 202 and 300 tell who uses them.

A change is answered when it is durable on this broker and every NameServer that answers knows of it.
"""

import logging

import msgspec

from broker.context import BrokerContext, Tables
from broker.metadata import topic_attributes
from broker.reply import LOG_END, PAGE_ROWS_MAX, Announce, ReportPace, no_topic, ok, whole_table
from remoting.bodies.registry import (
    DataVersion,
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError
from remoting.headers.registry import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from remoting.server import Connection, Handler
from remoting.topics import check_topic, pop_retry_topic

_log = logging.getLogger(__name__)

# Topics that one request creates or changes.
TOPICS_PER_REQUEST_MAX = 10_000


class AdminTopics:
    """Handlers about topics."""

    def __init__(self, context: BrokerContext, tables: Tables, announce: Announce, persist_offsets: Announce) -> None:
        """`announce` tells the NameServers of a change; `persist_offsets` returns when the offsets are durable."""
        self._config, self._store = context.live, context.store
        self._topics, self._groups, self._offsets, self._clients, self._stats = tables
        self._announce = announce
        self._persist_offsets = persist_offsets

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_TOPIC_CONFIG: self.get_one,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_list,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats_info,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
        }

    async def update(self, _connection: Connection, request: Command) -> Command:
        """17: create or change one topic."""
        header = request.header(CreateTopicRequestHeader)
        self._check_name(header.topic)
        known = self._topics.get(header.topic)
        changes = topic_attributes.parse_changes(header.attributes)
        wanted = TopicConfig(
            topicName=header.topic,
            readQueueNums=header.readQueueNums,
            writeQueueNums=header.writeQueueNums,
            perm=header.perm,
            topicFilterType=_filter_type(header.topicFilterType),
            topicSysFlag=header.topicSysFlag or 0,
            order=header.order,
            attributes=topic_attributes.apply_changes(known.attributes if known else {}, changes),
        )
        await self._apply([wanted])
        return ok()

    async def update_list(self, _connection: Connection, request: Command) -> Command:
        """18: create or change several topics, all or none."""
        body = TopicConfigList.decode(request.body)
        if len(body.topicConfigList) > TOPICS_PER_REQUEST_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"one request changes at most {TOPICS_PER_REQUEST_MAX} topics"
            )
        wanted = []
        for topic in body.topicConfigList:
            self._check_name(topic.topicName)
            known = self._topics.get(topic.topicName)
            changes = topic_attributes.changes_of(topic.attributes)
            attributes = topic_attributes.apply_changes(known.attributes if known else {}, changes)
            filter_type = _filter_type(topic.topicFilterType)
            wanted.append(msgspec.structs.replace(topic, attributes=attributes, topicFilterType=filter_type))
        await self._apply(wanted)
        return ok()

    async def delete(self, _connection: Connection, request: Command) -> Command:
        """215: delete a topic with its queues, offsets and counters; done already is done as well."""
        topic = request.header(DeleteTopicRequestHeader).topic
        self._check_name(topic)
        doomed = [topic]
        if self._config.broker.clearRetryTopicWhenDeleteTopic:
            doomed += self._pop_retry_topics(topic)
        # Queues first: a crash in between must not leave queues whose topic is unknown, they would be adopted. In a
        # Raft group they go on every member when the deletion is applied.
        for name in doomed if not self._topics.deletes_queues else ():
            self._store.delete_topic(name)
            self._offsets.remove_topic(name)
            self._groups.forget_topic(name)
            self._stats.forget_topic(name)
        removed = self._topics.delete(*doomed)
        await self._persist_offsets()
        await self._groups.save()
        await self._topics.save()
        if removed:
            _log.info("topics deleted: %s", ", ".join(removed))
            await self._announce()
        return ok()

    async def get_all(self, _connection: Connection, request: Command) -> Command:
        """21: the whole table, or one page of it for those who ask for pages."""
        header = request.header(GetAllTopicConfigRequestHeader)
        total = GetAllTopicConfigResponseHeader(totalTopicNum=len(self._topics.tables))
        if "topicSeq" not in request.ext:
            content = await self._topics.encode_aside()
            return ok(total, whole_table(content, "ask for pages (topicSeq, maxTopicNum), as RocketMQ 5 does"))
        log_end = {LOG_END: str(self._store.written)}
        begin = header.topicSeq if _same_version(header.dataVersion, self._topics.data_version) else 0
        count = PAGE_ROWS_MAX if header.maxTopicNum is None else min(header.maxTopicNum, PAGE_ROWS_MAX)
        body = TopicConfigTable(
            dataVersion=self._topics.data_version,
            mappingDataVersion=DataVersion(),
            topicConfigTable=self._topics.page(max(0, begin), max(0, count)),
            topicQueueMappingDetailMap={},
            topicQueueMappingInfoMap={},
        )
        return Command.response(ResponseCode.SUCCESS, None, total, body.encode(), log_end)

    def get_one(self, _connection: Connection, request: Command) -> Command:
        """351: one topic."""
        return ok(None, self._existing(request.header(GetTopicConfigRequestHeader).topic).encode())

    def system_list(self, _connection: Connection, _request: Command) -> Command:
        """305: the names of the system's topics."""
        return ok(None, TopicList(topicList=sorted(self._topics.system_names)).encode())

    async def stats_info(self, _connection: Connection, request: Command) -> Command:
        """202: offsets of every queue, and how many messages come in."""
        topic = self._existing(request.header(GetTopicStatsInfoRequestHeader).topic)
        name, broker = topic.topicName, self._config.broker.name()
        offsets: dict[MessageQueue, TopicOffset] = {}
        pace = ReportPace()
        for queue_id in range(max(topic.readQueueNums, topic.writeQueueNums)):
            end = self._store.max_offset(name, queue_id)
            offsets[MessageQueue(name, broker, queue_id)] = TopicOffset(
                lastUpdateTimestamp=max(0, self._store.store_time(name, queue_id, end - 1)) if end > 0 else 0,
                maxOffset=end,
                minOffset=max(0, self._store.min_offset(name, queue_id)),
            )
            await pace.spend()
        return ok(None, TopicStatsTable(offsets, self._stats.topic_put_tps(name)).encode())

    def consumed_by(self, _connection: Connection, request: Command) -> Command:
        """300: the groups that subscribe to a topic now or have an offset in it."""
        topic = request.header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = {*self._clients.groups_subscribed_to(topic), *self._offsets.groups_of(topic)}
        return ok(None, GroupList(groupList=sorted(groups)).encode())

    async def clean_unused(self, _connection: Connection, _request: Command) -> Command:
        """316: drop the queues of topics that are no longer configured."""
        pace = ReportPace()
        for topic in list(self._store.topics()):
            if self._topics.get(topic) is None and not self._topics.is_protected(topic):
                self._store.delete_topic(topic)
                _log.info("queues of topic %s dropped: the topic is not configured", topic)
                await pace.spend()
        return ok()

    async def _apply(self, wanted: list[TopicConfig]) -> None:
        changed = [topic for topic in wanted if topic != self._topics.get(topic.topicName)]
        if changed:
            self._topics.update(*changed)
        await self._topics.save()
        if changed:
            _log.info("topics changed: %s", ", ".join(topic.topicName for topic in changed))
            await self._announce()

    def _existing(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise no_topic(name)
        return topic

    def _check_name(self, topic: str) -> None:
        if (wrong := check_topic(topic)) is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, wrong)
        if self._config.broker.validateSystemTopicWhenUpdateTopic and self._topics.is_protected(topic):
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")

    def _pop_retry_topics(self, topic: str) -> list[str]:
        names = []
        for group in self._offsets.groups_of(topic):
            names += [pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True)]
        return [name for name in names if self._topics.get(name) is not None]


def _filter_type(text: str) -> str:
    if text not in {"SINGLE_TAG", "MULTI_TAG"}:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER, f"topicFilterType {text!r}: it takes SINGLE_TAG or MULTI_TAG"
        )
    return text


def _same_version(text: str | None, version: DataVersion) -> bool:
    """Tell whether a page goes on with the table that the pages before came from; a first page tells no version."""
    if not text:
        return True
    try:
        return DataVersion.decode(text.encode()) == version
    except HeaderError:
        return False
