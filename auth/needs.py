"""Request code → what a user must be allowed to do to have it served.

As RocketMQ's DefaultAuthorizationContextBuilder and the annotations of its headers say, and stricter where those say
nothing, which there means that every user may: what changes or shows a whole broker needs the cluster; of a list each
one is looked at; who touches a group's retry topic needs the group. What is asked for between brokers is a super
user's. A code that is not here is a super user's too; a test compares this table with what the servers serve.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from auth.model import Action, Resource, ResourceKind, group, topic
from remoting import topics as names
from remoting.bodies.registry import (
    HeartbeatData,
    LockBatchBody,
    QueryAssignmentBody,
    SetMessageRequestModeBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfigList,
)
from remoting.codes import ClassicCode, NamesrvCode, RaftCode, RequestCode, TransactionCode
from remoting.command import Command
from remoting.errors import HeaderError
from remoting.fastjson import read_strictly


class Access(NamedTuple):
    """A resource and the actions, one of which must be allowed with it."""

    resource: Resource
    actions: tuple[Action, ...]


class Whom(Enum):
    """For whom a request is, where no resource decides."""

    EVERYBODY = "everybody, unsigned too"
    USERS = "every user"
    SUPER = "super users"


Rule = Callable[[Command, str], list[Access]]
"""Returns what a request touches, given the cluster's name."""

_PUB, _SUB = (Action.PUB,), (Action.SUB,)
_SUB_GET, _SUB_UPDATE = (Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)
_GET, _UPDATE, _CREATE, _DELETE = (Action.GET,), (Action.UPDATE,), (Action.CREATE,), (Action.DELETE,)
_GET_LIST = (Action.GET, Action.LIST)


@dataclass(frozen=True, slots=True)
class FieldsRule:
    """A rule that looks at these custom fields and at nothing else: alike in them, requests touch the same."""

    names: tuple[str, ...]
    touched: Callable[[Mapping[str, str]], list[Access]]

    def __call__(self, request: Command, _cluster: str) -> list[Access]:
        """Return what a request touches."""
        return self.touched(request.ext)


def _topic(name: str, actions: tuple[Action, ...]) -> Access:
    """Return the access to a topic; of a retry topic, to its group."""
    if name.startswith(names.RETRY_PREFIX):
        return Access(group(name), actions)
    return Access(topic(name), actions)


def _fields(
    actions: tuple[Action, ...], topics: Iterable[str] = (), groups: Iterable[str] = (), optional: Iterable[str] = ()
) -> Rule:
    """Return the rule of a request whose custom fields name topics and groups; `optional` ones may be missing."""
    topics, groups, optional = tuple(topics), tuple(groups), frozenset(optional)

    def touched(ext: Mapping[str, str]) -> list[Access]:
        found = [_topic(ext.get(name, ""), actions) for name in topics if ext.get(name) or name not in optional]
        found += [Access(group(ext.get(name, "")), actions) for name in groups if ext.get(name) or name not in optional]
        return found

    return FieldsRule((*topics, *groups), touched)


def _cluster(actions: tuple[Action, ...]) -> Rule:
    def rule(_request: Command, cluster: str) -> list[Access]:
        return [Access(Resource(ResourceKind.CLUSTER, cluster), actions)]

    return rule


def _send(field: str) -> Rule:
    def touched(ext: Mapping[str, str]) -> list[Access]:
        name = ext.get(field, "")
        if name.startswith(names.RETRY_PREFIX):
            # A consumer that cannot send a message back by 36 sends it so.
            return [Access(group(name), _SUB)]
        return [Access(topic(name), _PUB)]

    return FieldsRule((field,), touched)


def _popped(ext: Mapping[str, str]) -> list[Access]:
    """Return what goes with a message in a consumer's hands; one that came again is in a retry topic of its group.

    "%RETRY%g_orders" may be the retry topic of a group "g_orders" as well: whoever sends this gets nothing of it, for
    it is about what the group that is named has popped.
    """
    name, consumers = ext.get("topic", ""), ext.get("consumerGroup", "")
    again = tuple(f"{names.retry_topic(consumers)}{mark}" for mark in "_+")
    touched = [Access(group(consumers), _SUB)]
    return touched if consumers and name.startswith(again) else [_topic(name, _SUB), *touched]


def _reply(field: str) -> Rule:
    def rule(request: Command, cluster: str) -> list[Access]:
        name = request.ext.get(field, "")
        # A reply goes to the client that asked, and is kept in the one topic that the broker has for that.
        return [] if name == cluster + names.REPLY_TOPIC_SUFFIX else [Access(topic(name), _PUB)]

    return rule


def _view(request: Command, cluster: str) -> list[Access]:
    """Return what a message by its position belongs to: old clients do not say of which topic."""
    name = request.ext.get("topic", "")
    return [_topic(name, _SUB_GET)] if name else _cluster(_GET)(request, cluster)


def _resume(request: Command, cluster: str) -> list[Access]:
    name = request.ext.get("topic", "")
    return [_topic(name, _UPDATE)] if name else _cluster(_UPDATE)(request, cluster)


