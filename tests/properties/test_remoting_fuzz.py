"""Whatever arrives, only FrameError and HeaderError come out, memory stays bounded, and others are still served."""

import asyncio
import contextlib
import json
import struct
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remoting.codec import decode, encode
from remoting.codes import LanguageCode, ResponseCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.connection import Connection, Reply
from remoting.errors import FrameError, HeaderError
from remoting.framing import FrameReader
from remoting.headers import registry as headers
from remoting.headers.registry import REQUEST_HEADERS, Header, decode_header, encode_header
from remoting.server import RemotingServer

LIMIT = 4096


def recorded() -> list[bytes]:
    frames = []
    for path in sorted((Path(__file__).parents[1] / "golden" / "data").glob("frames-*.jsonl")):
        frames += [bytes.fromhex(json.loads(line)["frame"]) for line in path.read_text("utf-8").splitlines()]
    return [frame for frame in frames if len(frame) <= LIMIT]


GOLDEN = recorded()
HEADERS: list[type[Header]] = [
    kind
    for name in headers.__all__
    if isinstance(kind := getattr(headers, name), type) and issubclass(kind, Header) and kind is not Header
]

golden_frames = st.sampled_from(GOLDEN)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.integers(-(2**70), 2**70).map(str)
values = st.one_of(texts, numbers, st.sampled_from(["", "true", "false", "1", "0", "null", "1e9", "-0", "٣"]))


@st.composite
def mutated_frames(draw: st.DrawFn) -> bytes:
    """A recorded frame with some bytes overwritten, cut out or put in."""
    frame = bytearray(draw(golden_frames))
    for _ in range(draw(st.integers(1, 6))):
        position = draw(st.integers(0, max(len(frame) - 1, 0)))
        kind = draw(st.integers(0, 2))
        if kind == 0 and frame:
            frame[position] = draw(st.integers(0, 255))
        elif kind == 1:
            del frame[position : position + draw(st.integers(1, 20))]
        else:
            frame[position:position] = draw(st.binary(max_size=20))
    return bytes(frame)


