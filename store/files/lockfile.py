"""The two marker files of a store folder.

``lock``: byte 0 is locked exclusively as long as a process uses the folder (an fcntl lock, like Java's FileLock, so
that RocketMQ and RaftMQ keep each other out too). ``abort``: there while a process runs, with its pid; found at start,
the last process did not stop cleanly.
"""

import errno
import fcntl
import os
from pathlib import Path

from store.errors import StoreLocked, is_full

LOCK_NAME = "lock"
ABORT_NAME = "abort"
# What RocketMQ writes there.
_LOCK_CONTENT = b"lock"
# Process-wide: fcntl locks do not exclude a second opener in the same process, so this table does.
_HELD: set[tuple[int, int]] = set()


def mark_unclean(folder: Path) -> None:
    """Leave the mark that a stop removes. Its being there counts: a full disk has no room for the pid. OSError."""
    path = folder / ABORT_NAME
    try:
        path.write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        if not is_full(error) or not path.exists():
            raise


class LockFile:
    """The lock of one store folder."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises StoreLocked when somebody has it, OSError when the folder cannot be written."""
        path = folder / LOCK_NAME
        facts = path.stat() if path.exists() else None
        # Checked before opening: closing any descriptor of the file would drop the lock this process already has.
        if facts is not None and (facts.st_dev, facts.st_ino) in _HELD:
            raise StoreLocked(_refusal(folder))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, _LOCK_CONTENT, 0)
        except OSError as error:
            os.close(fd)
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                raise StoreLocked(_refusal(folder)) from None
            raise
        facts = os.fstat(fd)
        self._identity = (facts.st_dev, facts.st_ino)
        self._fd = fd
        _HELD.add(self._identity)

    def release(self) -> None:
        """Let the next one in; the file stays."""
        if self._fd >= 0:
            _HELD.discard(self._identity)
            os.close(self._fd)
            self._fd = -1


def _refusal(folder: Path) -> str:
    return (
        f"the store folder {folder} is used by another process: stop that broker, "
        f"or give this one a folder of its own (storePathRootDir)"
    )
