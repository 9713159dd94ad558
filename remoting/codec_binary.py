"""RocketMQ's binary header (serialize type 1), both ways.

int16 code, int8 language, int16 version, int32 opaque, int32 flag, int32 length and UTF-8 of the remark, int32 length
of the custom fields, each int16 length and key, int32 length and value. Big-endian; a length of 0 means absent.
"""

import struct

from remoting.command import ROCKETMQ, Body, Command
from remoting.errors import FrameError
from remoting.headers.base import FIELDS_MAX

_FIXED = struct.Struct(">hBhiii")
_INT16_MAX = 0x7FFF


def decode_binary_header(header: bytes, body: Body) -> Command:
    """Return the command of a binary header; FrameError when a length points outside it or a text is not UTF-8."""
    if len(header) < _FIXED.size + 4:
        raise FrameError(f"a binary header of {len(header)} bytes")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    position = _FIXED.size
    remark, position = _text(header, position, remark_length, "remark")
    ext_length, position = _length(header, position, 4)
    end = position + ext_length
    if ext_length < 0 or end > len(header):
        raise FrameError(f"custom fields of {ext_length} bytes in a header of {len(header)}")
    ext: dict[str, str] = {}
    while position < end:
        key_length, position = _length(header, position, 2)
        key, position = _text(header, position, key_length, "key")
        value_length, position = _length(header, position, 4)
        value, position = _text(header, position, value_length, "value")
        ext[key] = value
        if len(ext) > FIELDS_MAX:
            raise FrameError(f"more than {FIELDS_MAX} custom fields")
    if position != end:
        raise FrameError("the last custom field is longer than all of them")
    return Command(code, flag, opaque, language, version, remark or None, body, ROCKETMQ, None, None, ext)


def encode_binary_header(command: Command) -> bytes | None:
    """Return the binary header, or None for what it cannot hold (a code over 16 bits): the sender then uses JSON."""
    if not (-_INT16_MAX <= command.code <= _INT16_MAX and 0 <= command.version <= _INT16_MAX):
        return None
    fields: list[bytes] = []
    for name, text in command.ext.items():
        key = name.encode("utf-8", "replace")
        if len(key) > _INT16_MAX:
            return None
        value = text.encode("utf-8", "replace")
        fields += (len(key).to_bytes(2, "big"), key, len(value).to_bytes(4, "big"), value)
    ext = b"".join(fields)
    remark = (command.remark or "").encode("utf-8", "replace")
    fixed = _FIXED.pack(
        command.code, command.language & 0xFF, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, len(ext).to_bytes(4, "big"), ext))


def _length(header: bytes, position: int, width: int) -> tuple[int, int]:
    end = position + width
    if end > len(header):
        raise FrameError("the binary header ends within a length")
    return int.from_bytes(header[position:end], "big", signed=True), end


def _text(header: bytes, position: int, length: int, what: str) -> tuple[str, int]:
    end = position + length
    if length < 0 or end > len(header):
        raise FrameError(f"a {what} of {length} bytes in a header of {len(header)}")
    try:
        return header[position:end].decode(), end
    except UnicodeDecodeError as error:
        raise FrameError(f"a {what} that is not UTF-8: {error.reason}") from None
