"""Commands and their frames: what goes in comes out, in both header forms, and what is no frame is refused."""

import struct
import tracemalloc
from typing import Any

import msgspec
import orjson
import pytest

from remoting import codec
from remoting.codec import FRAME_BYTES_MAX, HEADER_BYTES_MAX, decode, encode, encode_head
from remoting.codes import VERSION, LanguageCode, RequestCode, ResponseCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.errors import FrameError, HeaderError
from remoting.headers.base import FIELDS_MAX
from remoting.headers.registry import (
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

SEND = SendMessageRequestHeaderV2(
    producerGroup="group",
    topic="topic",
    defaultTopic="TBW102",
    defaultTopicQueueNums=4,
    queueId=3,
    sysFlag=0,
    bornTimestamp=1_795_217_434_515,
    flag=7,
    properties="KEYS\x01a b\x02TAGS\x01größe\x02",
)


def send_header(**changes: object) -> SendMessageRequestHeaderV2:
    return msgspec.structs.replace(SEND, **changes)


def json_frame(header: object, body: bytes = b"", tail: bytes = b"") -> bytes:
    """A frame without its length word, of any JSON value."""
    text = (header if isinstance(header, bytes) else orjson.dumps(header)) + tail
    return struct.pack(">I", len(text)) + text + body


def again(command: Command) -> Command:
    return decode(encode(command)[4:])


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
def test_a_request_survives_the_wire(serialize_type: int) -> None:
    request = Command.request(RequestCode.SEND_MESSAGE_V2, send_header(), b"body", ext={"extra": "ja"})
    request.serialize_type, request.opaque = serialize_type, 77
    read = again(request)
    assert (read.code, read.flag, read.opaque, read.remark) == (310, 0, 77, None)
    assert (read.language, read.version, read.serialize_type) == (LanguageCode.JAVA, VERSION, serialize_type)
    assert bytes(read.body) == b"body"
    assert read.header(SendMessageRequestHeaderV2) == send_header()
    assert read.ext == {**request.ext, "extra": "ja"}
    assert not read.is_response
    assert not read.is_oneway


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
def test_a_response_survives_the_wire(serialize_type: int) -> None:
    response = Command.response(ResponseCode.PULL_NOT_FOUND, "keine Nachricht ✓", body=b"\x00\xff")
    response.serialize_type, response.opaque = serialize_type, -1
    read = again(response)
    assert (read.code, read.opaque, read.remark) == (19, -1, "keine Nachricht ✓")
    assert read.is_response
    assert read.ext == {}
    assert bytes(read.body) == b"\x00\xff"


def test_oneway_is_a_flag_of_the_request() -> None:
    assert again(Command.request(15, oneway=True)).is_oneway


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reconsumeTimes": 3, "maxReconsumeTimes": 16, "bname": "broker-a", "unitMode": True, "batch": True},
        {"properties": None},
        {"topic": 'quote " backslash \\ newline \n'},
    ],
)
def test_the_template_of_a_send_says_what_the_general_way_says(changes: dict[str, object]) -> None:
    template = Command.request(310, send_header(**changes), b"b")
    general = Command.request(310, send_header(**changes), b"b")
    assert general.ext  # a command whose map has been looked at is written from the map
    assert again(template).ext == again(general).ext
    assert again(template).header(SendMessageRequestHeaderV2) == send_header(**changes)


def test_text_that_is_no_unicode_does_not_keep_the_answer_back() -> None:
    response = Command.response(1, "no file \udcff", ext={"path": "\udcff"})
    assert again(response).remark == "no file ?"
    assert again(response).ext == {"path": "?"}
    assert again(Command.request(310, send_header(topic="\udcff"))).ext["b"] == "?"


def test_a_code_over_16_bits_leaves_as_json() -> None:
    request = Command.request(200_050)
    request.serialize_type = ROCKETMQ
    assert again(request).serialize_type == JSON
    assert again(request).code == 200_050


def test_a_hot_header_is_decoded_once_and_its_map_is_still_there() -> None:
    read = again(Command.request(310, send_header(), ext={"AccessKey": "key"}))
    header = read.header(SendMessageRequestHeaderV2)
    assert read.header(SendMessageRequestHeaderV2) is header
    assert read.header(SendMessageRequestHeader) is header
    assert again(read).ext["AccessKey"] == "key"  # written again, it still has what no header declares
    assert read.ext["AccessKey"] == "key"
    assert read.ext["g"] == "1795217434515"


def test_a_body_in_pieces_is_one_body_on_the_wire() -> None:
    response = Command.response(0, body=[b"one", memoryview(b"two"), b""])
    assert response.body_bytes == 6
    assert bytes(again(response).body) == b"onetwo"


