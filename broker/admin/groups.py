"""Administration of consumer groups: 200 and 225 create and change, 207 deletes, 201 and 352 show, 353 forbids reading.

A change is answered when it is durable on this broker.
"""

import logging

from broker.clients import ClientTable
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.reply import PAGE_ROWS_MAX, Announce, no_group, ok, whole_table
from broker.stats import BrokerStats
from remoting.bodies.registry import (
    DataVersion,
    GroupForbidden,
    QuerySubscriptionBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicList,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError
from remoting.headers.registry import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from remoting.server import Connection, Handler
from remoting.topics import check_topic

_log = logging.getLogger(__name__)

# Groups that one request creates or changes.
GROUPS_PER_REQUEST_MAX = 10_000


class AdminGroups:
    """Handlers about consumer groups."""

    def __init__(
        self,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        stats: BrokerStats,
        address: str,
        persist_offsets: Announce,
    ) -> None:
        """`address` is this broker's as clients know it; `persist_offsets` returns when the offsets are durable."""
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._address = address
        self._persist_offsets = persist_offsets

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_one,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription_of,
        }

    async def update(self, _connection: Connection, request: Command) -> Command:
        """200: create or change one group."""
        group = SubscriptionGroupConfig.decode(request.body)
        await self._apply([group])
        return ok()

    async def update_list(self, _connection: Connection, request: Command) -> Command:
        """225: create or change several groups, all or none."""
        groups = SubscriptionGroupList.decode(request.body).groupConfigList
        if len(groups) > GROUPS_PER_REQUEST_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"one request changes at most {GROUPS_PER_REQUEST_MAX} groups"
            )
        await self._apply(groups)
        return ok()

    async def delete(self, _connection: Connection, request: Command) -> Command:
        """207: delete a group, with its offsets when asked to; done already is done as well."""
        header = request.header(DeleteSubscriptionGroupRequestHeader)
        if header.cleanOffset:
            self._offsets.remove_group(header.groupName)
            await self._persist_offsets()
        self._stats.forget_group(header.groupName)
        if self._groups.delete(header.groupName):
            _log.info("group %s deleted", header.groupName)
        await self._groups.save()
        return ok()

    async def get_all(self, _connection: Connection, request: Command) -> Command:
        """201: the whole table, or one page of it for those who ask for pages."""
        header = request.header(GetAllSubscriptionGroupRequestHeader)
        total = GetAllSubscriptionGroupResponseHeader(totalGroupNum=len(self._groups.tables))
        if "groupSeq" not in request.ext:
            content = await self._groups.encode_aside()
            return ok(total, whole_table(content, "ask for pages (groupSeq, maxGroupNum), as RocketMQ 5 does"))
        begin = header.groupSeq
        if header.dataVersion and not _is_version(header.dataVersion, self._groups.data_version):
            begin = 0  # the table changed between two pages: the caller starts again
        count = PAGE_ROWS_MAX if header.maxGroupNum is None else min(header.maxGroupNum, PAGE_ROWS_MAX)
        return ok(total, self._groups.page(max(0, begin), max(0, count)).encode())

    async def get_one(self, connection: Connection, request: Command) -> Command:
        """352: one group; one that does not exist is made, where a consumer's first request would make it."""
        name = request.header(GetSubscriptionGroupConfigRequestHeader).group
        known = self._groups.get(name)
        group = self._groups.find(name, connection)
        if group is None:
            raise no_group(name)
        # One that does not lead shows what the leader would make, and makes nothing.
        if known is None and self._groups.get(name) is not None:
            await self._groups.save()
        return ok(None, group.encode())

    async def forbid(self, _connection: Connection, request: Command) -> Command:
        """353: whether a group may read a topic; changed when the request says so."""
        header = request.header(UpdateGroupForbiddenRequestHeader)
        if header.readable is not None:
            self._existing(header.group)
            if (wrong := check_topic(header.topic)) is not None:
                raise CommandError(ResponseCode.INVALID_PARAMETER, wrong)
            self._groups.set_readable(header.group, header.topic, header.readable)
            await self._groups.save()
        readable = self._groups.readable(header.group, header.topic)
        return ok(None, GroupForbidden(group=header.group, readable=readable, topic=header.topic).encode())

    def topics_of(self, _connection: Connection, request: Command) -> Command:
        """343: the topics that a group has an offset in."""
        group = request.header(QueryTopicsByConsumerRequestHeader).group
        return ok(None, TopicList(self._address, self._offsets.topics_of(group)).encode())

    def subscription_of(self, _connection: Connection, request: Command) -> Command:
        """345: what a connected group wants of a topic."""
        header = request.header(QuerySubscriptionByConsumerRequestHeader)
        topic = header.topic or ""
        subscription = self._clients.subscription(header.group, topic)
        return ok(None, QuerySubscriptionBody(group=header.group, subscriptionData=subscription, topic=topic).encode())

    async def _apply(self, groups: list[SubscriptionGroupConfig]) -> None:
        changed = [group for group in groups if group != self._groups.get(group.groupName)]
        if changed:
            self._groups.update(*changed)
        await self._groups.save()
        if changed:
            _log.info("groups changed: %s", ", ".join(group.groupName for group in changed))

    def _existing(self, name: str) -> SubscriptionGroupConfig:
        group = self._groups.get(name)
        if group is None:
            raise no_group(name)
        return group


def _is_version(text: str, version: DataVersion) -> bool:
    try:
        return DataVersion.decode(text.encode()) == version
    except HeaderError:
        return False
