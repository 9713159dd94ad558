"""Frames recorded from RocketMQ 5.5.0 and its official clients: read, written again, and read to the same meaning."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remoting.codec import decode, encode
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.framing import FrameReader
from remoting.headers.registry import (
    REQUEST_HEADERS,
    Header,
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
    RegisterBrokerResponseHeader,
    SearchOffsetResponseHeader,
    SendMessageResponseHeader,
    encode_header,
)

FILES = sorted((Path(__file__).parent / "data").glob("frames-*.jsonl"))

RESPONSE_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageResponseHeader,
    RequestCode.PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetResponseHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetResponseHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerResponseHeader,
}

# Fields that official clients add to any request and that no header class declares: namespace, logical broker name,
# one-way and logical-topic marks, request type (5.x), ACL.
ANY_REQUEST = {"ns", "nsd", "bname", "oway", "lo", "ReqT", "AccessKey", "OnsChannel", "Signature", "SecurityToken"}
# Fields that RocketMQ adds to responses beside the header class.
ANY_RESPONSE = {"MSG_REGION", "TRACE_ON", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"}


@dataclass(frozen=True)
class Recorded:
    """One line of a recording."""

    request_code: int
    is_response: bool
    serialize_type: int
    opaque: int
    code: int
    oneway: bool
    frame: bytes


def recorded() -> Iterator[Recorded]:
    for path in FILES:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                yield Recorded(
                    fields["requestCode"],
                    fields["isResponse"],
                    fields["serializeType"],
                    fields["opaque"],
                    fields["code"],
                    bool(fields["oneway"]),
                    bytes.fromhex(fields["frame"]),
                )


ALL = list(recorded())


def meaning(command: Command) -> tuple[object, ...]:
    return (
        command.code,
        command.flag,
        command.opaque,
        command.language,
        command.version,
        command.remark,
        command.ext,
        bytes(command.body),
    )


def test_the_recordings_are_there() -> None:
    assert len(FILES) == 4
    assert len(ALL) == 368
    assert {one.serialize_type for one in ALL} == {JSON, ROCKETMQ}


def test_every_frame_reads_as_the_recording_says() -> None:
    for one in ALL:
        (command,) = FrameReader().feed(one.frame)
        assert (command.serialize_type, command.opaque) == (one.serialize_type, one.opaque)
        assert (command.code, command.is_response, command.is_oneway) == (one.code, one.is_response, one.oneway)
        assert command.code == one.request_code or command.is_response


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
def test_every_frame_written_again_means_the_same(serialize_type: int) -> None:
    for one in ALL:
        command = decode(one.frame[4:])
        if command.remark == "" and serialize_type == ROCKETMQ:
            command.remark = None  # the binary form knows no empty remark
        before = meaning(command)
        command.serialize_type = serialize_type
        again = decode(encode(command)[4:])
        assert again.serialize_type == (JSON if command.code > 0x7FFF else serialize_type)
        assert meaning(again) == before


def test_a_binary_frame_is_written_byte_for_byte_as_java_does() -> None:
    for one in ALL:
        if one.serialize_type == ROCKETMQ:
            assert encode(decode(one.frame[4:])) == one.frame


def test_every_request_decodes_into_its_declared_header_and_nothing_is_left_over() -> None:
    seen = set()
    for one in ALL:
        if one.is_response:
            continue
        command = decode(one.frame[4:])
        cls = REQUEST_HEADERS.get(command.code)
        known = ANY_REQUEST | (set(cls.__struct_encode_fields__) if cls else set())
        assert set(command.ext) <= known, (command, set(command.ext) - known)
        if cls is not None:
            assert_says_the_same(command, command.header(cls))
            seen.add(command.code)
    assert len(seen) == 20


def test_every_response_decodes_into_its_declared_header_and_nothing_is_left_over() -> None:
    seen = set()
    for one in ALL:
        if not one.is_response:
            continue
        command = decode(one.frame[4:])
        cls = RESPONSE_HEADERS.get(one.request_code)
        known = ANY_RESPONSE | (set(cls.__struct_encode_fields__) if cls else set())
        assert set(command.ext) <= known, (one.request_code, set(command.ext) - known)
        if cls is not None and command.ext:
            assert_says_the_same(command, command.header(cls))
            seen.add(one.request_code)
    assert seen == set(RESPONSE_HEADERS)


def assert_says_the_same(command: Command, header: Header) -> None:
    """What the header writes is what was read; booleans of the C++ client ("0", "1") are written as words."""
    words = {"0": "false", "1": "true"}
    for name, text in encode_header(header).items():
        original = command.ext.get(name)
        assert original in {None, text} or words.get(original or "") == text, (command, name, original, text)


def test_all_recorded_frames_of_one_direction_are_one_stream() -> None:
    stream = b"".join(one.frame for one in ALL)
    whole = [meaning(command) for command in FrameReader().feed(stream)]
    assert len(whole) == len(ALL)
    reader = FrameReader()
    split = []
    for position in range(0, len(stream), 1009):
        split += [meaning(command) for command in reader.feed(stream[position : position + 1009])]
    assert split == whole
