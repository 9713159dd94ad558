"""The checkpoint file: up to where everything, the derived files included, is known to be on disk.

RocketMQ's 4 KiB: int64 store timestamps of the last flushed record at 0 (CommitLog), 8 (ConsumeQueues) and 16 (index),
and positions of its replication at 24 and 32, which are kept as they are. RocketMQ ignores what stands behind. There
RaftMQ keeps, at 1024: its mark, the position up to which log, queues and index are synced, the position up to which
the log is, a copy of the three timestamps, and a CRC-32 of all that. The copy tells whether RocketMQ has had the
folder since: then only the timestamps count.
"""

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from runtime.crc import crc32

CHECKPOINT_NAME = "checkpoint"
CHECKPOINT_BYTES = 4096
_TIMES = struct.Struct(">qqq")
_REPLICATION_AT = 24
_REPLICATION_BYTES = 16
_OURS_AT = 1024
_OURS = struct.Struct(">8sqqqqq")
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

    def encode(self) -> bytes:
        """Return the file's content."""
        page = bytearray(CHECKPOINT_BYTES)
        times = (self.log_timestamp, self.queue_timestamp, self.index_timestamp)
        _TIMES.pack_into(page, 0, *times)
        page[_REPLICATION_AT : _REPLICATION_AT + _REPLICATION_BYTES] = self.replication
        ours = _OURS.pack(_MARK, self.dispatched, self.flushed, *times)
        page[_OURS_AT : _OURS_AT + _OURS.size] = ours
        _CRC.pack_into(page, _OURS_AT + _OURS.size, crc32(ours))
        return bytes(page)

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
        return replace(known, dispatched=dispatched, flushed=flushed)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a store folder; one that knows nothing when there is none. Raises OSError."""
    try:
        return Checkpoint.decode((folder / CHECKPOINT_NAME).read_bytes())
    except FileNotFoundError:
        return Checkpoint()
