"""Checks of what applications hand in: a wrong type is told at the door, in words, and never found out half way."""

import math
from collections.abc import Sequence
from typing import Any

from client.compression import Codec
from client.errors import ArgumentRefused, MessageRefused
from client.message import Message
from client.options import count_of
from remoting.bodies.registry import MessageQueue


def seconds(timeout: Any, default: float) -> float:
    """Return a timeout in seconds, `default` for None; raises MessageRefused."""
    if timeout is None:
        return default
    try:
        if not isinstance(timeout, bool) and isinstance(timeout, int | float) and not math.isnan(timeout):
            return float(timeout)
    except OverflowError:
        pass
    raise MessageRefused(f"the timeout is {timeout!r}: it takes a number of seconds")


def pack_options(
    compress_over: Any, max_message_bytes: Any, codec: Any, *, idempotent: Any
) -> tuple[int, int, Codec, bool]:
    """Return how messages are packed; raises ArgumentRefused."""
    if not isinstance(codec, Codec):
        raise ArgumentRefused(f"the codec is {codec!r}: it takes a Codec")
    over = count_of("compress_over", compress_over, 2**63 - 1, least=0)
    return over, count_of("max_message_bytes", max_message_bytes), codec, bool(idempotent)


def check_choice(queue: Any, selector: Any) -> None:
    """Raise MessageRefused unless `queue` and `selector` are what they must be, or None."""
    if queue is not None and not isinstance(queue, MessageQueue):
        raise MessageRefused(f"the queue is {queue!r}: it takes a MessageQueue, such as Producer.queues() returns")
    if selector is not None and not callable(selector):
        raise MessageRefused(f"the selector is {selector!r}: it takes a function of queues, message and arg")


def selected(queue: Any, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return what a selector chose; raises MessageRefused when it is none of the queues."""
    if not isinstance(queue, MessageQueue) or queue not in queues:
        raise MessageRefused(f"the queue selector returned {queue!r}: it must return one of the queues it was given")
    return queue


def check_messages(messages: Any) -> None:
    """Raise MessageRefused unless this is a sequence of messages."""
    if isinstance(messages, str | bytes | bytearray) or not isinstance(messages, Sequence):
        raise MessageRefused(f"{type(messages).__name__} cannot be sent: it takes a Message, or a list of some")
    for message in messages:
        if not isinstance(message, Message):
            raise MessageRefused(f"a batch takes Messages only, not {type(message).__name__}")
