"""Headers of consuming: pulls, offsets, membership of groups."""

from remoting.headers.base import Header, Int, Long


class PullMessageRequestHeader(Header, kw_only=True):
    """PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361; suspendTimeoutMillis is how long the broker may hold the request."""

    consumerGroup: str
    topic: str
    queueId: Int
    queueOffset: Long
    maxMsgNums: Int
    sysFlag: Int
    commitOffset: Long
    suspendTimeoutMillis: Long
    subVersion: Long
    subscription: str | None = None
    expressionType: str | None = None
    maxMsgBytes: Int | None = None
    requestSource: Int | None = None
    proxyFrowardClientId: str | None = None


class PullMessageResponseHeader(Header, kw_only=True):
    """Where to go on, and the queue's range; the body holds the records."""

    suggestWhichBrokerId: Long
    nextBeginOffset: Long
    minOffset: Long
    maxOffset: Long
    offsetDelta: Long | None = None
    topicSysFlag: Int | None = None
    groupSysFlag: Int | None = None
    forbiddenType: Int | None = None


class QueryConsumerOffsetRequestHeader(Header, kw_only=True):
    """QUERY_CONSUMER_OFFSET 14."""

    consumerGroup: str
    topic: str
    queueId: Int
    setZeroIfNotFound: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """The group's stored offset."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(Header, kw_only=True):
    """UPDATE_CONSUMER_OFFSET 15. `fromConsumer` is ours: a consumer says so that it is no administrator's tool."""

    consumerGroup: str
    topic: str
    queueId: Int
    commitOffset: Long
    fromConsumer: bool | None = None


class UpdateConsumerOffsetResponseHeader(Header, kw_only=True):
    """No fields."""


class SearchOffsetRequestHeader(Header, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP 29: timestamp in ms; boundaryType LOWER (also when absent or unknown) or UPPER."""

    topic: str
    queueId: Int
    timestamp: Long
    boundaryType: str | None = None


class SearchOffsetResponseHeader(Header, kw_only=True):
    """The queue offset found."""

    offset: Long


class GetMaxOffsetRequestHeader(Header, kw_only=True):
    """GET_MAX_OFFSET 30."""

    topic: str
    queueId: Int
    committed: bool = True


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """One past the queue's last message."""

    offset: Long


class GetMinOffsetRequestHeader(Header, kw_only=True):
    """GET_MIN_OFFSET 31."""

    topic: str
    queueId: Int


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """The queue's first message that is still kept."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(Header, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME 32."""

    topic: str
    queueId: Int


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """Milliseconds since the epoch, -1 when there is no message."""

    timestamp: Long


class HeartbeatRequestHeader(Header, kw_only=True):
    """HEART_BEAT 34: everything is in the body."""


class UnregisterClientRequestHeader(Header, kw_only=True):
    """UNREGISTER_CLIENT 35; an empty group means none.

    `keepsLocks` is RaftMQ's own: callbacks still run, so what the client has locked (41) is to run out by itself.
    """

    clientID: str
    producerGroup: str | None = None
    consumerGroup: str | None = None
    keepsLocks: bool | None = None


class UnregisterClientResponseHeader(Header, kw_only=True):
    """No fields."""


class GetConsumerListByGroupRequestHeader(Header, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP 38."""

    consumerGroup: str


class GetConsumerListByGroupResponseHeader(Header, kw_only=True):
    """No fields; the ids are in the body."""


class NotifyConsumerIdsChangedRequestHeader(Header, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED 40, broker to consumer, one-way."""

    consumerGroup: str


class LockBatchMqRequestHeader(Header, kw_only=True):
    """LOCK_BATCH_MQ 41: everything is in the body."""


class UnlockBatchMqRequestHeader(Header, kw_only=True):
    """UNLOCK_BATCH_MQ 42: everything is in the body."""


class GetConsumerStatusRequestHeader(Header, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223, and its forwarding to the client, 221."""

    topic: str
    group: str
    clientAddr: str | None = None


class ResetOffsetRequestHeader(Header, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET 222, and its forwarding to the client, 220; timestamp -1 means the end."""

    group: str
    topic: str
    queueId: Int = -1
    offset: Long | None = None
    timestamp: Long
    isForce: bool


class GetConsumerRunningInfoRequestHeader(Header, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO 307, forwarded to the client."""

    consumerGroup: str
    clientId: str
    jstackEnable: bool | None = None


class ConsumeMessageDirectlyResultRequestHeader(Header, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY 309, forwarded to the client."""

    consumerGroup: str
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None
    topic: str | None = None
    topicSysFlag: Int | None = None
    groupSysFlag: Int | None = None


class StatisticsMessagesRequestHeader(Header, kw_only=True):
    """How many messages of a queue a group has yet to read in a span of time."""

    consumerGroup: str
    topic: str
    queueId: Int
    fromTime: Long | None = None
    toTime: Long | None = None


class InitConsumerOffsetRequestHeader(Header, kw_only=True):
    """Where a new group starts: initMode 0 at the first message, 1 at the end."""

    topic: str | None = None
    initMode: Int | None = None
