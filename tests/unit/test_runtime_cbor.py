"""runtime/cbor.py: what cbor2 writes of plain values is read, and nothing else costs more than its own bytes."""

import time
import tracemalloc
from typing import Any

import cbor2
import pytest

from raft.network.handshake import Acceptor, HandshakeRefused, Identity
from raft.protocol.messages import MessageError, decode
from runtime.cbor import DEPTH_MAX, CborError, read_cbor

# (a+)+b against aaa…: compiled by cbor2 when it meets tag 35; this many of them took seconds.
PATTERN = cbor2.dumps(cbor2.CBORTag(35, "(" * 60 + "a" + "+)" * 60))
BIGNUM = b"\xc2\x5b" + (100_000).to_bytes(8, "big") + b"\x7f" * 100_000


def nested(depth: int) -> bytes:
    return b"\x81" * depth + b"\x00"


@pytest.mark.parametrize(
    "value",
    [
        0, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1, -1, -24, -25, -(1 << 64),
        b"", b"x" * 300, "", "größer", "x" * 70_000, True, False, None, [], {}, [[[[]]], {}],
        {"a": 1, 2: [b"x", None], "m": {"n": {}}}, list(range(1000)),
    ],
)  # fmt: skip
def test_what_cbor2_writes_is_read(value: Any) -> None:
    assert read_cbor(cbor2.dumps(value), 2000) == value
    assert read_cbor(memoryview(cbor2.dumps(value)), 2000) == value
    assert type(read_cbor(cbor2.dumps(value), 2000)) is type(value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends after 0 bytes"),
        (b"\x19\x01", "ends after 2 bytes"),
        (b"\x1b\x01", "ends after 2 bytes"),
        (b"\x82\x01", "2 values are too many here"),
        (b"\x82\x18\x01", "ends after 3 bytes"),
        (b"\x00\x00", "1 bytes stand behind"),
        (b"\x43ab", "3 bytes are said to follow, there are 2"),
        (b"\x5b" + b"\xff" * 8, "bytes are said to follow"),
        (b"\x9b" + b"\xff" * 8, "too many"),
        (b"\xbb" + b"\xff" * 8, "too many"),
        (b"\x62\xc3\x28", "no UTF-8"),
        (cbor2.dumps(1.5), "a float"),
        (cbor2.dumps(cbor2.undefined), "has no place here"),
        (b"\xe0", "has no place here"),
        (b"\xf8\xff", "has no place here"),
        (b"\x9f\x01\xff", "without a length"),
        (b"\x5f\x41a\xff", "without a length"),
        (b"\xff", "without a length"),
        (b"\x1c", "without a length"),
        (PATTERN, "a tag"),
        (BIGNUM, "a tag"),
        (cbor2.dumps([cbor2.CBORTag(28, [])]), "a tag"),
        (b"\xa1\x80\x00", "a key is a text or an integer, not list"),
        (b"\xa1\xf5\x00", "a key is a text or an integer, not bool"),
        (b"\xa2\x01\x00\x01\x00", "a key stands twice"),
        (nested(DEPTH_MAX + 1), "inside one another"),
        (cbor2.dumps(list(range(20))), "too many"),
        (cbor2.dumps([[1] * 9, [1] * 9]), "too many"),
    ],
)  # fmt: skip
def test_what_else_it_may_be_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(CborError, match=why):
        read_cbor(data, 20)


def test_as_deep_and_as_many_as_allowed_is_read() -> None:
    assert read_cbor(nested(DEPTH_MAX), DEPTH_MAX + 1) == [[[[[[[[0]]]]]]]]
    assert read_cbor(cbor2.dumps({1: 2, 3: 4}), 5) == {1: 2, 3: 4}
    with pytest.raises(CborError):
        read_cbor(cbor2.dumps({1: 2, 3: 4}), 4)


@pytest.mark.parametrize(
    "data",
    [
        b"\x99\xff\xfa" + b"\x80" * 65_530,
        b"\x99\xff\xfa" + b"\xa0" * 65_530,
        b"\x99\x7f\xfd" + b"\x61a" * 32_765,
        b"\x9a\x00\x01\x00\x00" + b"\x1b" * 65_536,
        PATTERN * 400,
        BIGNUM[:65_535],
    ],
)
def test_the_worst_costs_no_more_than_its_bytes(data: bytes) -> None:
    """1 ms a KiB, and 32 times the bytes and a MiB: at the default bounds it is some hundred times less."""
    tracemalloc.start()
    try:
        began = time.process_time()
        with pytest.raises(CborError):
            read_cbor(data + b"\x00", 20_000)
        seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seconds <= len(data) / 1024 / 1000
    assert peak <= 32 * len(data) + (1 << 20)


@pytest.mark.parametrize("data", [PATTERN, b"\x81" + PATTERN, b"\xa1\x61t" + PATTERN, b"\xa1\x61t" + BIGNUM])
def test_a_stranger_with_a_tag_is_refused_before_it_is_looked_at(data: bytes) -> None:
    identity = Identity("g", "n0", (b"s" * 32,), lambda: b"hello")
    acceptor = Acceptor(identity, b"n" * 32, lambda *_: None)
    with pytest.raises(HandshakeRefused, match="no handshake of ours"):
        acceptor.take(data)
    with pytest.raises(MessageError):
        decode(data)


@pytest.mark.parametrize("item", [b"\x80", b"\xa0", b"\xa1\x00\x00", b"\x81\x00"])
def test_what_is_nearly_all_arrays_and_maps_is_refused(item: bytes) -> None:
    """An empty array of one byte takes 64 bytes and its place: 4 MiB of them, an entry of META, took 300 MB."""
    count = 200_000
    data = b"\x9a" + count.to_bytes(4, "big") + item * count
    tracemalloc.start()
    try:
        with pytest.raises(CborError, match="so few bytes"):
            read_cbor(data, 10 * count)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 32 * len(data) + (1 << 20)


def test_rows_of_little_numbers_are_read_however_many() -> None:
    rows = [[f"t{number}@g", 0, number, False] for number in range(50_000)]
    assert read_cbor(cbor2.dumps(rows), 500_000) == rows
    assert read_cbor(cbor2.dumps([[1, {}]] * 300), 2000) == [[1, {}]] * 300
    topics = [[f"topic-{number}", 4, 4, 6, "SINGLE_TAG", 0, False, {}] for number in range(10_000)]
    assert read_cbor(cbor2.dumps(topics), 200_000) == topics
