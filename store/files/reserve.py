"""Room on the disk that a store keeps while it has some, and gives up when a write finds none.

What must go on then, queues, index, tables and a stop in good order, goes on in it; messages are refused until it can
be had again. (What a member's log itself needs, no-ops and metadata, has its room behind the log: see EntryLog.)
"""

import contextlib
import errno
import logging
import os
from pathlib import Path

from store.errors import is_full
from store.files.disk import Disk

_LOG = logging.getLogger(__name__)

RESERVE_NAME = "reserve"
# Half a million queue entries that wait (10 MB), and tables; at most a quarter of a CommitLog file.
RESERVE_BYTES = 16 * 1024 * 1024


class Reserve:
    """The file `reserve` in the store folder."""

    def __init__(self, disk: Disk, root: Path, log_folder: Path, log_file_bytes: int) -> None:
        """Nothing is kept before hold(). `log_folder` may be on another disk than `root`."""
        self._disk = disk
        self._path = root / RESERVE_NAME
        self._log_folder = log_folder
        self._wanted = min(RESERVE_BYTES, log_file_bytes // 4)
        self.size = 0
        """Bytes that are kept; 0 while they are given up."""

    def take_over(self) -> None:
        """Keep what the last run kept, on a disk that may be full by now. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            found = self._path.stat()
            if found.st_size == self._wanted and found.st_blocks * 512 >= self._wanted:
                self.size = self._wanted
        self.hold()

    def hold(self) -> None:
        """Keep the room, if there is as much again for messages: else they would be taken and refused in turns.

        Raises OSError, see store.errors.is_full.
        """
        if self.size:
            return
        for folder, needed in ((self._log_folder, self._wanted), (self._path.parent, 2 * self._wanted)):
            if self._disk.free_bytes(folder) < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        try:
            self._disk.keep_room(self._path, self._wanted)
        except OSError as error:
            if is_full(error):
                raise
            _LOG.warning("no room can be kept for a full disk: %s", error)
        self.size = self._wanted

    def give_up(self) -> None:
        """Let others have the room."""
        if self.size:
            self.size = 0
            with contextlib.suppress(OSError):
                self._path.unlink()
