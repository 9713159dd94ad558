"""One method per request that producers and consumers make. Knows headers and bodies; decides nothing.

Every method raises remoting.errors.InvokeError (ResponseError for a refusal) and HeaderError for an answer that cannot
be read. Addresses are "host:port", timeouts seconds, offsets queue offsets.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from client.compression import CompressionError, decompress
from client.errors import RouteError
from client.nameservers import NameServers
from remoting.bodies.registry import (
    CheckClientConfigBody,
    ConsumerIdList,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    MessageQueue,
    QueryAssignmentBody,
    QueryAssignmentResponseBody,
    SubscriptionData,
    TopicRouteData,
)
from remoting.client import RemotingClient
from remoting.codes import MessageSysFlag, PullSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import HeaderError, ResponseError
from remoting.headers.base import Header
from remoting.headers.registry import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.message import MessageExt
from remoting.record import RecordError, decode_records

_log = logging.getLogger(__name__)

TIMEOUT_S = 3.0
# In the answer of a broker that does not lead its Raft group, and passed the request on.
FORWARDED = "raftHop"
# How much longer than its suspension a long poll may take before it counts as lost.
PULL_GRACE_S = 15.0


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


# With these, an unchanged offset means that there was nothing to say.
UNMOVED = frozenset({PullStatus.NO_NEW, PullStatus.NO_MATCH})
# Why an offset is called illegal that an administrator has changed: told once, whatever the consumer's offset is.
OFFSET_RESET = "OFFSET_RESET"
_PULL_STATUS = {int(status.value): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What is pulled. `commit_offset` ≥ 0 stores the group's offset on the way; `suspend_ms` 0 answers at once."""

    group: str
    queue: MessageQueue
    offset: int
    count: int
    expression: str
    version: int
    suspend_ms: int
    bytes_max: int
    commit_offset: int = -1
    lite: bool = False
    kind: str = "TAG"
    """Of the expression: TAG or SQL92."""


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """What came: go on at `next_offset`, at replica `suggested_id` of the broker; `remark` is the broker's reason."""

    status: PullStatus
    messages: list[MessageExt]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_id: int
    remark: str = ""


