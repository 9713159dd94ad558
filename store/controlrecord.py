"""The control record: an ordinary V1 record of RMQ_SYS_RAFT that opens a Raft entry, and names what stands behind it.

Its queue offset is the Raft index, its physical offset the entry's position. The body, big-endian:

=============== === ==========================================================================
version          1  1
type             1  NOOP 0, MESSAGES 1, META 2, CONFIG 3
flags            2  bit 0, of a CONFIG: the log is a single broker's from here on
term             8
previous term    8  of the entry before
covered bytes    4  of the records behind it; they and it are one entry, within one file
covered count    4
covered CRC      4  CRC-32 of those bytes
commit           8  what its leader knew as committed when it appended it: always less than the index
config           8  index of the last CONFIG at or before this entry
chain            4  CRC-32, begun with the chain of the entry before
payload          n  of META and CONFIG
=============== === ==========================================================================

The chain runs over everything that tells the entry from another: so two logs with the same chain at an index are the
same up to there, and a remainder of an older log is never taken for a successor.
"""

import struct
from typing import Any, NamedTuple

from raft.protocol.types import EntryType
from remoting.record import BORNHOST_V6, HEADS, MAGIC_V1, STOREHOST_V6, SYSFLAG_AT, host_flags, topic_field
from remoting.topics import RAFT_TOPIC
from runtime.crc import crc32

VERSION = 1
# Flag of a CONFIG.
CLASSIC_FROM_HERE = 0x1
# A payload never needs more; the record's frame bounds it anyway.
PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
_TOPIC_FIELD = topic_field(RAFT_TOPIC.encode())[1]
CONTROL_TAIL = _TOPIC_FIELD + bytes(2)
"""What each control record ends with: its topic, and that it has no properties."""
_FIXED = struct.Struct(">BBHqqIIIqqI")
_CHAINED = struct.Struct(">qqqqIIIqqIHB")
_SYSFLAG = struct.Struct(">i")
_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0xEDB88320
_new = tuple.__new__


_KINDS = tuple(EntryType)


class ControlError(Exception):
    """A whole record, and no control record: the text says why. Where a control record is due it is never cut."""


class ControlDamaged(ControlError):
    """A control record of which bytes have changed that no CRC covers."""


class Control(NamedTuple):
    """A control record. Positions and sizes in bytes, `timestamp` (its store time) in ms."""

    index: int  # type: ignore[assignment] # the position in a log hides tuple.index, which nobody needs here
    position: int
    size: int
    """Of the control record alone."""
    timestamp: int
    kind: EntryType
    flags: int
    term: int
    previous_term: int
    covered_bytes: int
    covered_count: int
    covered_crc: int
    commit: int
    config: int
    chain: int
    payload: bytes

    @property
    def end(self) -> int:
        """The position behind the entry."""
        return self.position + self.size + self.covered_bytes

    @property
    def entry_bytes(self) -> int:
        """Size of the whole entry."""
        return self.size + self.covered_bytes

    @property
    def is_classic(self) -> bool:
        """Whether it ends the group: what follows is a single broker's."""
        return self.kind == EntryType.CONFIG and bool(self.flags & CLASSIC_FROM_HERE)


def control_bytes(store_host: bytes, payload_bytes: int = 0) -> int:
    """Return the size of a control record."""
    return HEADS[host_flags(0, store_host, store_host)].size + _FIXED.size + payload_bytes + len(CONTROL_TAIL)


def chained(control: Control, previous: int) -> Control:
    """Return the record with the chain that continues `previous`."""
    return _new(Control, (*control[:13], crc32(_chained_bytes(control), previous), control[14]))


def continues(control: Control, previous: int) -> bool:
    """Tell whether the record's chain continues `previous`."""
    return crc32(_chained_bytes(control), previous) == control.chain


def previous_chain(control: Control) -> int:
    """Return the chain of the entry before, by running the CRC backwards: that entry may be gone."""
    register = control.chain ^ _ONES
    for byte in reversed(_chained_bytes(control)):
        at = _BY_TOP_BYTE[register >> 24]
        register = ((register ^ _TABLE[at]) << 8 & _ONES) | (at ^ byte)
    return register ^ _ONES


def encode_control(control: Control, store_host: bytes) -> bytes:
    """Return the record's bytes; `store_host` (8 or 20 bytes) stands as both hosts."""
    sys_flag = host_flags(0, store_host, store_host)
    head = HEADS[sys_flag]
    body = _FIXED.pack(
        VERSION, control.kind, control.flags, control.term, control.previous_term, control.covered_bytes,
        control.covered_count, control.covered_crc, control.commit, control.config, control.chain,
    ) + control.payload  # fmt: skip
    packed = head.pack(
        head.size + len(body) + len(CONTROL_TAIL), MAGIC_V1, crc32(body) & 0x7FFFFFFF, 0, 0, control.index,
        control.position, sys_flag, control.timestamp, store_host, control.timestamp, store_host, 0, 0, len(body),
    )  # fmt: skip
    return b"".join((packed, body, CONTROL_TAIL))


