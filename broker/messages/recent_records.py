"""Recent records: the log's tail is read, and those that idempotent sends left are found there and by position."""

import logging
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from remoting.codes import MessageSysFlag
from remoting.message import MessageExt
from remoting.properties import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, PROPERTY_UNIQ_KEY, find_property
from remoting.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    BORNHOST_AT,
    BORNHOST_V6,
    FIXED_BYTES,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    STOREHOST_V6,
    SYSFLAG_AT,
    RecordError,
    decode_record,
)
from remoting.topics import is_system_topic
from store.errors import RecordDamaged
from store.integrity.scrubcheck import next_border

_log = logging.getLogger(__name__)

IDEMPOTENT_FLAG = int(MessageSysFlag.IDEMPOTENT)
# Bytes of the log that are read at once. Where the window begins is found to within one such piece.
PIECE_BYTES = 1024 * 1024
_SIZE_AND_MAGIC = struct.Struct(">iI")
_SYSFLAG = struct.Struct(">i")
_LONG = struct.Struct(">q")
_MAGICS = frozenset({MAGIC_V1, MAGIC_V2})
_HOSTS = BORNHOST_V6 | STOREHOST_V6
_UNIQ_KEY = f"{PROPERTY_UNIQ_KEY}\x01".encode()


class RecordReads(Protocol):
    """What is needed of the store to look at single records."""

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the whole record that begins at a position, None when none does; raises RecordDamaged."""
        ...


class LogReads(Protocol):
    """What is needed of the store to read its tail. For any thread."""

    file_bytes: int

    @property
    def min_physical(self) -> int:
        """The position of the first record that is kept."""
        ...

    def read_piece_cold(self, position: int, size_max: int) -> memoryview | bytes:
        """Return written bytes from a position on, up to the end of their file."""
        ...


class FoundKeys(NamedTuple):
    """The records of idempotent sends in a piece of the log: of each one its key, its position, when it was stored."""

    keys: list[bytes]
    positions: list[int]
    timestamps_ms: list[int]


def first_record(
    store: RecordReads, positions: Iterable[int], topic: str, uniq_key: str, stands: Callable[[MessageExt], bool]
) -> MessageExt | None:
    """Return the first of the records at these positions that is of this topic and key, and of which `stands` holds.

    Of one that waits for its time, or for the end of its transaction, topic and queue are those that it is for.
    `stands` is asked of the record as it is.
    """
    for position in positions:
        found = _record(store, position)
        if found is None or found.properties.get(PROPERTY_UNIQ_KEY) != uniq_key:
            continue
        real = found.properties.get(PROPERTY_REAL_TOPIC) if is_system_topic(found.topic) else None
        if topic == (found.topic if real is None else real) and stands(found):
            if real is not None:
                queue_id = found.properties.get(PROPERTY_REAL_QUEUE_ID, "")
                found.topic, found.queue_id = real, int(queue_id) if queue_id.isdecimal() else 0
            return found
    return None


def next_record(store: RecordReads, before: MessageExt) -> MessageExt | None:
    """Return the record that stands behind another one in its file and queue, None when none does."""
    found = _record(store, before.physical_offset + before.size)
    if found is None or (found.queue_id, found.queue_offset) != (before.queue_id, before.queue_offset + 1):
        return None
    return found


def _record(store: RecordReads, position: int) -> MessageExt | None:
    try:
        view = store.record_at(position)
        return None if view is None else decode_record(view)
    except (RecordDamaged, RecordError):
        # It is counted and mended elsewhere; what it was is not known.
        return None


def begin_of(store: LogReads, end: int, since_ms: int) -> int:
    """Return a record's begin in front of which none was stored at or after a time; at most a piece too early.

    Store times never go back within a log. For any thread.
    """
    size, first = store.file_bytes, store.min_physical
    low, high = first // size, max(first, end - 1) // size
    while low < high:
        middle = (low + high + 1) // 2
        stored = _stored_ms(store, middle * size)
        if stored is not None and stored < since_ms:
            low = middle
        else:
            high = middle - 1
    begin = max(first, low * size)
    until = min(end, (low + 1) * size)
    while until - begin > PIECE_BYTES:
        middle = (begin + until) // 2
        at = _border(store, middle, until)
        stored = _stored_ms(store, at) if at < until else None
        if stored is not None and stored < since_ms:
            begin = at
        else:
            until = middle
    return begin


def _border(store: LogReads, start: int, until: int) -> int:
    """Return where the next record seems to begin, `until` when none does in front of it."""
    while start < until:
        piece = _piece(store, start, PIECE_BYTES)
        at = next_border(memoryview(piece), 0, start)
        if at >= 0:
            return min(start + at, until)
        if len(piece) <= BLANK_BYTES:
            break
        # A magic may lie across the end of a piece.
        start += len(piece) - BLANK_BYTES + 1
    return until


def _stored_ms(store: LogReads, position: int) -> int | None:
    """Return when the record that begins at a position was stored, None when none does."""
    head = _piece(store, position, FIXED_BYTES)
    if len(head) < FIXED_BYTES or _SIZE_AND_MAGIC.unpack_from(head)[1] not in _MAGICS:
        return None
    born_bytes = 20 if _SYSFLAG.unpack_from(head, SYSFLAG_AT)[0] & BORNHOST_V6 else 8
    stored: int = _LONG.unpack_from(head, BORNHOST_AT + born_bytes)[0]
    return stored


def keys_in_piece(store: LogReads, position: int, end: int) -> tuple[FoundKeys, int]:
    """Return the keys of idempotent sends in a piece of the log, and where the next begins; see walk_piece()."""
    found = FoundKeys([], [], [])

    def take(view: bytes, at: int, _size: int, flags: int) -> None:
        if flags & IDEMPOTENT_FLAG:
            _add(found, view, at, flags)

    return found, walk_piece(store, position, end, take)


def walk_piece(store: LogReads, position: int, end: int, take: Callable[[bytes, int, int, int], None]) -> int:
    """Show the records of a piece of the log, from a record's begin on, and return where the next piece begins.

    `take` is told of bytes, where in them a record begins, its size and its sysFlag. For any thread. A file that cannot
    be read (a member's may be missing until others have mended it) is passed over.
    """
    next_file = position - position % store.file_bytes + store.file_bytes
    view = _piece(store, position, min(PIECE_BYTES, end - position))
    at = 0
    while len(view) - at >= BLANK_BYTES:
        size, magic = _SIZE_AND_MAGIC.unpack_from(view, at)
        if magic == BLANK_MAGIC:
            return next_file
        if magic not in _MAGICS or size < FIXED_BYTES:
            # Damaged: what it held is asked of other members, and is not known meanwhile.
            at = next_border(memoryview(view), at + 1, position)
            if at < 0:
                return max(position + 1, position + len(view) - BLANK_BYTES)
            continue
        if at + size > len(view):
            if at:
                return position + at
            view = _piece(store, position, size)
            if len(view) < size:
                return next_file
        take(view, at, size, _SYSFLAG.unpack_from(view, at + SYSFLAG_AT)[0])
        at += size
    # Less than a blank at the end of the view: of the file, or of what is dispatched.
    return position + at if at and position + at + BLANK_BYTES <= next_file else next_file


def _piece(store: LogReads, position: int, size: int) -> bytes:
    """Return bytes of the log, none where it cannot be read."""
    try:
        return bytes(store.read_piece_cold(position, size))
    except (OSError, EOFError) as error:
        _log.warning("the end of the log cannot be read at %d, what stands there is not known: %s", position, error)
        return b""


def _add(found: FoundKeys, view: bytes, at: int, flags: int) -> None:
    """Add the record that begins there; one whose lengths contradict each other has no key."""
    head = HEADS[flags & _HOSTS]
    fields = head.unpack_from(view, at)
    end, wide, body_size = at + fields[0], 2 if fields[1] == MAGIC_V2 else 1, fields[14]
    topic_at = at + head.size + body_size
    if body_size < 0 or topic_at + wide + 2 > end:
        return
    properties_at = topic_at + wide + int.from_bytes(view[topic_at : topic_at + wide], "big") + 2
    if key := find_property(view[properties_at:end], _UNIQ_KEY):
        found.keys.append(key)
        found.positions.append(fields[6])
        found.timestamps_ms.append(fields[10])
