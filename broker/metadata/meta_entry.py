"""META entries: the operations of one turn as the payload of an entry of a Raft group's log, and back.

A payload is a CBOR array [1, operation, ...]; what an operation is, broker/metadata/operations.py says.
"""

from collections.abc import Iterable, Sequence

import cbor2

from broker.metadata.operations import Operation, Table, Verb
from broker.metadata.table_file import MetadataError
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.cbor import CborError, read_cbor

FORMAT = 1
# Bytes of one operation; a longer one is split at its rows, one that cannot be split is refused.
OPERATION_BYTES_MAX = 256 * 1024
# How the deletion of topics begins in CBOR: most entries need not be decoded to see that they are none.
_DELETES_TOPICS = bytes((Verb.DELETE, Table.TOPICS))


def encode(operations: Iterable[Operation]) -> bytes:
    """Return the payload of a META entry."""
    return joined([cbor2.dumps(operation) for operation in operations])


def pieces(operation: Operation) -> list[bytes]:
    """Return an operation's bytes, in several pieces when its rows are too many for one."""
    encoded = cbor2.dumps(operation)
    if len(encoded) <= OPERATION_BYTES_MAX:
        return [encoded]
    rows = operation[-1]
    if not isinstance(rows, list) or len(rows) < 2 or operation[0] == Verb.CLONE:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, f"a change of {len(encoded)} bytes, at most {OPERATION_BYTES_MAX} are possible"
        )
    step = max(1, len(rows) * OPERATION_BYTES_MAX // len(encoded) // 2)
    head = operation[:-1]
    return [piece for at in range(0, len(rows), step) for piece in pieces([*head, rows[at : at + step]])]


def decode(payload: bytes) -> list[Operation]:
    """Return a META entry's operations; raises MetadataError."""
    try:
        content = read_cbor(payload, len(payload))
    except CborError as error:
        raise MetadataError(f"a META entry cannot be read: {error}") from error
    if not isinstance(content, list) or not content or content[0] != FORMAT:
        raise MetadataError("a META entry has a format that this version does not know: upgrade this member")
    operations = content[1:]
    if any(not isinstance(operation, list) or len(operation) < 3 for operation in operations):
        raise MetadataError("a META entry holds something that is no operation")
    return operations


def deleted_topics(payload: bytes) -> list[str]:
    """Return the topics that a META entry deletes; none of one that this version cannot read, and will not apply."""
    if _DELETES_TOPICS not in payload:
        return []
    try:
        operations = decode(payload)
    except MetadataError:
        return []
    deletions = [each[3] for each in operations if each[:2] == [Verb.DELETE, Table.TOPICS] and len(each) > 3]
    return [topic for names in deletions if isinstance(names, list) for topic in names if isinstance(topic, str)]


def joined(encoded: Sequence[bytes]) -> bytes:
    """Return the payload of a META entry whose operations are encoded already."""
    return _array_head(1 + len(encoded)) + cbor2.dumps(FORMAT) + b"".join(encoded)


def _array_head(count: int) -> bytes:
    """Return how CBOR begins an array of `count` items."""
    if count < 24:
        return bytes((0x80 | count,))
    return b"\x9a" + count.to_bytes(4, "big")
