"""The bodies of recorded messages: a fixed head that tells whose attempt it is, then whatever the workload puts there.

    0   4  magic "RMQ6"
    4   4  writer, big-endian like all that follows
    8   8  counter
    16  4  attempt
    20  …  the workload's own

The digest of a message is the CRC-32 of the whole body.
"""

import struct
from typing import NamedTuple

from runtime.crc import crc32

MAGIC = b"RMQ6"
HEAD = struct.Struct(">4sIQI")
# Whoever marks the ends of queues before they are read for the last time; no workload's.
MARKER = 0


class Tag(NamedTuple):
    """Which attempt to send which message."""

    writer: int
    counter: int
    attempt: int


def make_body(tag: Tag, rest: bytes = b"") -> bytes:
    """Return the body of one attempt."""
    return HEAD.pack(MAGIC, *tag) + rest


def read_tag(body: bytes | memoryview) -> Tag | None:
    """Return whose attempt a body is, None for one that no recorder made."""
    if len(body) < HEAD.size:
        return None
    magic, *numbers = HEAD.unpack_from(body)
    return Tag(*numbers) if magic == MAGIC else None


def rest_of(body: bytes) -> bytes:
    """Return what the workload put behind the head."""
    return body[HEAD.size :]


def digest(body: bytes | memoryview) -> int:
    """Return the CRC-32 that histories keep of a body."""
    return crc32(body)