def is_control(view: bytes | memoryview, at: int) -> bool:
    """Tell whether the record at `at`, whose frame has been checked, is of the control records' topic."""
    head = HEADS[_SYSFLAG.unpack_from(view, at + SYSFLAG_AT)[0] & _HOST_BITS]
    fields = head.unpack_from(view, at)
    topic_at = at + head.size + fields[14]
    return fields[1] == MAGIC_V1 and bytes(view[topic_at : topic_at + len(_TOPIC_FIELD)]) == _TOPIC_FIELD


def decode_control(view: bytes | memoryview, at: int = 0) -> Control:
    """Return what the record at `at` says: each of its bytes is checked, whether or not logscan.check_record() did.

    Raises ControlError when it is another record, ControlDamaged when it is not what was written; struct.error when
    nothing was checked before and `view` is too short.
    """
    head = HEADS[_SYSFLAG.unpack_from(view, at + SYSFLAG_AT)[0] & _HOST_BITS]
    fields: tuple[Any, ...] = head.unpack_from(view, at)
    tail_at = at + head.size + fields[14]
    if fields[1] != MAGIC_V1 or view[tail_at : tail_at + len(_TOPIC_FIELD)] != _TOPIC_FIELD:
        raise ControlError("a record of another topic")
    control = _control(view, at + head.size, fields, head.size)
    if not _is_as_written(view, at + head.size, fields):
        raise ControlDamaged(f"the control record of entry {control.index} with a byte that changed")
    return control


def is_rotten(view: bytes | memoryview, at: int, previous: int) -> bool:
    """Tell whether a record that is no control record was one, and the entry that continues chain `previous`.

    For where a control record is due: a byte of its topic or of its fixed fields has changed.
    """
    head = HEADS[_SYSFLAG.unpack_from(view, at + SYSFLAG_AT)[0] & _HOST_BITS]
    try:
        return continues(_control(view, at + head.size, head.unpack_from(view, at), head.size), previous)
    except ControlError:
        return False


def _control(view: bytes | memoryview, body_at: int, fields: tuple[Any, ...], head_bytes: int) -> Control:
    """Return what a record says of which the head was unpacked."""
    total, body_bytes = fields[0], fields[14]
    if body_bytes < _FIXED.size or head_bytes + body_bytes + len(CONTROL_TAIL) != total:
        raise ControlError("a record of the control records' topic with the shape of another")
    (version, kind, flags, term, previous_term, covered, count, crc, commit, config, chain) = _FIXED.unpack_from(
        view, body_at
    )
    if version != VERSION:
        raise ControlError(f"a control record of version {version}: a newer RaftMQ wrote it")
    if kind > EntryType.CONFIG:
        raise ControlError(f"a control record of the unknown type {kind}")
    payload = bytes(view[body_at + _FIXED.size : body_at + body_bytes])
    return _new(Control, (
        fields[5], fields[6], total, fields[10], _KINDS[kind], flags, term, previous_term, covered, count, crc,
        commit, config, chain, payload,
    ))  # fmt: skip


def control_term(view: bytes | memoryview, body_at: int, body_bytes: int) -> int:
    """Return the term in the body of a record of the control records' topic; 0 when it is too short to be one."""
    term: int = _FIXED.unpack_from(view, body_at)[3] if body_bytes >= _FIXED.size else 0
    return term


def _is_as_written(view: bytes | memoryview, body_at: int, fields: tuple[Any, ...]) -> bool:
    """Tell whether encode_control() would write these very bytes, without doing it: repair asks it of every entry.

    Nothing but this tells of what stands outside of body and chain, and each field there can have one value.
    """
    _, _, crc, queue_id, flag, _, _, sys_flag, born, born_host, stored, store_host, times, prepared, body_bytes = fields
    tail_at = body_at + body_bytes
    return bool(
        sys_flag == host_flags(0, store_host, store_host)
        and born_host == store_host
        and born == stored
        and not (queue_id or flag or times or prepared)
        and crc == crc32(view[body_at:tail_at]) & 0x7FFFFFFF
        and view[tail_at : tail_at + len(CONTROL_TAIL)] == CONTROL_TAIL
    )


def _chained_bytes(control: Control) -> bytes:
    return _CHAINED.pack(
        control.index, control.term, control.position, control.timestamp, control.covered_bytes,
        control.covered_count, control.covered_crc, control.commit, control.config, crc32(control.payload),
        control.flags, control.kind,
    )  # fmt: skip


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table


_TABLE = _crc_table()
# The top bytes of the table's values are all different: that is why a CRC can be run backwards.
_BY_TOP_BYTE = {value >> 24: at for at, value in enumerate(_TABLE)}
