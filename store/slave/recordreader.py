"""Makes of a master's bytes what is dispatched, each record checked: a slave does this for every message.

One loop with everything at hand: a record costs some two microseconds, a third of what the check of recovery
(logscan.check_record) and dispatch.dispatched_from_record take one after the other. The verdicts are theirs.
"""

import struct
from typing import NamedTuple

from remoting.javahash import java_hash
from remoting.properties import indexed_properties
from remoting.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    BORNHOST_V6,
    FIXED_BYTES,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    STOREHOST_V6,
    SYSFLAG_AT,
    RecordError,
)
from remoting.topics import RAFT_TOPIC
from runtime.crc import crc32
from store.controlrecord import control_term
from store.log.dispatch import SCHEDULE_TOPIC, queue_code
from store.log.logscan import check_record
from store.types import Dispatched

# What a record may claim as its size. A message comes in a frame of at most 16 MiB, RocketMQ's limit.
RECORD_BYTES_MAX = 32 * 1024 * 1024
# Topics whose names are kept, and tags whose codes are; when they are that many, the table starts anew.
NAMES_MAX = 65_536
_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
# The byte of the sysFlag that holds the host bits.
_FLAGS_AT = SYSFLAG_AT + 3
_SIZE_AND_MAGIC = struct.Struct(">iI")
# Sets of constants that come from elsewhere: a literal would be made anew for each record.
_MAGICS = frozenset({MAGIC_V1, MAGIC_V2})
_SPECIAL = frozenset({SCHEDULE_TOPIC, RAFT_TOPIC})
_new = tuple.__new__


class Taken(NamedTuple):
    """What stands in some bytes of a log."""

    batch: list[Dispatched]
    size: int
    """Bytes of the whole records, and of the blank behind them when that is whole too."""
    needed: int
    """Bytes that what begins behind them takes, as far as can be told already; 0 when nothing does."""
    blank: bool
    """Whether it is the end of the file, where nothing matters any more."""


class RecordReader:
    """Keeps the names of topics and the codes of tags between calls."""

    def __init__(self, levels_ms: tuple[int, ...]) -> None:
        self._levels_ms = levels_ms
        self._topics: dict[bytes, str] = {}
        self._codes: dict[bytes, int] = {}

    def read(self, data: bytes, position: int, file_end: int) -> Taken:
        """Read bytes of one file that begin with a record, or a blank, of `position`. Raises RecordError."""
        batch: list[Dispatched] = []
        topics, codes, heads = self._topics, self._codes, HEADS
        at, have = 0, len(data)
        try:
            while have - at >= FIXED_BYTES:
                head = heads[data[at + _FLAGS_AT] & _HOST_BITS]
                size, magic, crc, queue_id, _, offset, physical, sys_flag, _, _, timestamp, _, _, _, body_size = (
                    head.unpack_from(data, at)
                )
                end = at + size
                if magic not in _MAGICS or end > have or size < FIXED_BYTES or body_size < 0:
                    break
                body_at = at + head.size
                name_at = body_at + body_size
                if magic == MAGIC_V1:
                    name_end = name_at + 1 + data[name_at]
                    name = data[name_at + 1 : name_end]
                else:
                    name_end = name_at + 2 + int.from_bytes(data[name_at : name_at + 2], "big")
                    name = data[name_at + 2 : name_end]
                properties = data[name_end + 2 : end]
                if (
                    physical != position + at
                    or name_end + 2 + int.from_bytes(data[name_end : name_end + 2], "big") != end
                    or (crc32(data[body_at:name_at]) ^ crc) & 0x7FFFFFFF
                    or (properties and properties[-1] == 0)
                ):
                    break
                topic = topics.get(name) or self._learn(name)
                tags, uniq_key, keys = indexed_properties(properties)
                if topic in _SPECIAL:
                    code = self._special_code(topic, data[body_at:name_at], tags, properties, timestamp)
                elif tags:
                    known = codes.get(tags)
                    code = self._learn_code(tags) if known is None else known
                else:
                    code = 0
                batch.append(_new(Dispatched, (
                    topic, queue_id, offset, physical, size, code, timestamp, uniq_key, keys, sys_flag, tags,
                )))  # fmt: skip
                at = end
        except (struct.error, IndexError):
            # The head or the name begins behind the last byte: what is left is cut short, or wrong.
            pass
        return self._judge_rest(batch, data, at, position + at, file_end)

    @staticmethod
    def _judge_rest(batch: list[Dispatched], data: bytes, at: int, position: int, file_end: int) -> Taken:
        """Tell what stands behind the whole records, at `position`."""
        left, room = len(data) - at, file_end - position
        if left == 0:
            return Taken(batch, at, 0, blank=False)
        if room < BLANK_BYTES:
            return Taken(batch, at + left if left >= room else at, room, blank=True)
        if left < BLANK_BYTES:
            return Taken(batch, at, BLANK_BYTES, blank=False)
        total, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
        if magic == BLANK_MAGIC:
            if total != room:
                raise RecordError(f"a blank of {total} bytes at {position}, {room} before the end of the file")
            return Taken(batch, at + left if left >= room else at, room, blank=True)
        if magic not in _MAGICS:
            raise RecordError(f"no record at {position}: its magic is {magic:#010x}")
        if not FIXED_BYTES <= total <= min(room, RECORD_BYTES_MAX):
            raise RecordError(f"a record of {total} bytes at {position}, {room} before the end of the file")
        if total <= left:
            raise RecordError(
                f"no record at {position}: {check_record(memoryview(data), at, position, check_crc=True)}"
            )
        return Taken(batch, at, total, blank=False)

    def _special_code(self, topic: str, body: bytes, tags: bytes, properties: bytes, timestamp: int) -> int:
        if topic == RAFT_TOPIC:
            return control_term(body, 0, len(body))
        return queue_code(topic, tags, properties, timestamp, self._levels_ms)

    def _learn_code(self, tags: bytes) -> int:
        if len(self._codes) >= NAMES_MAX:
            self._codes.clear()
        code = self._codes[tags] = java_hash(tags)
        return code

    def _learn(self, name: bytes) -> str:
        try:
            topic = str(name, "utf-8")
        except UnicodeDecodeError as error:
            raise RecordError("the topic is not UTF-8") from error
        if not topic or "\0" in topic or "/" in topic or topic in {".", ".."}:
            raise RecordError(f"{topic!r} cannot be a topic: it is no name of a folder")
        if len(self._topics) >= NAMES_MAX:
            self._topics.clear()
        self._topics[name] = topic
        return topic
