"""What only the leader of a group may do, and how a request that another member took says for whom it speaks.

A forwarded request carries, beside its own fields, `raftHop` = 1, `raftTerm` (as the member knows it: a leader of an
older term refuses), `raftClientHost` (the client's address, which becomes the record's born host), `raftLeftMs` (what
is left of its one deadline), `raftFrom` and `raftAtMs` (the member, and what its wall clock showed when it passed this
on: see broker/deadlines.py), `raftAgeMs` and `raftReadMs` (how long ago it came there at the most, and was read), and
of an offset commit `raftClientId`; where it was
signed `raftUser`, whose signature the other member verified, whether or not access control is on there. Whom it speaks
for is believed of connections from members' addresses only; with access control on the guard before that
(auth/guard.py) takes these fields from nobody who does not sign with the brokers' own credentials, takes nothing that
is passed on for nobody, and looks whether that user may do it. Who may administer was judged by the member that was
asked (remoting/admission.py). The refusal of the other side's gate carries `raftHop` too: nothing was appended, so the
request may be sent again. So does every answer that a client gets by way of another member: its route is old.
"""

from collections.abc import Callable, Mapping
from typing import cast

from remoting.address import format_address, host_bytes, parse_address
from remoting.audit import ASKED_BY
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_FLAG, Body, Command
from remoting.errors import CommandError
from remoting.runs import SendRun
from remoting.server import Connection, Handler, Reply
from remoting.signing import SIGNED_FIELDS

HOP = "raftHop"
TERM = "raftTerm"
CLIENT_HOST = "raftClientHost"
LEFT = "raftLeftMs"
FROM = "raftFrom"
AT = "raftAtMs"
AGE = "raftAgeMs"
READ = "raftReadMs"
CLIENT_ID = "raftClientId"
# What only another member says; ASKED_BY, raftUser, is the user who signed the request.
SAID_BY_MEMBERS = frozenset({HOP, TERM, CLIENT_HOST, LEFT, FROM, AT, AGE, READ, CLIENT_ID, ASKED_BY})
_LEFT_OUT = SAID_BY_MEMBERS | SIGNED_FIELDS
# Set in the header's `flag` of a forwarded request too: a leader need not look through the fields of every send.
HOP_FLAG = 1 << 8

SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
# What changes something that is replicated, or must be answered from the newest state. All else a member answers
# itself: heartbeats (a new leader then knows its groups at once), pulls (pull.py decides), what it has read or counted.
LEADER_ONLY = SENDS | frozenset(
    {
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.RECALL_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)

# What may commit an offset of its consumer: whose it is, travels with it.
COMMITS = frozenset(
    {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    }
)

# What only a leader that nobody can have replaced may answer (R7, R14): positions, stored offsets, locks.
LEASED = frozenset(
    {
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.LOCK_BATCH_MQ,
    }
)


def is_undecided(request: Command) -> bool:
    """Tell whether an end of a transaction decides nothing: it is never answered, whoever gets it."""
    return request.code == RequestCode.END_TRANSACTION and request.ext.get("commitOrRollback") not in {"8", "12"}


def in_whose_name(request: Command) -> tuple[str, str] | None:
    """Return the address and the user for whom a member that sends this speaks; None for one that is its own."""
    return passed_on_for(request) if request.flag & HOP_FLAG else None


def passed_on_for(request: Command) -> tuple[str, str] | None:
    """Do as `in_whose_name` by what is signed: the fields."""
    ext = request.ext
    if HOP not in ext:
        return None
    try:
        host = parse_address(ext[CLIENT_HOST])[0] if CLIENT_HOST in ext else ""
    except ValueError:
        host = ""
    return host, ext.get(ASKED_BY, "")


FromMember = Callable[[Connection], bool]
"""Tells whether a connection is another member's: only those speak for somebody else."""


def forwarded(request: Command, client: Connection, term: int, said: Mapping[str, str]) -> Command:
    """Return the request that goes to the leader, with all that the client's has; `said` are more fields of ours.

    Its signature stays here, where it was verified: this member signs for itself. What only members say, this one says
    alone.
    """
    ext = {name: value for name, value in request.ext.items() if name not in _LEFT_OUT}
    return Command(
        request.code,
        request.flag & ONEWAY_FLAG | HOP_FLAG,
        language=request.language,
        version=request.version,
        remark=request.remark,
        body=request.body,
        serialize_type=request.serialize_type,
        raw_ext={**ext, HOP: "1", TERM: str(term), CLIENT_HOST: format_address(*client.peer), **said},
    )


def in_clients_name(
    handler: Handler, connection: Connection, request: Command, own_term: int, from_member: FromMember
) -> Reply:
    """Take a forwarded send as leader: in the client's name, unless the other member knows a newer term.

    What says so and comes from no member is a client's own.
    """
    ext = request.ext
    if HOP not in ext or not from_member(connection):
        return handler(connection, request)
    try:
        term = int(ext.get(TERM, "0"))
        host = host_bytes(*parse_address(ext[CLIENT_HOST])) if CLIENT_HOST in ext else connection.peer_host
    except ValueError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"{TERM} or {CLIENT_HOST}: {error}") from None
    if term > own_term:
        return refusal(f"this broker knows term {own_term}, the request comes from term {term}")
    return handler(cast(Connection, _Origin(connection, host)), request)


class _Origin:
    """A member's connection, seen by a send as that of the client in whose name it speaks."""

    __slots__ = ("link", "peer_host")

    def __init__(self, connection: Connection, peer_host: bytes) -> None:
        self.link = connection
        self.peer_host = peer_host

    @property
    def closed(self) -> bool:
        """Whether nobody can be answered any more."""
        return self.link.closed

    def write(self, *pieces: Body) -> None:
        """Send bytes."""
        self.link.write(*pieces)

    def reply(self, request: Command, response: Command) -> None:
        """Answer a request."""
        self.link.reply(request, response)


def beneath(connection: object) -> object:
    """Return the connection that a request really came over: of a forwarded one the other member's."""
    return connection.link if isinstance(connection, _Origin) else connection


def refusal(why: str) -> Command:
    """Return a gate's refusal: its custom field tells the other member that nothing was appended."""
    return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, f"[RAFT] {why}", ext={HOP: "1"})


def gated_runs(handler: Handler, is_open: Callable[[Command], bool]) -> Handler:
    """Return what serves a run by `handler` while a gate is open, else has each of its sends come to that gate."""

    def gated(connection: Connection, run: SendRun) -> object:
        if is_open(cast(Command, run)):
            return handler(connection, cast(Command, run))
        return run

    return cast(Handler, gated)
