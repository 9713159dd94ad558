import os

import pytest

from client.compression import Codec, CompressionError, compress, compressed_flag, decompress
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
