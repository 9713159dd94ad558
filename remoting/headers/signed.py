"""What a signature adds to a request's custom fields, and the fields of a signed send as the texts that were signed.

A signature covers texts: a number read and written again may be another text ("7.0"). Where all that a send may say is
declared, its texts cost no more to read than its numbers, and far less than a map of them.
"""

from typing import Any

import msgspec

from remoting.headers.base import Header
from remoting.headers.send import SendMessageRequestHeaderV2

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
SIGNED_FIELDS = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})
# What proves who sent a request: whoever has it could send the request again.
PROOF_FIELDS = frozenset({SIGNATURE, SECURITY_TOKEN})


class SignedSend(Header, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The custom fields of a signed SEND_MESSAGE_V2 as they came, under their names on the wire, all of them.

    None: absent. A send that has others, or lacks what every client says, is read as any other request.
    """

    AccessKey: str
    SecurityToken: str | None = None
    Signature: str
    a: str
    b: str
    c: str
    d: str
    e: str
    f: str
    g: str
    h: str
    i: str
    j: str | None = None
    k: str | None = None
    l: str | None = None  # noqa: E741 # the wire's name
    m: str | None = None
    n: str | None = None


class _Typed(msgspec.Struct, gc=False):
    extFields: SendMessageRequestHeaderV2


_typed: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Typed, strict=False)


def typed_send(header: bytes) -> SendMessageRequestHeaderV2 | None:
    """Return the custom fields of a JSON header as a send's; None of one that has to be read field by field."""
    try:
        found: SendMessageRequestHeaderV2 = _typed.decode(header).extFields
    except (ValueError, RecursionError):
        return None
    return found
