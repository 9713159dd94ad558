"""One transaction as the application holds it: a half message that is stored, what was decided, and what came of it."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from client.errors import MessageRefused
from client.message import Message, SendResult
from client.produce.arguments import seconds
from remoting.codes import MessageSysFlag
from remoting.headers.registry import EndTransactionRequestHeader
from remoting.message import MessageExt
from remoting.msgid import parse_offset_msg_id
from remoting.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED

# How long a half message is not asked about, in seconds; at most a signed number of 32 bits.
CHECK_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
IMMUNITY_S_MAX = 2**31 - 1


class TransactionState(Enum):
    """What became of a local transaction; the values are those of END_TRANSACTION (37)."""

    COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)
    # Nothing is decided: the broker asks, later and again.
    UNKNOWN = 0


# Answers a broker's question about a transaction: `message.msg_id` is its id.
CheckListener = Callable[[MessageExt], Awaitable[TransactionState] | TransactionState]


@dataclass(slots=True)
class TransactionResult(SendResult):
    """Where the half message went, what the local transaction came to, and whether the broker was told of it.

    `told` False: the broker could not be reached, and will ask. True: it was sent, which no broker acknowledges.
    """

    state: TransactionState = TransactionState.UNKNOWN
    told: bool = False


class Transaction:
    """A transaction whose half message is stored; the local part runs now.

    `transaction_id` is what a check will name (`message.msg_id` there): store it with the local transaction, in the
    same commit, and the check's answer is whether it is there.
    """

    def __init__(self, message: Message, half: SendResult) -> None:
        self.message = message
        self.half = half
        self.transaction_id = half.msg_id
        # What is told when the local part ends well; afterwards what was told.
        self.state = TransactionState.COMMIT
        self.told = False

    def rollback(self) -> None:
        """Have the message rolled back at the end of the block, without an exception."""
        self.state = TransactionState.ROLLBACK

    def leave_unknown(self) -> None:
        """Decide nothing at the end of the block: the broker asks `on_check`, in half a minute or so, and again."""
        self.state = TransactionState.UNKNOWN

    @property
    def result(self) -> TransactionResult:
        """What is known of it now."""
        half = self.half
        return TransactionResult(
            half.status,
            half.msg_id,
            half.offset_msg_id,
            half.queue,
            half.queue_offset,
            self.transaction_id,
            state=self.state,
            told=self.told,
        )


# The local part of a transaction, as `send_in_transaction` takes it.
LocalPart = Callable[[Transaction], Awaitable[TransactionState] | TransactionState]


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """What is sent in place of a message: its half message, with the properties that make it one."""

    message: Message
    more: str


def half_message(group: str, message: Any, check_after: Any) -> HalfMessage:
    """Return the half message of a message; raises MessageRefused."""
    if not isinstance(message, Message):
        if isinstance(message, Sequence) and not isinstance(message, str | bytes | bytearray):
            raise MessageRefused("a batch cannot be sent in a transaction: begin one for each message")
        raise MessageRefused(f"{type(message).__name__} cannot be sent in a transaction: it takes a Message")
    more = f"{PROPERTY_TRANSACTION_PREPARED}\x01true\x02{PROPERTY_PRODUCER_GROUP}\x01{group}\x02"
    if check_after is None:
        return HalfMessage(message, more)
    immunity = check_after.total_seconds() if isinstance(check_after, timedelta) else seconds(check_after, 0.0)
    if not 0 < immunity <= IMMUNITY_S_MAX:
        raise MessageRefused(f"check_after is {check_after!r}: it takes more than 0 s, and {IMMUNITY_S_MAX} s at most")
    return HalfMessage(message, f"{more}{CHECK_IMMUNITY}\x01{math.ceil(immunity)}\x02")


def end_header(group: str, tx: Transaction) -> EndTransactionRequestHeader:
    """Return what tells the end; ValueError when the broker's answer to the half message named no place."""
    half = tx.half
    _host, position = parse_offset_msg_id(half.offset_msg_id)
    return EndTransactionRequestHeader(
        topic=tx.message.topic,
        producerGroup=group,
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=position,
        commitOrRollback=tx.state.value,
        fromTransactionCheck=False,
        msgId=half.msg_id,
        transactionId=half.transaction_id,
        bname=half.queue.brokerName,
    )
