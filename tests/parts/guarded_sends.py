"""A guard before a send's handler, for tests of what it knows of sends that came before."""

import time
from collections.abc import Callable
from typing import Any, cast

import orjson

from auth.directory import AccessDirectory
from auth.guard import AccessGuard
from auth.known_sends import _IN_A_ROW
from auth.model import Action, Decision, PolicyType, User, UserStatus, entry, resource_of
from auth.needs import BROKER
from auth.settings import AuthKeys
from remoting.codec import decode_signed_parts
from remoting.command import JSON, Body, Command
from remoting.connection import Connection, Handler
from remoting.errors import FrameError, HeaderError
from remoting.framing import Decode
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.signing import ACCESS_KEY, SIGNATURE, Credentials, signature

ALICE = Credentials("alice", "alice-secret")
SEND = 310
USUAL = {
    "a": "producer", "b": "orders", "c": "TBW102", "d": "8", "e": "3", "f": "0", "g": "1795379984248", "h": "0",
    "i": "KEYS\x01k\x02WAIT\x01true\x02", "j": "0", "k": "false", "l": "16", "m": "false",
}  # fmt: skip
BODY = b"a body"


class GuardLoop:
    now = 0.0

    def time(self) -> float:
        return self.now


class GuardLink:
    loop = GuardLoop()

    def __init__(self, host: str = "192.0.2.1") -> None:
        self.peer = (host, 1)
        self.address = f"{host}:1"
        self.attachments: dict[str, object] = {}
        self.decode: Decode = decode_signed_parts

    def decode_by(self, decode: Decode) -> None:
        self.decode = decode


class GuardSite:
    """A guard before a send's handler; alice may send to topics that begin with "orders"."""

    def __init__(self, clock: Callable[[], float] = time.time, **keys: Any) -> None:
        self.directory = AccessDirectory(inner=Credentials("inner", "inner-secret"))
        self.allow()
        on = AuthKeys(authenticationEnabled=True, authorizationEnabled=True, **keys)
        self.guard = AccessGuard(on, self.directory, BROKER, "DefaultCluster", frozenset({"raftHop"}), clock)
        self.served: list[Command] = []
        self.send: Handler = self.guard.guarded({SEND: self._serve})[SEND]
        self.link = GuardLink()

    def allow(self, secret: str = ALICE.secret_key, topic: str = "Topic:orders*", off: bool = False) -> None:
        found = resource_of(topic)
        assert found is not None
        users = {"alice": User("alice", secret, status=UserStatus.DISABLE if off else UserStatus.ENABLE)}
        allowed = entry(found, [Action.PUB], Decision.ALLOW, [])
        self.directory.take(users, {"alice": {PolicyType.CUSTOM: (allowed,)}})

    def asked(self, header: bytes, body: Body = BODY, link: GuardLink | None = None) -> Command | None:
        """Return the request as its handler got it; None when it was refused."""
        self.served.clear()
        link = link or self.link
        request = link.decode(JSON, header, body)
        if request.code == SEND:
            self.send(cast(Connection, link), request)
        return self.served[0] if self.served else None

    def _serve(self, _connection: Connection, request: Command) -> None:
        self.served.append(request)


def signed(fields: dict[str, str], body: bytes = BODY, who: Credentials = ALICE) -> dict[str, str]:
    named = {**fields, ACCESS_KEY: who.access_key}
    return {**named, SIGNATURE: signature(who.secret_key, named, body)}


def written(fields: Any, **more: Any) -> bytes:
    """A header as most clients write it."""
    return orjson.dumps({"code": SEND, "extFields": fields, "flag": 0, "opaque": 7, "version": 500, **more})


def warm(header: bytes, body: bytes = BODY) -> GuardSite:
    """A site that has taken this so often that its link knows it at sight."""
    site = GuardSite()
    for _ in range(_IN_A_ROW + 2):
        assert site.asked(header, body) is not None
    assert site.link.decode is not decode_signed_parts
    return site


def outcome(site: GuardSite, header: bytes, body: Body) -> tuple[object, ...]:
    """What becomes of a request: what the handler sees of it, or that it is none, or is refused."""
    try:
        request = site.asked(header, body)
        if request is None:
            return ("refused",)
        ext = dict(request.ext)
        return ("taken", *_typed(request), ext, request.user, request.opaque, bytes(request.body))
    except FrameError:
        return ("no frame",)


def is_taken(site: GuardSite, header: bytes, body: Body) -> bool:
    try:
        return site.asked(header, body) is not None
    except (FrameError, HeaderError):
        return False


def _typed(request: Command) -> tuple[object, object]:
    """The typed header as the handler gets it, and made of the map of strings."""
    read: list[object] = []
    for typed in (request, Command.request(SEND, ext=request.ext)):
        try:
            read.append(typed.header(SendMessageRequestHeaderV2))
        except HeaderError as error:
            read.append(str(error))
    assert read[0] == read[1], "the same however it is read"
    return read[0], read[1]
