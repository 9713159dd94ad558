"""The text form of message traces, as RocketMQ's clients write it (TraceDataEncoder).

A record is its kind and its fields, separated by 0x01, and ends with 0x02; several stand one after the other. A tag or
key that is not there reads "null", for Java writes it so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeAlias

FIELD_END = "\x01"
RECORD_END = "\x02"
NULL = "null"


class MessageType(IntEnum):
    """What kind of message a trace is about; the numbers are on the wire."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3


@dataclass(frozen=True, slots=True)
class Pub:
    """A message was sent. Times in ms (`time_ms` since the epoch: the send's begin), length in bytes."""

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    message_type: int
    offset_msg_id: str | None
    success: bool
    # Some clients add where they run; Java's has stopped to.
    client_host: str | None = None


@dataclass(frozen=True, slots=True)
class SubBefore:
    """A message is about to be consumed; `request_id` joins it with the SubAfter of the same call."""

    time_ms: int
    region: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: str | None
    client_host: str | None = None


@dataclass(frozen=True, slots=True)
class SubAfter:
    """A message was consumed, or not; `context_code` is a ConsumeOutcome. Old clients leave the last two out."""

    request_id: str
    msg_id: str
    cost_ms: int
    success: bool
    keys: str | None
    context_code: int = 0
    time_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A transaction was committed or rolled back; `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW (so spelt)."""

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str
    message_type: int
    transaction_id: str
    state: str
    from_check: bool


@dataclass(frozen=True, slots=True)
class Recall:
    """A timer message was recalled, or not."""

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    success: bool


TraceRecord: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall

_KINDS: dict[str, type[TraceRecord]] = {
    kind.__name__: kind for kind in (Pub, SubBefore, SubAfter, EndTransaction, Recall)
}
# How many fields a record of each kind has at least; a Pub of 4.x ends with `success` where the offset id stands now.
_FIELDS_MIN = {Pub: 12, SubBefore: 7, SubAfter: 5, EndTransaction: 12, Recall: 6}
_PUB_FIELDS_OLD = 12
# Those at the end that are left out when there is nothing to say.
_LEFT_OUT = {"client_host", "time_ms", "group"}


def encode_trace(record: TraceRecord) -> str:
    """Return the text of a record."""
    values = [(field.name, getattr(record, field.name)) for field in fields(record)]
    while values[-1][1] is None and values[-1][0] in _LEFT_OUT:
        values.pop()
    return FIELD_END.join([type(record).__name__, *(_text(value) for _name, value in values)]) + RECORD_END


def trace_keys(record: TraceRecord) -> list[str]:
    """Return what the trace message is to be found by: the message's id, and its keys."""
    keys = getattr(record, "keys", None)
    return [record.msg_id, *(keys.split() if keys else ())]


def decode_traces(body: bytes | str) -> list[TraceRecord]:
    """Read the records of a trace message; what is none, or of an unknown kind, is passed over as Java does."""
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    found = (_decode(part) for part in text.split(RECORD_END))
    return [record for record in found if record is not None]


def _decode(text: str) -> TraceRecord | None:
    name, *texts = text.split(FIELD_END)
    kind = _KINDS.get(name)
    if kind is None or len(texts) < _FIELDS_MIN[kind]:
        return None
    if kind is Pub and len(texts) == _PUB_FIELDS_OLD:
        texts.insert(-1, NULL)
    try:
        values = [_READERS[field.type](text) for field, text in zip(fields(kind), texts, strict=False)]
    except ValueError:
        return None
    return kind(*values)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value == "":
        return NULL
    # Nobody else's texts can break the frame.
    return str(value).replace(FIELD_END, " ").replace(RECORD_END, " ")


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _optional(text: str) -> str | None:
    return None if text in {NULL, ""} else text


_READERS: dict[Any, Callable[[str], Any]] = {
    int: _number,
    str: str,
    bool: lambda text: text == "true",
    str | None: _optional,
    int | None: _number,
}


def joined(records: Iterable[TraceRecord]) -> bytes:
    """Return the body of a trace message that holds these records."""
    return "".join(encode_trace(record) for record in records).encode("utf-8", "replace")
