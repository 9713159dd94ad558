"""The nouns that the store takes and gives."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import msgspec

# Tells whether a message is wanted by its encoded properties.
Wants = Callable[[memoryview], bool]


class PendingRecord(msgspec.Struct, eq=False, gc=False):
    """A message before it has a place. `properties` as they will be stored; `body` must not change until write().

    `born_host` is address + port int32 (8 or 20 bytes); the host bits of `sys_flag` are set by the store. The tags code
    and the keys of the index are taken from `properties`. One is made per message: a Struct is three times as fast as a
    class with an __init__.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | memoryview
    properties: bytes


class PutStatus(IntEnum):
    """What became of a record; the names are RocketMQ's PutMessageStatus."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9


class PutResult(NamedTuple):
    """Where a record will stand. Offsets mean something only with PUT_OK, and only once write() has returned."""

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    size: int = 0
    store_timestamp: int = 0
    end: int = -1
    """The physical position behind the record: flushed when the store's `flushed` has reached it."""


class Dispatched(NamedTuple):
    """What queues, index and waiting consumers are told of a record that has been written."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    uniq_key: bytes
    keys: bytes
    """The KEYS property: keys separated by blanks, or empty."""
    sys_flag: int
    tags: bytes = b""
    """The TAGS property; the index of RocketMQ 5.5 holds it beside the keys."""


class QueueEntry(NamedTuple):
    """One entry of a ConsumeQueue."""

    physical_offset: int
    size: int
    tags_code: int


class GetStatus(IntEnum):
    """How a read ended; the names are the remark of the pull response."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    # RocketMQ serves such a message.
    MESSAGE_DAMAGED = 9


class GetResult:
    """The answer to a read. With `cold` set the records are not in memory: hand it to read_cold() in a thread.

    `buffers` holds whole records, one buffer for each contiguous run of the log, in queue order.
    """

    __slots__ = (
        "asked",
        "behind_bytes",
        "buffers",
        "cold",
        "count",
        "damaged",
        "max_offset",
        "min_offset",
        "next_offset",
        "runs",
        "sift_by",
        "size",
        "status",
        "unread",
    )

    def __init__(self, status: GetStatus, next_offset: int, min_offset: int, max_offset: int) -> None:
        self.status = status
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.buffers: list[memoryview | bytes] = []
        self.count = 0
        self.size = 0
        self.cold = False
        # Of a cold result: topic, queue id and offset that were asked for.
        self.asked = ("", 0, 0)
        # Where the record stands that must not go, and nothing behind it goes either; -1 when all is right.
        self.damaged = -1
        # Why the disk gave no more of a cold result than `buffers`, "" when it gave all.
        self.unread = ""
        # Bytes of the log between the last record given and the log's end: tells a slow consumer.
        self.behind_bytes = 0
        # (physical position, bytes) of each buffer.
        self.runs: list[tuple[int, int]] = []
        # Of a cold result that is to be sifted once the records are there: what is wanted, messages and bytes at most.
        self.sift_by: tuple[Wants, int, int] | None = None


class QueryResult(NamedTuple):
    """Records found by key, newest first as the index gives them."""

    records: list[memoryview]
    last_timestamp: int
    """Store time of the newest entry of the index, ms."""
    last_physical: int
    """Physical position of the newest entry of the index."""


class CleanReport(NamedTuple):
    """What a retention pass did."""

    removed: list[int]
    """Start positions of the CommitLog files that were removed."""
    reason: str
    """Why files were removed, or why none was."""
    disk_ratio: float
    """Used part of the file system before the pass, 0 to 1."""


class StoreStats(NamedTuple):
    """The store's own figures. Positions and sizes in bytes, times in ms."""

    written: int
    flushed: int
    min_physical: int
    dispatch_behind_bytes: int
    flush_behind_bytes: int
    log_files: int
    log_bytes: int
    queues: int
    earliest_timestamp: int
    """Store time of the first record that is kept, -1 when the log is empty."""
    latest_timestamp: int
    """Store time of the newest record, 0 when there was never one."""
    disk_ratio: float
    refused: str | None
    """Why writes are refused, None when they are not."""
    refused_changes: int
    """How often they began to be refused, or to be taken again, since the start."""
    reserve_bytes: int
    """Room that is kept for a full disk; 0 while it is given up."""
    synced_by: str
    """Who syncs what is acknowledged once it is on the disk: "kernel" or "thread"."""


class Integrity(NamedTuple):
    """What was found damaged in the log, and how far the background check of it is. Positions and sizes in bytes."""

    found: int
    """Damaged places that were met since the start, mended ones included."""
    places: dict[int, str]
    """Those that are not known as mended: position → what is wrong. The first ones only when they are many."""
    rate: int
    """Bytes per second, 0: no check in the background."""
    position: int
    until: int
    """Behind what it looks at."""
    checked: int
    """Bytes since the start."""
    passes: int
    """Over the whole log, since the start."""
    rewritten: int
    """Places that were wrong on the disk and right in memory, from where they were written again."""
