"""Signed requests: who sends them, and that nothing of them was changed on the way (RocketMQ's ACL, 1.0 and 2.0).

`AccessKey` names the user; `Signature` is the Base64 of HMAC-SHA1, by the user's secret key, over the values of all
custom fields but itself, in the order of their names, and then the body. A RocketMQ broker that reads the binary header
takes an empty value for a missing one and hashes the word "null" for it, so that what its own clients sign is refused
there. Here both ways of signing an empty field are taken.
"""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from remoting.command import Body, Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
SIGNED_FIELDS = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})
# Official clients up to V4_9_3 add this field behind their signature.
UNSIGNED_BY_OLD = "_UNIQUE_KEY_QUERY"
OLD_VERSION_MAX = 399
# Characters of an access key, a secret key and a token: each request carries them, or is hashed with them.
KEY_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client is: an access key (the user's name), its secret key, and a security token where one is asked for.

    The secrets are in no repr. Raises ValueError, or TypeError, for what cannot be sent.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a str, not {type(value).__name__}")
            if len(value) > KEY_LENGTH_MAX:
                raise ValueError(f"{name} has {len(value)} characters, up to {KEY_LENGTH_MAX} are possible")
            if not value.isprintable():
                raise ValueError(f"{name} holds a line break or another character that cannot be printed")
        if not self.access_key or not self.secret_key:
            raise ValueError("credentials take an access key and a secret key, neither of them empty")


def signature(secret_key: str, fields: Mapping[str, str], body: Body, empty: str = "") -> str:
    """Return the signature of a request with these custom fields; `empty` is what is hashed for an empty value."""
    # Java orders names by UTF-16 units; names of fields are ASCII.
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    content = "".join([value or empty for value in values] if empty else values)
    signed = content.encode("utf-8", "surrogatepass")
    # In one piece: with a send of usual size that is half the cost.
    digest = hmac.digest(secret_key.encode(), signed + body if body else signed, "sha1")
    return base64.b64encode(digest).decode("ascii")


def sign(request: Command, credentials: Credentials) -> None:
    """Put a user's name and signature into a request of ours; one that was signed before is signed anew."""
    ext = dict(request.ext)
    ext.pop(SIGNATURE, None)
    ext[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        ext[SECURITY_TOKEN] = credentials.security_token
    body = b"".join(request.parts) if request.parts else request.body
    ext[SIGNATURE] = signature(credentials.secret_key, ext, body)
    request.raw_ext = ext


def is_signed_by(request: Command, secret_key: str) -> bool:
    """Tell whether a request's signature was made with this secret key; one without a signature is not."""
    fields = request.ext
    given = fields.get(SIGNATURE)
    if not given or not given.isascii():
        return False
    if UNSIGNED_BY_OLD in fields and request.version <= OLD_VERSION_MAX:
        fields = {name: value for name, value in fields.items() if name != UNSIGNED_BY_OLD}
    if hmac.compare_digest(signature(secret_key, fields, request.body), given):
        return True
    if all(fields.values()):
        return False
    return hmac.compare_digest(signature(secret_key, fields, request.body, empty="null"), given)
