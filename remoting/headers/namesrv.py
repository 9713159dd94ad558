"""Headers of the NameServer: routes, registration, key-value configuration."""

from remoting.headers.base import Header, Int, Long


class GetRouteInfoRequestHeader(Header, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC 105."""

    topic: str
    acceptStandardJsonOnly: bool | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER 103: bodyCrc32 is the body's CRC-32 without its top bit, 0 when not computed."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    haServerAddr: str
    brokerId: Long
    heartbeatTimeoutMillis: Long | None = None
    enableActingMaster: bool | None = None
    compressed: bool = False
    bodyCrc32: Int = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """Addresses of the group's master, for a slave."""

    haServerAddr: str | None = None
    masterAddr: str | None = None


class UnRegisterBrokerRequestHeader(Header, kw_only=True):
    """UNREGISTER_BROKER 104."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Long


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION 322."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Long


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Whether the broker has to send its topics again."""

    changed: bool


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """BROKER_HEARTBEAT 904."""

    clusterName: str
    brokerAddr: str
    brokerName: str
    brokerId: Long | None = None
    epoch: Int | None = None
    maxOffset: Long | None = None
    confirmOffset: Long | None = None
    heartbeatTimeoutMills: Long | None = None
    electionPriority: Int | None = None


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """GET_BROKER_MEMBER_GROUP 901."""

    clusterName: str
    brokerName: str


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER 205."""

    brokerName: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """How many topics changed."""

    wipeTopicCount: Int


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER 327."""

    brokerName: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """How many topics changed."""

    addTopicCount: Int


class DeleteTopicFromNamesrvRequestHeader(Header, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV 216; without a cluster name the topic goes from all of them."""

    topic: str
    clusterName: str | None = None


class RegisterTopicRequestHeader(Header, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV 217."""

    topic: str


class RegisterOrderTopicRequestHeader(Header, kw_only=True):
    """Declared by the protocol for ordered topics."""

    topic: str
    orderTopicString: str


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER 224."""

    cluster: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """PUT_KV_CONFIG 100."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """GET_KV_CONFIG 101."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The value."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """DELETE_KV_CONFIG 102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE 219."""

    namespace: str
