import os
import tracemalloc

import pytest

from client.compression import (
    UNPACKED_BYTES_FREE,
    UNPACKED_BYTES_MAX,
    UNPACKED_RATIO_MAX,
    Codec,
    CompressionError,
    compress,
    compressed_flag,
    decompress,
    unpacked_bytes_max,
)
from remoting.codes import MessageSysFlag

BODIES = [b"", b"x", b"flight " * 5000, os.urandom(10_000)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("body", BODIES, ids=["empty", "one", "text", "random"])
def test_what_is_compressed_comes_back(codec: Codec, body: bytes) -> None:
    assert decompress(compress(body, codec), compressed_flag(codec)) == body


def test_the_flags_are_those_of_the_wire() -> None:
    assert [compressed_flag(codec) for codec in (Codec.LZ4, Codec.ZSTD, Codec.ZLIB)] == [0x101, 0x201, 0x301]


def test_zlib_without_a_codec_is_what_older_clients_send() -> None:
    assert decompress(compress(b"old" * 100), MessageSysFlag.COMPRESSED) == b"old" * 100


def test_a_plain_body_is_left_alone() -> None:
    assert decompress(b"plain", 0x300) == b"plain"


@pytest.mark.parametrize("codec", list(Codec))
def test_a_body_that_is_cut_short_is_refused(codec: Codec) -> None:
    packed = compress(BODIES[3], codec)
    for cut in (1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError):
            decompress(packed[:cut], compressed_flag(codec))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_small_body_that_unpacks_into_too_much_is_refused(codec: Codec) -> None:
    bomb = compress(bytes(4 * 1024 * 1024), codec)
    assert len(bomb) < 64 * 1024
    with pytest.raises(CompressionError, match="more than 1048576 bytes"):
        decompress(bomb, compressed_flag(codec), limit=1024 * 1024)


@pytest.mark.parametrize("codec", list(Codec))
def test_garbage_is_refused(codec: Codec) -> None:
    with pytest.raises(CompressionError):
        decompress(b"not compressed at all", compressed_flag(codec))


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(CompressionError, match="unknown codec 7"):
        decompress(b"x", 0x701)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_a_producer_may_send_by_default_is_unpacked_whatever_it_shrank_to(codec: Codec) -> None:
    body = bytes(UNPACKED_BYTES_FREE)
    assert decompress(compress(body, codec), compressed_flag(codec)) == body


@pytest.mark.parametrize("codec", list(Codec))
def test_beyond_that_a_body_unpacks_into_a_hundred_times_its_own_and_into_16_MiB(codec: Codec) -> None:
    """A body of 70 KB was 64 MiB in a consumer's memory, and 64 MiB were taken to find out what a few bytes are."""
    for size in (2 * UNPACKED_BYTES_FREE, 70 * 1024 * 1024):
        packed = compress(bytes(size), codec)
        tracemalloc.start()
        try:
            with pytest.raises(CompressionError, match="more than"):
                decompress(packed, compressed_flag(codec))
            with pytest.raises(CompressionError):
                decompress(packed[:20], compressed_flag(codec))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        most = max(UNPACKED_BYTES_FREE, UNPACKED_RATIO_MAX * len(packed))
        assert peak < 4 * min(most, UNPACKED_BYTES_MAX)


def test_how_much_a_body_may_unpack_into() -> None:
    assert [unpacked_bytes_max(size) for size in (0, 100, 100_000, 1 << 20)] == [4 << 20, 4 << 20, 10_000_000, 16 << 20]