def test_a_head_leaves_the_body_to_the_caller() -> None:
    response = Command.response(0, body=b"12345")
    assert encode_head(response, 5) + b"12345" == encode(response)


def test_a_frame_over_the_limit_is_never_made() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        encode(Command.request(10, body=bytes(FRAME_BYTES_MAX)))


def test_what_official_clients_write_differently_is_understood() -> None:
    go = decode(json_frame({"code": 105, "language": "GO", "version": 317, "opaque": 1, "flag": 0, "remark": "",
                            "extFields": {"topic": "t"}}))  # fmt: skip
    assert (go.language, go.remark, go.header(GetRouteInfoRequestHeader).topic) == (LanguageCode.GO, "", "t")
    node = decode(json_frame({"code": 105, "opaque": 2, "extFields": {"topic": 12, "flag": True, "none": None}}))
    assert node.ext == {"topic": "12", "flag": "true"}
    assert (node.language, node.flag, node.remark) == (LanguageCode.JAVA, 0, None)
    cpp = decode(json_frame({"code": 105, "language": "CPP", "extFields": {"topic": "t"}}, tail=b"\n"))
    assert cpp.language == LanguageCode.CPP
    assert decode(json_frame({"code": 34, "language": "KLINGON"})).language == LanguageCode.OTHER
    assert decode(json_frame({"code": 34, "extFields": {"deep": [1, {"a": 2}], "f": 1.5}})).ext == {
        "deep": '[1,{"a":2}]',
        "f": "1.5",
    }
    assert decode(json_frame({"code": "34", "opaque": "-5"})).opaque == -5


def test_the_cpp_clients_pull_is_decoded_straight_into_its_header() -> None:
    ext = {
        "commitOffset": "0",
        "consumerGroup": "g",
        "maxMsgNums": 32,
        "queueId": 0,
        "queueOffset": "9",
        "subVersion": "1",
        "subscription": "*",
        "suspendTimeoutMillis": "15000",
        "sysFlag": 6,
        "topic": "t",
        "AccessKey": "",
    }
    read = decode(json_frame({"code": 11, "opaque": 3, "extFields": ext}, tail=b"\n"))
    assert isinstance(read.typed_header, PullMessageRequestHeader)
    assert (read.typed_header.queueOffset, read.typed_header.maxMsgNums) == (9, 32)


def test_a_response_whose_code_is_a_hot_request_code_is_no_request() -> None:
    read = decode(json_frame({"code": 10, "flag": 1, "opaque": 3, "extFields": {"msgId": "x"}}))
    assert (read.code, read.is_response, read.ext) == (10, True, {"msgId": "x"})


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"code":"x"}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":4294967296}',
        b'{"code":1,"opaque":"--1"}',
        b'{"code":1,"opaque":2147483648}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":{"a":"\xff"}}',
        b'{"code":310,"opaque":1,"extFields":{"a":"\\ud800"}}',
        b'{"code":1,"extFields":' + b"[" * 5000,
    ],
)
def test_a_json_header_that_is_none_is_a_frame_error(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode(json_frame(header))


def test_a_hot_request_with_a_missing_field_is_the_callers_error_not_the_frames() -> None:
    read = decode(json_frame({"code": 310, "opaque": 1, "extFields": {"a": "g"}}))
    with pytest.raises(HeaderError, match=r"^the custom field <b> is null$"):
        read.header(SendMessageRequestHeaderV2)


def binary(fixed: bytes, remark: bytes = b"", ext: bytes = b"", *, remark_length: int | None = None) -> bytes:
    header = fixed + struct.pack(">i", len(remark) if remark_length is None else remark_length) + remark
    header += struct.pack(">i", len(ext)) + ext
    return struct.pack(">I", ROCKETMQ << 24 | len(header)) + header


FIXED = struct.pack(">hBhii", 34, 9, 317, 5, 0)


def test_the_binary_header_is_laid_out_as_rocketmq_does() -> None:
    read = decode(binary(FIXED, b"hm", struct.pack(">h1si2s", 1, b"a", 2, b"xy")))
    assert (read.code, read.language, read.version, read.opaque, read.remark) == (34, 9, 317, 5, "hm")
    assert read.ext == {"a": "xy"}
    assert decode(binary(FIXED)).remark is None


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">I", ROCKETMQ << 24),
        binary(FIXED, remark_length=-1),
        binary(FIXED, remark_length=1 << 30),
        binary(FIXED, b"\xff"),
        binary(FIXED, ext=b"\x00"),
        binary(FIXED, ext=struct.pack(">h", -1)),
        binary(FIXED, ext=struct.pack(">h1si", 1, b"a", 9)),
        binary(FIXED, ext=struct.pack(">h1si", 1, b"a", -9)),
        binary(FIXED, ext=struct.pack(">h1si1s", 1, b"a", 1, b"\xff")),
        binary(FIXED)[:-4],
        struct.pack(">I", 2 << 24),
        struct.pack(">I", 100),
        b"\x00\x00",
    ],
)
def test_a_binary_header_that_is_none_is_a_frame_error(frame: bytes) -> None:
    with pytest.raises(FrameError):
        decode(frame)


