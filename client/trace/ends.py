"""Traces of what ends a message's wait: a transaction's commit or rollback, and a recall."""

import time

from client.message import Message
from client.trace.hooks import NO_REGION
from client.trace.records import EndTransaction, MessageType, Recall
from remoting.codes import MessageSysFlag
from remoting.message import MessageExt
from remoting.properties import PROPERTY_KEYS, PROPERTY_MSG_REGION, PROPERTY_TAGS

# As Java's LocalTransactionState spells them.
_STATES = {
    int(MessageSysFlag.TRANSACTION_COMMIT): "COMMIT_MESSAGE",
    int(MessageSysFlag.TRANSACTION_ROLLBACK): "ROLLBACK_MESSAGE",
}
_UNKNOWN = "UNKNOW"


def end_of(group: str, message: Message, msg_id: str, transaction_id: str, address: str, state: int) -> EndTransaction:
    """Return the trace of an end that its producer told the broker at `address`; `state` as in END_TRANSACTION (37)."""
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    return EndTransaction(
        time_ms=time.time_ns() // 1_000_000,
        region=NO_REGION,
        group=group,
        topic=message.topic,
        msg_id=msg_id,
        tags=message.tags,
        keys=keys or None,
        store_host=address,
        message_type=MessageType.COMMIT,
        transaction_id=transaction_id,
        state=_STATES.get(state, _UNKNOWN),
        from_check=False,
    )


def checked(group: str, topic: str, half: MessageExt, transaction_id: str, address: str, state: int) -> EndTransaction:
    """Return the trace of an end that a broker has asked for."""
    return EndTransaction(
        time_ms=time.time_ns() // 1_000_000,
        region=half.properties.get(PROPERTY_MSG_REGION) or NO_REGION,
        group=group,
        topic=topic,
        msg_id=half.msg_id,
        tags=half.properties.get(PROPERTY_TAGS),
        keys=half.properties.get(PROPERTY_KEYS),
        store_host=address,
        message_type=MessageType.COMMIT,
        transaction_id=transaction_id,
        state=_STATES.get(state, _UNKNOWN),
        from_check=True,
    )


def recalled(group: str, topic: str, msg_id: str, *, success: bool) -> Recall:
    """Return the trace of a recall."""
    now_ms = time.time_ns() // 1_000_000
    return Recall(time_ms=now_ms, region=NO_REGION, group=group, topic=topic, msg_id=msg_id, success=success)
