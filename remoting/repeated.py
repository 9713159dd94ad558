"""Headers of signed sends that are the one before's but for five values: compared with it, not decoded.

A client writes the names of a send's fields, and most of their values, with each send anew. Behind a header that was
decoded the next of the same length is looked at as bytes: where all is the same but for queue, time, properties,
signature and opaque, these five are what it says. That costs half of decoding it and comparing what it says, field by
field, with what was let in (docs/performance.md).
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from remoting.codec import decode_signed_parts
from remoting.command import JSON, Body, Command
from remoting.framing import Decode
from remoting.headers.base import Header
from remoting.headers.signed import SignedSend

# What is kept of a header at each connection that sends such.
HEADER_BYTES_MAX = 4096
_VALUE = re.compile(rb'"(Signature|e|g|i)"\s*:\s*"([^"]*)"|"(opaque)"\s*:\s*([1-9][0-9]{0,8})(?![0-9.eE])')
_NAMES = {b"Signature", b"e", b"g", b"i", b"opaque"}
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_ZERO = ord("0")
_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode


class RepeatedSend(Header, gc=False):
    """What a signed SEND_MESSAGE_V2 says that the one before did not; stands in a command in place of all fields."""

    kind: Any
    """What the two have in common, as whoever made the reader knows it."""
    queue: bytes
    """ASCII digits, as `time`."""
    time: bytes
    properties: str
    signature: bytes
    """Characters of Base64."""


def reader_of_likes(request: Command, send: SignedSend, kind: object) -> Decode | None:
    """Return a decode_signed_parts that knows headers like this one at sight; what it says of them has this `kind`.

    `send` are the request's fields. None of a header that is too long or says a thing twice.
    """
    header = request.raw_header
    holes = None if header is None or len(header) > HEADER_BYTES_MAX else _holes(header, request, send)
    if header is None or holes is None:
        return None
    length, code, flag = len(header), request.code, request.flag
    language, version, remark = request.language, request.version, request.remark
    (queue_at, queue_end), (time_at, time_end) = holes[b"e"], holes[b"g"]
    (signature_at, signature_end), (opaque_at, opaque_end) = holes[b"Signature"], holes[b"opaque"]
    # With its quotes: a text of JSON.
    text_at, text_end = holes[b"i"][0] - 1, holes[b"i"][1] + 1
    (at1, end1), (at2, end2), (at3, end3), (at4, end4), (at5, end5) = sorted(holes.values())
    begin, second, third = header[:at1], header[end1:at2], header[end2:at3]
    fourth, fifth, rest = header[end3:at4], header[end4:at5], header[end5:]

    def decode(serialize_type: int, header: bytes, body: Body) -> Command:
        if (
            len(header) == length
            and serialize_type == JSON
            and header[:at1] == begin
            and header[end1:at2] == second
            and header[end2:at3] == third
            and header[end3:at4] == fourth
            and header[end4:at5] == fifth
            and header[end5:] == rest
        ):
            queue, time, opaque = header[queue_at:queue_end], header[time_at:time_end], header[opaque_at:opaque_end]
            signature = header[signature_at:signature_end]
            if (
                queue.isdigit()
                and time.isdigit()
                and opaque.isdigit()
                and opaque[0] != _ZERO
                and not signature.translate(None, _BASE64)
            ):
                try:
                    properties = _text(header[text_at:text_end])
                except ValueError:
                    return decode_signed_parts(serialize_type, header, body)
                said = RepeatedSend(kind, queue, time, properties, signature)
                return Command(code, flag, int(opaque), language, version, remark, body, JSON, said, header)
        return decode_signed_parts(serialize_type, header, body)

    return decode


def _holes(header: bytes, request: Command, send: SignedSend) -> dict[bytes, tuple[int, int]] | None:
    """Return where the five values stand, None of a header of which that is not certain."""
    if b'\\"' in header:
        return None  # otherwise each quote begins or ends a text
    found = {}
    for match in _VALUE.finditer(header):
        name, group = (match[1], 2) if match[1] else (match[3], 4)
        if name in found:
            return None
        found[name] = match.span(group)
    if found.keys() != _NAMES:
        return None
    said = {name: header[at:end] for name, (at, end) in found.items()}
    at, end = found[b"i"]
    certain = (
        # Names are written as they are, so that none of the five stands there in another spelling, too.
        b"\\" not in header[:at] + header[end:]
        and (said[b"e"], said[b"g"], said[b"Signature"]) == tuple(map(str.encode, (send.e, send.g, send.Signature)))
        and _text(header[at - 1 : end + 1]) == send.i
        and int(said[b"opaque"]) == request.opaque
    )
    return found if certain else None
