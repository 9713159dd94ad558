"""Bytes in, commands out: cutting a TCP stream into frames, without any I/O."""

import struct
import sys
from collections.abc import Callable
from typing import cast

from remoting.codec import FRAME_BYTES_MAX, HEADER_LENGTH_MASK, decode_parts
from remoting.command import Body, Command
from remoting.errors import FrameError
from remoting.runs import Cut

Decode = Callable[[int, bytes, Body], Command]

_WORDS = struct.Struct(">II")
_LENGTH_BYTES = 4
_ALL = sys.maxsize
# Bodies from this size on are handed out as views of the received bytes; below it a copy is cheaper than a view, and
# does not keep a whole read alive.
VIEW_BYTES_MIN = 16 * 1024

# What people point at this port by mistake, by its first four bytes.
_STRANGERS = (
    (b"\x16", "a TLS handshake; TLS is not served here"),
    (b"PROX", "a HAProxy version 1 preamble; send none"),
    (b"\r\n\r\n", "a HAProxy version 2 preamble; send none"),
    (b"GET ", "HTTP; the HTTP port is another one"),
    (b"POST", "HTTP; the HTTP port is another one"),
    (b"HEAD", "HTTP; the HTTP port is another one"),
)


class FrameReader:
    """Cuts one connection's stream into commands.

    Whole frames are decoded straight from the bytes received; only an unfinished frame is kept, so `buffered` never
    exceeds the limit (bytes of one frame) by more than its length word, and a claimed length allocates nothing.
    Of many commands in one read only some may be wanted at once: the rest stays as it came until `more` is called.
    After each `feed` or `more` look at `error`: when it is set, the commands returned came before the bad frame and
    deserve an answer, but nothing behind them can be read any more and the connection must be closed.
    """

    def __init__(self, limit: int = FRAME_BYTES_MAX, decode: Decode = decode_parts) -> None:
        """`decode` makes a command of a serialize type, a header and a body."""
        self._limit = limit
        self.rest = bytearray()
        """What there is of a frame that is not there in full."""
        self.held = b""
        """What holds `unread` bytes; empty when there are none."""
        self._at = 0
        self.error: FrameError | None = None
        self.decode = decode
        """May be another one from now on: what knows more of this connection may be quicker."""
        self.cuts: Cut | None = None
        """What cuts runs, for who serves them, and decodes as decode_parts."""

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not there in full."""
        return len(self.rest)

    @property
    def unread(self) -> int:
        """Bytes that wait for `more`."""
        return len(self.held) - self._at

    def feed(self, data: bytes, most: int = _ALL) -> list[Command]:
        """Return the commands that these bytes complete, at most so many and one.

        FrameError when an earlier call has already set `error`.
        """
        if self.error is not None:
            raise self.error
        if self.held:
            self.held, self._at = self.held[self._at :] + data, 0
            return self.more(most)
        commands: list[Command] = []
        size = len(data)
        try:
            if not self.rest and size >= 8:
                # Just one, as of a client that waits for each answer: no loop, no call.
                length, word = _WORDS.unpack_from(data)
                middle = 8 + (word & HEADER_LENGTH_MASK)
                if length + _LENGTH_BYTES == size >= middle and length <= self._limit:
                    body = data[middle:] if size - middle < VIEW_BYTES_MIN else memoryview(data)[middle:]
                    return [self.decode(word >> 24, data[8:middle], body)]
            position = self._complete(data, commands) if self.rest else 0
            self._cut(data, position, commands, most)
        except FrameError as error:
            self._fail(error)
        return commands

    def more(self, most: int = _ALL) -> list[Command]:
        """Return the next commands of what was fed already."""
        data, position, commands = self.held, self._at, list[Command]()
        self.held, self._at = b"", 0
        try:
            self._cut(data, position, commands, most)
        except FrameError as error:
            self._fail(error)
        return commands

    def _fail(self, error: FrameError) -> None:
        self.error = error
        self.rest = bytearray()

    def _cut(self, data: bytes, position: int, commands: list[Command], most: int) -> None:
        """Decode so many frames of `data` from `position` on; what is no whole frame begins the next one."""
        limit, decode, cut = self._limit, self.decode, self.cuts
        end = len(data)
        while most > 0:
            if end - position < 8:
                break
            if cut is not None and (run := cut(data, position, most, limit)) is not None:
                # Who serves it knows it by its code.
                commands.append(cast(Command, run))
                position += len(run.rows.data)
                most -= len(run)
                continue
            length, word = _WORDS.unpack_from(data, position)
            if not _LENGTH_BYTES <= length <= limit:
                break
            stop = position + _LENGTH_BYTES + length
            if stop > end:
                break
            start = position + 8
            middle = start + (word & HEADER_LENGTH_MASK)
            if middle > stop:
                raise FrameError(f"a header of {middle - start} bytes in a frame of {length}")
            body = data[middle:stop] if stop - middle < VIEW_BYTES_MIN else memoryview(data)[middle:stop]
            commands.append(decode(word >> 24, data[start:middle], body))
            position = stop
            most -= 1
        else:
            if position < end:
                self.held, self._at = data, position
            return
        if position < end:
            if end - position >= _LENGTH_BYTES:
                self._check(data[position : position + _LENGTH_BYTES])
            self.rest += memoryview(data)[position:]

    def _complete(self, data: bytes, commands: list[Command]) -> int:
        """Add to the unfinished frame what belongs to it; return how many bytes of `data` that took."""
        rest = self.rest
        taken = 0
        if len(rest) < _LENGTH_BYTES:
            taken = _LENGTH_BYTES - len(rest)
            rest += data[:taken]
            if len(rest) < _LENGTH_BYTES:
                return len(data)
            self._check(bytes(rest))
        missing = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big") - len(rest)
        stop = taken + missing
        rest += memoryview(data)[taken:stop]
        if stop > len(data):
            return len(data)
        self.rest = bytearray()
        self._cut(bytes(rest), 0, commands, 1)
        return stop

    def _check(self, word: bytes) -> None:
        """Refuse a length before anything is kept for it."""
        length = int.from_bytes(word, "big")
        if _LENGTH_BYTES <= length <= self._limit:
            return
        for magic, what in _STRANGERS:
            if word.startswith(magic):
                raise FrameError(f"no frame but {what}")
        raise FrameError(f"a frame of {length} bytes; from {_LENGTH_BYTES} to {self._limit} are accepted")
