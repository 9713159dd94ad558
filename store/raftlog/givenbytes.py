"""Bytes of a log that come in pieces and are read once, from the front, without being copied more than they must."""

from collections import deque


class GivenBytes:
    """Pieces that follow one another."""

    def __init__(self) -> None:
        self._first = memoryview(b"")
        self._first_at = 0
        self._pieces: deque[memoryview] = deque()
        self._pieces_bytes = 0
        self.copied = 0
        """Bytes that were copied so that an entry lies in one piece."""

    @property
    def size(self) -> int:
        """Bytes held."""
        return len(self._first) + self._pieces_bytes

    @property
    def end(self) -> int:
        """The position behind the last of them."""
        return self._first_at + self.size

    def clear(self, position: int) -> None:
        """Begin anew at a position."""
        self._first, self._first_at = memoryview(b""), position
        self._pieces.clear()
        self._pieces_bytes = 0

    def put(self, position: int, piece: memoryview) -> None:
        """Add a piece that stands behind the last one; what was there goes when it does not reach up to it."""
        if position != self.end:
            self.clear(position)
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)

    def view(self, position: int, size: int) -> memoryview | None:
        """Return what is held from a position on, at least `size` bytes in one piece; None when there are fewer.

        What stands before it is given up.
        """
        at = position - self._first_at
        while at >= len(self._first) and self._pieces:
            at -= len(self._first)
            self._first_at += len(self._first)
            self._first = self._pieces.popleft()
            self._pieces_bytes -= len(self._first)
        if self.size - at < size:
            return None
        if len(self._first) - at < size:
            # One entry that begins in a piece and ends in another: only now that all of it is there.
            parts, have = [self._first[at:]], len(self._first) - at
            while have < size:
                parts.append(self._pieces.popleft())
                self._pieces_bytes -= len(parts[-1])
                have += len(parts[-1])
            self.copied += have
            self._first, self._first_at, at = memoryview(b"".join(parts)), position, 0
        return self._first[at:]
