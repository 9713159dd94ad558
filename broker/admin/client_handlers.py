"""Clients on the wire: heartbeat 34, unregister 35, consumer list 38, configuration check 46."""

from broker.clients import ClientTable
from broker.filters.tokens import SqlError
from broker.messages.pull_checks import check_sql_enabled, sql_of
from broker.messages.tag_filter import EXPRESSION_CHARS_MAX, ExpressionError, is_tag_type, tag_codes
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.topics import TopicTable
from broker.role import BrokerRole, Standalone
from broker.settings.config import LiveConfig
from remoting import topics as names
from remoting.bodies.registry import (
    CheckClientConfigBody,
    ConsumerData,
    HeartbeatData,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from remoting.server import Connection, Handler

# Producer and consumer groups of one client; a heartbeat that names more is refused with INVALID_PARAMETER.
GROUPS_PER_CLIENT_MAX = 4096
# Topics that one group subscribes to; beyond it likewise.
SUBSCRIPTIONS_PER_GROUP_MAX = 10_000
# Of all groups of one client together; likewise.
SUBSCRIPTIONS_PER_CLIENT_MAX = 20_000
CLIENT_ID_CHARS_MAX = 1024  # RocketMQ's are address, instance and unit; likewise


class ClientHandlers:
    """Handlers of what clients say about themselves."""

    def __init__(
        self,
        live: LiveConfig,
        clients: ClientTable,
        topics: TopicTable,
        groups: GroupTable,
        role: BrokerRole | None = None,
    ) -> None:
        """`role`: None for a broker without a group."""
        self._live = live
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._role: BrokerRole = Standalone() if role is None else role

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        """Take note of a client (34). Groups that do not exist and may not be created are passed over."""
        data = HeartbeatData.decode(request.body)
        if not data.clientID:
            raise CommandError(ResponseCode.INVALID_PARAMETER, "the heartbeat names no clientID")
        check_size(data)
        _check_expressions(data)
        data.consumerDataSet = [consumer for consumer in data.consumerDataSet if self._admit(consumer, connection)]
        data.producerDataSet = [producer for producer in data.producerDataSet if producer.groupName]
        changed = self._clients.heartbeat(connection, data, request.language, request.version, len(request.body))
        # A client of the second kind (with a fingerprint) leaves its subscriptions out until it is asked for them.
        wants_all = changed or not data.heartbeatFingerprint
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if wants_all else "false"}
        return Command.response(ResponseCode.SUCCESS, ext=ext)

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Take a client out of its groups (35)."""
        header = request.header(UnregisterClientRequestHeader)
        keeps = header.keepsLocks is True
        self._clients.unregister(connection, header.producerGroup, header.consumerGroup, keeps_locks=keeps)
        return Command.response(ResponseCode.SUCCESS)

    def consumer_list(self, _connection: Connection, request: Command) -> Command:
        """Return the client ids of a group (38): what clients divide the queues by."""
        group = request.header(GetConsumerListByGroupRequestHeader).consumerGroup
        ids = self._clients.consumer_list(group)
        if not ids:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return Command.response(ResponseCode.SUCCESS, body=ids)

    def check_config(self, _connection: Connection, request: Command) -> Command:
        """Tell a consumer before it starts whether its filter can be served (46)."""
        subscription = CheckClientConfigBody.decode(request.body).subscriptionData
        try:
            if is_tag_type(subscription.expressionType):
                tag_codes(subscription.subString)
            else:
                check_sql_enabled(subscription.expressionType, enabled=self._live.broker.enablePropertyFilter)
                sql_of(subscription.subString, subscription.expressionType)
        except (ExpressionError, SqlError) as error:
            raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return Command.response(ResponseCode.SUCCESS)

    def _admit(self, consumer: ConsumerData, connection: Connection) -> bool:
        """Tell whether a consumer group may take part; makes its retry topic."""
        if not self._role.leads:
            # Remembered, so that the group is known here at once when this member is elected; only a leader makes
            # groups and topics, and refuses groups.
            return names.check_group(consumer.groupName) is None
        group = self._groups.find(consumer.groupName, connection) if consumer.groupName else None
        if group is None:
            return False
        retry = names.retry_topic(consumer.groupName)
        if group.retryQueueNums > 0 and self._topics.get(retry) is None:
            self._topics.create_for_retry(retry, group.retryQueueNums, topic_sys_flag=1 if consumer.unitMode else 0)
        return True


def _check_expressions(data: HeartbeatData) -> None:
    """Refuse a heartbeat with an expression that no pull of its consumers could be answered by."""
    for consumer in data.consumerDataSet:
        for subscription in consumer.subscriptionDataSet:
            if len(subscription.subString) > EXPRESSION_CHARS_MAX:
                raise CommandError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                    f"group {consumer.groupName[:128]}, topic {subscription.topic[:128]}: an expression has at most "
                    f"{EXPRESSION_CHARS_MAX} characters, not {len(subscription.subString)}",
                )


def check_size(data: HeartbeatData) -> None:
    """Refuse a client that is in more groups, or subscribes to more, than a client may."""
    why = ""
    subscriptions = [len(wanted.subscriptionDataSet) for wanted in data.consumerDataSet]
    if len(data.clientID) > CLIENT_ID_CHARS_MAX:
        why = f"a clientID has at most {CLIENT_ID_CHARS_MAX} characters"
    elif len(data.consumerDataSet) + len(data.producerDataSet) > GROUPS_PER_CLIENT_MAX:
        why = f"a client takes part in at most {GROUPS_PER_CLIENT_MAX} groups"
    elif max(subscriptions, default=0) > SUBSCRIPTIONS_PER_GROUP_MAX:
        why = f"a group subscribes to at most {SUBSCRIPTIONS_PER_GROUP_MAX} topics"
    elif sum(subscriptions) > SUBSCRIPTIONS_PER_CLIENT_MAX:
        why = f"the groups of a client subscribe to at most {SUBSCRIPTIONS_PER_CLIENT_MAX} topics together"
    if why:
        raise CommandError(ResponseCode.INVALID_PARAMETER, why)
