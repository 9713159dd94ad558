"""Bytes of the HA port, between a master and its slaves: RocketMQ's own small protocol, without any I/O.

Slave to master, a report: int64 end of the slave's log, of which everything before is there. Master to slave, a frame:
int64 position, int32 size, then that many bytes of the CommitLog; a frame without bytes is a sign of life. Big-endian.
Frames are cut anywhere, also within a record, but never hold bytes of two files.
"""

import struct

from remoting.errors import FrameError

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")
REPORT_BYTES = _REPORT.size
HEAD_BYTES = _HEAD.size


def report(offset: int) -> bytes:
    """Return a slave's report of the end of its log."""
    return _REPORT.pack(offset)


def head(position: int, size: int) -> bytes:
    """Return what stands before `size` bytes of the log from `position` on; size 0 for a sign of life."""
    return _HEAD.pack(position, size)


class ReportReader:
    """Cuts what a slave sends into reports. Any eight bytes are one: whether it can be true is for the master to say.

    At most seven bytes are kept from one call to the next.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets that these bytes complete, in order; an offset may be negative."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        elif len(data) == REPORT_BYTES:
            # A report in a segment of its own, as nearly all are.
            return [_REPORT.unpack(data)[0]]
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(memoryview(data)[:whole])]


class HaFrameReader:
    """Cuts what a master sends into frames.

    A claimed size allocates nothing: what is kept is what was received of one frame, at most its head and
    `body_bytes_max` and one read.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._rest = bytearray()
        # Bytes that the unfinished frame in _rest will have, as far as its head tells.
        self._wanted = HEAD_BYTES

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not there in full."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return (position, bytes of the log) of each frame that these bytes complete.

        Raises FrameError for a negative position or size, or one above the limit: nothing behind it can be read, the
        connection must be closed.
        """
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._wanted:
                return []
            data = bytes(rest)
            self._rest = bytearray()
        frames: list[tuple[int, bytes]] = []
        at, end = 0, len(data)
        self._wanted = HEAD_BYTES
        while end - at >= HEAD_BYTES:
            position, size = _HEAD.unpack_from(data, at)
            if not (position >= 0 and 0 <= size <= self._body_bytes_max):
                raise FrameError(
                    f"a frame of {size} bytes at {position}: sizes from 0 to {self._body_bytes_max} are taken here"
                )
            start = at + HEAD_BYTES
            stop = start + size
            if stop > end:
                self._wanted = stop - at
                break
            frames.append((position, data[start:stop]))
            at = stop
        if at < end:
            self._rest += memoryview(data)[at:]
        return frames
