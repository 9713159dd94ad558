"""What each request code that brokers and NameServers serve does to what is kept: looks only, or changes it daily.

What changes something for others at an administrator's wish stands in remoting/audit.py (CHANGES). Each code that is
served stands in exactly one of the three (tests/unit/test_remoting_classified.py): whoever adds one decides which.
"""

from remoting.codes import ClassicCode, NamesrvCode, RaftCode, RequestCode, TransactionCode

# Nothing that outlives the process, and nothing for anybody else, is another after it.
LOOKS = frozenset(
    map(
        int,
        (
            RequestCode.QUERY_MESSAGE,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.GET_MIN_OFFSET,
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            RequestCode.VIEW_MESSAGE_BY_ID,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.CHECK_CLIENT_CONFIG,
            RequestCode.GET_TIMER_CHECK_POINT,
            RequestCode.GET_TIMER_METRICS,
            RequestCode.GET_KV_CONFIG,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.GET_BROKER_CLUSTER_INFO,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            RequestCode.GET_CONSUME_STATS,
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            RequestCode.GET_TOPICS_BY_CLUSTER,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.QUERY_CORRECTION_OFFSET,
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            RequestCode.VIEW_BROKER_STATS_DATA,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.GET_NAMESRV_CONFIG,
            RequestCode.QUERY_CONSUME_QUEUE,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            RequestCode.GET_TOPIC_CONFIG,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.QUERY_ASSIGNMENT,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
            RequestCode.GET_BROKER_MEMBER_GROUP,
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.AUTH_GET_USER,
            RequestCode.AUTH_LIST_USER,
            RequestCode.AUTH_GET_ACL,
            RequestCode.AUTH_LIST_ACL,
            RequestCode.PEEK_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
            RaftCode.STATUS,
            ClassicCode.STATUS,
            ClassicCode.DIGEST,
            ClassicCode.AWAIT_METADATA,
            ClassicCode.USERS,
            NamesrvCode.REMEMBERED,
            TransactionCode.STATUS,
        ),
    )
)

# What clients and brokers change all the time: messages, offsets, locks, groups that come with a heartbeat, routes.
DAILY_WRITES = frozenset(
    map(
        int,
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.END_TRANSACTION,
            RequestCode.RECALL_MESSAGE,
            # A pull may commit.
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.HEART_BEAT,
            RequestCode.UNREGISTER_CLIENT,
            RequestCode.LOCK_BATCH_MQ,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.POP_MESSAGE,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.BROKER_HEARTBEAT,
            # A slave's, to a master that was killed; bound by a mark of that master's.
            ClassicCode.RETURN_OFFSETS,
        ),
    )
)
