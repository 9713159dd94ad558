"""Frames between members: any cut of the stream gives the same frames, and bad ones cost nothing."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.protocol.messages import (
    HEAD_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    MessageKind,
    RaftMessage,
    append,
    decode,
    entries_of,
)
from raft.protocol.types import Entry
from raft.protocol.wire import (
    FRAME_BYTES_MAX,
    KEEPALIVE,
    READ_BYTES,
    Frame,
    RaftFrameReader,
    WireError,
    frame,
    frame_message,
)


def joined(head: bytes, payload: bytes = b"") -> bytes:
    pieces, size = frame(head, (payload,) if payload else ())
    data = b"".join(pieces)
    assert len(data) == size
    return data


def feed(reader: RaftFrameReader, data: bytes, cuts: list[int] | None = None) -> list[Frame]:
    """Give the reader `data` in pieces of the sizes `cuts`, over and over, or in as large ones as it takes."""
    frames: list[Frame] = []
    position = turn = 0
    while position < len(data) and reader.error is None:
        room = reader.buffer()
        assert len(room) > 0
        size = min(len(room), len(data) - position, cuts[turn % len(cuts)] if cuts else len(data))
        room[:size] = data[position : position + size]
        frames += reader.filled(size)
        position += size
        turn += 1
    return frames


SIZES = [0, 1, 100, READ_BYTES - 20, READ_BYTES - 6, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES]


@given(
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from(SIZES)), max_size=6),
    st.lists(st.sampled_from([1, 2, 3, 5, 4096, READ_BYTES - 1, READ_BYTES, 10**9]), min_size=1, max_size=4),
)
def test_any_cut_of_the_stream_gives_the_same_frames(shapes: list[tuple[int, int]], cuts: list[int]) -> None:
    rng = random.Random(len(shapes))
    wanted = [(rng.randbytes(head), rng.randbytes(payload)) for head, payload in shapes]
    stream = KEEPALIVE.join([b"", *(joined(*one) for one in wanted), b""])
    if min(cuts) < 10:
        cuts = [*cuts, READ_BYTES // 3]
    reader = RaftFrameReader(FRAME_BYTES_MAX)
    frames = feed(reader, stream, cuts)
    assert reader.error is None
    assert [(head, bytes(payload)) for head, payload in frames] == wanted
    assert reader.buffered == 0


def test_frames_keep_what_they_hold_when_the_reader_goes_on() -> None:
    reader = RaftFrameReader(FRAME_BYTES_MAX)
    small, large = b"s" * 1000, b"l" * (2 * READ_BYTES)
    frames = feed(reader, joined(b"1", small) + joined(b"2", large))
    feed(reader, joined(b"3", b"x" * 1000) + joined(b"4", b"y" * (2 * READ_BYTES)))
    assert [bytes(one.payload) for one in frames] == [small, large]
    assert all(one.payload.readonly for one in frames)


def test_a_long_payload_is_received_in_place() -> None:
    reader = RaftFrameReader(FRAME_BYTES_MAX)
    data = joined(b"h", b"p" * (4 * READ_BYTES))
    assert feed(reader, data[:1000]) == []
    # From here on what comes is asked for at its final place, exactly to the frame's end.
    assert len(reader.buffer()) == len(data) - 1000
    (only,) = feed(reader, data[1000:])
    assert bytes(only.payload) == b"p" * (4 * READ_BYTES)


def test_a_message_with_entries_comes_through() -> None:
    entries = [Entry(7, 2, 100, b"a" * 10), Entry(8, 2, 110, memoryview(b"b" * READ_BYTES * 2))]
    pieces, size = frame_message(append(2, 1, (6, 1), 5, entries))
    assert any(piece is entries[1].data for piece in pieces), "the payload is not copied"
    (only,) = feed(RaftFrameReader(FRAME_BYTES_MAX), b"".join(pieces))
    message = decode(only.head, only.payload)
    assert message.kind is MessageKind.APPEND
    assert size == sum(map(len, pieces))
    assert [entry._replace(data=bytes(entry.data)) for entry in entries_of(message)] == [
        entry._replace(data=bytes(entry.data)) for entry in entries
    ]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", FRAME_BYTES_MAX + 1),
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 1) + b"x",
        struct.pack(">IH", 2, 0),
        struct.pack(">IH", 10, 0) + b"01234567",
        struct.pack(">IH", 10, 9) + b"01234567",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00" + bytes(100),
    ],
)
def test_garbage_is_an_error_and_what_came_before_it_is_not_lost(data: bytes) -> None:
    reader = RaftFrameReader(FRAME_BYTES_MAX)
    frames = feed(reader, joined(b"good", b"one") + data)
    assert [one.head for one in frames] == [b"good"]
    assert isinstance(reader.error, WireError)
    with pytest.raises(AssertionError):
        reader.filled(1)


def test_before_the_handshake_a_long_frame_is_refused_by_its_length_alone() -> None:
    reader = RaftFrameReader()
    assert feed(reader, struct.pack(">I", 1_000_000)) == []
    assert reader.error is not None
    assert "1000000 bytes" in str(reader.error)


def test_a_bad_head_length_in_a_long_frame_is_an_error_too() -> None:
    reader = RaftFrameReader(FRAME_BYTES_MAX)
    feed(reader, struct.pack(">IH", READ_BYTES * 2, 0) + bytes(READ_BYTES * 2 - 2))
    assert reader.error is not None


def test_what_is_too_long_is_not_framed() -> None:
    with pytest.raises(WireError):
        frame(b"h" * (HEAD_BYTES_MAX + 1))
    with pytest.raises(WireError):
        frame(b"h", (bytes(PAYLOAD_BYTES_MAX), b"x"))
    _, size = frame_message(
        RaftMessage(MessageKind.RESET_MANIFEST, {"token": 1, "ok": True, "why": ""}, (bytes(PAYLOAD_BYTES_MAX),))
    )
    assert size <= 4 + FRAME_BYTES_MAX
