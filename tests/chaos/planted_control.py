"""What is planted into the members of the torture's controls: a slow disk, and a bug that it brings to light."""

import time

from store.files.disk import Disk
from store.raftlog.entrylog import EntryLog

SYNC_S = 0.03
# A power cut kills one member after the other, which takes a busy machine longer than such a sync: what the first one
# acknowledged last would be on the disk of the last one.
CONTROL_SYNC_S = 0.3


def slow_disk(sync_s: float = SYNC_S) -> None:
    """Let each sync take so long that there is always something on its way to the disk."""
    fdatasync = Disk.fdatasync

    def slow(self: Disk, fd: int) -> None:
        # The clock of a disk cannot be turned: a slow one takes its time.
        time.sleep(sync_s)
        fdatasync(self, fd)

    # An instance method in place of another; mypy does not let methods be replaced.
    Disk.fdatasync = slow  # type: ignore[method-assign]


def acknowledge_before_sync() -> None:
    """Let a member on a slow disk call an entry durable as soon as it is written."""

    def written(self: EntryLog) -> int:
        return int(self.last.index)

    slow_disk(CONTROL_SYNC_S)
    # A property in place of an attribute: whoever asks is told what is in the page cache.
    EntryLog.durable = property(written, lambda _self, _value: None)  # type: ignore[assignment]
