"""What can go wrong in the store, and what the caller must do about it.

StoreError
├── StoreLocked        another process has the folder: stop it, or give this one another storePathRootDir
├── StoreDamaged       the folder must not be opened as it is: the text says what is damaged and what to do
├── QueueShorter       a record's offset is below its queue's end: who wrote it had forgotten what this store holds
├── ReplicaRefused     what a master pushed does not continue the log of this slave: drop the connection, ask again
├── RecordDamaged      a record's bytes are not what was written: do not serve them; a group mends them by itself
└── StoreWriteError    a write failed: nothing put since the last write() is stored; answer SERVICE_NOT_AVAILABLE
"""

import errno

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: BaseException | None) -> bool:
    """Tell whether a disk has no room at the moment."""
    return isinstance(error, OSError) and error.errno in _FULL


class StoreError(Exception):
    """Base of everything that this package raises on purpose."""


class StoreLocked(StoreError):
    """Another process holds the lock of the store folder."""


class StoreDamaged(StoreError):
    """The folder holds less than was once flushed, or files of another layout."""


class QueueShorter(StoreError):
    """A record would make its queue shorter, and nothing deleted its topic: never answered by a cut (R12)."""


class StoreWriteError(StoreError):
    """The records put since the last write could not be written: none of them is stored or dispatched."""


class ReplicaRefused(StoreError):
    """Bytes that a master pushed do not continue this log, or are none of a log. Nothing of them was stored."""


class RecordDamaged(StoreError):
    """What stands at a position is not what was written there (R18)."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"the record at {position} of the CommitLog is damaged: {reason}")
        self.position = position
