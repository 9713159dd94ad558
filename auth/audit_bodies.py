"""What the audit log says of a request's body: which keys and values, which user, which policies. Never a secret.

Bodies are strangers' bytes: only so many are read, and whoever shows a text cuts it (remoting/audit.py).
"""

import re
from collections.abc import Callable, Mapping

from auth.settings import HIDDEN, SECRET_KEYS
from remoting.bodies.acl import AclInfo, PolicyEntryInfo, UserInfo
from remoting.codes import NamesrvCode, RequestCode
from remoting.command import Body
from remoting.errors import HeaderError
from runtime.config import parse_properties

# Bytes of a body that is read for its line; a configuration may be longer, and then only its length is said.
BODY_BYTES_MAX = 64 * 1024
# Characters of one value, so that a long one does not push the others out of the line.
VALUE_SHOWN_MAX = 100

_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,100}")
# What keys of secrets have in their names, ours and others, and what stands in values such as {"password":"…"}.
_SECRET = re.compile("password|passwd|secret|credential|token", re.IGNORECASE)
_SECRET_WITHIN = re.compile(r"(password|secretkey)\W{0,3}[:=]", re.IGNORECASE)
_SECRET_KEYS = frozenset(key.lower() for key in SECRET_KEYS)


def shown_config_change(body: bytes) -> str:
    """Return the keys and values of a change of configuration (25, 318)."""
    return "; ".join(_setting(key, value) for key, value in parse_properties(body.decode()).items())


def shown_user(body: bytes) -> str:
    """Return what is said of a user (3001, 3002): that there is a password, not which."""
    info = UserInfo.decode(body)
    fields = {"userType": info.userType, "userStatus": info.userStatus, "password": info.password and HIDDEN}
    return "; ".join(f"{name}={_cut(value)}" for name, value in fields.items() if value)


def shown_policies(body: bytes) -> str:
    """Return whom policies are about, and what they say (3006, 3007)."""
    info = AclInfo.decode(body)
    said = [_cut(info.subject)] if info.subject else []
    for policy in info.policies or ():
        kind = f"{_cut(policy.policyType)} " if policy.policyType else ""
        said += [kind + _policy(entry) for entry in policy.entries or ()]
    return "; ".join(said)


def _text(body: bytes) -> str:
    return body.decode()


# What is not here has no body that says more than the fields do.
AUDIT_BODIES: Mapping[int, Callable[[bytes], str]] = {
    int(code): shown
    for shown, codes in (
        (shown_config_change, (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)),
        (shown_user, (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER)),
        (shown_policies, (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL)),
        # JSON, in which there is no secret.
        (
            _text,
            (
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                RequestCode.SET_MESSAGE_REQUEST_MODE,
                NamesrvCode.FORGET,
            ),
        ),
    )
    for code in codes
}


def shown_body(code: int, body: Body) -> str:
    """Return what a line says of a request's body, "" for one of which it says nothing but its length."""
    shown = AUDIT_BODIES.get(code)
    if shown is None or not body:
        return ""
    if len(body) > BODY_BYTES_MAX:
        return f"more than the {BODY_BYTES_MAX} bytes that are read for this line"
    try:
        return shown(bytes(body))
    except (ValueError, HeaderError):
        # Its words could quote what must not be shown.
        return "it cannot be read"


def _setting(key: str, value: str) -> str:
    if not _KEY.fullmatch(key):
        return "a line that is no key=value"
    named = key.lower() in _SECRET_KEYS or (_SECRET.search(key) and not key.endswith("File"))
    secret = value and (named or _SECRET_WITHIN.search(value))
    return f"{key}={HIDDEN if secret else _cut(value, '')}"


def _policy(entry: PolicyEntryInfo) -> str:
    sources = f" from {_cut(','.join(entry.sourceIps))}" if entry.sourceIps else ""
    return f"{_cut(entry.resource)} {_cut(','.join(entry.actions))} {_cut(entry.decision)}{sources}"


def _cut(value: str | None, none: str = "(none)") -> str:
    text = value or none
    return text if len(text) <= VALUE_SHOWN_MAX else text[:VALUE_SHOWN_MAX] + "…"