def _heartbeat(request: Command, _cluster: str) -> list[Access]:
    touched = []
    for consumer in HeartbeatData.decode(request.body).consumerDataSet:
        touched.append(Access(group(consumer.groupName), _SUB))
        touched += [_topic(each.topic, _SUB) for each in consumer.subscriptionDataSet]
    return touched


def _locks(request: Command, _cluster: str) -> list[Access]:
    body = LockBatchBody.decode(request.body)
    touched = [_topic(name, _SUB) for name in sorted({queue.topic for queue in body.mqSet})]
    return [Access(group(body.consumerGroup), _SUB), *touched]


def _topic_list(request: Command, _cluster: str) -> list[Access]:
    return [_topic(config.topicName, _CREATE) for config in TopicConfigList.decode(request.body).topicConfigList]


def _new_group(request: Command, _cluster: str) -> list[Access]:
    return [Access(group(SubscriptionGroupConfig.decode(request.body).groupName), _CREATE)]


def _new_groups(request: Command, _cluster: str) -> list[Access]:
    body = SubscriptionGroupList.decode(request.body)
    return [Access(group(config.groupName), _CREATE) for config in body.groupConfigList]


def _clone(request: Command, _cluster: str) -> list[Access]:
    ext = request.ext
    touched = [Access(group(ext.get("srcGroup", "")), _SUB_GET), Access(group(ext.get("destGroup", "")), _UPDATE)]
    return [*touched, *([_topic(ext["topic"], _UPDATE)] if ext.get("topic") else [])]


def _correction(request: Command, _cluster: str) -> list[Access]:
    ext = request.ext
    groups = [ext.get("compareGroup", ""), *ext.get("filterGroups", "").split(",")]
    return [_topic(ext.get("topic", ""), _GET), *(Access(group(name), _GET) for name in groups if name)]


class _Taken(msgspec.Struct):
    """What is looked at of an entry of BATCH_ACK_MESSAGE: topic and group."""

    t: str
    c: str


class _Acknowledged(msgspec.Struct):
    """The body of BATCH_ACK_MESSAGE."""

    acks: list[_Taken]


def _acknowledged(request: Command, _cluster: str) -> list[Access]:
    try:
        body = read_strictly(request.body, _Acknowledged)
    except msgspec.DecodeError as error:
        raise HeaderError(f"the body acknowledges nothing: {error}") from None
    touched = [_topic(name, _SUB) for name in sorted({each.t for each in body.acks})]
    return touched + [Access(group(name), _SUB) for name in sorted({each.c for each in body.acks})]


def _assignment(request: Command, _cluster: str) -> list[Access]:
    body = QueryAssignmentBody.decode(request.body)
    return [_topic(body.topic, _SUB), Access(group(body.consumerGroup), _SUB)]


def _request_mode(request: Command, _cluster: str) -> list[Access]:
    body = SetMessageRequestModeBody.decode(request.body)
    return [_topic(body.topic, _UPDATE), Access(group(body.consumerGroup), _UPDATE)]


_PULL = _fields(_SUB, ["topic"], ["consumerGroup"])
_POPPED = FieldsRule(("topic", "consumerGroup"), _popped)
_POSITION = _fields(_SUB_GET, ["topic"])
_CLUSTER_GET, _CLUSTER_LIST, _CLUSTER_UPDATE = _cluster(_GET), _cluster(_GET_LIST), _cluster(_UPDATE)

