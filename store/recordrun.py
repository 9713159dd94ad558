"""Sends of one read that are stored side by side, as the wire brought them: a sequence of PendingRecords."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from store.types import PendingRecord, PutResult

if TYPE_CHECKING:
    from remoting.runs import SendRows


class RecordRun(Sequence[PendingRecord]):
    """What a sequence of PendingRecords is; but other than a batch not all or none of it is stored, each has its fate.

    `sys_flags`: what is set in a record's sysFlag, by topic. `suffix`: what is added to each one's properties.
    """

    __slots__ = ("born_host", "results", "rows", "suffix", "sys_flags")

    def __init__(self, rows: "SendRows", sys_flags: list[int], born_host: bytes, suffix: bytes) -> None:
        self.rows, self.sys_flags, self.born_host, self.suffix = rows, sys_flags, born_host, suffix
        self.results: list[PutResult] | None = None
        """What became of each, when they were stored one by one; None: all are stored, and `rows` knows where."""

    @property
    def content_bytes(self) -> int:
        """Bytes of all bodies and properties."""
        rows = self.rows
        return rows.body_bytes + rows.properties_bytes + len(rows) * len(self.suffix)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> PendingRecord: ...

    @overload
    def __getitem__(self, at: slice) -> list[PendingRecord]: ...

    def __getitem__(self, at: int | slice) -> PendingRecord | list[PendingRecord]:
        return list(self)[at]

    def __iter__(self) -> Iterator[PendingRecord]:
        set_flags, host, names = self.sys_flags, self.born_host, self.rows.topics
        for topic, queue_id, flag, sys_flag, born, body, properties in self.rows.fields(self.suffix):
            flags = sys_flag | set_flags[names.index(topic)]
            yield PendingRecord(topic, queue_id, flag, flags, born, host, 0, 0, body, properties)
