"""The checkpoint file: up to where everything, the derived files included, is known to be on disk.

RocketMQ's 4 KiB: int64 store timestamps of the last flushed record at 0 (CommitLog), 8 (ConsumeQueues) and 16 (index),
and positions of its replication at 24 and 32, which are kept as they are. RocketMQ ignores what stands behind. There
RaftMQ keeps, at 1024: its mark, the position up to which log, queues and index are synced, the position up to which
the log is, a copy of the three timestamps, and a CRC-32 of all that. The copy tells whether RocketMQ has had the
folder since: then only the timestamps count. At 1152 stand the number of queues and the sum of their ends at the first
of these positions, with a CRC-32 over these and all before: queues that somebody took away are missed with it. At
1280 stands where the log begins (store/files/beginning.py), with a CRC-32 over that and the positions.
"""

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from runtime.crc import crc32
from store.files.beginning import BEGINNING_BYTES, Beginning
from store.files.disk import Disk

CHECKPOINT_NAME = "checkpoint"
CHECKPOINT_BYTES = 4096
_TIMES = struct.Struct(">qqq")
_REPLICATION_AT = 24
_REPLICATION_BYTES = 16
_OURS_AT = 1024
_OURS = struct.Struct(">8sqqqqq")
_TOTALS_AT = 1152
_TOTALS = struct.Struct(">qq")
_BEGINNING_AT = 1280
_MARK = b"RAFTMQ01"
_CRC = struct.Struct(">I")


@dataclass(frozen=True)
class Checkpoint:
    """Timestamps in ms, positions in bytes of the log. -1: not known, the timestamps must do."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    dispatched: int = -1
    flushed: int = -1
    replication: bytes = field(default=bytes(_REPLICATION_BYTES), repr=False)
    totals: tuple[int, int] | None = None
    """Number of queues and sum of their ends at `dispatched`, without those of RMQ_SYS_RAFT; None: not known."""
    beginning: Beginning | None = None
    """Where the log begins; None: whatever file is the first."""

    def encode(self) -> bytes:
        """Return the file's content."""
        page = bytearray(CHECKPOINT_BYTES)
        times = (self.log_timestamp, self.queue_timestamp, self.index_timestamp)
        _TIMES.pack_into(page, 0, *times)
        page[_REPLICATION_AT : _REPLICATION_AT + _REPLICATION_BYTES] = self.replication
        ours = _OURS.pack(_MARK, self.dispatched, self.flushed, *times)
        page[_OURS_AT : _OURS_AT + _OURS.size] = ours
        _CRC.pack_into(page, _OURS_AT + _OURS.size, crc32(ours))
        if self.totals is not None:
            totals = _TOTALS.pack(*self.totals)
            page[_TOTALS_AT : _TOTALS_AT + _TOTALS.size] = totals
            _CRC.pack_into(page, _TOTALS_AT + _TOTALS.size, crc32(totals, crc32(ours)))
        if self.beginning is not None:
            begins = self.beginning.encode()
            page[_BEGINNING_AT : _BEGINNING_AT + BEGINNING_BYTES] = begins
            _CRC.pack_into(page, _BEGINNING_AT + BEGINNING_BYTES, crc32(begins, crc32(ours)))
        return bytes(page)

    def lowered(self, position: int, totals: tuple[int, int] | None) -> "Checkpoint":
        """Return what still holds when nothing is known any more of queues and index behind `position`.

        `totals` are those of the queues up to there. RocketMQ, which knows no positions, reads all of the log then.
        """
        return replace(self, queue_timestamp=0, index_timestamp=0, dispatched=position, totals=totals)

    @classmethod
    def decode(cls, page: bytes) -> "Checkpoint":
        """Read a file's content; whatever is missing or damaged reads as not known."""
        page = page.ljust(CHECKPOINT_BYTES, b"\0")
        times = _TIMES.unpack_from(page)
        known = cls(
            times[0], times[1], times[2], replication=page[_REPLICATION_AT : _REPLICATION_AT + _REPLICATION_BYTES]
        )
        ours = page[_OURS_AT : _OURS_AT + _OURS.size]
        if crc32(ours) != _CRC.unpack_from(page, _OURS_AT + _OURS.size)[0]:
            return known
        mark, dispatched, flushed, *copies = _OURS.unpack(ours)
        if mark != _MARK or tuple(copies) != times:
            return known
        totals = page[_TOTALS_AT : _TOTALS_AT + _TOTALS.size]
        counted = crc32(totals, crc32(ours)) == _CRC.unpack_from(page, _TOTALS_AT + _TOTALS.size)[0]
        begins = page[_BEGINNING_AT : _BEGINNING_AT + BEGINNING_BYTES]
        said = crc32(begins, crc32(ours)) == _CRC.unpack_from(page, _BEGINNING_AT + BEGINNING_BYTES)[0]
        return replace(
            known,
            dispatched=dispatched,
            flushed=flushed,
            totals=_TOTALS.unpack(totals) if counted else None,
            beginning=Beginning.decode(begins) if said else None,
        )


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a store folder; one that knows nothing when there is none. Raises OSError."""
    try:
        return Checkpoint.decode((folder / CHECKPOINT_NAME).read_bytes())
    except FileNotFoundError:
        return Checkpoint()


def save_checkpoint(folder: Path, disk: Disk, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a store folder; durable when this returns. Raises OSError."""
    disk.replace(folder / CHECKPOINT_NAME, checkpoint.encode())


def overwrite_checkpoint(folder: Path, disk: Disk, checkpoint: Checkpoint) -> None:
    """Write over a checkpoint that differs in nothing but the beginning, which is in one sector: that needs no room.

    Durable when this returns. Raises OSError.
    """
    fd = disk.open(folder / CHECKPOINT_NAME)
    try:
        disk.pwrite(fd, checkpoint.encode(), 0)
        disk.fdatasync(fd)
    finally:
        disk.close(fd)
