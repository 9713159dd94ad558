"""Frames to commands and back.

A frame is: int32 length of what follows; int32 whose high byte is the serialize type and whose low 24 bits are the
header's length; the header; the body. Integers are big-endian. Serialize type 0 is a JSON header, 1 RocketMQ's binary
one (`codec_binary`). Headers of the hot requests are decoded by msgspec straight into their typed class, which is three
times as fast as a map of strings that is converted later.
"""

import re
import struct
from typing import Any, ClassVar

import msgspec
import orjson

from remoting.codec_binary import decode_binary_header, encode_binary_header
from remoting.codes import LanguageCode
from remoting.command import JSON, ROCKETMQ, Body, Command
from remoting.errors import FrameError, HeaderError
from remoting.headers.base import FIELDS_MAX, Header, Int, read_ext, text_of
from remoting.headers.consume import (
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.headers.signed import SignedSend

# RocketMQ's own default limit (com.rocketmq.remoting.frameMaxLength): what is longer, its peers refuse as well.
FRAME_BYTES_MAX = 16 * 1024 * 1024
# The header's length has 24 bits; so much of them is read and written. The longest that is of use is a send's with the
# 32,767 bytes of properties that a record can hold.
HEADER_LENGTH_MASK = 0xFFFFFF
HEADER_BYTES_MAX = 64 * 1024

_WORDS = struct.Struct(">II")
_SEND_TEMPLATE = (
    b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"%d","g":"%d","h":"%d","k":"%b","m":"%b"%b},'
    b'"flag":%d,"language":"%b","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_INT32 = range(-(2**31), 2**31)
_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)

_LANGUAGE_NUMBERS = {language.name: int(language) for language in LanguageCode}
_LANGUAGE_NAMES = {int(language): language.name for language in LanguageCode}
_JAVA = int(LanguageCode.JAVA)
_OTHER = int(LanguageCode.OTHER)


class _Hot(msgspec.Struct, tag_field="code", gc=False):
    """JSON header of a hot request; the subclass is chosen by its code."""

    opaque: Int
    flag: Int = 0
    version: Int = 0
    language: str = "JAVA"
    remark: str | None = None


class _Send(_Hot, tag=10, kw_only=True, gc=False):
    code: ClassVar[int] = 10
    extFields: SendMessageRequestHeader


class _SendV2(_Hot, tag=310, kw_only=True, gc=False):
    code: ClassVar[int] = 310
    extFields: SendMessageRequestHeaderV2


class _SendBatch(_Hot, tag=320, kw_only=True, gc=False):
    code: ClassVar[int] = 320
    extFields: SendMessageRequestHeaderV2


class _Pull(_Hot, tag=11, kw_only=True, gc=False):
    code: ClassVar[int] = 11
    extFields: PullMessageRequestHeader


class _LitePull(_Hot, tag=361, kw_only=True, gc=False):
    code: ClassVar[int] = 361
    extFields: PullMessageRequestHeader


class _QueryOffset(_Hot, tag=14, kw_only=True, gc=False):
    code: ClassVar[int] = 14
    extFields: QueryConsumerOffsetRequestHeader


class _UpdateOffset(_Hot, tag=15, kw_only=True, gc=False):
    code: ClassVar[int] = 15
    extFields: UpdateConsumerOffsetRequestHeader


class _Success(_Hot, tag=0, kw_only=True, gc=False):
    """The ordinary response: what a client reads all the time."""

    code: ClassVar[int] = 0
    extFields: dict[str, str] | None = None


class _Signed(msgspec.Struct, gc=False):
    """JSON header of a request whose custom fields are needed as they came: a signature covers each of them."""

    code: Int
    extFields: dict[str, str]
    opaque: Int = 0
    flag: Int = 0
    version: Int = 0
    language: str = "JAVA"
    remark: str | None = None


class _SignedSend(_Hot, tag=310, kw_only=True, gc=False):
    """JSON header of a signed send that says nothing unusual."""

    code: ClassVar[int] = 310
    extFields: SignedSend


