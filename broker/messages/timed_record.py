"""The forms of a timer message: as it waits in rmq_sys_wheel_timer, how it is told from its record, as it will be.

RocketMQ's forms. A message waits with the slot that its time falls into (TIMER_OUT_MS, a multiple of timerPrecisionMs)
and is due when that slot is over, so that it is never early. Who recalls it stores a message of the same slot that
names it (TIMER_DEL_UNIQKEY).
"""

import base64
import binascii
from typing import NamedTuple

import msgspec

from broker.messages.delayed_record import pending, without
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from remoting.properties import (
    PAIR_END,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    find_property,
)
from remoting.record import HEADS, MAGIC_AT, MAGIC_V2, SYSFLAG_AT, RecordError
from remoting.topics import TIMER_TOPIC, is_retry_topic
from store.config import StoreConfig
from store.types import PendingRecord

TIMERS = (PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
DELETES = "TIMER_DEL_UNIQKEY"
ROLL_TIMES = "TIMER_ROLL_TIMES"
# Ours: the slot at which a message that waits for long is stored anew, so that retention does not delete it. It stands
# in the record, and not in the configuration, so that whoever reads it, and whenever, decides the same.
ROLL_MS = "TIMER_ROLL_MS"
# Where a record of RocketMQ's does not say it: its timerRollWindowSlot of a second each.
ROLL_WINDOW_MS = 172_800_000
ENQUEUE_MS = "TIMER_ENQUEUE_MS"
DEQUEUE_MS = "TIMER_DEQUEUE_MS"
# However soon files expire: a message is not stored anew all the time.
WINDOW_MS_MIN = 60_000
# Java's long.
_LONG_MAX = 2**63 - 1
_HANDLE_BYTES_MAX = 4096
_HANDLE_BAD = "recall handle is invalid"


def _end(name: str) -> bytes:
    return f"{name}\x01".encode()


_OUT_MS, _DELETES = _end(PROPERTY_TIMER_OUT_MS), _end(DELETES)
_ROLL_TIMES, _ROLL_MS = _end(ROLL_TIMES), _end(ROLL_MS)
_REAL_TOPIC, _REAL_QUEUE_ID = _end(PROPERTY_REAL_TOPIC), _end(PROPERTY_REAL_QUEUE_ID)
_UNIQ_KEY = _end("UNIQ_KEY")
_OF_WAITING = frozenset(
    name.encode() for name in (PROPERTY_TIMER_OUT_MS, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID, ROLL_TIMES, ROLL_MS)
)
_OF_DELIVERY = frozenset({ENQUEUE_MS.encode(), DEQUEUE_MS.encode(), ROLL_MS.encode()})
OF_ROLL = frozenset({ROLL_TIMES.encode(), ROLL_MS.encode()})


class TimerLimits(NamedTuple):
    """What the configuration says of timers."""

    enabled: bool
    precision_ms: int
    max_delay_ms: int
    window_ms: int
    """A message that waits for longer is stored anew before its file can expire."""


class Timed(NamedTuple):
    """What is read of a waiting timer message."""

    out_ms: int
    roll_ms: int
    """The slot at which it is to be stored anew, 0 for none."""
    topic: str
    queue_id: int
    key: bytes
    """Its unique key; of one that recalls another, that one's."""
    deletes: bool
    """It recalls another."""
    store_ms: int


def timer_limits(config: StoreConfig) -> TimerLimits:
    """Return what the store's configuration says of timers."""
    precision = config.timerPrecisionMs
    kept_ms = config.fileReservedTime * 3_600_000 // 2
    window = max(min(config.timerRollWindowSlot * precision, kept_ms), WINDOW_MS_MIN)
    return TimerLimits(config.timerWheelEnable, precision, config.timerMaxDelaySec * 1000, window)


def slot_of(found: dict[str, str], now_ms: int, limits: TimerLimits) -> int:
    """Return the slot that properties ask for, 0 when the message is to be stored at once. Raises CommandError."""
    if PROPERTY_TIMER_OUT_MS in found or not any(name in found for name in TIMERS):
        return 0
    if not limits.enabled:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
        )
    deliver_ms = _deliver_ms(found, now_ms, limits)
    if deliver_ms <= now_ms:
        if DELETES in found:
            raise illegal(limits)
        return 0
    if deliver_ms - now_ms > limits.max_delay_ms:
        raise illegal(limits)
    return max(1, (deliver_ms - 1) // limits.precision_ms * limits.precision_ms)


def _deliver_ms(found: dict[str, str], now_ms: int, limits: TimerLimits) -> int:
    for name in TIMERS:
        if (text := found.get(name)) is None:
            continue
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or abs(int(text)) > _LONG_MAX:
            raise illegal(limits)
        value = int(text)
        if name == PROPERTY_TIMER_DELIVER_MS:
            return value
        return now_ms + (value * 1000 if name == PROPERTY_TIMER_DELAY_SEC else value)
    raise AssertionError("a timer has a time")


def illegal(limits: TimerLimits) -> CommandError:
    """Return the refusal of a time that cannot be: RocketMQ's words."""
    return CommandError(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{limits.max_delay_ms}ms; or if set del msg, the delay time should be bigger than the current time",
    )


def roll_slot(out_ms: int, now_ms: int, window_ms: int, precision_ms: int = 1000) -> int:
    """Return when a message is stored anew that waits for longer than the window, else 0; RocketMQ's rule."""
    delay = out_ms - now_ms
    if delay < window_ms:
        return 0
    # Half a window when little more than one is left, so that the last part is not a short one.
    wait = window_ms // 2 if delay - window_ms < window_ms // 3 else window_ms
    return (now_ms + wait) // precision_ms * precision_ms


def _rolls(out_ms: int, now_ms: int, limits: TimerLimits) -> str:
    slot = roll_slot(out_ms, now_ms, limits.window_ms, limits.precision_ms)
    return f"{ROLL_MS}\x01{slot}\x02" if slot else ""


def timed(record: PendingRecord, out_ms: int, now_ms: int, limits: TimerLimits) -> PendingRecord:
    """Return the record that waits for its slot to be over before `record` is stored."""
    told = (
        f"{PROPERTY_TIMER_OUT_MS}\x01{out_ms}\x02{PROPERTY_REAL_TOPIC}\x01{record.topic}\x02"
        f"{PROPERTY_REAL_QUEUE_ID}\x01{record.queue_id}\x02{_rolls(out_ms, now_ms, limits)}"
    )
    properties = without(record.properties, _OF_WAITING) + told.encode()
    return msgspec.structs.replace(record, topic=TIMER_TOPIC, queue_id=0, properties=properties)


def read_timed(view: bytes | memoryview) -> Timed:
    """Return what a record of rmq_sys_wheel_timer says; RecordError when it says nothing that can be done."""
    properties, store_ms = _properties(view)
    out_ms, topic, queue_id = (find_property(properties, name) for name in (_OUT_MS, _REAL_TOPIC, _REAL_QUEUE_ID))
    if not out_ms.isdigit() or len(out_ms) > 18 or not topic or not queue_id.isdigit() or len(queue_id) > 9:
        raise RecordError("TIMER_OUT_MS, REAL_TOPIC or REAL_QID is missing")
    roll = find_property(properties, _ROLL_MS)
    said = roll.isdigit() and len(roll) < 19
    roll_ms = int(roll) if said else roll_slot(int(out_ms), store_ms, ROLL_WINDOW_MS)
    deleted = find_property(properties, _DELETES)
    # RocketMQ's appendTopicForTimerDeleteKey.
    deleted = deleted.removeprefix(topic + b"+")
    key = deleted or find_property(properties, _UNIQ_KEY)
    return Timed(int(out_ms), roll_ms, topic.decode("utf-8", "replace"), int(queue_id), key, bool(deleted), store_ms)


def delivered(view: bytes | memoryview, found: Timed, dequeue_ms: int) -> PendingRecord:
    """Return the message that a waiting one becomes; `found` is read of it. RecordError when it is damaged."""
    record = pending(view)
    told = f"{ENQUEUE_MS}\x01{found.store_ms}\x02{DEQUEUE_MS}\x01{dequeue_ms}\x02"
    properties = without(record.properties, _OF_DELIVERY) + told.encode()
    return msgspec.structs.replace(record, topic=found.topic, queue_id=found.queue_id, properties=properties)


def bare(record: PendingRecord) -> PendingRecord:
    """Return a delivered message without the times of its delivery: there may be no room for them."""
    return msgspec.structs.replace(record, properties=without(record.properties, _OF_DELIVERY))


def rolled(view: bytes | memoryview, now_ms: int, limits: TimerLimits) -> PendingRecord:
    """Return the record that goes on waiting in place of this one, which retention would delete before its time."""
    record, found = pending(view), read_timed(view)
    times = find_property(record.properties, _ROLL_TIMES)
    count = int(times) + 1 if times.isdigit() and len(times) < 9 else 1
    properties = without(record.properties, OF_ROLL) + (
        f"{ROLL_TIMES}\x01{count}\x02{_rolls(found.out_ms, now_ms, limits)}".encode()
    )
    return msgspec.structs.replace(record, topic=TIMER_TOPIC, queue_id=0, properties=properties)


def recall_handle(topic: str, broker: str, out_ms: int, uniq_key: str) -> str | None:
    """Return by what a message can be recalled; None of one that is tried again, which its producer does not know."""
    if is_retry_topic(topic):
        return None
    # One more, so that it falls into the same slot when it is cut down to one.
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {out_ms + 1} {uniq_key}".encode()).decode()


class RecallHandle(NamedTuple):
    """What a recall handle says."""

    topic: str
    broker: str
    deliver_ms: int
    """-1 when it is no number."""
    uniq_key: str


def read_handle(text: str) -> RecallHandle:
    """Return what a handle says. Raises CommandError."""
    try:
        if len(text) > _HANDLE_BYTES_MAX:
            raise ValueError
        parts = base64.urlsafe_b64decode(text.encode()).decode().split(" ")
    except (binascii.Error, ValueError):
        raise CommandError(ResponseCode.ILLEGAL_OPERATION, _HANDLE_BAD) from None
    if len(parts) < 5 or parts[0] != "v1":
        raise CommandError(ResponseCode.ILLEGAL_OPERATION, _HANDLE_BAD)
    stamp = parts[3]
    number = int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < 19 else -1
    if PAIR_END.decode() in parts[4] or "\x01" in parts[4] or not parts[4]:
        raise CommandError(ResponseCode.ILLEGAL_OPERATION, _HANDLE_BAD)
    return RecallHandle(parts[1], parts[2], number, parts[4])


def _properties(view: bytes | memoryview) -> tuple[bytes, int]:
    """Return a record's properties and when it was stored, without decoding the rest."""
    if len(view) < HEADS[0].size:
        raise RecordError("the record is cut short")
    flags = int.from_bytes(view[SYSFLAG_AT : SYSFLAG_AT + 4], "big")
    head = HEADS[flags & 0x30]
    fields = head.unpack_from(view)
    wide = 2 if int.from_bytes(view[MAGIC_AT : MAGIC_AT + 4], "big") == MAGIC_V2 else 1
    at = head.size + fields[14]
    topic_end = at + wide + int.from_bytes(view[at : at + wide], "big")
    if fields[14] < 0 or topic_end + 2 > fields[0] or fields[0] > len(view):
        raise RecordError("the record's lengths contradict each other")
    return bytes(view[topic_end + 2 : fields[0]]), fields[10]
