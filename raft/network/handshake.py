"""How two members prove to one another who they are before a byte of theirs is believed. Without any I/O.

The dialling side D and the accepting side A exchange four frames, each a CBOR map:

1. D → A  ``{t: 1, v, group, purpose, from, to, nonce}``
2. A → D  ``{t: 2, nonce, mac}``           A knows the secret; D goes on only if so
3. D → A  ``{t: 3, hello, mac}``           D knows it too
4. A → D  ``{t: 4, hello, mac}``           the link is open

``{t: 0, why}`` in place of any of them ends it. A mac is HMAC-SHA256 over the CBOR list [label of the step, version,
group, purpose, both ids, both nonces, hello]: the labels keep one side's proof from being shown as the other's, the
nonces keep an old one from being shown again. What follows on the link is neither encrypted nor authenticated by this:
that is what TLS is for. Without a secret (every member on loopback) the key is empty and the exchange is the same.

A member may know several secrets, so that they can be changed while the group runs: A proves that it knows its first
one, D looks which of its own that is, and both go on with that.
"""

import hmac
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import cbor2

from runtime.cbor import CborError, read_cbor

VERSION = 1
NONCE_BYTES = 32
# Longer names and reasons are cut or refused: they come from somebody who has proved nothing.
TEXT_CHARS_MAX = 255
# Keys and values in one step of it, with room for what later versions add.
_ITEMS_MAX = 64

Purpose = Literal["messages", "copy"]
PURPOSES: Final = ("messages", "copy")

_DIAL, _PROVE, _HELLO, _WELCOME, _REFUSE = 1, 2, 3, 4, 0
_ACCEPTOR_PROVES, _DIALLER_HELLO, _ACCEPTOR_HELLO = "acceptor proves", "dialler hello", "acceptor hello"
# Why a connection to the port was none: the other side ended it; they share no secret; it had no time left; there were
# too many; what it said was no handshake; it is another group's, another member, or of another version.
REFUSALS = ("ended", "secret", "late", "connections", "handshake", "member")
# By what the reason says; anything else is about who the member is.
_SAID = {
    "do not have the same secret": "secret",
    "no handshake within": "late",
    "connections are accepted at once": "connections",
    "no handshake of ours": "handshake",
    "step ": "handshake",
    "the handshake's field": "handshake",
    "a nonce has": "handshake",
    "a link is for one of": "handshake",
    "bytes": "handshake",
}


class HandshakeRefused(Exception):
    """The other side is not who it should be, or will not have us; the text says why, for the log.

    `farewell` is the head of the frame that tells the other side, b"" when it was the one that told us.
    """

    def __init__(self, why: str, *, theirs: bool = False) -> None:
        super().__init__(why)
        self.farewell = b"" if theirs else cbor2.dumps({"t": _REFUSE, "why": why[:TEXT_CHARS_MAX]})


class Identity(NamedTuple):
    """Who this member is to the others. `secrets` is empty where every member is on loopback."""

    group: str
    self_id: str
    secrets: tuple[bytes, ...]
    """Any of them may be the other side's; the first one is what this member proves itself with when it is dialled."""
    hello: Callable[[], bytes]
    """Made anew for each link: it tells what this member's log looks like now."""
    dial_from: str = ""
    """Address of this machine that links are dialled from; empty: the system's choice."""


class Step(NamedTuple):
    """What to do after a frame of the handshake: send `reply` unless it is empty; `done` when the link is open."""

    reply: bytes
    done: bool


class _Shake:
    """What both sides share: the transcript that their proofs cover."""

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES, "as long as the hash"
        self._identity = identity
        self._secrets = identity.secrets or (b"",)
        self._secret = self._secrets[0]
        self._nonce = nonce
        self._transcript: list[object] = []
        self._expected = 0
        self.peer = ""
        self.purpose: Purpose = "messages"
        self.hello = b""
        """The other side's, as it sent it; complete once a step was `done`."""

    def _mac(self, label: str, hello: bytes) -> bytes:
        return hmac.digest(self._secret, cbor2.dumps([label, *self._transcript, hello]), "sha256")

    def _check(self, fields: dict[str, Any], label: str, hello: bytes) -> None:
        if not hmac.compare_digest(_bytes(fields, "mac"), self._mac(label, hello)):
            raise HandshakeRefused("the two sides do not have the same secret (raftSecretFile)")

    def _find_secret(self, fields: dict[str, Any]) -> None:
        """Take the secret that the acceptor has proved to know; raises HandshakeRefused when it is none of ours."""
        mac = _bytes(fields, "mac")
        for secret in self._secrets:
            self._secret = secret
            if hmac.compare_digest(mac, self._mac(_ACCEPTOR_PROVES, b"")):
                return
        raise HandshakeRefused("the two sides do not have the same secret (raftSecretFile)")

    def _agree(self, dialler: str, acceptor: str, dialler_nonce: bytes, acceptor_nonce: bytes) -> None:
        group = self._identity.group
        self._transcript = [VERSION, group, self.purpose, dialler, acceptor, dialler_nonce, acceptor_nonce]

    def _open(self, head: bytes) -> dict[str, Any]:
        """Decode a frame's head and check that it is the one due."""
        try:
            fields = read_cbor(head, _ITEMS_MAX)
        except CborError as error:
            raise HandshakeRefused(f"what came is no handshake of ours ({error})") from None
        if not isinstance(fields, dict):
            raise HandshakeRefused("what came is no handshake of ours")
        kind = fields.get("t")
        if kind == _REFUSE:
            raise HandshakeRefused(f"it refuses: {_text(fields, 'why')}", theirs=True)
        if kind != self._expected:
            raise HandshakeRefused(f"step {self._expected} of the handshake is due, not {str(kind)[:20]}")
        return fields


