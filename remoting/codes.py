"""Request and response codes of the Remoting protocol, and the small numbers that stand in headers."""

from enum import IntEnum, IntFlag


class RequestCode(IntEnum):
    """What a request asks for. Names are RocketMQ's own."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    GET_BROKER_MEMBER_GROUP = 901
    ADD_BROKER = 902
    REMOVE_BROKER = 903
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    RESET_MASTER_FLUSH_OFFSET = 908
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151


class RaftCode(IntEnum):
    """Requests of ours about a Raft group, far from RocketMQ's codes; bodies are JSON, there are no headers.

    All but the first are the leader's: another member refuses them and names the leader.
    """

    STATUS = 9101
    """Answer: what this member knows of the group, as /v1/raft shows it."""
    TRANSFER_LEADER = 9102
    """{"to": "n1"}, or {} for whoever has the whole log. Answered when another member leads."""
    ADD_PEER = 9103
    """{"id": "n3", "address": "host:port"}. Answered when it is a learner; it votes once it has caught up."""
    REMOVE_PEER = 9104
    """{"id": "n3"}. Answered when it is no member any more."""
    LEAVE = 9105
    """{}, to the last member: the store becomes a single broker's. Answered when that is committed."""


class TransactionCode(IntEnum):
    """Requests of ours about transactions; bodies are JSON, there are no headers."""

    STATUS = 9131
    """{"limit": 100, "group": "g"}, or nothing. Answer: what is undecided and given up, as /v1/transactions has it."""


class ClassicCode(IntEnum):
    """Requests of ours about a broker in a classic mode (master, slave), beside RaftCode; bodies are JSON."""

    STATUS = 9111
    """Answer: what the broker knows of its pair, as /v1/ha shows it."""
    DIGEST = 9112
    """{"ranges": [[begin, end], ...]}: SHA-256 (hex) of these bytes of the CommitLog; null for what is not kept."""
    AWAIT_METADATA = 9113
    """{"seen": n, "wait_ms": n}: {"seen": n} once the metadata is not what the asker has seen, or the time over."""
    PROMOTE = 9114
    """{"role": "ASYNC_MASTER", "force": false, "ask": false} to a slave whose master is gone: it becomes the master.

    Answer: what may be lost, and why it would be refused; with "ask" that is all that is done.
    """
    FOLLOW = 9115
    """{"brokerId": 1}, 0 for the lowest free one, to a fenced master: it becomes a slave of the one promoted."""
    ACCEPT_MASTER = 9116
    """{} to a slave that waits for a person: its log is cut to where the master's agrees with it, and it goes on."""
    TO_RAFT = 9117
    """{"peers": ..., "self": "n0"} to each broker of a classic group, the master first."""
    TO_CLASSIC = 9118
    """{"role": ..., "brokerId": 0} to each former member of a group that has ended."""
    DEPOSED = 9119
    """{"broker": name, "by": "host:port", "epoch": n} to a master: another one was promoted in its place.

    Answered when it takes nothing more, for good, and its slaves have had a moment to get what it has.
    """
    RETURN_OFFSETS = 9120
    """{"mark": text, "offsets": {"topic@group": {"queue": n}}} to a master that was killed: what a slave knows better.

    See broker/master_slave/offset_return.py.
    """
    USERS = 9123
    """To a master, by its slave: users with their secret keys, and policies, for a proof (auth/copy_proof.py)."""


class NamesrvCode(IntEnum):
    """Requests of ours to a NameServer; bodies are JSON."""

    REMEMBERED = 9121
    """{"broker": name}: {"epoch": n, "holder": "host:port", "members": {"0": "host:port", ...}}, 0 and "" for nothing.

    The highest stateVersion ever registered with brokerId 0, by whom, and who had which brokerId last.
    """
    FORGET = 9122
    """{"broker": name}: {"known": true}; the name may begin again with any stateVersion."""


class ResponseCode(IntEnum):
    """How a request ended. Names are RocketMQ's own."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


class LanguageCode(IntEnum):
    """Language of the sender, as the binary header numbers it; the JSON header carries the name."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class Perm(IntFlag):
    """Permission bits of a topic or broker."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class MessageSysFlag(IntFlag):
    """Bits of a message record's sysFlag (bits 8 to 10 hold the codec: see COMPRESSION_SHIFT)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORNHOST_V6 = 0x10
    STOREHOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    # Ours, far from RocketMQ's, which neither it nor its clients look at: in a send its producer asks that a repetition
    # of it be answered with the first one's result; in a record that it was promised that (docs/durability.md).
    IDEMPOTENT = 0x100000


TRANSACTION_MASK = 0xC
COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x700


class PullSysFlag(IntFlag):
    """Bits of a pull request's sysFlag."""

    COMMIT_OFFSET = 0x1
    SUSPEND = 0x2
    SUBSCRIPTION = 0x4
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10


# What we say of ourselves: language JAVA and the ordinal of V5_3_3 in RocketMQ's MQVersion, which official clients
# and mqadmin know how to treat (an unknown ordinal makes old tools fail).
VERSION = 479
VERSION_NAME = "V5_3_3"