class BrokerApi:
    """Typed calls over one RemotingClient."""

    def __init__(
        self, remoting: RemotingClient, nameservers: NameServers, on_forwarded: Callable[[str], None] | None = None
    ) -> None:
        """`on_forwarded` is told of each address that passed a request on instead of serving it: a route is old."""
        self.remoting = remoting
        self.nameservers = nameservers
        self._on_forwarded = on_forwarded

    async def route(self, topic: str) -> TopicRouteData | None:
        """Return a topic's route, None when the NameServers do not know it; RouteError when none answers."""
        header = GetRouteInfoRequestHeader(topic=topic, acceptStandardJsonOnly=True)
        try:
            answer = await self.nameservers.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise RouteError(f"the route of topic {topic} was refused: {error}", retriable=error.retriable) from error
        return TopicRouteData.decode(answer.body)

    async def heartbeat(self, address: str, data: HeartbeatData) -> None:
        """Tell a broker who this client is."""
        await self._call(address, RequestCode.HEART_BEAT, body=data.encode())

    async def unregister(
        self, address: str, client_id: str, producer: str | None, consumer: str | None, *, keeps_locks: bool = False
    ) -> None:
        """Tell a broker that a group of this client is gone; `keeps_locks`: callbacks of locked queues still run."""
        header = UnregisterClientRequestHeader(
            clientID=client_id, producerGroup=producer, consumerGroup=consumer, keepsLocks=keeps_locks or None
        )
        await self._call(address, RequestCode.UNREGISTER_CLIENT, header)

    async def check_subscription(self, address: str, client_id: str, group: str, data: SubscriptionData) -> None:
        """Ask whether a broker can filter by this; raises ResponseError with its reason when not."""
        body = CheckClientConfigBody(clientId=client_id, group=group, subscriptionData=data)
        await self._call(address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group's members, none when the broker knows no member."""
        header = GetConsumerListByGroupRequestHeader(consumerGroup=group)
        try:
            answer = await self._call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        except ResponseError as error:
            # What brokers say of a group that nobody has joined yet.
            if error.code == ResponseCode.SYSTEM_ERROR:
                return []
            raise
        return ConsumerIdList.decode(answer.body).consumerIdList

    async def pull(self, address: str, request: PullRequest) -> PullAnswer:
        """Pull messages; waits up to the suspension when there are none."""
        flags = PullSysFlag.SUBSCRIPTION
        if request.suspend_ms:
            flags |= PullSysFlag.SUSPEND
        if request.commit_offset >= 0:
            flags |= PullSysFlag.COMMIT_OFFSET
        if request.lite:
            flags |= PullSysFlag.LITE_PULL
        header = PullMessageRequestHeader(
            consumerGroup=request.group,
            topic=request.queue.topic,
            queueId=request.queue.queueId,
            queueOffset=request.offset,
            maxMsgNums=request.count,
            sysFlag=int(flags),
            commitOffset=max(request.commit_offset, 0),
            suspendTimeoutMillis=request.suspend_ms,
            subscription=request.expression,
            subVersion=request.version,
            expressionType=request.kind,
            maxMsgBytes=request.bytes_max,
        )
        code = RequestCode.LITE_PULL_MESSAGE if request.lite else RequestCode.PULL_MESSAGE
        timeout = request.suspend_ms / 1000 + PULL_GRACE_S
        answer = await self.remoting.invoke(address, Command.request(code, header), timeout)
        self.look_at_way(address, answer)
        status = _PULL_STATUS.get(answer.code)
        if status is None:
            raise ResponseError(answer.code, answer.remark, address)
        place = answer.header(PullMessageResponseHeader)
        found = decode_messages(answer.body, request.queue.brokerName) if status is PullStatus.FOUND else []
        return PullAnswer(
            status,
            found,
            place.nextBeginOffset,
            place.minOffset,
            place.maxOffset,
            place.suggestWhichBrokerId,
            answer.remark or status.name,
        )

    async def committed(self, address: str, group: str, queue: MessageQueue, *, strict: bool = False) -> int | None:
        """Return the group's stored offset, None when it has none: of a young queue 0, unless `strict`."""
        header = QueryConsumerOffsetRequestHeader(
            consumerGroup=group,
            topic=queue.topic,
            queueId=queue.queueId,
            setZeroIfNotFound=False if strict else None,
        )
        try:
            answer = await self._call(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        offset = answer.header(QueryConsumerOffsetResponseHeader).offset
        return offset if offset >= 0 else None

    async def commit(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, consumer: bool = False
    ) -> None:
        """Store the group's offset, and wait until the broker has it.

        `consumer`: of a member of the group, which may have lost the queue. Else the lower one counts too.
        """
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup=group,
            topic=queue.topic,
            queueId=queue.queueId,
            commitOffset=offset,
            fromConsumer=consumer or None,
        )
        await self._call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def request_mode(self, address: str, group: str, client_id: str, topic: str) -> str | None:
        """Return how a member of a group is to read a topic, PULL or POP; None when the broker cannot say."""
        body = QueryAssignmentBody(clientId=client_id, consumerGroup=group, strategyName="AVG", topic=topic)
        answer = await self._call(address, RequestCode.QUERY_ASSIGNMENT, body=body.encode())
        found = QueryAssignmentResponseBody.decode(answer.body).messageQueueAssignments
        return found[0].mode if found else None

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queueId=queue.queueId)
        answer = await self._call(address, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(GetMaxOffsetResponseHeader).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that is still there."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queueId=queue.queueId)
        answer = await self._call(address, RequestCode.GET_MIN_OFFSET, header)
        return answer.header(GetMinOffsetResponseHeader).offset

    async def offset_by_time(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after that time, the queue's end when there is none."""
        header = SearchOffsetRequestHeader(topic=queue.topic, queueId=queue.queueId, timestamp=timestamp_ms)
        answer = await self._call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return answer.header(SearchOffsetResponseHeader).offset

    async def send_back(self, address: str, group: str, message: MessageExt, delay_level: int, max_times: int) -> None:
        """Have a message delivered again later, through the group's retry topic."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=group,
            delayLevel=delay_level,
            originMsgId=message.msg_id,
            originTopic=message.topic,
            unitMode=False,
            maxReconsumeTimes=max_times,
        )
        await self._call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    async def lock(
        self, address: str, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock queues for this client; returns those that are its own now."""
        body = LockBatchBody(clientId=client_id, consumerGroup=group, mqSet=list(queues))
        answer = await self._call(address, RequestCode.LOCK_BATCH_MQ, body=body.encode())
        return LockBatchResponseBody.decode(answer.body).lockOKMQSet

    async def unlock(self, address: str, group: str, client_id: str, queues: Sequence[MessageQueue]) -> None:
        """Give locked queues back."""
        body = LockBatchBody(clientId=client_id, consumerGroup=group, mqSet=list(queues))
        await self._call(address, RequestCode.UNLOCK_BATCH_MQ, body=body.encode())

    async def view(self, address: str, physical_offset: int, topic: str | None = None) -> MessageExt:
        """Return the message at a CommitLog position."""
        header = ViewMessageRequestHeader(offset=physical_offset, topic=topic)
        answer = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        messages = decode_messages(answer.body, "")
        if len(messages) != 1:
            raise HeaderError(f"{address} answered with {len(messages)} messages for one position")
        return messages[0]

    async def _call(
        self, address: str, code: int, header: Header | None = None, body: bytes = b"", timeout: float = TIMEOUT_S
    ) -> Command:
        answer = await self.remoting.call(address, code, header, body, timeout)
        self.look_at_way(address, answer)
        return answer

    def look_at_way(self, address: str, answer: Command) -> None:
        """Notice an answer by way of another member."""
        if self._on_forwarded is not None and FORWARDED in answer.ext:
            self._on_forwarded(address)


def decode_messages(body: bytes | memoryview, broker_name: str) -> list[MessageExt]:
    """Read the records of a body, unpacking theirs; raises HeaderError when they are none.

    A body that cannot be unpacked is handed on as it came, and logged: one bad message must not stop its queue.
    """
    try:
        messages = decode_records(body)
    except RecordError as error:
        raise HeaderError(f"broker {broker_name} sent messages that cannot be read: {error}") from error
    for message in messages:
        message.broker_name = broker_name
        if message.sys_flag & MessageSysFlag.COMPRESSED:
            try:
                message.body = decompress(message.body, message.sys_flag)
            except CompressionError as error:
                _log.error("message %s of topic %s: %s", message.msg_id, message.topic, error)
    return messages