_SIGNED = b'"Signature"'
# How nearly all clients begin the header of a send: whatever begins otherwise is read as any other signed request.
SEND_BEGINS = b'{"code":310,'
# Strict, for what they do not take the general way may.
_signed = msgspec.json.Decoder(_Signed)
_signed_send = msgspec.json.Decoder(_SignedSend)

_hot = msgspec.json.Decoder(
    _Send | _SendV2 | _SendBatch | _Pull | _LitePull | _QueryOffset | _UpdateOffset | _Success, strict=False
)
_read_hot = _hot.decode


def decode(frame: Body) -> Command:
    """Return the command that a frame holds, given without its first length word; FrameError when it is none."""
    if len(frame) < 4:
        raise FrameError("a frame of less than 4 bytes")
    word = int.from_bytes(frame[:4], "big")
    end = 4 + (word & HEADER_LENGTH_MASK)
    if end > len(frame):
        raise FrameError(f"a header of {end - 4} bytes in a frame of {len(frame)}")
    return decode_parts(word >> 24, bytes(frame[4:end]), frame[end:])


def decode_parts(serialize_type: int, header: bytes, body: Body) -> Command:
    """Return the command of a header and its body; FrameError when the header is none."""
    if len(header) > HEADER_BYTES_MAX:
        raise FrameError(f"a header of {len(header)} bytes; up to {HEADER_BYTES_MAX} are accepted")
    if serialize_type == JSON:
        try:
            hot = _read_hot(header)
        except (ValueError, RecursionError):
            return _decode_json(header, body)
        language = _JAVA if hot.language == "JAVA" else _LANGUAGE_NUMBERS.get(hot.language, _OTHER)
        ext = hot.extFields
        if isinstance(ext, Header):
            return Command(hot.code, hot.flag, hot.opaque, language, hot.version, hot.remark, body, JSON, ext, header)
        if ext is not None and len(ext) > FIELDS_MAX:
            return _decode_json(header, body)
        return Command(
            hot.code, hot.flag, hot.opaque, language, hot.version, hot.remark, body, JSON, None, None, ext or {}
        )
    if serialize_type == ROCKETMQ:
        return decode_binary_header(header, body)
    raise FrameError(f"unknown serialize type {serialize_type}")


def decode_signed_parts(serialize_type: int, header: bytes, body: Body) -> Command:
    """Do as decode_parts, for who asks for signatures: the custom fields of a signed request are there as they came.

    A send that says nothing unusual has them in a SignedSend.
    """
    # It stands near the end of most: so it is found in half of the time.
    if serialize_type != JSON or len(header) > HEADER_BYTES_MAX or header.rfind(_SIGNED) < 0:
        return decode_parts(serialize_type, header, body)
    try:
        hot = _signed_of(header)
    except (ValueError, RecursionError):
        return _decode_json(header, body)
    language = _JAVA if hot.language == "JAVA" else _LANGUAGE_NUMBERS.get(hot.language, _OTHER)
    ext = hot.extFields
    if isinstance(ext, SignedSend):
        return Command(hot.code, hot.flag, hot.opaque, language, hot.version, hot.remark, body, JSON, ext, header)
    if len(ext) > FIELDS_MAX:
        return _decode_json(header, body)
    return Command(hot.code, hot.flag, hot.opaque, language, hot.version, hot.remark, body, JSON, None, header, ext)


def _signed_of(header: bytes) -> Any:
    """Return the header of a signed request; raises ValueError or RecursionError for one to be read the general way."""
    if header.startswith(SEND_BEGINS):
        try:
            return _signed_send.decode(header)
        except (ValueError, RecursionError):
            pass
    return _signed.decode(header)


def encode(command: Command) -> bytes:
    """Return the whole frame; FrameError when it would be longer than any peer accepts."""
    if command.parts:
        return b"".join([encode_head(command, command.body_bytes), *command.parts])
    body = command.body
    head = encode_head(command, len(body))
    return b"".join((head, body)) if body else head


