"""What members say to one another: kinds, their fields, and the one place where what arrived is checked.

A message is a head, a CBOR array of the kind and its fields in the order of FIELDS (or what fixed_heads.py makes of
them), and a payload of raw bytes that nobody copies: the entries of an append, a part of a file. What a field may be
stands beside its name; whatever else arrives is MessageError and costs its sender the connection.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import cbor2

from raft.protocol.config import ID_BYTES
from raft.protocol.fields import CLOCK_MS_MAX, NUMBER_MAX, FieldError, blob, flag, number, sequence, text, unpack
from raft.protocol.fixed_heads import APPEND, read_fixed, read_usual, write_fixed
from raft.protocol.types import Entry

# Bytes of a head: what the frame's 16-bit length can say.
HEAD_BYTES_MAX = 65_535
# Bytes of a payload: with the largest head it fits a frame (raft/protocol/wire.py), and any entry that a store writes
# fits it.
PAYLOAD_BYTES_MAX = 15 * 1024 * 1024
# Entries in one message: with four numbers of 9 bytes each they fit a head.
ENTRIES_MAX = 1024
# Bytes of an encoded Hello.
HELLO_BYTES_MAX = 8 * 1024
# Bytes of one part of a file that is copied.
RANGE_BYTES_MAX = 4 * 1024 * 1024
TEXT_CHARS_MAX = 1000
# Values in a head: a row of four numbers for each entry, and what stands around them.
_ITEMS_MAX = 20 + 5 * ENTRIES_MAX
_CRC_MAX = (1 << 32) - 1


class MessageKind(IntEnum):
    """What a message is for. The numbers are the wire's: never used for anything else."""

    HELLO = 1
    """Who I am and what I hold; at the handshake, and again when it changes."""
    APPEND = 2
    """Entries, or none: also the heartbeat and the commit index."""
    APPEND_REPLY = 3
    PRE_VOTE = 4
    """Would you vote for me? Changes nothing at either side."""
    PRE_VOTE_REPLY = 5
    VOTE = 6
    VOTE_REPLY = 7
    TIMEOUT_NOW = 8
    """Stand at once: the leader hands over."""
    BEHIND = 9
    """The leader no longer keeps what you need: you must be reset (R13)."""
    ADOPT = 10
    """The group's first entry, for a member whose log is empty (R1)."""
    ADOPT_REPLY = 11
    RESET_ASK = 12
    """A member that must be reset asks what there is to copy; the copy is pinned until RESET_DONE."""
    RESET_MANIFEST = 13
    RESET_READ = 14
    RESET_BYTES = 15
    RESET_DONE = 16
    REPAIR = 17
    """Entries below the floor cannot be read here: who has them? (R4)"""
    REPAIR_REPLY = 18
    CLOCK = 19
    """What does your wall clock say? Of who does not lead, and so gets no answers to appends (R17)."""
    CLOCK_REPLY = 20
    REPAIR_READ = 21
    """As REPAIR, by position: bytes at equal positions are equal on every member. For peers with that feature."""
    REPAIR_BYTES = 22


class MessageError(ValueError):
    """Bytes that are no message, or one that cannot be; the text names kind and field."""


