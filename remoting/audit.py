"""The audit log: one line for each request that changes something for others: who, from where, what, and the answer.

Its logger is called "audit", so that it can be sent to a file of its own; each record carries the same as a map
(`record.audit`), of which runtime/log.py makes JSON lines. From an address that may not administer
(remoting/admission.py) such a request is refused here, before any handler; that leaves a line too, and so does every
request that access control refuses (auth/guard.py). What a body changes is said as well, by who can read it
(auth/audit_bodies.py). Signatures, tokens and passwords are in no line.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping

from remoting.admission import Admission
from remoting.codes import ClassicCode, NamesrvCode, RaftCode, RequestCode, ResponseCode
from remoting.command import Body, Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import CommandError, RemotingError
from remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from runtime.quiet import LineShares

_log = logging.getLogger("audit")

# Characters of a request's fields, of what is said of its body, and of an answer's remark, that a line shows.
FIELDS_SHOWN_MAX = 400
BODY_SHOWN_MAX = 1000
REMARK_SHOWN_MAX = 200
USER_SHOWN_MAX = 100

# Of what strangers may ask as often as they like: one line for each address and code, so many for an address and in
# all, in ten seconds (runtime/quiet.py). Who repeats himself costs a line and a count, and silences nobody else.
STRANGERS_LINES_MAX = 200
STRANGER_LINES_MAX = 10

# What administrators ask for. What clients and brokers do all the time (sends, offsets, registrations) is not here, nor
# what only looks.
CHANGES: Mapping[int, str] = {
    int(code): code.name
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RaftCode.TRANSFER_LEADER,
        RaftCode.ADD_PEER,
        RaftCode.REMOVE_PEER,
        RaftCode.LEAVE,
        ClassicCode.PROMOTE,
        ClassicCode.FOLLOW,
        ClassicCode.ACCEPT_MASTER,
        ClassicCode.TO_RAFT,
        ClassicCode.TO_CLASSIC,
        ClassicCode.DEPOSED,
        NamesrvCode.FORGET,
    )
}


# Those of CHANGES that servers ask of one another as well: RocketMQ's brokers register single topics so, and a promoted
# broker tells the master before it, which asks back (broker/master_slave/fencing.py). Whoever sends them is answered.
ASKED_BY_SERVERS = frozenset({int(RequestCode.REGISTER_TOPIC_IN_NAMESRV), int(ClassicCode.DEPOSED)})
# What only those may ask for who may administer.
ADMINISTRATIVE = CHANGES.keys() - ASKED_BY_SERVERS


# What is in no line: who has it could send the request again.
_SECRET_FIELDS = frozenset({SIGNATURE, SECURITY_TOKEN})
# In whose name a member of a Raft group passes a request on (broker/leader_only.py).
ASKED_BY = "raftUser"


def user_of(request: Command) -> str:
    """Return the user that a request names, "" when it names none; proved only where access control is on."""
    ext = request.ext
    return ext.get(ASKED_BY) or ext.get(ACCESS_KEY, "")


ShownBody = Callable[[int, Body], str]
"""Returns what a line says of the body of a request with a code: bounded work, no secret; "" for nothing."""


def _nothing(_code: int, _body: Body) -> str:
    return ""


def audited(
    handlers: Mapping[int, Handler], admission: Admission, shown_body: ShownBody = _nothing
) -> dict[int, Handler]:
    """Return the same handlers; those of CHANGES tell the audit log what was asked and what became of it.

    Those of ADMINISTRATIVE take what they are asked from where `admission` lets it come from only.
    """
    refusals = RefusalLog(shown_body)
    table = dict(handlers)
    for code in CHANGES.keys() & handlers.keys():
        told = _told(CHANGES[code], handlers[code], shown_body)
        table[code] = _kept(told, admission, refusals) if code in ADMINISTRATIVE else told
    return table


def _kept(handler: Handler, admission: Admission, refusals: "RefusalLog") -> Handler:
    def handle(connection: Connection, request: Command) -> Reply:
        why = admission.refusal(connection)
        if why is None:
            return handler(connection, request)
        answer = Command.response(ResponseCode.NO_PERMISSION, why)
        refusals.tell(connection, request, answer)
        return answer

    return handle


class BoundedAudit:
    """Lines about what strangers may ask as often as they like: for some a line, for the others a count."""

    def __init__(self, what: str, shown_body: ShownBody = _nothing) -> None:
        """Say `what` of those that are counted, such as "requests were refused"."""
        self._what = what
        self._shown_body = shown_body
        self._shares = LineShares(STRANGERS_LINES_MAX, STRANGER_LINES_MAX)

    def tell(
        self, connection: Connection, request: Command, answer: Command, user: str | None = None, of: Hashable = None
    ) -> None:
        """Write a line about a request that is answered so, or count it.

        `user` is who asked, where that is not what the request says; of one code what is about another thing (`of`) is
        worth another line.
        """
        count, whose = self._shares.left_out(connection.loop.time())
        if count:
            _log.info("%d more %s since the last such lines: %s", count, self._what, whose)
        if self._shares.let(connection.peer[0], (request.code, of)):
            teller = _teller(_name(request.code), connection, request, self._shown_body, user)
            teller(_answer(answer), answer.code)


class RefusalLog(BoundedAudit):
    """Lines about refused requests."""

    def __init__(self, shown_body: ShownBody = _nothing) -> None:
        super().__init__("requests were refused", shown_body)


def _told(name: str, handler: Handler, shown_body: ShownBody) -> Handler:
    def handle(connection: Connection, request: Command) -> Reply:
        tell = _teller(name, connection, request, shown_body)
        try:
            reply = handler(connection, request)
        except Exception as error:
            tell(*_refusal(error))
            raise
        if isinstance(reply, Command):
            tell(_answer(reply), reply.code)
        elif isinstance(reply, Awaitable):
            return _finished(reply, tell)
        else:
            # By another broker, which has a log of its own.
            tell("passed on", None)
        return reply

    return handle


Tell = Callable[[str, int | None], None]
"""Takes what became of a request, and the code that it was answered with."""


async def _finished(reply: Awaitable[Command | None], tell: Tell) -> Command | None:
    try:
        answer = await reply
    except (Exception, asyncio.CancelledError) as error:
        tell(*_refusal(error))
        raise
    if answer is None:
        tell("passed on", None)
    else:
        tell(_answer(answer), answer.code)
    return answer


def _teller(
    name: str, connection: Connection, request: Command, shown_body: ShownBody, asker: str | None = None
) -> Tell:
    user, what = "", name
    try:
        user = _shown(user_of(request) if asker is None else asker, USER_SHOWN_MAX)
        shown = {key: value for key, value in request.ext.items() if key not in _SECRET_FIELDS}
        fields = " ".join(f"{key}={value}" for key, value in shown.items() if key != ACCESS_KEY)
    except RemotingError as error:
        fields = f"({error})"
    what = _shown(f"{name} {fields}" if fields else name, FIELDS_SHOWN_MAX)
    size = len(request.body)
    said = _shown(shown_body(request.code, request.body), BODY_SHOWN_MAX)
    body = f" and a body of {size} bytes" + (f" ({said})" if said else "") if size else ""
    who = f"{connection.address} as {user}" if user else connection.address
    asked = {"from": connection.address, "user": user, "asked": name, "fields": what, "bodyBytes": str(size)}
    if said:
        asked["body"] = said

    def tell(outcome: str, code: int | None) -> None:
        told = {**asked, "code": "" if code is None else str(code), "outcome": outcome}
        _log.info("%s asked for %s%s: %s", who, what, body, outcome, extra={"audit": told})

    return tell


def _name(code: int) -> str:
    known = CHANGES.get(code)
    if known is None:
        try:
            known = RequestCode(code).name
        except ValueError:
            known = f"code {code}"
    return known


def _answer(answer: Command) -> str:
    remark = f" ({_shown(answer.remark, REMARK_SHOWN_MAX)})" if answer.remark else ""
    return ("done" if answer.code == ResponseCode.SUCCESS else f"refused with {answer.code}") + remark


def _refusal(error: BaseException) -> tuple[str, int]:
    if isinstance(error, CommandError):
        return f"refused with {error.code} ({_shown(error.remark, REMARK_SHOWN_MAX)})", error.code
    what = f"failed, {type(error).__name__} ({_shown(str(error), REMARK_SHOWN_MAX)})"
    return what, int(ResponseCode.SYSTEM_ERROR)


def _shown(text: str, most: int) -> str:
    """Return a text on one line, cut to `most` characters: it is a stranger's."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain if len(plain) <= most else plain[:most] + "…"
