"""Usual sends of one read, cut and built in Python: what the compiled SendRows is where nothing compiled runs.

Which sends are usual is the compiled hot path's rule (remoting/compiled/sends.pxi): whatever a broker would have to
look at by itself is not; but of JSON it takes what the decoder takes. A header is decoded as any other is
(remoting/codec.py), so what it says here is what it says there. Properties are ``name 0x01 value 0x02`` repeated; their
names decide, and recur: they are judged once.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from remoting.codec import HEADER_BYTES_MAX, SEND_BEGINS
from remoting.command import HEADER_BYTES_FREE
from remoting.javahash import java_hash
from remoting.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY, PROPERTY_WAIT
from remoting.record import BORNHOST_V6, HEADS, STOREHOST_V6

T = TypeVar("T", bound=tuple[Any, ...])

# Rows of one run, its distinct topics, and bytes of a body.
ROWS_MAX = 1024
TOPICS_MAX = 64
BODY_BYTES_MAX = 16384
# Properties of one send, and names in their order that are kept: so many, of texts up to so many bytes.
_PAIRS_MAX = 32
_KNOWN_MAX = 256
_KNOWN_TEXT_MAX = 512

_words_at = struct.Struct(">II").unpack_from
_words = struct.Struct(">II").pack
_short = struct.Struct(">h").pack
_new = tuple.__new__
# What is printed of ASCII: what else stands in properties are the separators.
_PRINTED = bytes(range(32, 127))
# Names of which the broker must look at the value, and some that only begin like them.
_LOOKED_AT = (b"_", b"DELAY", b"TIMER", b"TRACE", b"TRAN_", b"POP_", b"MSG_", b"CLUSTER", b"INNER")
# Properties of which the value is wanted.
_WANTED = tuple(name.encode() for name in (PROPERTY_UNIQ_KEY, PROPERTY_TAGS, PROPERTY_KEYS, PROPERTY_WAIT))

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=9_000_000_000_000_000_000)]
_No = Literal["false"]


class _Fields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Custom fields of a usual SEND_MESSAGE_V2; see SendMessageRequestHeaderV2."""

    a: str
    b: str
    c: str
    d: _Number
    e: _Number
    f: _Number
    g: _Time
    h: _Number
    i: str
    j: Literal["0"] = "0"
    k: _No = "false"
    l: _Number = 0  # noqa: E741
    m: _No = "false"
    n: str = ""


class _Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    code: Literal[310]
    extFields: _Fields
    opaque: _Number
    flag: Literal[0] = 0
    version: _Number = 0
    language: str = ""
    serializeTypeCurrentRPC: str = ""


_read = msgspec.json.Decoder(_Header, strict=False).decode


# Topic's number, queue id, sysFlag, flag, opaque, born timestamp, properties as they are stored but for what the broker
# adds, TAGS, UNIQ_KEY, KEYS; where header, body and what comes behind begin in the run's bytes.
_Row = tuple[int, int, int, int, int, int, bytes, bytes, bytes, bytes, int, int, int]


