"""What stands before the handlers: who is it, and may he do this.

Built around a server's table of handlers when access control is on; when it is off there is nothing of it on a
request's way. Refusals have RocketMQ's code (16) and words. A request that was let in has no signature any more:
whatever of it is passed on cannot be used again.
"""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from auth.audit_bodies import shown_body
from auth.directory import NOBODY, AccessDirectory
from auth.known_sends import KEPT_UNDER, KnownSends, SendKind
from auth.needs import Access, FieldsRule, Rule, Whom
from auth.send_age import DATED, Sent, why_too_old
from auth.settings import AuthKeys, proof_lasts_s, white_list
from remoting.audit import RefusalLog
from remoting.codec import decode_signed_parts
from remoting.codes import ResponseCode
from remoting.command import Body, Command
from remoting.connection import Connection, Handler, Reply
from remoting.headers.send import SendMessageRequestHeaderV2
from remoting.headers.signed import SignedSend, typed_send
from remoting.refusal import unsupported
from remoting.repeated import RepeatedSend
from remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, is_signed_by

# What was let in lately: user, address and names of what is touched, some hundred bytes each.
LET_IN_MAX = 10_000
# At a connection: whom it proved, as the directory was when, and until when that counts.
_PROVED = "auth.proved"
_SEND_FIELDS = frozenset(SignedSend.__struct_encode_fields__)

S = TypeVar("S", SignedSend, RepeatedSend)

# What a member that has looked at no signature, and vouches for nobody, makes of a request.
UNPROVED = (
    "the member that passed this on has not found out who asks: all members take authenticationEnabled=true and the "
    "same authenticationWhitelist"
)


