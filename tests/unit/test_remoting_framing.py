"""Cutting a stream into frames: any split, any size, bounded memory, and strangers told apart."""

import struct

import pytest

from remoting.codec import encode
from remoting.command import Command
from remoting.errors import FrameError
from remoting.framing import VIEW_BYTES_MIN, FrameReader


def frame(code: int = 34, body: bytes = b"") -> bytes:
    return encode(Command.request(code, body=body))


STREAM = frame(1, b"one") + frame(2) + frame(3, b"three" * 100)


def codes(commands: list[Command]) -> list[int]:
    return [command.code for command in commands]


def test_all_whole_frames_of_a_read_come_at_once() -> None:
    reader = FrameReader()
    commands = reader.feed(STREAM)
    assert codes(commands) == [1, 2, 3]
    assert [bytes(command.body) for command in commands] == [b"one", b"", b"three" * 100]
    assert reader.buffered == 0


@pytest.mark.parametrize("size", range(1, 40))
def test_frames_may_be_split_anywhere(size: int) -> None:
    reader = FrameReader()
    commands: list[Command] = []
    for position in range(0, len(STREAM), size):
        commands += reader.feed(STREAM[position : position + size])
    assert codes(commands) == [1, 2, 3]
    assert bytes(commands[2].body) == b"three" * 100
    assert reader.buffered == 0


def test_a_half_frame_is_kept_and_nothing_more() -> None:
    reader = FrameReader()
    assert codes(reader.feed(STREAM + frame(4)[:10])) == [1, 2, 3]
    assert reader.buffered == 10
    assert codes(reader.feed(frame(4)[10:])) == [4]
    assert reader.buffered == 0


def test_a_large_body_is_a_view_of_the_bytes_received() -> None:
    data = frame(10, b"x" * VIEW_BYTES_MIN)
    (command,) = FrameReader().feed(data)
    assert isinstance(command.body, memoryview)
    assert command.body.obj is data
    (small,) = FrameReader().feed(frame(10, b"x" * (VIEW_BYTES_MIN - 1)))
    assert isinstance(small.body, bytes)


def test_a_length_over_the_limit_is_refused_before_anything_is_kept() -> None:
    reader = FrameReader(limit=1000)
    assert codes(reader.feed(frame(1) + struct.pack(">I", 1001))) == [1]
    assert isinstance(reader.error, FrameError)
    assert reader.buffered == 0
    with pytest.raises(FrameError, match="1001 bytes"):
        reader.feed(b"more")


def test_a_frame_of_exactly_the_limit_passes() -> None:
    data = frame(1, b"x" * 500)
    reader = FrameReader(limit=len(data) - 4)
    assert codes(reader.feed(data)) == [1]
    reader = FrameReader(limit=len(data) - 5)
    assert reader.feed(data) == []
    assert reader.error is not None


def test_a_claimed_length_allocates_nothing() -> None:
    reader = FrameReader()
    assert reader.feed(struct.pack(">I", 16 * 1024 * 1024) + b"x") == []
    assert reader.error is None
    assert reader.buffered == 5


@pytest.mark.parametrize("length", [0, 3])
def test_a_length_without_room_for_the_header_word_is_refused(length: int) -> None:
    for data in (struct.pack(">I", length), struct.pack(">IQ", length, 0)):
        reader = FrameReader()
        reader.feed(data)
        assert reader.error is not None


def test_a_header_longer_than_its_frame_is_refused() -> None:
    reader = FrameReader()
    assert codes(reader.feed(frame(1) + struct.pack(">II", 10, 7) + bytes(6) + frame(2))) == [1]
    assert "a header of 7 bytes in a frame of 10" in str(reader.error)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"PROXY TCP4 1.2.3.4", "HAProxy version 1"),
        (b"\r\n\r\n\x00\r\nQUIT\n", "HAProxy version 2"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
    ],
)
def test_strangers_are_told_what_they_are(data: bytes, what: str) -> None:
    for size in (len(data), 1):
        reader = FrameReader()
        for position in range(0, len(data), size):
            if reader.error is None:
                reader.feed(data[position : position + size])
        assert reader.error is not None
        assert what in str(reader.error)