class Dialler(_Shake):
    """The side that connects, and knows whom it means to reach."""

    def __init__(self, identity: Identity, peer: str, purpose: Purpose, nonce: bytes) -> None:
        super().__init__(identity, nonce)
        self.peer = peer
        self.purpose = purpose

    def open(self) -> bytes:
        """Return the first frame's head."""
        self._expected = _PROVE
        own = self._identity
        fields = {"t": _DIAL, "v": VERSION, "group": own.group, "purpose": self.purpose}
        return cbor2.dumps(fields | {"from": own.self_id, "to": self.peer, "nonce": self._nonce})

    def take(self, head: bytes) -> Step:
        """Go on with the other side's frame; raises HandshakeRefused."""
        fields = self._open(head)
        if self._expected == _PROVE:
            nonce = _nonce(fields)
            self._agree(self._identity.self_id, self.peer, self._nonce, nonce)
            self._find_secret(fields)
            self._expected = _WELCOME
            hello = self._identity.hello()
            mac = self._mac(_DIALLER_HELLO, hello)
            return Step(cbor2.dumps({"t": _HELLO, "hello": hello, "mac": mac}), False)
        hello = _bytes(fields, "hello")
        self._check(fields, _ACCEPTOR_HELLO, hello)
        self.hello = hello
        return Step(b"", True)


class Acceptor(_Shake):
    """The side that is connected to. `judge` (id, hello) says why a proved member is refused, None when it is not."""

    def __init__(self, identity: Identity, nonce: bytes, judge: Callable[[str, bytes], str | None]) -> None:
        super().__init__(identity, nonce)
        self._judge = judge
        self._expected = _DIAL

    def take(self, head: bytes) -> Step:
        """Go on with the other side's frame; raises HandshakeRefused."""
        fields = self._open(head)
        if self._expected == _DIAL:
            return self._challenge(fields)
        hello = _bytes(fields, "hello")
        self._check(fields, _DIALLER_HELLO, hello)
        why = self._judge(self.peer, hello)
        if why is not None:
            raise HandshakeRefused(why)
        self.hello = hello
        own = self._identity.hello()
        mac = self._mac(_ACCEPTOR_HELLO, own)
        return Step(cbor2.dumps({"t": _WELCOME, "hello": own, "mac": mac}), True)

    def _challenge(self, fields: dict[str, Any]) -> Step:
        own = self._identity
        self.peer = _text(fields, "from")
        if fields.get("v") != VERSION:
            raise HandshakeRefused(f"handshake version {VERSION} is spoken here, not {str(fields.get('v'))[:20]}")
        if (group := _text(fields, "group")) != own.group:
            raise HandshakeRefused(f"this is the group {own.group}, not {group}")
        if (meant := _text(fields, "to")) != own.self_id:
            raise HandshakeRefused(f"this is the member {own.self_id}, not {meant}")
        purpose = fields.get("purpose")
        if purpose not in PURPOSES:
            raise HandshakeRefused(f"a link is for one of {', '.join(PURPOSES)}")
        self.purpose = purpose
        self._agree(self.peer, own.self_id, _nonce(fields), self._nonce)
        self._expected = _HELLO
        return Step(cbor2.dumps({"t": _PROVE, "nonce": self._nonce, "mac": self._mac(_ACCEPTOR_PROVES, b"")}), False)


def _bytes(fields: dict[str, Any], name: str) -> bytes:
    value = fields.get(name)
    if not isinstance(value, bytes):
        raise HandshakeRefused(f"the handshake's field {name} is missing or no bytes")
    return value


def _nonce(fields: dict[str, Any]) -> bytes:
    nonce = _bytes(fields, "nonce")
    if len(nonce) != NONCE_BYTES:
        raise HandshakeRefused(f"a nonce has {NONCE_BYTES} bytes")
    return nonce


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= TEXT_CHARS_MAX:
        raise HandshakeRefused(f"the handshake's field {name} is missing or no text")
    return value


def refusal_kind(reason: str, *, given_up: bool) -> str:
    """Return which of REFUSALS a connection ended for; `given_up`: by this side."""
    if not given_up:
        return "ended"
    return next((kind for said, kind in _SAID.items() if said in reason), "member")
