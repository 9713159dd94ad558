"""What can go wrong in the store, and what the caller must do about it.

StoreError
├── StoreLocked        another process has the folder: stop it, or give this one another storePathRootDir
├── StoreDamaged       the folder must not be opened as it is: the text says what is damaged and what to do
├── EntryRefused       what another member sent does not continue the log of this one
├── ReplicaRefused     what a master pushed does not continue the log of this slave: drop the connection, ask again
└── StoreWriteError    a write failed: nothing put since the last write() is stored; answer SERVICE_NOT_AVAILABLE
"""


class StoreError(Exception):
    """Base of everything that this package raises on purpose."""


class StoreLocked(StoreError):
    """Another process holds the lock of the store folder."""


class StoreDamaged(StoreError):
    """The folder holds less than was once flushed, or files of another layout."""


class StoreWriteError(StoreError):
    """The records put since the last write could not be written: none of them is stored or dispatched."""


class EntryRefused(StoreError):
    """Entries that a leader sent do not continue this log: wrong position, CRC, chain or index. Nothing was written."""


class ReplicaRefused(StoreError):
    """Bytes that a master pushed do not continue this log, or are none of a log. Nothing of them was stored."""
