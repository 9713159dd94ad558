"""Message bodies smaller: zlib, LZ4 and ZSTD as RocketMQ's sysFlag names them, both ways.

sysFlag 0x1 says that the body is compressed; bits 8 to 10 name the codec (0: zlib of clients before there was a
choice, 1 LZ4 frame format, 2 ZSTD, 3 zlib).
"""

import zlib
from enum import IntEnum

import lz4.frame
import zstandard

from remoting.codes import COMPRESSION_MASK, COMPRESSION_SHIFT, MessageSysFlag

# A compressed body may not unpack into more than the longest frame that could have brought it as it was, nor into more
# than so many times its own bytes: a small frame must not fill the memory of a consumer. What producers send by default
# (maxMessageSize, before compression) is allowed whatever it came from: a body of zeros shrinks to a thousandth.
UNPACKED_BYTES_MAX = 16 * 1024 * 1024
UNPACKED_RATIO_MAX = 100
UNPACKED_BYTES_FREE = 4 * 1024 * 1024
ZLIB_LEVEL = 5
# Of a frame whose header asks for more the decoder would allocate it.
_ZSTD_WINDOW_BYTES_MAX = 64 * 1024 * 1024
# What is given to ZSTD and taken from LZ4 at once; four bytes of ZSTD may be a block of 128 KiB.
_ZSTD_STEP_BYTES = 128
_LZ4_STEP_BYTES = 512 * 1024


class Codec(IntEnum):
    """How a body is compressed; the values are those of sysFlag bits 8 to 10."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


class CompressionError(Exception):
    """A body that says it is compressed cannot be unpacked."""


def compress(body: bytes, codec: Codec = Codec.ZLIB, level: int = ZLIB_LEVEL) -> bytes:
    """Return the body compressed; `level` is the codec's own (zlib 1 to 9, LZ4 0 to 16, ZSTD 1 to 22)."""
    if codec is Codec.ZLIB:
        return zlib.compress(body, level)
    if codec is Codec.LZ4:
        packed: bytes = lz4.frame.compress(body, compression_level=level)
        return packed
    return zstandard.ZstdCompressor(level=level).compress(body)


def compressed_flag(codec: Codec) -> int:
    """Return the sysFlag bits that tell a reader to unpack with `codec`."""
    return MessageSysFlag.COMPRESSED | codec << COMPRESSION_SHIFT


def unpacked_bytes_max(packed_bytes: int) -> int:
    """Return how many bytes a compressed body of that length may unpack into."""
    return min(UNPACKED_BYTES_MAX, max(UNPACKED_BYTES_FREE, UNPACKED_RATIO_MAX * packed_bytes))


def decompress(body: bytes, sys_flag: int, limit: int | None = None) -> bytes:
    """Return the body as it was before compression; as it is when sysFlag says that it is plain.

    Raises CompressionError when it is damaged or would unpack into more than `limit` bytes (None: what its length
    allows).
    """
    if not sys_flag & MessageSysFlag.COMPRESSED:
        return body
    if limit is None:
        limit = unpacked_bytes_max(len(body))
    codec = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    try:
        if codec in {0, Codec.ZLIB}:
            return _bounded(*_unzlib(body, limit), limit)
        if codec == Codec.LZ4:
            return _bounded(*_unlz4(body, limit), limit)
        if codec == Codec.ZSTD:
            return _bounded(*_unzstd(body, limit), limit)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise CompressionError(f"a body of {len(body)} bytes cannot be unpacked: {error}") from error
    raise CompressionError(f"sysFlag {sys_flag:#x} names an unknown codec {codec}")


def _unzlib(body: bytes, limit: int) -> tuple[bytes, bool, bool]:
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(body, limit)
    return plain, unpacker.eof, bool(unpacker.unconsumed_tail)


def _unlz4(body: bytes, limit: int) -> tuple[bytes, bool, bool]:
    # The library allocates what it may give out, before it knows whether there is so much.
    unpacker = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    left, rest = limit, body
    while left > 0:
        pieces.append(unpacker.decompress(rest, max_length=min(left, _LZ4_STEP_BYTES)))
        left, rest = left - len(pieces[-1]), b""
        if unpacker.eof or unpacker.needs_input:
            break
    return b"".join(pieces), unpacker.eof, not unpacker.needs_input


def _unzstd(body: bytes, limit: int) -> tuple[bytes, bool, bool]:
    # The library has no output limit; a few input bytes at a time keep what one step can unpack small.
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj()
    pieces: list[bytes] = []
    total = 0
    for start in range(0, len(body), _ZSTD_STEP_BYTES):
        pieces.append(unpacker.decompress(body[start : start + _ZSTD_STEP_BYTES]))
        total += len(pieces[-1])
        if total > limit:
            return b"", False, True
        if unpacker.eof:
            break
    return b"".join(pieces), unpacker.eof, False


def _bounded(plain: bytes, whole: bool, more: bool, limit: int) -> bytes:
    if whole:
        return plain
    if more:
        raise CompressionError(f"a body unpacks into more than {limit} bytes")
    raise CompressionError("a compressed body is cut short")