class AccessGuard:
    """Decides about each request before its handler sees it."""

    def __init__(
        self,
        keys: AuthKeys,
        directory: AccessDirectory,
        needs: Mapping[int, Rule | Whom],
        cluster: str,
        reserved: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.time,
        spoken_for: Callable[[Command], tuple[str, str] | None] = lambda _request: None,
    ) -> None:
        """`reserved` are custom fields that only the brokers' own user may send; `clock` is Unix time in seconds.

        `spoken_for` tells of a request of that user for which address and user it speaks, None where for itself.
        """
        self._directory = directory
        self._needs = needs
        self._cluster = cluster
        self._reserved = reserved
        self._spoken_for = spoken_for
        self._authorizes = keys.authorizationEnabled
        self._unsigned = white_list("authenticationWhitelist", keys.authenticationWhitelist)
        self._allowed = white_list("authorizationWhitelist", keys.authorizationWhitelist)
        self._refusals = RefusalLog(shown_body)
        # What was let in, as the directory was at `_as_of` → the secret key that it was signed with.
        self._let_in: dict[tuple[object, ...], str] = {}
        self._as_of = directory.changes
        self._sends = KnownSends()
        self._proof_lasts_s = proof_lasts_s(keys)
        self._send_seconds = keys.authenticationSendLifetimeSeconds
        self._clock = clock

    def guarded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return the same handlers, each behind the guard."""
        return {code: self._behind(code, handler) for code, handler in handlers.items()}

    def unserved(self, connection: Connection, request: Command) -> Command:
        """Return the answer to a request that has no handler: who may not ask is not told that."""
        why = self._unauthenticated(request)
        return unsupported(request) if why is None else self._refuse(connection, request, why)

    def refusal(self, host: str, request: Command) -> str | None:
        """Return why a request is refused, None when it is let in. Raises HeaderError for what cannot be read."""
        code = request.code
        rule = self._needs.get(code, Whom.SUPER)
        if rule is Whom.EVERYBODY:
            return None
        if code in self._unsigned and self._reserved.isdisjoint(request.ext):
            # Whatever name it says is not proved.
            user = ""
        else:
            why = self._unauthenticated(request)
            if why is not None:
                said = ", ".join(sorted(self._reserved & request.ext.keys())) if code in self._unsigned else ""
                return f"only brokers may say {said}, and sign it: {why}" if said else why
            user = request.ext[ACCESS_KEY]
            spoken_for = self._spoken_for(request)
            if spoken_for is not None:
                # What its user may do is decided here as well: another member may go by other keys.
                host, user = spoken_for[0] or host, spoken_for[1]
                if not user and code not in self._unsigned:
                    return f"{NOBODY} {UNPROVED}"
        if code in self._allowed or rule is Whom.USERS or (rule is not Whom.SUPER and not self._authorizes):
            return None
        if not user:
            return NOBODY
        if self._directory.is_super(user):
            return None
        if isinstance(rule, Whom):
            return f"User:{user} is no super user."
        return self._denied(user, host, rule(request, self._cluster))

    def _behind(self, code: int, handler: Handler) -> Handler:
        rule = self._needs.get(code)
        if rule is Whom.EVERYBODY:
            return handler
        if self._send_seconds and code in DATED:
            handler = self._dated(DATED[code], handler)
        refusal, refuse, known = self.refusal, self._refuse, self._known
        known_send, repeated_send = self._known_send, self._repeated_send
        directory, stateless = self._directory, not self._proof_lasts_s
        proved = code not in self._unsigned
        names = rule.names if isinstance(rule, FieldsRule) and proved else None
        # Nothing that only brokers may say can be in such a send, nor a field that decides and is not looked at.
        kinds = names is not None and KEPT_UNDER.issuperset(names) and _SEND_FIELDS.isdisjoint(self._reserved)

        def handle(connection: Connection, request: Command) -> Reply:
            send = request.typed_header
            if kinds and type(send) is RepeatedSend:
                # The usual way of a send, so nothing is called that need not be.
                kind: SendKind = send.kind
                if stateless and kind.as_of == directory.changes:
                    header = kind.read_repeated(send, request.body)
                    if header is not None:
                        request.typed_header, request.user = header, kind.user
                        return handler(connection, request)
                elif repeated_send(connection, request, send):
                    return handler(connection, request)
                request.typed_header = None
                connection.decode_by(decode_signed_parts)
            elif kinds and type(send) is SignedSend and known_send(connection, request, send):
                return handler(connection, request)
            host = connection.peer[0]
            if names is None:
                why = refusal(host, request)
            else:
                ext = request.ext
                key = (code, ext.get(ACCESS_KEY), host, *map(ext.get, names))
                why = None if known(key, connection, request) else self._looked_at(key, host, request)
            if why is None:
                ext = request.ext
                ext.pop(SIGNATURE, None)
                ext.pop(SECURITY_TOKEN, None)
                if proved:
                    request.user = ext.get(ACCESS_KEY, "")
                else:
                    # Nobody has looked whether it is his: it is neither believed nor passed on.
                    ext.pop(ACCESS_KEY, None)
                if kinds and type(send) is SignedSend:
                    self._note_send(key, host, request, send)
                return handler(connection, request)
            return refuse(connection, request, why)

        return handle

    def _refuse(self, connection: Connection, request: Command, why: str) -> Command:
        answer = Command.response(ResponseCode.NO_PERMISSION, why)
        # As whom he asked; in whose name somebody else says that he asks was not let in.
        self._refusals.tell(connection, request, answer, request.ext.get(ACCESS_KEY, ""))
        return answer

    def _dated(self, header: type[Sent], handler: Handler) -> Handler:
        """Return a handler of sends that refuses what may be a replay; it comes behind the look at who sends."""
        seconds, clock, refusals = self._send_seconds, self._clock, self._refusals

        def handle(connection: Connection, request: Command) -> Reply:
            why = why_too_old(request, header, seconds, clock)
            if why is None:
                return handler(connection, request)
            answer = Command.response(ResponseCode.NO_PERMISSION, why)
            refusals.tell(connection, request, answer)
            return answer

        return handle

    def _known_send(self, connection: Connection, request: Command, send: SignedSend) -> bool:
        """Tell whether a send is like one let in before, and signed by the same user; set its typed header then."""
        kind = self._sends.kind(connection, send, self._directory.changes)
        if kind is None or not self._let_in_as(kind, kind.read, connection, request, send):
            return False
        self._sends.came(connection, request, send)
        return True

    def _repeated_send(self, connection: Connection, request: Command, send: RepeatedSend) -> bool:
        """Do as `_known_send`, of one that was told at sight."""
        kind: SendKind = send.kind
        return kind.as_of == self._directory.changes and self._let_in_as(
            kind, kind.read_repeated, connection, request, send
        )

    def _let_in_as(
        self,
        kind: SendKind,
        read: Callable[[S, Body, bool], SendMessageRequestHeaderV2 | None],
        connection: Connection,
        request: Command,
        send: S,
    ) -> bool:
        """Tell whether a send of a kind is its user's; set its typed header then."""
        proved = self._proof_lasts_s > 0 and self._has_proved(connection, kind.user)
        header = read(send, request.body, proved)
        if header is None:
            return False
        if self._proof_lasts_s and not proved:
            self._note_proof(connection, kind.user)
        request.typed_header = header
        request.user = kind.user
        return True

    def _note_send(self, key: tuple[object, ...], host: str, request: Command, send: SignedSend) -> None:
        """Keep of what kind a send is that was let in, where its user has one key only."""
        as_of = self._directory.changes
        secret = self._let_in.get(key) if self._as_of == as_of else None
        if secret is None or request.raw_header is None or (header := typed_send(request.raw_header)) is None:
            return
        request.typed_header = header
        self._sends.note(host, send, header, secret, as_of)

    def _known(self, key: tuple[object, ...], connection: Connection, request: Command) -> bool:
        """Tell whether the like was let in, and this is signed by the same user: the usual way of a request."""
        secret, as_of = self._let_in.get(key), self._as_of
        if secret is None or as_of != self._directory.changes or not request.ext.keys().isdisjoint(self._reserved):
            return False
        if not self._proof_lasts_s:
            return is_signed_by(request, secret)
        user = request.ext[ACCESS_KEY]
        if self._has_proved(connection, user):
            return True
        if not is_signed_by(request, secret):
            return False
        self._note_proof(connection, user)
        return True

    def _has_proved(self, connection: Connection, user: str) -> bool:
        """Tell whether a connection has proved a user, as users and policies are now, and that still counts."""
        proved = connection.attachments.get(_PROVED)
        return (
            proved is not None
            and proved[0] == user
            and proved[1] == self._directory.changes
            and connection.loop.time() < proved[2]
        )

    def _note_proof(self, connection: Connection, user: str) -> None:
        until = connection.loop.time() + self._proof_lasts_s
        connection.attachments[_PROVED] = user, self._directory.changes, until

    def _looked_at(self, key: tuple[object, ...], host: str, request: Command) -> str | None:
        """Return why a request is refused; when it is let in, the next like it is so at a third of the cost."""
        why = self.refusal(host, request)
        directory, let_in = self._directory, self._let_in
        user = directory.user(request.ext.get(ACCESS_KEY, ""))
        if why is None and user is not None and len(secrets := directory.secrets(user)) == 1:
            if self._as_of != directory.changes:
                let_in.clear()
                self._as_of = directory.changes
            elif len(let_in) >= LET_IN_MAX:
                # The oldest: a dictionary keeps the order in which its keys came.
                del let_in[next(iter(let_in))]
            let_in[key] = secrets[0]
        return why

    def _unauthenticated(self, request: Command) -> str | None:
        ext, directory = request.ext, self._directory
        why = directory.unproved(request)
        if why is not None:
            return why
        if self._reserved and not self._reserved.isdisjoint(ext) and not directory.is_inner(name := ext[ACCESS_KEY]):
            return f"User:{name} may not speak for others: {', '.join(sorted(self._reserved & ext.keys()))}"
        return None

    def _denied(self, user: str, host: str, touched: list[Access]) -> str | None:
        for access in touched:
            why = self._directory.denied(user, access, host)
            if why is not None:
                return f"User:{user} has no permission to access {access.resource.key} from {host}, {why}"
        return None