BROKER: Mapping[int, Rule | Whom] = {
    # Messages.
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.SEND_REPLY_MESSAGE: _reply("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply("b"),
    # Old clients do not say the topic; what they must say is where the half message stands, and its id.
    RequestCode.END_TRANSACTION: _fields(_PUB, ["topic"], optional=["topic"]),
    RequestCode.RECALL_MESSAGE: _fields(_PUB, ["topic"]),
    # The handler looks whether the message is of that topic (broker/messages/send_back.py), as with 33.
    RequestCode.CONSUMER_SEND_MSG_BACK: _fields(_SUB, ["originTopic"], ["group"], ["originTopic"]),
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.POP_MESSAGE: _PULL,
    RequestCode.PEEK_MESSAGE: _PULL,
    RequestCode.NOTIFICATION: _PULL,
    RequestCode.ACK_MESSAGE: _POPPED,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POPPED,
    RequestCode.BATCH_ACK_MESSAGE: _acknowledged,
    RequestCode.POLLING_INFO: _fields(_SUB_GET, ["topic"], ["consumerGroup"]),
    RequestCode.QUERY_MESSAGE: _fields(_SUB_GET, ["topic"]),
    RequestCode.VIEW_MESSAGE_BY_ID: _view,
    # Clients.
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _fields(_SUB, groups=["consumerGroup"], optional=["consumerGroup"]),
    RequestCode.CHECK_CLIENT_CONFIG: Whom.USERS,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _fields(_SUB_GET, groups=["consumerGroup"]),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    # Offsets. Who reads a topic may ask where its queues begin and end.
    RequestCode.QUERY_CONSUMER_OFFSET: _fields(_SUB_GET, ["topic"], ["consumerGroup"]),
    RequestCode.UPDATE_CONSUMER_OFFSET: _fields(_SUB_UPDATE, ["topic"], ["consumerGroup"]),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _POSITION,
    RequestCode.GET_MAX_OFFSET: _POSITION,
    RequestCode.GET_MIN_OFFSET: _POSITION,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _POSITION,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _fields(_UPDATE, ["topic"], ["group"]),
    RequestCode.CLONE_GROUP_OFFSET: _clone,
    # Topics and groups.
    RequestCode.UPDATE_AND_CREATE_TOPIC: _fields(_CREATE, ["topic"]),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    RequestCode.DELETE_TOPIC_IN_BROKER: _fields(_DELETE, ["topic"]),
    RequestCode.GET_TOPIC_CONFIG: _fields(_GET, ["topic"]),
    RequestCode.GET_TOPIC_STATS_INFO: _fields(_GET, ["topic"]),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _new_groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _fields(_DELETE, groups=["groupName"]),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _fields(_GET, groups=["group"]),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _fields(_UPDATE, ["topic"], ["group"], ["topic"]),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _resume,
    # What tools look at.
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _fields(_GET, groups=["consumerGroup"]),
    RequestCode.GET_CONSUME_STATS: _fields(_GET, ["topic"], ["consumerGroup"], ["topic"]),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _fields(_GET, ["topic"], ["group"]),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _fields(_GET, ["topic"]),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _fields(_GET, ["topic"], ["group"]),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _fields(_GET, groups=["consumerGroup"]),
    RequestCode.QUERY_CORRECTION_OFFSET: _correction,
    RequestCode.QUERY_CONSUME_QUEUE: _fields(_GET, ["topic"], ["consumerGroup"], ["consumerGroup"]),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _fields(_GET, groups=["group"]),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _fields(_GET, ["topic"], ["group"], ["topic"]),
    # The broker as a whole.
    RequestCode.GET_BROKER_RUNTIME_INFO: Whom.USERS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Whom.USERS,
    **dict.fromkeys(
        (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_BROKER_CONSUME_STATS,
        ),
        _CLUSTER_LIST,
    ),
    **dict.fromkeys(
        (
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.GET_TIMER_CHECK_POINT,
            RequestCode.GET_TIMER_METRICS,
            RequestCode.VIEW_BROKER_STATS_DATA,
            RequestCode.AUTH_GET_USER,
            RequestCode.AUTH_LIST_USER,
            RequestCode.AUTH_GET_ACL,
            RequestCode.AUTH_LIST_ACL,
            RaftCode.STATUS,
            ClassicCode.STATUS,
            TransactionCode.STATUS,
        ),
        _CLUSTER_GET,
    ),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_BROKER_CONFIG,
            # Of whatever message, to whatever client.
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.DELETE_EXPIRED_COMMITLOG,
            RequestCode.AUTH_CREATE_USER,
            RequestCode.AUTH_UPDATE_USER,
            RequestCode.AUTH_DELETE_USER,
            RequestCode.AUTH_CREATE_ACL,
            RequestCode.AUTH_UPDATE_ACL,
            RequestCode.AUTH_DELETE_ACL,
        ),
        _CLUSTER_UPDATE,
    ),
    # Between brokers, and what makes a group of brokers another one.
    **dict.fromkeys(
        (
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            RaftCode.TRANSFER_LEADER,
            RaftCode.ADD_PEER,
            RaftCode.REMOVE_PEER,
            RaftCode.LEAVE,
            ClassicCode.DIGEST,
            ClassicCode.AWAIT_METADATA,
            ClassicCode.PROMOTE,
            ClassicCode.FOLLOW,
            ClassicCode.ACCEPT_MASTER,
            ClassicCode.TO_RAFT,
            ClassicCode.TO_CLASSIC,
            ClassicCode.DEPOSED,
            ClassicCode.RETURN_OFFSETS,
            ClassicCode.USERS,
        ),
        Whom.SUPER,
    ),
}

# A NameServer has no policies: it knows the users that its configuration names, which are super users. What clients
# ask is open to everybody, for it cannot know the brokers' users; what changes something is signed by brokers and
# administrators.
NAMESRV: Mapping[int, Rule | Whom] = {
    **dict.fromkeys(
        (
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.GET_BROKER_CLUSTER_INFO,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            RequestCode.GET_TOPICS_BY_CLUSTER,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            RequestCode.GET_KV_CONFIG,
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            RequestCode.GET_BROKER_MEMBER_GROUP,
            NamesrvCode.REMEMBERED,
        ),
        Whom.EVERYBODY,
    ),
    **dict.fromkeys(
        (
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.BROKER_HEARTBEAT,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            RequestCode.PUT_KV_CONFIG,
            RequestCode.DELETE_KV_CONFIG,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            RequestCode.GET_NAMESRV_CONFIG,
            RequestCode.UPDATE_NAMESRV_CONFIG,
            NamesrvCode.FORGET,
        ),
        Whom.SUPER,
    ),
}