class RaftMessage(NamedTuple):
    """One message. `payload` is one buffer per entry where the kind has entries, else none or one."""

    kind: MessageKind
    fields: Mapping[str, Any]
    payload: tuple[bytes | memoryview, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return sum(map(len, self.payload))


Check = Callable[[Any, str], Any]


def _within(low: int, high: int) -> Check:
    return lambda value, name: number(value, name, low, high)


def _entries(value: Any, name: str) -> list[list[int]]:
    """[[index, term, position, size], …]: dense, in the order of the log, each with at least a byte."""
    rows: list[list[int]] = sequence(value, name, ENTRIES_MAX)
    last: list[int] | None = None
    for row in rows:
        if type(row) is not list or len(row) != 4:
            raise FieldError(f"{name}: an entry is no list of index, term, position and size")
        index, term, position, size = row
        number(index, "index of an entry", 1)
        number(term, "term of an entry", 1)
        number(position, "position of an entry")
        number(size, "size of an entry", 1, PAYLOAD_BYTES_MAX)
        if last is not None and (index != last[0] + 1 or term < last[1] or position < last[2] + last[3]):
            raise FieldError(f"{name}: entry {index} of term {term} at {position} cannot follow {last}")
        last = row
    return rows


def _text(value: Any, name: str) -> str:
    return text(value, name, TEXT_CHARS_MAX)


def _id(value: Any, name: str) -> bytes:
    return blob(value, name, ID_BYTES, ID_BYTES)


def _hello(value: Any, name: str) -> bytes:
    return blob(value, name, 1, HELLO_BYTES_MAX)


_ANY = _within(0, NUMBER_MAX)
_TERM = _within(1, NUMBER_MAX)
_CRC = _within(0, _CRC_MAX)
_CLOCK = _within(0, CLOCK_MS_MAX)

# Fields of each kind, in the order of the wire.
FIELDS: dict[MessageKind, tuple[tuple[str, Check], ...]] = {
    MessageKind.HELLO: (("hello", _hello),),
    MessageKind.APPEND: (
        ("term", _TERM),
        ("seq", _ANY),
        ("prev_index", _ANY),
        ("prev_term", _ANY),
        ("commit", _ANY),
        ("entries", _entries),
    ),
    # ok: prev matched, and `match` is the last entry verified to be the leader's; durable: the last one on disk.
    # Not ok: the leader goes on at hint_index, whose term here is hint_term (0: there is none).
    MessageKind.APPEND_REPLY: (
        ("term", _ANY),
        ("seq", _ANY),
        ("ok", flag),
        ("match", _ANY),
        ("durable", _ANY),
        ("hint_index", _ANY),
        ("hint_term", _ANY),
    ),
    # term: the one that the sender would stand in; config: index of its last CONFIG.
    MessageKind.PRE_VOTE: (
        ("term", _TERM),
        ("round", _ANY),
        ("last_index", _ANY),
        ("last_term", _ANY),
        ("config", _ANY),
    ),
    MessageKind.PRE_VOTE_REPLY: (("term", _ANY), ("round", _ANY), ("granted", flag), ("why", _text)),
    # transfer: the leader asked for it (TIMEOUT_NOW), so having heard of it lately is no reason to refuse.
    MessageKind.VOTE: (
        ("term", _TERM),
        ("last_index", _ANY),
        ("last_term", _ANY),
        ("config", _ANY),
        ("transfer", flag),
    ),
    MessageKind.VOTE_REPLY: (("term", _TERM), ("granted", flag)),
    MessageKind.TIMEOUT_NOW: (("term", _TERM),),
    MessageKind.BEHIND: (("term", _TERM), ("base_index", _ANY), ("base_term", _ANY)),
    MessageKind.ADOPT: (("group_id", _id), ("entries", _entries)),
    MessageKind.ADOPT_REPLY: (("group_id", _id), ("ok", flag), ("why", _text)),
    MessageKind.RESET_ASK: (("token", _ANY),),
    MessageKind.RESET_MANIFEST: (("token", _ANY), ("ok", flag), ("why", _text)),
    MessageKind.RESET_READ: (
        ("token", _ANY),
        ("name", _text),
        ("start", _ANY),
        ("size", _within(1, RANGE_BYTES_MAX)),
    ),
    MessageKind.RESET_BYTES: (
        ("token", _ANY),
        ("name", _text),
        ("start", _ANY),
        ("ok", flag),
        ("why", _text),
        ("crc", _CRC),
    ),
    MessageKind.RESET_DONE: (("token", _ANY),),
    MessageKind.REPAIR: (("first", _within(1, NUMBER_MAX)), ("last", _within(1, NUMBER_MAX))),
    MessageKind.REPAIR_REPLY: (("first", _within(1, NUMBER_MAX)), ("entries", _entries)),
    MessageKind.CLOCK: (("asked", _ANY),),
    MessageKind.CLOCK_REPLY: (("asked", _ANY), ("clock", _CLOCK)),
    MessageKind.REPAIR_READ: (("start", _ANY), ("size", _within(1, RANGE_BYTES_MAX))),
    # No bytes: it has none there. kept: where the first entry begins that it still has; sure: they are committed.
    MessageKind.REPAIR_BYTES: (("start", _ANY), ("kept", _ANY), ("sure", flag)),
}
assert set(FIELDS) == set(MessageKind), "a kind without fields"

# What may stand behind those, all of it or nothing: only what the receiver names as a feature of its own.
# clock: the sender's wall clock as it sent this, milliseconds since the epoch (R17).
EXTRA_FIELDS: dict[MessageKind, tuple[tuple[str, Check], ...]] = {
    MessageKind.APPEND: (("clock", _CLOCK),),
    MessageKind.APPEND_REPLY: (("clock", _CLOCK),),
}

_APPEND, _REPLY = MessageKind.APPEND, MessageKind.APPEND_REPLY
# A NamedTuple without the frame of its own function: two messages come and go with every entry.
_new = tuple.__new__
# Kinds whose payload is one buffer for each of their entries.
_WITH_ENTRIES = frozenset(kind for kind, fields in FIELDS.items() if any(name == "entries" for name, _ in fields))
# Kinds whose payload is one buffer, up to so many bytes.
_WITH_BYTES = {
    MessageKind.RESET_MANIFEST: PAYLOAD_BYTES_MAX,
    MessageKind.RESET_BYTES: RANGE_BYTES_MAX,
    MessageKind.REPAIR_BYTES: RANGE_BYTES_MAX,
}


def rows_of(entries: Sequence[Entry]) -> list[list[int]]:
    """Return what the field `entries` says of these entries; their `data` are the payload."""
    return [[entry.index, entry.term, entry.position, len(entry.data)] for entry in entries]


def entries_of(message: RaftMessage) -> list[Entry]:
    """Return the entries of a message that has some."""
    return [
        _new(Entry, (index, term, position, data))
        for (index, term, position, _), data in zip(message.fields["entries"], message.payload, strict=True)
    ]


def append(term: int, seq: int, prev: tuple[int, int], commit: int, entries: Sequence[Entry]) -> RaftMessage:
    """Return an APPEND; `prev` is index and term of the entry before the first."""
    fields = {
        "term": term, "seq": seq, "prev_index": prev[0], "prev_term": prev[1], "commit": commit,
        "entries": rows_of(entries),
    }  # fmt: skip
    return _new(RaftMessage, (_APPEND, fields, tuple([entry.data for entry in entries])))


def encode_head(message: RaftMessage, *, fixed: bool = False) -> bytes:
    """Return the head; the payload follows it on the wire as it is. `fixed`: whoever gets it knows FIXED_HEADS."""
    fields = message.fields
    if fixed and (head := write_fixed(message.kind, fields)) is not None:
        return head
    names = [name for name, _ in FIELDS[message.kind]]
    extra = EXTRA_FIELDS.get(message.kind)
    if extra is not None and extra[0][0] in fields:
        names += [name for name, _ in extra]
    assert fields.keys() == set(names), f"{message.kind.name} has {sorted(fields)}, due are {names}"
    head = cbor2.dumps([int(message.kind), *(fields[name] for name in names)])
    assert len(head) <= HEAD_BYTES_MAX, f"the head of a {message.kind.name} has {len(head)} bytes"
    return head


def decode(head: bytes | memoryview, payload: memoryview | bytes = b"") -> RaftMessage:
    """Return the message that head and payload are, every field checked; MessageError otherwise.

    The payload is not copied: its parts are views of what was handed in.
    """
    if len(payload) <= PAYLOAD_BYTES_MAX and (fields := read_usual(bytes(head), len(payload))) is not None:
        entry = head[0] == APPEND
        return _new(RaftMessage, (_APPEND, fields, (memoryview(payload),)) if entry else (_REPLY, fields, ()))
    if not 0 < len(head) <= HEAD_BYTES_MAX:
        raise MessageError(f"a head has {len(head)} bytes, 1 to {HEAD_BYTES_MAX} are allowed")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise MessageError(f"a payload has {len(payload)} bytes, {PAYLOAD_BYTES_MAX} are allowed")
    try:
        found = read_fixed(bytes(head))
    except ValueError as error:
        raise MessageError(f"a head of fixed form: {error}") from None
    try:
        items = unpack(head, _ITEMS_MAX) if found is None else [found[0], *found[1]]
        if not items or type(items[0]) is not int or items[0] not in FIELDS:
            raise FieldError(f"a message of unknown kind {items[0] if items else 'none'!a}"[:100])
    except FieldError as error:
        raise MessageError(str(error)) from error
    kind = MessageKind(items[0])
    try:
        return _checked(kind, items[1:], memoryview(payload))
    except FieldError as error:
        raise MessageError(f"{kind.name}: {error}") from error


def _checked(kind: MessageKind, values: list[Any], payload: memoryview) -> RaftMessage:
    specified = FIELDS[kind]
    if len(values) > len(specified):
        specified += EXTRA_FIELDS.get(kind, ())
    if len(values) != len(specified):
        raise FieldError(f"{len(values)} fields where {len(specified)} are due")
    fields = {name: check(value, name) for (name, check), value in zip(specified, values, strict=True)}
    if kind is MessageKind.APPEND:
        _check_append(fields)
    if kind in _WITH_ENTRIES:
        return RaftMessage(kind, fields, _split(fields["entries"], payload))
    if len(payload) > _WITH_BYTES.get(kind, 0):
        raise FieldError(f"a payload of {len(payload)} bytes, {_WITH_BYTES.get(kind, 0)} are allowed")
    return RaftMessage(kind, fields, (payload,) if len(payload) else ())


def _check_append(fields: Mapping[str, Any]) -> None:
    term, prev_index, prev_term = fields["term"], fields["prev_index"], fields["prev_term"]
    if prev_term > term:
        raise FieldError(f"prev_term {prev_term} is above the leader's term {term}")
    if fields["entries"]:
        first, last = fields["entries"][0], fields["entries"][-1]
        if first[0] != prev_index + 1 or first[1] < prev_term or last[1] > term:
            raise FieldError(f"entries {first[0]}..{last[0]} cannot follow {prev_index} of term {prev_term} in {term}")


def _split(rows: list[list[int]], payload: memoryview) -> tuple[memoryview, ...]:
    """One view per entry; together they are the payload."""
    parts = []
    start = 0
    for _, _, _, size in rows:
        parts.append(payload[start : start + size])
        start += size
    if start != len(payload):
        raise FieldError(f"a payload of {len(payload)} bytes for entries of {start}")
    return tuple(parts)
