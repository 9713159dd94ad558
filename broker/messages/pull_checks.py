"""Who may pull what, and with which filter: the checks of codes 11 and 361 in RocketMQ's order, each with its code."""

from typing import Protocol

from broker.clients import ClientTable
from broker.filters.sql import SQL92, SqlFilter, sql_filter
from broker.filters.tokens import SqlError
from broker.messages.tag_filter import ExpressionError, is_tag_type, tag_codes
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.topics import TopicTable
from broker.role import BrokerRole, Standalone
from broker.settings.config import LiveConfig
from remoting.bodies.registry import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from remoting.codes import Perm, PullSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import PullMessageRequestHeader
from remoting.server import Connection

# What is let through: messages with tags of these codes, those that an expression takes, or all (None).
Wanted = frozenset[int] | SqlFilter | None
# Bytes of messages in one answer, whatever the client asks for: an answer must fit a frame (16 MiB) with its header.
ANSWER_BYTES_MAX = 15 * 1024 * 1024
# As plain numbers: an & with one of an enum makes another, and was a twentieth of what a pull takes.
_READ, _SUBSCRIPTION, _LITE = int(Perm.READ), int(PullSysFlag.SUBSCRIPTION), int(RequestCode.LITE_PULL_MESSAGE)


class PullTicket:
    """One pull: what was asked by whom, and what was found out about it."""

    __slots__ = (
        "accepts",
        "config",
        "group",
        "header",
        "mend_until",
        "offset",
        "owner",
        "queue_id",
        "request",
        "seen",
        "sql",
        "topic",
    )

    def __init__(
        self,
        owner: Connection,
        request: Command,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        config: TopicConfig,
        wanted: Wanted,
    ) -> None:
        self.owner = owner
        self.request = request
        self.header = header
        self.group = group
        self.config = config
        self.sql = wanted if isinstance(wanted, SqlFilter) else None
        self.accepts = None if isinstance(wanted, SqlFilter) else wanted
        self.topic = header.topic
        self.queue_id = header.queueId
        self.offset = header.queueOffset
        # Up to where `sql` has looked and found nothing: what was looked at once is not again while the pull waits.
        self.seen = header.queueOffset
        # Until when it waits for a damaged record, by the loop's clock; None when it met none.
        self.mend_until: float | None = None


class ReadQuota(Protocol):
    """What is counted of the bytes that pulls are answered with."""

    counts_bytes: bool
    """Whether anything is."""

    def answered(self, connection: Connection, size: int) -> None:
        """Take note of messages that a connection is answered with."""


