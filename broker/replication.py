"""When is a message acknowledged? The one seam between the data plane and whatever keeps messages safe.

A sender appends records and says whom to call; the call comes exactly once, in the event loop, with the response code
of the mode: master_slave/local_replication.py is that of a single master, sync_replication.py beside it of one that
waits for slaves, raft_group/replication.py of a Raft group.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from remoting.codes import ResponseCode
from runtime.timings import Timings
from store.recordbatch import RecordBatch
from store.recordrun import RecordRun
from store.types import PendingRecord, PutResult, PutStatus

CODES: dict[PutStatus, int] = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
}
# What a record takes beside body and properties, with some room for the topic: for the bound on what is pending.
RECORD_OVERHEAD_BYTES = 128

Done = Callable[[PutResult, int], None]
BatchDone = Callable[[list[PutResult], int], None]


def sends_of(records: object) -> int:
    """Return how many sends were stored by one call: those of a run, else one."""
    return len(records) if type(records) is RecordRun else 1


def batch_bytes(records: Sequence[PendingRecord]) -> int:
    """Return what a batch counts for the bound on what is pending."""
    if isinstance(records, (RecordBatch, RecordRun)):
        return records.content_bytes + RECORD_OVERHEAD_BYTES * len(records)
    return sum([len(record.body) + len(record.properties) + RECORD_OVERHEAD_BYTES for record in records])


class Replication(Protocol):
    """Takes records and tells when they are safe. `done` may be called before append returns: when it is refused."""

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        """Store a record; `wait=False` asks for the answer as soon as it is written, whatever the mode.

        `until`: nothing is stored any more from that moment on (broker/deadlines.py); 0: whenever it can be.
        """
        ...

    def append_batch(
        self, records: Sequence[PendingRecord], done: BatchDone, *, wait: bool = True, until: float = 0.0
    ) -> None:
        """Store records next to one another, all or none; a refusal comes as one result."""
        ...


class Confirming(Replication, Protocol):
    """One that can also be asked about what stands in the log already."""

    def confirm(self, stored: PutResult, done: Done, *, wait: bool = True) -> None:
        """Tell when a record that is in the queues is as safe as a new one would be: the same codes, nothing stored."""
        ...


class SendTimes:
    """How long sends took to be stored: counted once for all that share an entry, or the write of a turn."""

    __slots__ = ("commit", "queue", "send")

    def __init__(self) -> None:
        self.queue = Timings()
        """From the arrival of the first of them to the write."""
        self.commit = Timings()
        """In a group: from the entry's proposal to its commit."""
        self.send = Timings()
        """From the arrival of the first of them to the answers; counts what was sent, a batch once."""
