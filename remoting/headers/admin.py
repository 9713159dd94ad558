"""Headers of a broker's administration: topics, groups, statistics, messages."""

import msgspec

from remoting.headers.base import Header, Int, Long


class CreateTopicRequestHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC 17; attributes are changes, "+name=value,-name"."""

    topic: str
    defaultTopic: str
    readQueueNums: Int
    writeQueueNums: Int
    perm: Int
    topicFilterType: str
    topicSysFlag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class CreateTopicListRequestHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST 18: everything is in the body."""


class DeleteTopicRequestHeader(Header, kw_only=True):
    """DELETE_TOPIC_IN_BROKER 215."""

    topic: str


class GetTopicConfigRequestHeader(Header, kw_only=True):
    """GET_TOPIC_CONFIG 351."""

    topic: str


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """GET_ALL_TOPIC_CONFIG 21; clients older than 5.x send no header and want the whole table."""

    topicSeq: Int = 0
    dataVersion: str | None = None
    maxTopicNum: Int | None = None


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """How many topics there are in all."""

    totalTopicNum: Int


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """The configuration's data version, as JSON."""

    version: str


class DeleteSubscriptionGroupRequestHeader(Header, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP 207."""

    groupName: str
    cleanOffset: bool = False


class GetSubscriptionGroupConfigRequestHeader(Header, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG 352."""

    group: str


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201; older clients send no header and want the whole table."""

    groupSeq: Int = 0
    dataVersion: str | None = None
    maxGroupNum: Int | None = None


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """How many groups there are in all."""

    totalGroupNum: Int


class UpdateGroupForbiddenRequestHeader(Header, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN 353; without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None


class GetTopicStatsInfoRequestHeader(Header, kw_only=True):
    """GET_TOPIC_STATS_INFO 202."""

    topic: str


class GetConsumerConnectionListRequestHeader(Header, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST 203."""

    consumerGroup: str


class GetProducerConnectionListRequestHeader(Header, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST 204."""

    producerGroup: str


class GetAllProducerInfoRequestHeader(Header, kw_only=True):
    """GET_ALL_PRODUCER_INFO 328: no fields."""


class GetConsumeStatsRequestHeader(Header, kw_only=True):
    """GET_CONSUME_STATS 208; topicList is names joined by semicolons."""

    consumerGroup: str
    topic: str | None = None
    topicList: str | None = None


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS 317."""

    isOrder: bool


class QueryTopicConsumeByWhoRequestHeader(Header, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO 300."""

    topic: str


class QueryTopicsByConsumerRequestHeader(Header, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER 343."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(Header, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER 345."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(Header, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN 303."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header, kw_only=True):
    """QUERY_CORRECTION_OFFSET 308; filterGroups is names joined by commas."""

    topic: str
    compareGroup: str
    filterGroups: str | None = None


class CloneGroupOffsetRequestHeader(Header, kw_only=True):
    """CLONE_GROUP_OFFSET 314; without a topic all of the source group's."""

    srcGroup: str
    destGroup: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA 315."""

    statsName: str
    statsKey: str


class QueryMessageRequestHeader(Header, kw_only=True):
    """QUERY_MESSAGE 12: timestamps in ms; uniqueKeyQuery tells that `key` is a message's unique id."""

    topic: str
    key: str
    maxNum: Int
    beginTimestamp: Long
    endTimestamp: Long
    uniqueKeyQuery: bool = msgspec.field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageResponseHeader(Header, kw_only=True):
    """How far the index had come."""

    indexLastUpdateTimestamp: Long
    indexLastUpdatePhyoffset: Long


class ViewMessageRequestHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID 33: `offset` is physical."""

    offset: Long
    topic: str | None = None


class ViewMessageResponseHeader(Header, kw_only=True):
    """No fields; the body is the record."""


class QueryConsumeQueueRequestHeader(Header, kw_only=True):
    """QUERY_CONSUME_QUEUE 321."""

    topic: str | None = None
    queueId: Int = 0
    index: Long = 0
    count: Int = 0
    consumerGroup: str | None = None


class CheckRocksdbCqWriteProgressRequestHeader(Header, kw_only=True):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS 354."""

    topic: str
    checkStoreTime: Long | None = None


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE 323."""

    topic: str | None = None
    msgId: str | None = None


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE 905, NameServer to broker."""

    minBrokerId: Long | None = None
    brokerName: str | None = None
    minBrokerAddr: str | None = None
    offlineBrokerAddr: str | None = None
    haBrokerAddr: str | None = None


class ExchangeHAInfoRequestHeader(Header, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO 906."""

    masterHaAddress: str | None = None
    masterFlushOffset: Long | None = None
    masterAddress: str | None = None


class ExchangeHAInfoResponseHeader(Header, kw_only=True):
    """The master's own view."""

    masterHaAddress: str | None = None
    masterFlushOffset: Long | None = None
    masterAddress: str | None = None


class ResetMasterFlushOffsetHeader(Header, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET 908."""

    masterFlushOffset: Long


class AddBrokerRequestHeader(Header, kw_only=True):
    """ADD_BROKER 902, to a broker container."""

    configPath: str | None = None


class RemoveBrokerRequestHeader(Header, kw_only=True):
    """REMOVE_BROKER 903, to a broker container."""

    brokerName: str
    brokerClusterName: str
    brokerId: Long
