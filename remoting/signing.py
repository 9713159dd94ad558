"""Signed requests: who sends them, and that nothing of them was changed on the way (RocketMQ's ACL, 1.0 and 2.0).

`AccessKey` names the user; `Signature` is the Base64 of HMAC-SHA1, by the user's secret key, over the values of all
custom fields but itself, in the order of their names, and then the body. A RocketMQ broker that reads the binary header
takes an empty value for a missing one and hashes the word "null" for it, so that what its own clients sign is refused
there. Here both ways of signing an empty field are taken.
"""

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hmac import compare_digest
from operator import itemgetter
from typing import Any

from remoting.command import Body, Command
from remoting.headers.signed import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNED_FIELDS

__all__ = [
    "ACCESS_KEY",
    "KEY_LENGTH_MAX",
    "SECURITY_TOKEN",
    "SIGNATURE",
    "SIGNED_FIELDS",
    "Credentials",
    "Proof",
    "is_signed_by",
    "sign",
    "signature",
]

# Official clients up to V4_9_3 add this field behind their signature.
UNSIGNED_BY_OLD = "_UNIQUE_KEY_QUERY"
OLD_VERSION_MAX = 399
# Characters of an access key, a secret key and a token: each request carries them, or is hashed with them.
KEY_LENGTH_MAX = 1024
# Secret keys, and sets of fields, of which what each request needs is kept: a few hundred bytes each.
_KEYS_MAX = 1024
_ORDERS_MAX = 1024
# Of SHA-1, and of what HMAC makes of each byte of a key.
_BLOCK_BYTES = 64
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))

# Bodies below this size are copied behind the fields that are hashed with them.
_JOINED_BYTES_MAX = 1024

_orders: dict[tuple[str, ...], Callable[[Any], tuple[str, ...]]] = {}


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
    values = _in_order(fields)
    content = "".join([value or empty for value in values] if empty else values)
    return Proof(secret_key).signature((content.encode("utf-8", "surrogatepass"),), body).decode("ascii")


class Proof:
    """Signs with one secret key what the caller has put together."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        self._inner, self._outer = _keyed(secret_key)

    def signature(self, content: tuple[bytes, ...], body: Body) -> bytes:
        """Return the signature of some values, in the order of their names, and a body: the Base64 of an HMAC."""
        digest, whole = self._inner.copy(), self._outer.copy()
        if len(body) < _JOINED_BYTES_MAX:
            # One call of the hash for all costs less than two.
            digest.update(b"".join((*content, body)))
        else:
            digest.update(b"".join(content))
            digest.update(body)
        whole.update(digest.digest())
        return b2a_base64(whole.digest(), newline=False)


def _in_order(fields: Mapping[str, str]) -> Sequence[str]:
    """Return the values that are signed, in the order of their names, which few kinds of requests differ in."""
    names = tuple(fields)
    in_order = _orders.get(names)
    if in_order is None:
        # Java orders names by UTF-16 units; names of fields are ASCII.
        wanted = sorted(name for name in names if name != SIGNATURE)
        if len(wanted) < 2:
            return [fields[name] for name in wanted]
        if len(_orders) >= _ORDERS_MAX:
            _orders.clear()
        in_order = _orders[names] = itemgetter(*wanted)
    return in_order(fields)


@lru_cache(_KEYS_MAX)
def _keyed(secret_key: str) -> tuple["hashlib._Hash", "hashlib._Hash"]:
    """Return both hashes of HMAC (RFC 2104) behind their key: copied for each request they cost half of a new one."""
    key = secret_key.encode()
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha1(key).digest()  # noqa: S324 # the format is RocketMQ's
    key = key.ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha1(key.translate(_INNER)), hashlib.sha1(key.translate(_OUTER))  # noqa: S324 # as above


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
    if request.version <= OLD_VERSION_MAX and UNSIGNED_BY_OLD in fields:
        fields = {name: value for name, value in fields.items() if name != UNSIGNED_BY_OLD}
    if compare_digest(signature(secret_key, fields, request.body), given):
        return True
    if all(fields.values()):
        return False
    return compare_digest(signature(secret_key, fields, request.body, empty="null"), given)
