"""Selectors of queues: functions of the topic's queues, the message and an argument, to be handed to `send`."""

from typing import Any

from client.errors import MessageRefused
from client.message import Message
from remoting.bodies.registry import MessageQueue
from remoting.javahash import java_hash


def select_by_hash(queues: list[MessageQueue], _message: Message, arg: Any) -> MessageQueue:
    """Choose by the hash of `arg`: messages of one key go to one queue, which keeps their order.

    The hash is that of Java (a text as String, a whole number as Integer or Long, a bool as Boolean), so that a Java
    producer with SelectMessageQueueByHash chooses the same queue. Raises MessageRefused for anything else.
    """
    return queues[abs(_java_hash_of(arg)) % len(queues)]


def _java_hash_of(arg: Any) -> int:
    if isinstance(arg, str):
        return java_hash(arg)
    if isinstance(arg, bool):
        return 1231 if arg else 1237
    if isinstance(arg, int):
        if -(2**31) <= arg < 2**31:
            return arg
        if -(2**63) <= arg < 2**63:
            bits = arg & (2**64 - 1)
            folded = (bits ^ (bits >> 32)) & 0xFFFFFFFF
            return folded - 2**32 if folded & 0x80000000 else folded
    raise MessageRefused(f"select_by_hash needs a key as arg, a text or a number of 64 bits, not {arg!r}")
