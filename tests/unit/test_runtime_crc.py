import random
import zlib

from runtime.crc import crc32


def test_it_is_the_CRC_of_zlib_whatever_the_length_and_where_the_bytes_stand() -> None:
    data = random.Random(32).randbytes(70_000)
    view = memoryview(data)
    for length in (0, 1, 3, 15, 16, 17, 63, 64, 65, 255, 256, 1000, 4096, 65_535):
        for start in (0, 1, 7, 4001):
            assert crc32(view[start : start + length]) == zlib.crc32(data[start : start + length])


def test_it_goes_on_from_a_CRC() -> None:
    data = random.Random(33).randbytes(5000)
    for cut in (0, 1, 64, 999, 5000):
        assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)
