"""The CommitLog as bytes, whatever stands in them: what a master pushes, and what two brokers compare."""

import hashlib
from typing import Protocol

from store.log.commitlog import CommitLog

# Read and hashed at once.
_DIGEST_CHUNK_BYTES = 4 * 1024 * 1024


class Hash(Protocol):
    """What is needed of hashlib's."""

    def update(self, data: memoryview | bytes, /) -> None:
        """Take some more bytes."""
        ...


class LogBytes:
    """The part of a store that knows no records. In the store's thread, unless a method says otherwise."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.file_bytes = log.file_bytes
        """Size of one CommitLog file (mappedFileSizeCommitLog)."""

    @property
    def written(self) -> int:
        """The position behind the last written byte: of a slave's log it may lie inside a record."""
        return self._log.written

    @property
    def flushed(self) -> int:
        """Everything before this position is on disk."""
        return self._log.flushed

    @property
    def dispatched(self) -> int:
        """The position behind the last record that is in queues and index."""
        return self._log.dispatched

    @property
    def min_physical(self) -> int:
        """The position of the first record that is kept."""
        return self._log.min_position

    def log_range(self) -> tuple[int, int]:
        """Return where the log begins and the position behind what is written. For any thread."""
        return self._log.min_position, self._log.written

    def read_piece(self, position: int, size_max: int) -> memoryview | bytes | None:
        """Return written bytes from `position` on, up to the end of their file; b"" at the end of the log.

        None when they are not in memory, or not kept any more: ask read_piece_cold() in a thread.
        """
        log = self._log
        if position < log.min_position:
            return None
        size = self._piece_bytes(position, size_max)
        return log.read(position, size) if size else b""

    def read_piece_cold(self, position: int, size_max: int) -> memoryview | bytes:
        """Return what read_piece() does, from disk. For any thread. Raises OSError, FileNotFoundError: not kept."""
        size = self._piece_bytes(position, size_max)
        return self._log.read_blocking(position, size) if size else b""

    def digest(self, begin: int, end: int) -> str | None:
        """Return the SHA-256 of the log's bytes [begin, end) in hex; None unless all of them are kept and written.

        For any thread: reads everything, one second or two per GiB. Raises OSError when the disk fails.
        """
        found = hashlib.sha256()
        return found.hexdigest() if self.hash_into(found, begin, end) else None

    def hash_into(self, found: Hash, begin: int, end: int) -> bool:
        """Add the log's bytes [begin, end) to a hash; False unless all of them are kept and written. As digest()."""
        if not self._log.min_position <= begin <= end <= self._log.written:
            return False
        try:
            while begin < end:
                piece = self.read_piece_cold(begin, min(_DIGEST_CHUNK_BYTES, end - begin))
                if not piece:
                    # Cut meanwhile.
                    return False
                found.update(piece)
                begin += len(piece)
        except FileNotFoundError:
            # Its time was over.
            return False
        return True

    def _piece_bytes(self, position: int, size_max: int) -> int:
        file_end = position - position % self.file_bytes + self.file_bytes
        return max(0, min(size_max, file_end - position, self._log.written - position))
