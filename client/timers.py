"""When a timer message is to be delivered, as RocketMQ's clients say it: in properties; and the handles to recall one.

The broker decides: one that serves no timers, or not so late, refuses the message; a moment that is past is now.
"""

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from client.errors import MessageRefused
from remoting.properties import PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELIVER_MS

# Milliseconds travel as Java's long; a delay and the time of day it is added to must both fit.
MS_MAX = 2**62
TIMER_PROPERTIES = frozenset({PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELIVER_MS})
# The only form of a handle there is, and what its longest parts (two names of 255 characters, an id of 56) come to.
_VERSION = "v1"
_HANDLE_CHARACTERS_MAX = 1024


def timer_property(deliver_at: Any, delay: Any) -> tuple[str, str]:
    """Return name and value of the property that says when to deliver; raises MessageRefused.

    `deliver_at` is a datetime (one without a zone is local time) or milliseconds since the epoch, `delay` seconds or a
    timedelta; one of them is None.
    """
    if deliver_at is not None and delay is not None:
        raise MessageRefused("the message has both a moment to be delivered at and a delay: it takes one of them")
    if deliver_at is not None:
        return PROPERTY_TIMER_DELIVER_MS, str(_moment_ms(deliver_at))
    delay_ms = _delay_ms(delay)
    if delay_ms % 1000:
        return PROPERTY_TIMER_DELAY_MS, str(delay_ms)
    return PROPERTY_TIMER_DELAY_SEC, str(delay_ms // 1000)


def check_timer(deliver_at: Any, delay: Any, delay_level: int, properties: Mapping[str, str]) -> None:
    """Raise MessageRefused when a message with a timer is told more than once when to be delivered."""
    if delay_level:
        raise MessageRefused("the message has a delay level as well as a moment or a delay: it takes one of them")
    named = sorted(TIMER_PROPERTIES.intersection(properties))
    if named:
        raise MessageRefused(f"the message has the property {named[0]} as well as `deliver_at` or `delay`")
    timer_property(deliver_at, delay)


def _moment_ms(moment: Any) -> int:
    if isinstance(moment, datetime):
        try:
            ms = round(moment.timestamp() * 1000)
        except (OverflowError, OSError, ValueError) as error:
            raise MessageRefused(f"the moment to be delivered at is {moment!r}: {error}") from error
    elif isinstance(moment, int) and not isinstance(moment, bool):
        ms = moment
    else:
        raise MessageRefused(
            f"the moment to be delivered at is {moment!r}: it takes a datetime or milliseconds since the epoch"
        )
    if not 0 < ms < MS_MAX:
        raise MessageRefused(f"the moment to be delivered at is {moment!r}: it takes one after 1970, in milliseconds")
    return ms


def _delay_ms(delay: Any) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    number = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not number and not (isinstance(seconds, float) and math.isfinite(seconds)):
        raise MessageRefused(f"the delay is {delay!r}: it takes a number of seconds or a timedelta")
    if not 0 <= seconds < MS_MAX // 1000:
        raise MessageRefused(f"the delay is {delay!r}: it takes 0 seconds or more, as far as a broker's timers reach")
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class TimerHandle:
    """What a recall handle names: a message, and the broker that keeps it until `deliver_ms`."""

    topic: str
    broker: str
    deliver_ms: int
    msg_id: str


def read_handle(text: Any) -> TimerHandle:
    """Read a send's handle: URL-safe Base64 of "v1 topic broker deliverMs msgId"; raises MessageRefused."""
    if not isinstance(text, str):
        raise MessageRefused(f"the recall handle is {text!r}: it takes the text that a send's `recall_handle` was")
    wrong = MessageRefused(f"{text[:64]!r} is no recall handle: it takes what a send's `recall_handle` was")
    if len(text) > _HANDLE_CHARACTERS_MAX:
        raise wrong
    try:
        parts = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError):
        raise wrong from None
    if len(parts) != 5 or parts[0] != _VERSION or not all(parts) or not parts[3].isdecimal():
        raise wrong
    return TimerHandle(parts[1], parts[2], int(parts[3]), parts[4])