def encode_head(command: Command, body_length: int) -> bytes:
    """Return the frame up to its body, which the caller sends behind it; FrameError when the whole is too long."""
    header = encode_binary_header(command) if command.serialize_type == ROCKETMQ else None
    serialize_type = ROCKETMQ
    if header is None:
        header = _encode_json(command)
        serialize_type = JSON
    length = 4 + len(header) + body_length
    if length > FRAME_BYTES_MAX or len(header) > HEADER_BYTES_MAX:
        raise FrameError(
            f"a frame of {length} bytes with a header of {len(header)} is over the limits of {FRAME_BYTES_MAX} and "
            f"{HEADER_BYTES_MAX}"
        )
    return _WORDS.pack(length, serialize_type << 24 | len(header)) + header


def _decode_json(header: bytes, body: Body) -> Command:
    """Decode the general way: any code, any order, values of any kind."""
    try:
        fields: Any = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"the header is not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.get("code") is None:
        raise FrameError("the header is no map with a code")
    remark = fields.get("remark")
    language = fields.get("language")
    try:
        ext = read_ext(fields.get("extFields"))
        remark = None if remark is None else text_of(remark)
        language = _JAVA if language is None else _LANGUAGE_NUMBERS.get(text_of(language), _OTHER)
    except HeaderError as error:
        raise FrameError(str(error)) from None
    return Command(
        _integer(fields, "code"),
        _integer(fields, "flag"),
        _integer(fields, "opaque"),
        language,
        _integer(fields, "version"),
        remark,
        body,
        JSON,
        None,
        None,
        ext,
    )


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else None
    if type(value) is not int or value not in _INT32:
        raise FrameError(f"the header's {name} is not a 32-bit integer")
    return value


def _encode_send(command: Command, header: SendMessageRequestHeaderV2) -> bytes:
    """Return the JSON header of a send from a template: what a producer writes all the time, at a third of the cost."""
    text = orjson.dumps
    optional = b"" if header.properties is None else b',"i":%b' % text(header.properties)
    if header.reconsumeTimes is not None:
        optional += b',"j":"%d"' % header.reconsumeTimes
    if header.maxReconsumeTimes is not None:
        optional += b',"l":"%d"' % header.maxReconsumeTimes
    if header.bname is not None:
        optional += b',"n":%b' % text(header.bname)
    return _SEND_TEMPLATE % (
        command.code,
        text(header.producerGroup),
        text(header.topic),
        text(header.defaultTopic),
        header.defaultTopicQueueNums,
        header.queueId,
        header.sysFlag,
        header.bornTimestamp,
        header.flag,
        b"true" if header.unitMode else b"false",
        b"true" if header.batch else b"false",
        optional,
        command.flag,
        _LANGUAGE_NAMES.get(command.language, "OTHER").encode(),
        command.opaque,
        command.version,
    )


def _encode_json(command: Command) -> bytes:
    header = command.typed_header
    made_here = command.raw_ext is None and command.raw_header is None and command.remark is None
    if made_here and type(header) is SendMessageRequestHeaderV2:
        try:
            return _encode_send(command, header)
        except TypeError:
            pass  # text that is no Unicode: the general way below knows what to do
    fields: dict[str, Any] = {"code": command.code}
    ext = command.ext
    if ext:
        fields["extFields"] = ext
    fields["flag"] = command.flag
    fields["language"] = _LANGUAGE_NAMES.get(command.language, "OTHER")
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    try:
        return orjson.dumps(fields)
    except TypeError:
        # Lone surrogates (a file name may hold some, and an exception's text so, too): the rest is worth sending.
        fields["extFields"] = {_clean(name): _clean(value) for name, value in ext.items()}
        fields["remark"] = _clean(command.remark or "")
        return orjson.dumps(fields)


def _clean(text: str) -> str:
    return str(text).encode("utf-8", "replace").decode()
