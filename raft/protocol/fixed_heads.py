"""Heads of fixed form for the two messages that come with every entry: APPEND and its reply, without a clock.

A head in CBOR (raft/protocol/messages.py) is an array, whose first byte is 0x80 or more; one of these begins with its
kind. They say the same, and go only to members that name FIXED_HEADS among their features.

APPEND        kind u8 (2), entries u8, then u64 each: term, seq, prev_index, prev_term, commit;
              behind it for each entry u64 each: index, term, position; and u32: size
APPEND_REPLY  kind u8 (3), ok u8 (0 or 1), then u64 each: term, seq, match, durable, hint_index, hint_term
"""

import struct
from collections.abc import Mapping
from typing import Any

# A member's word that it reads them.
FIXED_HEADS = "fixed-heads"
APPEND, REPLY = 2, 3
# Entries of one head: what follows one another steadily has one.
ROWS_MAX = 16
_APPEND = struct.Struct(">BBQQQQQ")
_ROW = struct.Struct(">QQQI")
_REPLY = struct.Struct(">BBQQQQQQ")


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
    return head + b"".join([_ROW.pack(*row) for row in rows]) if rows else head


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
