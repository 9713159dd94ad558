"""Headers of POP consumption: messages are taken, and acknowledged one by one."""

from remoting.headers.base import Header, Int, Long


class PopMessageRequestHeader(Header, kw_only=True):
    """POP_MESSAGE 200050; queueId -1 is any queue, initMode 0 begins a new group at the queue's begin, 1 at its end."""

    consumerGroup: str
    topic: str
    queueId: Int
    maxMsgNums: Int
    invisibleTime: Long
    pollTime: Long
    bornTime: Long
    initMode: Int
    expType: str | None = None
    exp: str | None = None
    order: bool | None = None
    attemptId: str | None = None


class PopMessageResponseHeader(Header, kw_only=True):
    """What was taken, for the handles by which it is acknowledged; the body holds the records."""

    popTime: Long
    invisibleTime: Long
    reviveQid: Int
    restNum: Long
    startOffsetInfo: str | None = None
    msgOffsetInfo: str | None = None
    orderCountInfo: str | None = None


class AckMessageRequestHeader(Header, kw_only=True):
    """ACK_MESSAGE 200051; extraInfo is the message's handle."""

    consumerGroup: str
    topic: str
    queueId: Int
    extraInfo: str
    offset: Long


class ChangeInvisibleTimeRequestHeader(Header, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME 200053; the time counts from now on."""

    consumerGroup: str
    topic: str
    queueId: Int
    extraInfo: str
    offset: Long
    invisibleTime: Long


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """What the new handle is made of."""

    popTime: Long
    invisibleTime: Long
    reviveQid: Int


class PeekMessageRequestHeader(Header, kw_only=True):
    """PEEK_MESSAGE 200052: what a pop would bring, which is not taken."""

    consumerGroup: str
    topic: str
    queueId: Int
    maxMsgNums: Int


class NotificationRequestHeader(Header, kw_only=True):
    """NOTIFICATION 200054: whether there is something to pop, waited for like one."""

    consumerGroup: str
    topic: str
    queueId: Int
    pollTime: Long
    bornTime: Long
    order: bool | None = None
    attemptId: str | None = None


class NotificationResponseHeader(Header, kw_only=True):
    """Whether there is, and whether too many wait already."""

    hasMsg: bool
    pollingFull: bool


class PollingInfoRequestHeader(Header, kw_only=True):
    """POLLING_INFO 200055: how many pops wait."""

    consumerGroup: str
    topic: str
    queueId: Int


class PollingInfoResponseHeader(Header, kw_only=True):
    """So many."""

    pollingNum: Int
