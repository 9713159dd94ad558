"""META entries: the operations of one turn as the payload of an entry of a Raft group's log, and back.

A payload is a CBOR array [1, operation, ...]; what an operation is, broker/metadata/operations.py says. Entries that
begin with a PART are pieces of one: what a group's first leader knows empties the tables and fills them again, and a
leader that dies in between must not leave them half filled.
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


def part_head(number: int, count: int) -> bytes:
    """Return the operation with which part `number` of `count` begins, counted from 0."""
    return cbor2.dumps([int(Verb.PART), 0, number, count])


class MetaParts:
    """Keeps entries that are parts until the last one comes; a start reads them again, for no stamp covers them."""

    def __init__(self) -> None:
        self._kept: list[Operation] = []
        self._number = 0

    @property
    def waits(self) -> bool:
        """Whether parts are kept whose last one has not come."""
        return self._number > 0

    def whole(self, operations: list[Operation]) -> list[Operation] | None:
        """Return what counts with an entry: its own operations, or all parts' together; None when more parts follow.

        One that is no part, or the first, ends what a leader began that has gone: nobody sends the rest of it. Raises
        MetadataError.
        """
        if not operations or operations[0][0] != Verb.PART:
            self._forget()
            return operations
        part = operations[0][2:]
        if len(part) != 2 or not all(isinstance(word, int) for word in part):
            raise MetadataError("a META entry is a part of something that this version does not know")
        number, count = part
        if number == 0:
            self._forget()
        if number != self._number:
            raise MetadataError(f"part {number} of {count} META entries comes where part {self._number} is due")
        self._kept += operations[1:]
        self._number += 1
        if self._number < count:
            return None
        found = self._kept
        self._forget()
        return found

    def _forget(self) -> None:
        self._kept, self._number = [], 0


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
