"""One request or response of the protocol, in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from remoting.codes import VERSION, LanguageCode
from remoting.errors import HeaderError
from remoting.headers.base import H, Header, decode_header, encode_header, read_ext
from remoting.headers.signed import PROOF_FIELDS, SignedSend, typed_send

# How a header is written; the high byte of a frame's header word.
JSON = 0
ROCKETMQ = 1

# Bits of `flag`.
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

# What a custom field takes beside the characters of its name and text (two texts and an entry in a map), and how many
# of them a request of any known kind has.
_FIELD_BYTES = 150
_FIELDS_USUAL = 24

# What a command takes in memory, about, beside its body and the bytes of its header.
COMMAND_BYTES = 512
# Bytes of a header that are nobody's fault: the known fields, names, quotes and escapes.
HEADER_BYTES_FREE = 1024

Body = bytes | memoryview


class Command(msgspec.Struct, eq=False, gc=False):
    """One request or response. `opaque` numbers a request on its connection and is echoed by the response.

    `body` is what follows the header; a response may carry it in pieces instead (`parts`, `body` is empty then), so
    that messages leave straight from the mapped log. `ext` are the custom fields, always strings. The decoder leaves in
    `raw_header` the JSON text of a header that it decoded straight into a typed one, so that `ext` costs nothing until
    it is asked for. `until`, `read_at` and `waited` are noted by who serves a request, and never sent: by when it must
    have an answer, when it was read, and how many seconds later its turn came. `user` is who was found to have signed
    it: from then on `ext` has no proof of that any more, so that what is passed on of it cannot be used again.
    """

    code: int
    flag: int = 0
    opaque: int = 0
    language: int = int(LanguageCode.JAVA)
    version: int = VERSION
    remark: str | None = None
    body: Body = b""
    serialize_type: int = JSON
    typed_header: Header | None = None
    raw_header: bytes | None = None
    raw_ext: dict[str, str] | None = None
    parts: tuple[Body, ...] = ()
    until: float = 0.0
    read_at: float = 0.0
    waited: float = 0.0
    user: str = ""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return self.flag & ONEWAY_FLAG != 0

    @property
    def ext(self) -> dict[str, str]:
        """The custom fields; an empty map when there are none. HeaderError when the text cannot be read."""
        ext = self.raw_ext
        if ext is None:
            ext = self.raw_ext = self._read_ext()
        return ext

    @property
    def body_bytes(self) -> int:
        """Length of the body, whichever way it is held."""
        return sum(map(len, self.parts)) if self.parts else len(self.body)

    @property
    def header_bytes(self) -> int:
        """What the header takes in memory, about, beside what every request takes."""
        size = 0 if self.raw_header is None else len(self.raw_header)
        if (ext := self.raw_ext) is not None:
            more = max(len(ext) - _FIELDS_USUAL, 0)
            size += sum(map(len, ext)) + sum(map(len, ext.values())) + more * _FIELD_BYTES
        return size

    def header(self, cls: type[H]) -> H:
        """Return the custom fields as that class; HeaderError when a required one is missing or one does not fit."""
        header = self.typed_header
        if isinstance(header, cls):
            return header
        if type(header) is SignedSend and self.raw_header is not None:
            typed = typed_send(self.raw_header)
            if isinstance(typed, cls):
                self.typed_header = typed
                return typed
        return decode_header(cls, self.ext)

    def answerable(self, header: Header) -> "Command":
        """Return what an answer and another look at the request need, `header` in place of the bytes it came in.

        For a request that waits: a client may send a body of 15 MiB with a question that has none.
        """
        return Command(
            self.code,
            self.flag,
            self.opaque,
            self.language,
            self.version,
            serialize_type=self.serialize_type,
            typed_header=header,
            until=self.until,
            read_at=self.read_at,
            waited=self.waited,
        )

    def forget(self, header: Header) -> None:
        """Keep `header` in place of the bytes that it came in, and no body: as answerable(), of this very command."""
        self.typed_header = header
        self.body, self.parts, self.raw_header, self.raw_ext = b"", (), None, None

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: Body = b"",
        *,
        oneway: bool = False,
        ext: Mapping[str, str] | None = None,
    ) -> "Command":
        """Make a request; its opaque is set when it is sent."""
        return cls(
            int(code),
            ONEWAY_FLAG if oneway else 0,
            body=body,
            typed_header=header,
            raw_ext=_merged(header, ext),
        )

    @classmethod
    def response(
        cls,
        code: int,
        remark: str | None = None,
        header: Header | None = None,
        body: Body | Sequence[Body] = b"",
        ext: Mapping[str, str] | None = None,
    ) -> "Command":
        """Make a response; opaque and serialize type are set when it is sent."""
        parts: tuple[Body, ...] = ()
        if not isinstance(body, bytes | memoryview):
            parts = tuple(body)
            body = b""
        return cls(
            int(code),
            RESPONSE_FLAG,
            remark=remark,
            body=body,
            typed_header=header,
            raw_ext=_merged(header, ext),
            parts=parts,
        )

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way request" if self.is_oneway else "request"
        remark = "" if self.remark is None else f" {self.remark!r}"
        return f"<{kind} code={self.code} opaque={self.opaque}{remark} body={self.body_bytes}>"

    def _read_ext(self) -> dict[str, str]:
        if self.raw_header is not None and type(self.typed_header) is not SignedSend:
            try:
                fields: Any = orjson.loads(self.raw_header)
            except orjson.JSONDecodeError as error:
                raise HeaderError(f"the header is not JSON: {error}") from None
            ext = read_ext(fields.get("extFields"))
            return {name: value for name, value in ext.items() if name not in PROOF_FIELDS} if self.user else ext
        return {} if self.typed_header is None else encode_header(self.typed_header)


def _merged(header: Header | None, ext: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the custom fields of a command being made; None: they are written from the header when needed."""
    if not ext:
        return None
    return dict(ext) if header is None else {**encode_header(header), **ext}
