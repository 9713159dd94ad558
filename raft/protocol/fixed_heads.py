"""Heads of fixed form for the two messages that come with every entry: APPEND and its reply, without a clock.

A head in CBOR (raft/protocol/messages.py) is an array, whose first byte is 0x80 or more; one of these begins with its
kind. They say the same, and go only to members that name FIXED_HEADS among their features.

APPEND        kind u8 (2), entries u8, then u64 each: term, seq, prev_index, prev_term, commit;
              behind it for each entry u64 each: index, term, position; and u32: size
APPEND_REPLY  kind u8 (3), ok u8 (0 or 1), then u64 each: term, seq, match, durable, hint_index, hint_term
"""

import struct
from collections.abc import Mapping
from itertools import starmap
from typing import Any

from raft.protocol.fields import NUMBER_MAX

# A member's word that it reads them.
FIXED_HEADS = "fixed-heads"
APPEND, REPLY = 2, 3
# Entries of one head: what follows one another steadily has one.
ROWS_MAX = 16
_APPEND = struct.Struct(">BBQQQQQ")
_ROW = struct.Struct(">QQQI")
_REPLY = struct.Struct(">BBQQQQQQ")
_ONE_ENTRY = struct.Struct(">BBQQQQQQQQI")


def write_fixed(kind: int, fields: Mapping[str, Any]) -> bytes | None:
    """Return the head of a message; None of one that has none of this form."""
    if "clock" in fields:
        return None
    if kind == REPLY:
        return _REPLY.pack(
            REPLY, fields["ok"], fields["term"], fields["seq"], fields["match"], fields["durable"],
            fields["hint_index"], fields["hint_term"],
        )  # fmt: skip
    if kind != APPEND or len(fields["entries"]) > ROWS_MAX:
        return None
    rows = fields["entries"]
    head = _APPEND.pack(
        APPEND, len(rows), fields["term"], fields["seq"], fields["prev_index"], fields["prev_term"], fields["commit"]
    )
    return head + b"".join(starmap(_ROW.pack, rows)) if rows else head


def read_usual(head: bytes, payload_bytes: int) -> dict[str, Any] | None:
    """Return the fields of a reply, or of an APPEND of one entry, if all of them are as they must be.

    None says nothing: whoever reads the general way finds out what it is, or what is wrong with it.
    """
    size = len(head)
    if size == _REPLY.size and head[0] == REPLY and not payload_bytes:
        _, ok, term, seq, match, durable, hint_index, hint_term = _REPLY.unpack(head)
        # None of them is negative, so that together they are in the range if each is.
        if ok > 1 or term | seq | match | durable | hint_index | hint_term > NUMBER_MAX:
            return None
        return {
            "term": term, "seq": seq, "ok": ok == 1, "match": match, "durable": durable,
            "hint_index": hint_index, "hint_term": hint_term,
        }  # fmt: skip
    if size != _ONE_ENTRY.size or head[0] != APPEND:
        return None
    _, count, term, seq, prev_index, prev_term, commit, index, of, position, length = _ONE_ENTRY.unpack(head)
    if count != 1 or term | seq | prev_index | commit | index | position > NUMBER_MAX:
        return None
    if index != prev_index + 1 or not prev_term <= of <= term or of == 0 or not 0 < length == payload_bytes:
        return None
    return {
        "term": term, "seq": seq, "prev_index": prev_index, "prev_term": prev_term, "commit": commit,
        "entries": [[index, of, position, length]],
    }  # fmt: skip


def read_fixed(head: bytes) -> tuple[int, list[Any]] | None:
    """Return the kind and the values of a head, in the order of its fields in CBOR; None of one of another form.

    ValueError when it is of this form and not whole. What the values may be is not looked at.
    """
    kind = head[0]
    if kind not in {APPEND, REPLY}:
        return None
    if kind == REPLY and len(head) == _REPLY.size:
        _kind, ok, term, seq, match, durable, hint_index, hint_term = _REPLY.unpack(head)
        if ok > 1:
            raise ValueError(f"ok is {ok}, neither 0 nor 1")
        return REPLY, [term, seq, bool(ok), match, durable, hint_index, hint_term]
    if kind == APPEND and len(head) >= _APPEND.size:
        _kind, count, *values = _APPEND.unpack_from(head)
        if count > ROWS_MAX or len(head) != _APPEND.size + count * _ROW.size:
            raise ValueError(f"{len(head)} bytes for {count} entries")
        return APPEND, [*values, [list(row) for row in _ROW.iter_unpack(head[_APPEND.size :])]]
    raise ValueError(f"{len(head)} bytes of a kind {kind}")
