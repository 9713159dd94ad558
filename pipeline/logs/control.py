"""The judge's own reading of control records: what opens a Raft entry, decoded without the store's code.

A decoder that reads what it wrote itself finds no fault in it. So the form stands here a second time, from its
description alone: a V1 record of RMQ_SYS_RAFT whose queue offset is the index and whose body, big-endian, is version 1,
kind 1, flags 2, term 8, previous term 8, covered bytes 4, covered count 4, CRC-32 of those bytes 4, commit 8, index of
the last CONFIG 8, chain 4, then the payload. The chain is a CRC-32 that goes on from that of the entry before, over
index, term, position, store time, covered bytes, count and CRC, commit, last CONFIG, the payload's CRC, flags and kind.
"""

import struct
from typing import NamedTuple

from runtime.crc import crc32

VERSION = 1
KINDS = ("NOOP", "MESSAGES", "META", "CONFIG")
CONFIG = 3
# Of a CONFIG: from here on the log is a single broker's.
_ENDS_GROUP = 1
_TOPIC = b"RMQ_SYS_RAFT"
_V1 = 0xDAA320A7
# Of the sysFlag: a host takes 20 bytes, not 8.
_BORN_V6, _STORE_V6 = 1 << 4, 1 << 5
# Size, magic, CRC of the body, queue, flag, queue offset, position, sysFlag, born time.
_FIRST = struct.Struct(">iIIiiqqiq")
_TIME = struct.Struct(">q")
# Times it was consumed again, prepared offset, bytes of the body.
_LAST = struct.Struct(">iqi")
_BODY = struct.Struct(">BBHqqIIIqqI")
_CHAINED = struct.Struct(">qqqqIIIqqIHB")


class JudgedControl(NamedTuple):
    """What a control record says; positions and sizes in bytes, `timestamp` (its store time) in ms."""

    number: int
    """The Raft index."""
    position: int
    size: int
    """Of the control record alone."""
    timestamp: int
    kind: int
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
        """The position after the entry."""
        return self.position + self.size + self.covered_bytes

    @property
    def ends_group(self) -> bool:
        """Whether what follows is a single broker's."""
        return self.kind == CONFIG and bool(self.flags & _ENDS_GROUP)


def continues(control: JudgedControl, previous: int) -> bool:
    """Tell whether its chain goes on from that of the entry before."""
    chained = _CHAINED.pack(
        control.number, control.term, control.position, control.timestamp, control.covered_bytes,
        control.covered_count, control.covered_crc, control.commit, control.config, crc32(control.payload),
        control.flags, control.kind,
    )  # fmt: skip
    return crc32(chained, previous) == control.chain


def decode_control(view: memoryview, at: int) -> JudgedControl | str:
    """Return what the control record at `at` says, whose frame is whole, or in words why it is none."""
    size, magic, crc, queue, flag, number, position, sys_flag, born = _FIRST.unpack_from(view, at)
    born_bytes, store_bytes = (20 if sys_flag & each else 8 for each in (_BORN_V6, _STORE_V6))
    place = at + _FIRST.size
    born_host = view[place : place + born_bytes]
    (stored,) = _TIME.unpack_from(view, place + born_bytes)
    place += born_bytes + _TIME.size
    store_host = view[place : place + store_bytes]
    again, prepared, body_bytes = _LAST.unpack_from(view, place + store_bytes)
    body_at = place + store_bytes + _LAST.size
    tail = bytes(view[body_at + body_bytes : at + size])
    if magic != _V1 or tail[: 1 + len(_TOPIC)] != bytes((len(_TOPIC),)) + _TOPIC:
        return "a record of another topic"
    if body_bytes < _BODY.size or len(tail) != 1 + len(_TOPIC) + 2:
        return "a record of the control records' topic with the shape of another"
    (version, kind, flags, term, previous_term, covered, count, covered_crc, commit, config, chain) = _BODY.unpack_from(
        view, body_at
    )
    if version != VERSION:
        return f"a control record of version {version}: a newer RaftMQ wrote it"
    if kind >= len(KINDS):
        return f"a control record of the unknown type {kind}"
    fixed = not (queue or flag or again or prepared) and tail[-2:] == b"\0\0" and born == stored
    fixed &= sys_flag in {0, _BORN_V6 | _STORE_V6} and born_host == store_host
    if not fixed or crc != crc32(view[body_at : body_at + body_bytes]) & 0x7FFFFFFF:
        return f"the control record of entry {number} with a byte that changed"
    return JudgedControl(
        number, position, size, stored, kind, flags, term, previous_term, covered, count, covered_crc, commit, config,
        chain, bytes(view[body_at + _BODY.size : body_at + body_bytes]),
    )  # fmt: skip