class PullChecks:
    """The checks of one broker. A refusal is a CommandError with the code that the consumer gets."""

    def __init__(
        self,
        live: LiveConfig,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        role: BrokerRole | None = None,
        *,
        forwards: bool = True,
    ) -> None:
        """`role`: None for a broker without a group; `forwards`: what is not known here the leader is asked."""
        self._live = live
        self._role: BrokerRole = Standalone() if role is None else role
        self._forwards = forwards
        self._topics = topics
        self._groups = groups
        self._clients = clients

    def ticket(self, connection: Connection, request: Command, header: PullMessageRequestHeader) -> PullTicket:
        """Check who may read what, in RocketMQ's order."""
        broker = self._live.broker
        if not broker.brokerPermission & _READ:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.advertised_ip()}] pulling message is forbidden"
            )
        if request.code == _LITE and not broker.litePullMessageEnable:
            raise CommandError(ResponseCode.NO_PERMISSION, "lite pull is switched off (litePullMessageEnable)")
        name = header.consumerGroup
        # Only a leader makes groups; a slave reads for one as its master would make it.
        makes = self._role.leads or not self._forwards
        group = self._groups.find(name, connection) if makes else self._groups.get(name)
        if group is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, create it first",
            )
        if not group.consumeEnable:
            raise CommandError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        config = self._topics.get(header.topic)
        if config is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not int(config.perm) & _READ or not self._groups.readable(name, header.topic):
            raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queueId < config.readQueueNums:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] readQueueNums:[{config.readQueueNums}] "
                f"consumer:[{connection.address}]",
            )
        return PullTicket(connection, request, header, group, config, self._wanted(header, group))

    def renewed(self, ticket: PullTicket) -> PullTicket:
        """Check a pull that waited by what holds now. Raises CommandError."""
        made = self.ticket(ticket.owner, ticket.request, ticket.header)
        made.mend_until = ticket.mend_until
        if made.sql is not None and made.sql is ticket.sql:
            made.seen = ticket.seen
        return made

    def _wanted(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> Wanted:
        """Return what the consumer wants, by the request or by its heartbeat."""
        broker = self._live.broker
        if broker.rejectPullConsumerEnable:
            self._refuse_pull_consumers(header.consumerGroup)
        if header.sysFlag & _SUBSCRIPTION:
            return wanted(header.subscription, header.expressionType, sql=broker.enablePropertyFilter)
        known = self._clients.consumer_group(header.consumerGroup)
        if known is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if known.broadcasting and not group.consumeBroadcastEnable:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the consumer group[{group.groupName}] can not consume by broadcast way"
            )
        subscription = known.subscriptions.get(header.topic)
        if subscription is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist: topic {header.topic}"
            )
        by_tags = is_tag_type(subscription.expressionType)
        if subscription.subVersion < header.subVersion:
            if header.subscription:
                # The consumer has changed its mind since its last heartbeat, and says to what.
                return wanted(header.subscription, header.expressionType, sql=broker.enablePropertyFilter)
            # RocketMQ answers 25 while the heartbeat is older than the consumer, up to 30 s. The client filters by tag
            # once more, so what an older subscription lets through does no harm; by SQL92 it does not.
            if not by_tags or not is_tag_type(header.expressionType):
                raise CommandError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if not by_tags:
            _check_registered(subscription)
        return wanted(subscription.subString, subscription.expressionType, sql=broker.enablePropertyFilter)

    def _refuse_pull_consumers(self, group: str) -> None:
        known = self._clients.consumer_group(group)
        if known is None or known.consume_type == "CONSUME_ACTIVELY":
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] does not push: rejectPullConsumerEnable is set on this broker",
            )


def wanted(expression: str | None, expression_type: str | None, *, sql: bool) -> Wanted:
    """Return what an expression lets through; `sql`: whether SQL92 may be used (enablePropertyFilter)."""
    try:
        if is_tag_type(expression_type):
            return tag_codes(expression)
        check_sql_enabled(expression_type, enabled=sql or not expression)
        return sql_of(expression, expression_type)
    except (ExpressionError, SqlError) as error:
        raise CommandError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from None


def check_sql_enabled(expression_type: str | None, *, enabled: bool) -> None:
    """Refuse a filter of another type than tags while enablePropertyFilter is off."""
    if not enabled:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {expression_type}"
        )


def sql_of(expression: str | None, expression_type: str | None) -> SqlFilter:
    """Return a filter that is not one of tags; raises SqlError."""
    if expression_type != SQL92:
        raise SqlError(f"there are expressions of the types TAG and {SQL92}, not {str(expression_type)[:40]!r}")
    return sql_filter(expression)


def _check_registered(subscription: SubscriptionData) -> None:
    """Refuse a pull by what a heartbeat brought and cannot be read; RocketMQ says so before all else."""
    try:
        sql_of(subscription.subString, subscription.expressionType)
    except SqlError as error:
        raise CommandError(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}",
        ) from None


def bytes_wanted(limit: int | None) -> int:
    """Return how many bytes of messages an answer may hold; a client that names no sensible limit gets ours."""
    return ANSWER_BYTES_MAX if limit is None or limit <= 0 else min(limit, ANSWER_BYTES_MAX)
