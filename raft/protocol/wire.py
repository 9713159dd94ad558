"""Framing between members, without any I/O: bytes in, frames out, and the pieces of a message as they are sent.

A frame is ``length u32 · head length u16 · head · payload (raw bytes)``, big-endian; `length` counts what is
behind it. A length of 0 is a sign of life and nothing else.

The reader hands out the buffer that the next bytes go to (asyncio.BufferedProtocol): what is too long for its own
buffer is received straight into a buffer of the frame's size, which the payload is then a view of.
"""

import struct
from typing import NamedTuple

from raft.protocol.messages import HEAD_BYTES_MAX, PAYLOAD_BYTES_MAX, RaftMessage, encode_head

LENGTH_BYTES = 4
_HEAD_LENGTH_BYTES = 2
# The largest message that there is. Entries of up to some MiB travel together, a larger one alone: a record of the
# default 4 MiB with its properties and control record has below 5 MiB, and one that comes in the longest frame that
# clients may send must still find its way to the followers.
FRAME_BYTES_MAX = _HEAD_LENGTH_BYTES + HEAD_BYTES_MAX + PAYLOAD_BYTES_MAX
# What a stranger may make us keep before he has proved who he is.
GREETING_BYTES_MAX = 16 * 1024
# The reader's own buffer: frames up to this size are cut out of it by copying, longer ones get a buffer each.
READ_BYTES = 128 * 1024

KEEPALIVE = bytes(LENGTH_BYTES)

_LENGTH = struct.Struct(">I")
_WORDS = struct.Struct(">IH")

Piece = bytes | bytearray | memoryview


class WireError(Exception):
    """These bytes are no frame, or this message does not fit into one."""


class Frame(NamedTuple):
    """One frame's head, and its payload, which is empty or a view of a buffer that belongs to it alone."""

    head: bytes
    payload: memoryview


_EMPTY = memoryview(b"")
# A NamedTuple without the frame of its own function.
_new = tuple.__new__


def frame(head: bytes, payload: tuple[Piece, ...] = ()) -> tuple[list[Piece], int]:
    """Return the pieces of a frame, the payload's own uncopied, and their bytes; WireError when it is too long."""
    payload_bytes = sum(map(len, payload))
    length = _HEAD_LENGTH_BYTES + len(head) + payload_bytes
    if len(head) > HEAD_BYTES_MAX or payload_bytes > PAYLOAD_BYTES_MAX:
        raise WireError(f"a head of {len(head)} and a payload of {payload_bytes} bytes do not fit into a frame")
    return [_WORDS.pack(length, len(head)) + head, *payload], LENGTH_BYTES + length


def frame_message(message: RaftMessage, *, fixed: bool = False) -> tuple[list[Piece], int]:
    """Return the pieces of a message's frame and their bytes; WireError when it is too long. `fixed`: encode_head()."""
    return frame(encode_head(message, fixed=fixed), message.payload)


class RaftFrameReader:
    """Cuts one connection's stream into frames.

    Take `buffer()`, put the next bytes there, tell `filled()` how many. Afterwards look at `error`: when it is set,
    the frames returned came before the bad one, and nothing behind them can be read any more.
    """

    def __init__(self, limit: int = GREETING_BYTES_MAX) -> None:
        assert limit <= FRAME_BYTES_MAX, "the largest frame there is"
        self.limit = limit
        self.error: WireError | None = None
        self._own = memoryview(bytearray(READ_BYTES))
        self._start = 0
        self._end = 0
        # The buffer of one long frame, and how much of it is there; empty when there is none.
        self._long = _EMPTY
        self._long_end = 0

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not there in full."""
        return self._long_end if self._long else self._end - self._start

    def buffer(self) -> memoryview:
        """Return where the next bytes go; never empty."""
        if self._long:
            return self._long[self._long_end :]
        return self._own[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """Return the frames that `count` bytes, put into the last `buffer()`, complete."""
        assert self.error is None, "behind a bad frame nothing can be read"
        frames: list[Frame] = []
        try:
            if self._long:
                self._long_end += count
                if self._long_end == len(self._long):
                    frames.append(_open(self._long, self._long))
                    self._long = _EMPTY
            else:
                self._end += count
                self._cut(frames)
        except WireError as error:
            self.error = error
        return frames

    def _cut(self, frames: list[Frame]) -> None:
        """Take the whole frames out of the own buffer, and make room for the rest of the one that is not whole."""
        own, limit = self._own, self.limit
        start, end = self._start, self._end
        while end - start >= LENGTH_BYTES:
            # Checked before anything is kept for it.
            length: int = _LENGTH.unpack_from(own, start)[0]
            if length > limit or 0 < length <= _HEAD_LENGTH_BYTES:
                raise WireError(f"a frame of {length} bytes; up to {limit} are accepted")
            total = LENGTH_BYTES + length
            if total > end - start:
                break
            if total > LENGTH_BYTES:
                frames.append(_open(own[start : start + total], None))
            start += total
        else:
            total = 0
        self._start, self._end = start, end
        if total > READ_BYTES:
            self._go_long(total)
        elif start == end:
            self._start = self._end = 0
        elif max(total, LENGTH_BYTES) > READ_BYTES - start or end == READ_BYTES:
            own[: end - start] = own[start:end]
            self._start, self._end = 0, end - start

    def _go_long(self, total: int) -> None:
        have = self._end - self._start
        self._long = memoryview(bytearray(total))
        self._long[:have] = self._own[self._start : self._end]
        self._long_end = have
        self._start = self._end = 0


def _open(whole: memoryview, owned: memoryview | None) -> Frame:
    """Split a whole frame; the payload is a view of `owned`, or a copy when there is no buffer of its own."""
    length, head_bytes = _WORDS.unpack_from(whole)
    middle = _WORDS.size + head_bytes
    if not head_bytes or middle > LENGTH_BYTES + length:
        raise WireError(f"a head of {head_bytes} bytes in a frame of {length}")
    head = bytes(whole[_WORDS.size : middle])
    if middle == len(whole):
        return _new(Frame, (head, _EMPTY))
    if owned is not None:
        return _new(Frame, (head, owned[middle:].toreadonly()))
    return _new(Frame, (head, memoryview(bytes(whole[middle:]))))
