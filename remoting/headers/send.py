"""Headers of sending: messages, replies, transactions."""

import msgspec

from remoting.headers.base import Header, Int, Long

_named = msgspec.field


class SendMessageRequestHeader(Header, kw_only=True):
    """SEND_MESSAGE 10 and SEND_REPLY_MESSAGE 324."""

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: Int
    queueId: Int
    sysFlag: Int
    bornTimestamp: Long
    flag: Int
    properties: str | None = None
    reconsumeTimes: Int | None = None
    unitMode: bool = False
    maxReconsumeTimes: Int | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageRequestHeaderV2(SendMessageRequestHeader, kw_only=True):
    """SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, SEND_REPLY_MESSAGE_V2 325: the same under one-letter names."""

    producerGroup: str = _named(name="a")
    topic: str = _named(name="b")
    defaultTopic: str = _named(name="c")
    defaultTopicQueueNums: Int = _named(name="d")
    queueId: Int = _named(name="e")
    sysFlag: Int = _named(name="f")
    bornTimestamp: Long = _named(name="g")
    flag: Int = _named(name="h")
    properties: str | None = _named(name="i", default=None)
    reconsumeTimes: Int | None = _named(name="j", default=None)
    unitMode: bool = _named(name="k", default=False)
    maxReconsumeTimes: Int | None = _named(name="l", default=None)
    batch: bool = _named(name="m", default=False)
    bname: str | None = _named(name="n", default=None)


class SendMessageResponseHeader(Header, kw_only=True):
    """Where the message went; a batch has its offset ids joined by commas and the first queue offset."""

    msgId: str
    queueId: Int
    queueOffset: Long
    transactionId: str | None = None
    batchUniqId: str | None = None
    recallHandle: str | None = None


class ReplyMessageRequestHeader(Header, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT 326, broker to client."""

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: Int
    queueId: Int
    sysFlag: Int
    bornTimestamp: Long
    flag: Int
    properties: str | None = None
    reconsumeTimes: Int | None = None
    unitMode: bool = False
    bornHost: str
    storeHost: str
    storeTimestamp: Long


class EndTransactionRequestHeader(Header, kw_only=True):
    """END_TRANSACTION 37: commitOrRollback is 8 (commit), 12 (roll back) or 0 (not known)."""

    topic: str | None = None
    producerGroup: str
    tranStateTableOffset: Long
    commitLogOffset: Long
    commitOrRollback: Int
    fromTransactionCheck: bool = False
    msgId: str
    transactionId: str | None = None
    bname: str | None = None


class CheckTransactionStateRequestHeader(Header, kw_only=True):
    """CHECK_TRANSACTION_STATE 39, broker to producer."""

    topic: str | None = None
    tranStateTableOffset: Long
    commitLogOffset: Long
    msgId: str | None = None
    transactionId: str | None = None
    offsetMsgId: str | None = None
    bname: str | None = None


class CheckTransactionStateResponseHeader(Header, kw_only=True):
    """Declared by the protocol; producers answer with END_TRANSACTION instead."""

    producerGroup: str
    tranStateTableOffset: Long
    commitLogOffset: Long
    commitOrRollback: Int


class RecallMessageRequestHeader(Header, kw_only=True):
    """RECALL_MESSAGE 370."""

    producerGroup: str | None = None
    topic: str
    recallHandle: str
    bname: str | None = None


class RecallMessageResponseHeader(Header, kw_only=True):
    """The unique id of the message that was called back."""

    msgId: str


class ConsumerSendMsgBackRequestHeader(Header, kw_only=True):
    """CONSUMER_SEND_MSG_BACK 36: `offset` is physical; maxReconsumeTimes None or -1 means the group's own."""

    offset: Long
    group: str
    delayLevel: Int
    originMsgId: str | None = None
    originTopic: str | None = None
    unitMode: bool = False
    maxReconsumeTimes: Int | None = None
