"""The CommitLog's files as bytes, for members that begin with a copy of them (R13)."""

from runtime.crc import crc32
from store.log.commitlog import CommitLog

_DIGEST_CHUNK_BYTES = 4 * 1024 * 1024


class LogCopies:
    """What a copy consists of, its bytes, and pins that keep the files there meanwhile."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._pins = 0

    def files_upto(self, position: int) -> list[tuple[int, int]]:
        """Return (start, bytes) of each file's part before a position."""
        return [(file.start, min(file.end, position) - file.start) for file in self._log.files if file.start < position]

    def read_bytes(self, position: int, size: int) -> bytes | memoryview:
        """Return written bytes that lie within one file. For any thread. Raises OSError, also when they are gone."""
        return self._log.read_blocking(position, size)

    def digest(self, end: int) -> int:
        """Return the CRC-32 of everything before `end`. Raises OSError."""
        digest = 0
        for start, size in self.files_upto(end):
            for at in range(start, start + size, _DIGEST_CHUNK_BYTES):
                digest = crc32(self.read_bytes(at, min(_DIGEST_CHUNK_BYTES, start + size - at)), digest)
        return digest

    def pin(self) -> None:
        """Keep every file until unpin(), however often this is called."""
        self._pins += 1

    def unpin(self) -> None:
        """Undo one pin()."""
        assert self._pins > 0, "only what is pinned is unpinned"
        self._pins -= 1

    @property
    def pinned(self) -> bool:
        """Whether somebody copies files."""
        return self._pins > 0
