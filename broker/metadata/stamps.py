"""What the file of a table holds of a Raft group's log: the stamp, a key of its own that RocketMQ ignores (R3)."""

from typing import NamedTuple

import msgspec

# The key of the stamp among those of RocketMQ.
STAMP_KEY = "raftStamp"


class Stamp(NamedTuple):
    """What a file holds of a group's metadata: all META entries up to `applied`, the last of which is `last_meta`."""

    group: str
    """The group's id, in hexadecimal."""
    applied: int
    last_meta: int
    """0 when no META entry of this group has been applied yet."""

    def encode(self) -> bytes:
        """Return it as JSON."""
        return b'{"group":"%s","applied":%d,"lastMeta":%d}' % (self.group.encode(), self.applied, self.last_meta)


class _Stamped(msgspec.Struct):
    """All that is read of a file to find its stamp."""

    raftStamp: dict[str, str | int] | None = None


def stamp_in(content: bytes) -> Stamp | None:
    """Return the stamp in a file's content; RocketMQ writes none."""
    if STAMP_KEY.encode() not in content:
        return None
    try:
        fields = msgspec.json.decode(content, type=_Stamped).raftStamp
    except msgspec.DecodeError:
        return None
    if fields is None:
        return None
    group, applied, last_meta = fields.get("group"), fields.get("applied"), fields.get("lastMeta")
    if not isinstance(group, str) or not isinstance(applied, int) or not isinstance(last_meta, int):
        return None
    return Stamp(group, applied, last_meta)


def stamp_part(stamp: Stamp | None) -> list[tuple[str, bytes]]:
    """Return the stamp as a part of table_text; nothing when there is none."""
    return [] if stamp is None else [(STAMP_KEY, stamp.encode())]


def stamped(content: bytes, stamp: Stamp | None, **more: object) -> bytes:
    """Return a JSON object's text with the stamp, and other keys of ours that hold something, before its own keys."""
    head = b"".join(b'"%s":%s,' % (name.encode(), value) for name, value in stamp_part(stamp))
    head += b"".join(b'"%s":%s,' % (name.encode(), msgspec.json.encode(value)) for name, value in more.items() if value)
    return b"{" + head + content[1:] if head else content
