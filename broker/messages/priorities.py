"""Priorities: a message of priority n goes to queue n, whichever its client chose; RocketMQ's since 5.4.

Who consumes by POP gets the highest queue first, where the topic says that its messages have priorities. The property
decides, not the topic. What is more than the topic has queues goes to the highest.
"""

import re

from remoting.properties import (
    PROPERTY_DELAY,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    decode_properties,
    encode_properties,
)

# A message with one of these is of another kind: it has its priority taken away.
_OTHER_KINDS = (
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_SHARDING_KEY,
)
# What Java reads as an int of 32 bits.
_INT = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII).fullmatch
_INT_MAX = 2**31 - 1


def by_priority(text: str, queue_id: int, write_queues: int) -> tuple[str, int]:
    """Return a message's properties and its queue, as its priority says; what has none stays as it is.

    A priority that is no number, or below 0, is none.
    """
    if PROPERTY_PRIORITY not in text:
        return text, queue_id
    found = decode_properties(text.encode())
    priority = _number(found.get(PROPERTY_PRIORITY, ""))
    if priority < 0:
        return text, queue_id
    prepared = found.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    if prepared or any(name in found for name in _OTHER_KINDS):
        del found[PROPERTY_PRIORITY]
        return encode_properties(found).decode(), queue_id
    return text, min(priority, max(write_queues - 1, 0))


def _number(text: str) -> int:
    if _INT(text) is None:
        return -1
    number = int(text)
    return number if number <= _INT_MAX else -1