def test_a_command_shows_itself_without_its_body() -> None:
    assert repr(Command.response(17, "no topic", body=b"secret")) == "<response code=17 opaque=0 'no topic' body=6>"


def frame_of(fields: int, filler: int = 0) -> bytes:
    header = orjson.dumps({"code": 105, "extFields": {f"k{n}": "v" for n in range(fields)} | {"f": "x" * filler}})
    return len(header).to_bytes(4, "big") + header


def binary_frame(fields: int) -> bytes:
    ext = b"".join(b"\x00\x04%04d\x00\x00\x00\x01v" % n for n in range(fields))
    header = struct.pack(">hBhiii", 105, 0, 1, 7, 0, 0) + len(ext).to_bytes(4, "big") + ext
    return (1 << 24 | len(header)).to_bytes(4, "big") + header


def test_a_header_is_bounded_in_bytes_and_fields() -> None:
    assert len(decode(frame_of(FIELDS_MAX - 1)).ext) == FIELDS_MAX
    assert len(decode(binary_frame(FIELDS_MAX)).ext) == FIELDS_MAX
    for frame in (frame_of(FIELDS_MAX), binary_frame(FIELDS_MAX + 1)):
        with pytest.raises(FrameError, match="custom fields"):
            decode(frame)
    empty = len(frame_of(0)) - 4
    assert decode(frame_of(0, HEADER_BYTES_MAX - empty)).code == 105
    with pytest.raises(FrameError, match=f"a header of {HEADER_BYTES_MAX + 1} bytes"):
        decode(frame_of(0, HEADER_BYTES_MAX - empty + 1))
    with pytest.raises(FrameError, match="with a header of"):
        encode(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": "x" * HEADER_BYTES_MAX}))


@pytest.mark.parametrize("field", [b'"remark":%b', b'"language":%b', b'"extFields":{"a":%b}'])
@pytest.mark.parametrize("depth", [300, 1000])
def test_a_header_with_values_inside_one_another_is_read_or_a_frame_error(field: bytes, depth: int) -> None:
    """Beyond 254 of them it was a TypeError, which no reader of frames expects."""
    header = b'{"code":9,' + field % (b"[" * depth + b"]" * depth) + b"}"
    if depth < 500:
        assert decode(len(header).to_bytes(4, "big") + header).code == 9
    else:
        with pytest.raises(FrameError, match="deep"):
            decode(len(header).to_bytes(4, "big") + header)


def test_a_header_of_many_values_takes_no_more_than_32_times_its_bytes() -> None:
    header = b'{"code":9,"remark":[' + b"0," * 32_000 + b"0]}"
    frame = len(header).to_bytes(4, "big") + header
    decode(frame)
    tracemalloc.start()
    try:
        assert decode(frame).remark is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * len(header)


@pytest.mark.parametrize(
    "fields",
    [
        {"code": 310, "extFields": {"b": "t", "i": "ü\u0001x\u0002", "e": "7"}},
        {"code": 11, "opaque": 3, "version": 399, "language": "CPP", "flag": 2, "extFields": {"queueId": 0, "n": None}},
        {"code": "34", "opaque": "-5", "extFields": {"flag": True, "deep": [1, {"a": 2}]}},
        {"code": 310, "remark": "r", "language": "KLINGON", "extFields": {}},
    ],
)
def test_a_signed_header_is_decoded_as_any_other_and_keeps_every_field(fields: dict[str, Any]) -> None:
    signed = {**fields, "extFields": {**fields["extFields"], "AccessKey": "k", "Signature": "s"}}
    read, plain = decode(json_frame(signed)), codec._decode_json(orjson.dumps(signed), b"")
    assert read.ext == plain.ext
    assert read.ext["Signature"] == "s"
    for name in ("code", "flag", "opaque", "version", "language", "remark", "body"):
        assert getattr(read, name) == getattr(plain, name)


def test_a_signed_header_is_bounded_in_fields() -> None:
    many = {"Signature": "s", **{str(at): "" for at in range(FIELDS_MAX)}}
    with pytest.raises(FrameError, match="custom fields"):
        decode(json_frame({"code": 310, "extFields": many}))
