"""Marks: how far delivery has come, as records of rmq_sys_wheel_timer's queue 1."""

import struct
from enum import IntEnum
from typing import NamedTuple

from remoting.record import RecordError, decode_record
from remoting.topics import TIMER_TOPIC
from store.types import PendingRecord

MARK_QUEUE = 1
# magic, kind, slot, offset, slot and offset before, count, dequeue time
_MARK = struct.Struct(">4sbqqqqiq")
_MAGIC = b"RTM1"


class MarkKind(IntEnum):
    """What a mark says."""

    LOOK = 0
    """Nothing: whoever begins to deliver waits for it, and has then seen all marks before it."""
    CLOSE = 1
    """What waits now for a slot up to this one is to be delivered; what comes later for one of them is too late."""
    DONE = 2
    """Everything up to this slot and offset has been delivered, the last of it right behind this mark."""
    BASE = 3
    """RocketMQ delivered everything up to this slot of what stands before `offset`."""


class TimerMark(NamedTuple):
    """One mark. Slots in ms, offsets of rmq_sys_wheel_timer's queue 0."""

    kind: MarkKind
    slot: int = 0
    offset: int = -1
    before_slot: int = -1
    before_offset: int = -1
    """Of DONE: what was delivered before; its own messages come after that."""
    records: int = 0
    """Of DONE: how many records stand behind it that belong to it."""
    dequeue_ms: int = 0
    """Of DONE: the time that these records carry."""


def mark_record(mark: TimerMark, now_ms: int, store_host: bytes) -> PendingRecord:
    """Return the record of a mark."""
    return PendingRecord(TIMER_TOPIC, MARK_QUEUE, 0, 0, now_ms, store_host, 0, 0, _MARK.pack(_MAGIC, *mark), b"")


def read_mark(view: bytes | memoryview) -> TimerMark:
    """Return the mark that a record holds; RecordError when it holds none."""
    body = decode_record(view).body
    if len(body) != _MARK.size or body[:4] != _MAGIC:
        raise RecordError("this is no mark of the timer's")
    _magic, kind, *fields = _MARK.unpack(body)
    try:
        return TimerMark(MarkKind(kind), *fields)
    except ValueError as error:
        raise RecordError(str(error)) from None