class SendRows:
    """Usual sends that stand next to one another in what a connection sent; made by cut_sends()."""

    __slots__ = (
        "_at", "_rows", "body_bytes", "body_max", "data", "properties_bytes", "properties_max", "queues_max",
        "sys_flags", "topics",
    )  # fmt: skip

    def __init__(self, data: bytes, rows: list[_Row], topics: list[str]) -> None:
        """Take the frames, what they say, and the topics of all, each once."""
        self.data, self.topics, self._rows = data, topics, rows
        self._at: list[tuple[int, int]] = []
        numbers, queue_ids, sys_flags, _, _, _, texts, _, _, _, _, middles, stops = zip(*rows, strict=True)
        self.queues_max = [0] * len(topics)
        """The highest queue id of each topic."""
        for number, queue_id in {*zip(numbers, queue_ids, strict=True)}:
            self.queues_max[number] = max(self.queues_max[number], queue_id)
        self.sys_flags = 0
        """All bits that are set in any sysFlag."""
        for flags in {*sys_flags}:
            self.sys_flags |= flags
        sizes = [stop - middle for middle, stop in zip(middles, stops, strict=True)]
        self.body_bytes, self.body_max = sum(sizes), max(sizes)
        """Of all bodies; and the longest body, and the longest properties."""
        sizes = list(map(len, texts))
        self.properties_bytes, self.properties_max = sum(sizes), max(sizes)

    def __len__(self) -> int:
        return len(self._rows)

    def frames(self) -> list[tuple[bytes, bytes]]:
        """Return (header, body) of each."""
        data = self.data
        return [(data[start:middle], data[middle:stop]) for *_, start, middle, stop in self._rows]

    def places(self) -> list[tuple[str, int, str]]:
        """Return (topic, queue id, unique key) of each."""
        return [(self.topics[row[0]], row[1], row[8].decode("ascii")) for row in self._rows]

    def placed(self) -> list[tuple[int, int]]:
        """Return (position, queue offset) of each."""
        return self._at

    def fields(self, suffix: bytes) -> list[tuple[str, int, int, int, int, bytes, bytes]]:
        """Return (topic, queue id, flag, sysFlag, born timestamp, body, properties as they are stored) of each."""
        topics, data = self.topics, self.data
        return [
            (topics[number], queue_id, flag, sys_flag, born, data[middle:stop], text + suffix)
            for number, queue_id, sys_flag, flag, _, born, text, _, _, _, _, middle, stop in self._rows
        ]

    def place(
        self,
        dispatched_type: type[T],
        named: list[tuple[int, bytes]],
        sys_flags: list[int],
        born_host: bytes,
        store_host: bytes,
        suffix: bytes,
        next_offsets: dict[tuple[str, int], int],
        next_offset: Callable[[str, int], int],
        end: int,
        timestamp: int,
        crc32: Callable[[Any], int],
    ) -> tuple[bytes, list[T]]:
        """Return (records back to back, what each dispatches) as they stand from position `end` on.

        `named` and `sys_flags` have (magic, topic as a record holds it) and what is set in the sysFlag, by topic.
        """
        bits = (BORNHOST_V6 if len(born_host) == 20 else 0) | (STOREHOST_V6 if len(store_host) == 20 else 0)
        pack, fixed = HEADS[bits].pack, HEADS[bits].size + 2 + len(suffix)
        data, topics = self.data, self.topics
        pieces: list[bytes] = []
        batch: list[T] = []
        self._at = at = []
        for number, queue_id, sys_flag, flag, _, born, text, tags, uniq_key, keys, _, middle, stop in self._rows:
            topic, (magic, field) = topics[number], named[number]
            queue = (topic, queue_id)
            offset = next_offsets.get(queue)
            if offset is None:
                offset = next_offset(topic, queue_id)
            next_offsets[queue] = offset + 1
            body, text_size = data[middle:stop], len(text)
            size = fixed + stop - middle + len(field) + text_size
            flags = sys_flag | sys_flags[number]
            pieces += (
                pack(
                    size, magic, crc32(body) & 0x7FFFFFFF, queue_id, flag, offset, end, flags, born, born_host,
                    timestamp, store_host, 0, 0, stop - middle,
                ),
                body, field, _short(text_size + len(suffix)), text, suffix,
            )  # fmt: skip
            code = java_hash(tags) if tags else 0
            batch.append(_new(dispatched_type, (
                topic, queue_id, offset, end, size, code, timestamp, uniq_key, keys, flags, tags,
            )))  # fmt: skip
            at.append((end, offset))
            end += size
        return b"".join(pieces), batch

    def answers(self, pieces: tuple[bytes, ...]) -> bytes:
        """Return the answers of all, back to back, once they are placed; `pieces` stand around what differs.

        What differs: queue id, unique key, position in 16 hexadecimal digits, queue offset, opaque.
        """
        first, second, third, fourth, fifth, last = [piece.replace(b"%", b"%%") for piece in pieces]
        template = first + b"%d" + second + b"%b" + third + b"%016X" + fourth + b"%d" + fifth + b"%d" + last
        found = []
        for row, (position, offset) in zip(self._rows, self._at, strict=True):
            head = template % (row[1], row[8], position, offset, row[4])
            length = len(head)
            found.append(_words(length + 4, length))
            found.append(head)
        return b"".join(found)