@st.composite
def json_headers(draw: st.DrawFn) -> bytes:
    """A frame (without its length word) whose header is JSON of any shape under the names that matter."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats(allow_nan=False) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    )
    fields: dict[str, Any] = {}
    for name in draw(st.sets(st.sampled_from(["flag", "opaque", "version", "language", "remark", "extFields"]))):
        fields[name] = draw(anything)
    if draw(st.booleans()):
        fields["extFields"] = draw(st.dictionaries(st.sampled_from("abcdefghijklmn") | texts, anything, max_size=14))
    fields["code"] = draw(st.sampled_from([0, 10, 11, 14, 15, 310, 320, 361, 34]) | anything)
    text = json.dumps(fields).encode()
    return struct.pack(">I", len(text)) + text


def drain(data: bytes, cuts: list[int]) -> tuple[list[Command], FrameReader]:
    """Feed bytes in pieces; whatever comes out is looked at as a handler would."""
    reader = FrameReader(LIMIT)
    commands: list[Command] = []
    start = 0
    for stop in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        commands += reader.feed(data[start:stop])
        assert reader.buffered <= LIMIT + 4
        if reader.error is not None:
            assert isinstance(reader.error, FrameError)
            assert reader.buffered == 0
            break
        start = stop
    for command in commands:
        look_at(command)
    return commands, reader


def look_at(command: Command) -> None:
    cls = REQUEST_HEADERS.get(command.code)
    with contextlib.suppress(HeaderError):
        assert all(type(value) is str for value in command.ext.values())
        if cls is not None:
            command.header(cls)
    repr(command)
    with contextlib.suppress(HeaderError):
        decode(encode(command)[4:])


cuts = st.lists(st.integers(0, 1 << 16), max_size=6)


@given(st.binary(max_size=300), cuts)
def test_arbitrary_bytes_are_frames_or_a_frame_error(data: bytes, at: list[int]) -> None:
    drain(data, at)


@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 3), cuts)
def test_arbitrary_contents_under_right_lengths(contents: list[bytes], kind: int, at: list[int]) -> None:
    data = b"".join(struct.pack(">II", 4 + len(one), kind << 24 | len(one)) + one for one in contents)
    drain(data, at)


@given(st.lists(mutated_frames() | golden_frames, min_size=1, max_size=4), cuts)
def test_mutated_recordings(frames: list[bytes], at: list[int]) -> None:
    drain(b"".join(frames), at)


@given(mutated_frames())
def test_mutated_recordings_with_their_length_put_right(frame: bytes) -> None:
    content = frame[4:]
    drain(struct.pack(">I", len(content)) + content, [])


@given(st.lists(golden_frames, min_size=1, max_size=4), cuts)
def test_where_the_stream_is_split_changes_nothing(frames: list[bytes], at: list[int]) -> None:
    commands, reader = drain(b"".join(frames), at)
    assert reader.error is None
    assert reader.buffered == 0
    assert [encode(command) for command in commands] == [encode(decode(frame[4:])) for frame in frames]


@given(st.lists(golden_frames, max_size=3), st.binary(min_size=4, max_size=40), cuts)
def test_what_came_before_a_bad_frame_is_not_lost(frames: list[bytes], garbage: bytes, at: list[int]) -> None:
    commands, reader = drain(b"".join(frames) + b"\xff" + garbage, at)
    assert len(commands) == len(frames)
    assert reader.error is not None


@given(json_headers())
def test_json_of_any_shape_is_a_command_or_a_frame_error(frame: bytes) -> None:
    try:
        command = decode(frame)
    except FrameError:
        return
    look_at(command)


@given(st.sampled_from(HEADERS), st.data())
def test_every_header_class_raises_only_header_errors(cls: type[Header], data: st.DataObject) -> None:
    names = st.sampled_from(cls.__struct_encode_fields__) | texts if cls.__struct_encode_fields__ else texts
    ext = data.draw(st.dictionaries(names, values, max_size=16))
    try:
        header = decode_header(cls, ext)
    except HeaderError:
        return
    assert decode_header(cls, encode_header(header)) == header


@given(st.sampled_from(HEADERS), values)
def test_one_bad_value_in_any_field(cls: type[Header], value: str) -> None:
    ext = dict.fromkeys(cls.__struct_encode_fields__, value)
    with contextlib.suppress(HeaderError):
        decode_header(cls, ext)


@given(
    code=st.integers(-(2**31), 2**31 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    language=st.sampled_from(list(LanguageCode)),
    version=st.integers(0, 0x7FFF),
    remark=st.none() | texts.filter(bool),
    ext=st.dictionaries(texts, texts, max_size=6),
    body=st.binary(max_size=100),
    serialize_type=st.sampled_from([JSON, ROCKETMQ]),
)
def test_any_command_comes_back_as_it_was(
    code: int,
    opaque: int,
    flag: int,
    language: int,
    version: int,
    remark: str | None,
    ext: dict[str, str],
    body: bytes,
    serialize_type: int,
) -> None:
    command = Command(code, flag, opaque, language, version, remark, body, serialize_type, raw_ext=ext)
    read = decode(encode(command)[4:])
    assert (read.code, read.opaque, read.flag, read.language, read.version) == (code, opaque, flag, language, version)
    assert (read.remark, bytes(read.body)) == (remark, body)
    assert read.ext == ext


@given(st.lists(st.binary(min_size=1, max_size=200) | mutated_frames(), min_size=1, max_size=5))
def test_a_server_that_gets_garbage_still_answers_others(garbage: list[bytes]) -> None:
    asyncio.run(_garbage_beside_a_good_client(garbage))


async def _garbage_beside_a_good_client(garbage: list[bytes]) -> None:
    def echo(_: Connection, request: Command) -> Reply:
        return Command.response(ResponseCode.SUCCESS, body=request.body)

    server = RemotingServer({34: echo}, name="test")
    await server.start("127.0.0.1", 0)
    bad = []
    try:
        good_reader, good_writer = await asyncio.open_connection("127.0.0.1", server.port)
        bad.append(good_writer)
        for number, data in enumerate(garbage):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            bad.append(writer)
            writer.write(data)
            request = Command.request(34, body=b"%d" % number)
            good_writer.write(encode(request))
            length = struct.unpack(">i", await good_reader.readexactly(4))[0]
            answer = decode(await good_reader.readexactly(length))
            assert (answer.code, bytes(answer.body)) == (0, b"%d" % number)
    finally:
        for writer in bad:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await server.close()
