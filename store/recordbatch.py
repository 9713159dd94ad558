"""A client's batch as columns: messages of one producer for one queue, of which only a few things differ."""

from collections.abc import Iterator, Sequence
from typing import overload

from store.types import PendingRecord


class RecordBatch(Sequence[PendingRecord]):
    """What a sequence of PendingRecords is, without making one for each message.

    `flags`, `bodies` and `properties` have a place for each message; all else they share. Properties are empty or end
    with their separator. Neither prepared nor consumed again: a batch has no such messages.
    """

    __slots__ = ("bodies", "born_host", "born_timestamp", "flags", "properties", "queue_id", "sys_flag", "topic")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born: tuple[int, bytes],
        columns: tuple[list[int], list[bytes], list[bytes]],
    ) -> None:
        """`born`: timestamp and host; `columns`: flags, bodies and properties."""
        self.topic, self.queue_id, self.sys_flag = topic, queue_id, sys_flag
        self.born_timestamp, self.born_host = born
        self.flags, self.bodies, self.properties = columns

    @property
    def content_bytes(self) -> int:
        """Bytes of all bodies and properties."""
        return sum(map(len, self.bodies)) + sum(map(len, self.properties))

    def __len__(self) -> int:
        return len(self.flags)

    @overload
    def __getitem__(self, at: int) -> PendingRecord: ...

    @overload
    def __getitem__(self, at: slice) -> list[PendingRecord]: ...

    def __getitem__(self, at: int | slice) -> PendingRecord | list[PendingRecord]:
        if isinstance(at, slice):
            return list(self)[at]
        return self._made(self.flags[at], self.bodies[at], self.properties[at])

    def __iter__(self) -> Iterator[PendingRecord]:
        return map(self._made, self.flags, self.bodies, self.properties)

    def _made(self, flag: int, body: bytes, properties: bytes) -> PendingRecord:
        return PendingRecord(
            self.topic, self.queue_id, flag, self.sys_flag, self.born_timestamp, self.born_host, 0, 0, body, properties
        )