def cut_sends(data: bytes, at: int, most: int, limit: int) -> SendRows | None:
    """Return the usual sends that stand whole in `data` from `at` on, at most so many; None when the first is not one.

    `limit`: bytes of a frame behind its length. len(result.data) bytes of `data` are theirs.
    """
    end, begin = len(data), at
    if at < 0:
        return None
    rows: list[_Row] = []
    numbers: dict[str, int] = {}
    most = min(most, ROWS_MAX)
    while len(rows) < most and end - at >= 8:
        length, header_size = _words_at(data, at)
        start = at + 8
        middle, stop = start + header_size, at + 4 + length
        # A serialize type of 0, JSON, leaves the high byte empty.
        if length > limit or stop > end or middle > stop or header_size > HEADER_BYTES_MAX:
            break
        if stop - middle >= BODY_BYTES_MAX or not data.startswith(SEND_BEGINS, start):
            break
        try:
            header = _read(data[start:middle])
        except (ValueError, RecursionError):
            break
        said = header.extFields
        properties, topic = said.i, said.b
        if not properties.isascii() or not topic.isascii():
            break
        text = properties.encode() if properties[-1:] == "\x02" else properties.encode() + b"\x02"
        indexed = _indexed(text)
        if indexed is None or header_size > HEADER_BYTES_FREE + len(text):
            break
        number = numbers.get(topic)
        if number is None:
            if len(numbers) == TOPICS_MAX:
                break
            number = numbers[topic] = len(numbers)
        tags, uniq_key, keys = indexed
        rows.append((
            number, said.e, said.f, said.h, header.opaque, said.g, text, tags, uniq_key, keys, start - begin,
            middle - begin, stop - begin,
        ))  # fmt: skip
        at = stop
    # Not all of what was read lives on with some of it.
    return SendRows(data[begin:at], rows, [*numbers]) if rows else None


def _indexed(text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return TAGS, UNIQ_KEY and KEYS of properties that end in 0x02; None of those that are not usual."""
    fields = text.replace(b"\x01", b"\x02").split(b"\x02")
    if len(fields) > 2 * _PAIRS_MAX + 1 or text.translate(None, _PRINTED) != b"\x01\x02" * (len(fields) >> 1):
        return None
    names = tuple(fields[:-1:2])
    where = _known_where(names) if len(text) <= _KNOWN_TEXT_MAX else _where(names)
    if where is None:
        return None
    uniq_at, tags_at, keys_at, wait_at = where
    uniq_key = fields[uniq_at]
    # What is absent has the text behind the last separator: it is empty, and so no unique key.
    if not uniq_key.isalnum() or (wait_at >= 0 and fields[wait_at] != b"true"):
        return None
    return fields[tags_at], uniq_key, fields[keys_at]


def _where(names: tuple[bytes, ...]) -> tuple[int, int, int, int] | None:
    """Return where the values of UNIQ_KEY, TAGS, KEYS and WAIT stand among names and values, -1 for what is absent.

    None when a name is there that the broker must look at, an empty one, or one of these four twice.
    """
    if b"" in names or any(name.startswith(_LOOKED_AT) for name in names):
        return None
    if any(names.count(name) > 1 for name in _WANTED):
        return None
    uniq_at, tags_at, keys_at, wait_at = (2 * names.index(name) + 1 if name in names else -1 for name in _WANTED)
    return uniq_at, tags_at, keys_at, wait_at


_known_where = lru_cache(maxsize=_KNOWN_MAX)(_where)
