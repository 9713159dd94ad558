"""Bodies that clients and brokers exchange: heartbeats, connections, queue locks, client state."""

from typing import Any

import msgspec

from remoting.bodies.base import Body, MessageQueue, enum_name, queue_keys
from remoting.errors import HeaderError

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ProducerData(Body, msgspec.Struct):
    """A producer group of a client."""

    groupName: str = ""


class SubscriptionData(Body, msgspec.Struct):
    """What a group wants of a topic. `codeSet` holds the tags' codes; `subVersion` is a time (ms, or ns from Go)."""

    classFilterMode: bool = False
    codeSet: list[int] = []
    expressionType: str = "TAG"
    subString: str = "*"
    subVersion: int = 0
    tagsSet: list[str] = []
    topic: str = ""
    filterClassSource: str | None = None


class ConsumerData(Body, msgspec.Struct):
    """A consumer group of a client."""

    consumeFromWhere: str = "CONSUME_FROM_LAST_OFFSET"
    consumeType: str = "CONSUME_PASSIVELY"
    groupName: str = ""
    messageModel: str = "CLUSTERING"
    subscriptionDataSet: list[SubscriptionData] = []
    unitMode: bool = False

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Name the enums that came as ordinals."""
        return _named(fields)


class HeartbeatData(Body, msgspec.Struct):
    """Code 34's body: who a client is, what it produces and consumes."""

    clientID: str = ""
    consumerDataSet: list[ConsumerData] = []
    heartbeatFingerprint: int = 0
    producerDataSet: list[ProducerData] = []
    withoutSub: bool = False

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Repair every consumer group."""
        consumers = fields.get("consumerDataSet")
        if isinstance(consumers, list):
            fields["consumerDataSet"] = [_named(item) if isinstance(item, dict) else item for item in consumers]
        return fields


class CheckClientConfigBody(Body, msgspec.Struct):
    """Code 46's body."""

    clientId: str = ""
    group: str = ""
    namespace: str | None = None
    subscriptionData: SubscriptionData = msgspec.field(default_factory=SubscriptionData)


class ConnectionInfo(Body, msgspec.Struct):
    """One client of a group; `clientAddr` is "host:port", `language` a name, `version` an ordinal."""

    clientAddr: str = ""
    clientId: str = ""
    language: str = "OTHER"
    version: int = 0


class ConsumerConnection(Body, msgspec.Struct):
    """Code 203's answer."""

    connectionSet: list[ConnectionInfo] = []
    consumeFromWhere: str = "CONSUME_FROM_LAST_OFFSET"
    consumeType: str = "CONSUME_PASSIVELY"
    messageModel: str = "CLUSTERING"
    subscriptionTable: dict[str, SubscriptionData] = {}

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Name the enums that came as ordinals."""
        return _named(fields)


class ProducerConnection(Body, msgspec.Struct):
    """Code 204's answer."""

    connectionSet: list[ConnectionInfo] = []


class ProducerInfo(Body, msgspec.Struct):
    """One producer of a group; `lastUpdateTimestamp` in ms since the epoch."""

    clientId: str = ""
    language: str = "OTHER"
    lastUpdateTimestamp: int = 0
    remoteIP: str = ""
    version: int = 0


class ProducerTableInfo(Body, msgspec.Struct):
    """Code 328's answer: producers by group."""

    data: dict[str, list[ProducerInfo]] = {}


class ConsumerIdList(Body, msgspec.Struct):
    """Code 38's answer."""

    consumerIdList: list[str] = []


class LockBatchBody(Body, msgspec.Struct):
    """Body of 41 and 42: the queues that a client of a group locks or unlocks."""

    clientId: str = ""
    consumerGroup: str = ""
    mqSet: list[MessageQueue] = []
    onlyThisBroker: bool = False


class QueryAssignmentBody(Body, msgspec.Struct):
    """Body of 400: a client asks which queues of a topic are its own, and how it is to read them."""

    clientId: str = ""
    consumerGroup: str = ""
    messageModel: str = "CLUSTERING"
    strategyName: str = ""
    topic: str = ""


class QueueAssignment(msgspec.Struct):
    """One of the queues of a client; number -1 is any of this broker, `mode` PULL or POP."""

    messageQueue: MessageQueue
    mode: str


class QueryAssignmentResponseBody(Body, msgspec.Struct):
    """Code 400's answer; None tells the client to leave everything as it is."""

    messageQueueAssignments: list[QueueAssignment] | None = None


class SetMessageRequestModeBody(Body, msgspec.Struct):
    """Body of 401: how a group is to read a topic."""

    consumerGroup: str = ""
    mode: str = "PULL"
    popShareQueueNum: int = 0
    topic: str = ""


class LockBatchResponseBody(Body, msgspec.Struct):
    """Code 41's answer: the queues that are locked now."""

    lockOKMQSet: list[MessageQueue] = []


class ResetOffsetBody(Body, msgspec.Struct):
    """Body of 220 and answer to 222: new offset by queue."""

    queue_keyed = ("offsetTable",)

    offsetTable: dict[MessageQueue, int] = {}


class QueueOffset(Body, msgspec.Struct):
    """A queue and its new offset, in the list that C++ clients want."""

    brokerName: str = ""
    offset: int = 0
    queueId: int = 0
    topic: str = ""


class ResetOffsetBodyForC(Body, msgspec.Struct):
    """Body of 220 for clients that are not Java."""

    offsetTable: list[QueueOffset] = []


class ConsumerStatusBody(Body, msgspec.Struct):
    """Answer to 221 (messageQueueTable) and to 223 (consumerTable, by client id): offset by queue."""

    queue_keyed = ("messageQueueTable",)

    consumerTable: dict[str, dict[MessageQueue, int]] = {}
    messageQueueTable: dict[MessageQueue, int] = {}

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Give every client's table its keys."""
        table = fields.get("consumerTable")
        if isinstance(table, dict):
            fields["consumerTable"] = {client: queue_keys(offsets) for client, offsets in table.items()}
        return fields


class ConsumerRunningInfo(Body, msgspec.Struct):
    """Answer to 307. The values of the tables are RocketMQ's ProcessQueueInfo and ConsumeStatus, field by field."""

    queue_keyed = ("mqTable", "mqPopTable")

    properties: dict[str, str] = {}
    subscriptionSet: list[SubscriptionData] = []
    mqTable: dict[MessageQueue, dict[str, Any]] = {}
    mqPopTable: dict[MessageQueue, dict[str, Any]] = {}
    statusTable: dict[str, dict[str, Any]] = {}
    userConsumerInfo: dict[str, str] = {}
    jstack: str | None = None


class ConsumeDirectlyResult(Body, msgspec.Struct):
    """Answer to 309; `consumeResult` is one of RocketMQ's CR_… names."""

    autoCommit: bool = True
    consumeResult: str | None = None
    order: bool = False
    remark: str | None = None
    spentTimeMills: int = 0


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    for name, names in (
        ("consumeType", CONSUME_TYPES),
        ("messageModel", MESSAGE_MODELS),
        ("consumeFromWhere", CONSUME_FROM),
    ):
        if name in fields:
            fields[name] = enum_name(fields[name], names)
            if not isinstance(fields[name], str):
                raise HeaderError(f"{name} is neither a name nor a number")
    return fields
