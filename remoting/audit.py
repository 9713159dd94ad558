"""The audit log: one line for each request that changes something for others: who, from where, what, and the answer.

Its logger is called "audit", so that it can be sent to a file of its own. From an address that may not administer
(remoting/admission.py) such a request is refused here, before any handler; that leaves a line too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from remoting.admission import Admission
from remoting.codes import ClassicCode, NamesrvCode, RaftCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import CommandError, RemotingError

_log = logging.getLogger("audit")

# Characters of a request's fields, and of an answer's remark, that a line shows.
FIELDS_SHOWN_MAX = 400
REMARK_SHOWN_MAX = 200

# Of refusals: one line for each address and code, and so many in all, in so many seconds. A stranger who repeats
# himself costs a line and a count.
REFUSED_SECONDS = 10.0
REFUSED_LINES_MAX = 100

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


def audited(handlers: Mapping[int, Handler], admission: Admission) -> dict[int, Handler]:
    """Return the same handlers; those of CHANGES tell the audit log what was asked and what became of it.

    Those of ADMINISTRATIVE take what they are asked from where `admission` lets it come from only.
    """
    refusals = _Refusals()
    table = dict(handlers)
    for code in CHANGES.keys() & handlers.keys():
        told = _told(CHANGES[code], handlers[code])
        table[code] = _kept(CHANGES[code], told, admission, refusals) if code in ADMINISTRATIVE else told
    return table


def _kept(name: str, handler: Handler, admission: Admission, refusals: "_Refusals") -> Handler:
    def handle(connection: Connection, request: Command) -> Reply:
        why = admission.refusal(connection)
        if why is None:
            return handler(connection, request)
        answer = Command.response(ResponseCode.NO_PERMISSION, why)
        if refusals.worth_a_line(connection, request.code):
            _teller(name, connection, request)(_answer(answer))
        return answer

    return handle


class _Refusals:
    """Which refusals get a line of their own; the others are counted."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._told: set[tuple[str, int]] = set()
        self._silent = 0

    def worth_a_line(self, connection: Connection, code: int) -> bool:
        now = connection.loop.time()
        if now - self._since >= REFUSED_SECONDS:
            if self._silent:
                _log.info("%d more administrative requests were refused since the last such lines", self._silent)
            self._since, self._silent = now, 0
            self._told.clear()
        key = connection.peer[0], code
        if key in self._told or len(self._told) >= REFUSED_LINES_MAX:
            self._silent += 1
            return False
        self._told.add(key)
        return True


def _told(name: str, handler: Handler) -> Handler:
    def handle(connection: Connection, request: Command) -> Reply:
        tell = _teller(name, connection, request)
        try:
            reply = handler(connection, request)
        except Exception as error:
            tell(_refusal(error))
            raise
        if isinstance(reply, Command):
            tell(_answer(reply))
        elif isinstance(reply, Awaitable):
            return _finished(reply, tell)
        else:
            # By another broker, which has a log of its own.
            tell("passed on")
        return reply

    return handle


async def _finished(reply: Awaitable[Command | None], tell: Callable[[str], None]) -> Command | None:
    try:
        answer = await reply
    except (Exception, asyncio.CancelledError) as error:
        tell(_refusal(error))
        raise
    tell("passed on" if answer is None else _answer(answer))
    return answer


def _teller(name: str, connection: Connection, request: Command) -> Callable[[str], None]:
    def tell(outcome: str) -> None:
        try:
            fields = " ".join(f"{key}={value}" for key, value in request.ext.items())
        except RemotingError as error:
            fields = f"({error})"
        what = f"{name} {fields}" if fields else name
        body = f" and a body of {len(request.body)} bytes" if request.body else ""
        _log.info("%s asked for %s%s: %s", connection.address, _shown(what, FIELDS_SHOWN_MAX), body, outcome)

    return tell


def _answer(answer: Command) -> str:
    remark = f" ({_shown(answer.remark, REMARK_SHOWN_MAX)})" if answer.remark else ""
    return ("done" if answer.code == ResponseCode.SUCCESS else f"refused with {answer.code}") + remark


def _refusal(error: BaseException) -> str:
    if isinstance(error, CommandError):
        return f"refused with {error.code} ({_shown(error.remark, REMARK_SHOWN_MAX)})"
    return f"failed, {type(error).__name__} ({_shown(str(error), REMARK_SHOWN_MAX)})"


def _shown(text: str, most: int) -> str:
    """Return a text on one line, cut to `most` characters: it is a stranger's."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain if len(plain) <= most else plain[:most] + "…"
