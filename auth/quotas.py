"""Quotas: how much one client address and one user may ask of a server, so that nobody pays for what another one does.

Stands before the handlers, behind access control, and only while some quota is set: `QuotaGuard.served` returns the
table that a server goes by, and the guard exchanges the handlers in it when the configuration changes. Counted are
sends and reads, each by itself: who sends too much still reads. Never refused for a rate is what keeps a client at work
or gives others something back: heartbeats, locks, offsets, acknowledgements, ends of transactions, messages sent back.

Nobody's are requests that the brokers' own user signed, and those that another member of a Raft group passes on: that
member has counted them. Only topics and groups that they make are counted here, where they are made.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum, auto

from auth.directory import AccessDirectory
from auth.model import Resource, ResourceKind
from auth.needs import BROKER
from auth.quota_bounds import PlaceBound, QuotaBound, RateBound
from auth.quota_keys import ADDRESS_KEYS, USER_KEYS, AddressQuotaKeys, Quota, QuotaKeys, limits_of, others_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import CommandError
from remoting.signing import ACCESS_KEY
from runtime.figures import Figure
from runtime.listening import origin
from runtime.quiet import QuietLog

_log = logging.getLogger(__name__)

_HOUR = 3600.0
# Of a connection: who asked last.
_CALLER = "quotaCaller"


class Counts(Enum):
    """What a request counts as."""

    SEND = auto()
    READ = auto()
    PRESENCE = auto()
    """Takes a place among the connections, as sends and reads do, and nothing else."""
    USE = auto()
    """May make a topic or group by using it."""
    CREATION = auto()
    """Makes topics or groups by request."""


BROKER_COUNTS: Mapping[int, Counts] = {
    **dict.fromkeys(
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            RequestCode.RECALL_MESSAGE,
        ),
        Counts.SEND,
    ),
    **dict.fromkeys(
        (
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.QUERY_MESSAGE,
            RequestCode.VIEW_MESSAGE_BY_ID,
        ),
        Counts.READ,
    ),
    RequestCode.HEART_BEAT: Counts.PRESENCE,
    **dict.fromkeys(
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.CLONE_GROUP_OFFSET,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        ),
        Counts.USE,
    ),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        ),
        Counts.CREATION,
    ),
}
# Routes and lists: what clients ask. What brokers and administrators ask is not counted.
NAMESRV_COUNTS: Mapping[int, Counts] = dict.fromkeys(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ),
    Counts.READ,
)
_TAKES_PLACE = frozenset({Counts.SEND, Counts.READ, Counts.PRESENCE})


class QuotaCaller:
    """Who asks over a connection: its address, or that in whose name a member speaks, and the user who signed."""

    __slots__ = ("counted", "host", "places", "user")

    def __init__(self, host: str, user: str, *, counted: bool) -> None:
        """Note who it is; `counted`: what is asked is counted here."""
        self.host = host
        self.user = user
        self.counted = counted
        # Where the connection is counted in, under which name.
        self.places: list[tuple[PlaceBound, str]] = []


# A broker, which asks in its own name.
_NOBODY = QuotaCaller("", "", counted=False)

SpokenFor = Callable[[Connection, Command], tuple[str, str] | None]
"""Returns the address and the user in whose name another member passes a request on, None for any other request."""


class QuotaGuard:
    """Counts what callers ask for, and refuses with SYSTEM_BUSY what is over a quota."""

    def __init__(
        self,
        keys: AddressQuotaKeys,
        counts: Mapping[int, Counts],
        clock: Callable[[], float],
        directory: AccessDirectory | None = None,
        unsigned: frozenset[int] = frozenset(),
        spoken_for: SpokenFor = lambda _connection, _request: None,
        exists: Callable[[Resource], bool] = lambda _resource: False,
    ) -> None:
        """`directory`: None where access control is off; `unsigned` are codes that need no signature nevertheless.

        `exists` tells whether there is a topic or group already.
        """
        self._counts = counts
        self._directory = directory
        self._unsigned = unsigned
        self._spoken_for = spoken_for
        self._exists = exists
        self._quiet = QuietLog(_log, clock)
        self._rates: dict[Counts, list[RateBound]] = {kind: [] for kind in Counts}
        both = (ADDRESS_KEYS, USER_KEYS)
        requests, size = Quota.REQUESTS, Quota.BYTES
        self._sends = [RateBound(of, requests, "sends a second", clock) for of in both]
        self._sent = [RateBound(of, size, "bytes of sends a second", clock) for of in both]
        self._reads = [RateBound(of, requests, "reads a second", clock) for of in both]
        self._read = [RateBound(of, size, "bytes of reads a second", clock) for of in both]
        self._topics = [RateBound(of, Quota.TOPICS, "new topics an hour", clock, _HOUR) for of in both]
        self._groups = [RateBound(of, Quota.GROUPS, "new groups an hour", clock, _HOUR) for of in both]
        self._places = [PlaceBound(of) for of in both]
        self.refused = {(bound.of, bound.quota): 0 for bound in self._bounds()}
        """How often something was refused: of whom, and for which quota."""
        self._tables: list[tuple[dict[int, Handler], dict[int, Handler], dict[int, Handler]]] = []
        self.on = False
        # How many bounds of connections are in force.
        self._places_on = 0
        self.counts_bytes = False
        """Whether what reads are answered with is counted."""
        self.take(keys)

    def take(self, keys: AddressQuotaKeys) -> None:
        """Go by these keys from now on."""
        others = others_of(keys) if isinstance(keys, QuotaKeys) else {}
        address, user = limits_of(keys, ADDRESS_KEYS), limits_of(keys, USER_KEYS)
        for bound in self._bounds():
            quota = bound.quota
            if bound.of == "user":
                bound.set(user[quota], {name: each[quota] for name, each in others.items() if quota in each})
            else:
                bound.set(address[quota], {})
        self._rates[Counts.SEND] = [bound for bound in (*self._sends, *self._sent) if bound.on]
        self._rates[Counts.READ] = [bound for bound in (*self._reads, *self._read) if bound.on]
        self.counts_bytes = any(bound.on for bound in self._read)
        self._places_on = sum(bound.on for bound in self._places)
        self.on = any(bound.on for bound in self._bounds())
        for live, plain, limited in self._tables:
            live.clear()
            live.update(limited if self.on else plain)

    def served(self, plain: dict[int, Handler], limited: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table to serve by: `plain` while there is no quota, else `limited`."""
        live = dict(limited if self.on else plain)
        self._tables.append((live, plain, limited))
        return live

    def limited(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return the same handlers, those of what is counted behind the quotas."""
        return {
            code: self._behind(code, self._counts[code], handler) if code in self._counts else handler
            for code, handler in handlers.items()
        }

    def closed(self, connection: Connection) -> None:
        """Give back the place of a connection that has gone."""
        caller = connection.attachments.get(_CALLER)
        if caller is not None:
            _leave(caller)

    def answered(self, connection: Connection, size: int) -> None:
        """Count the bytes of messages that a pull is answered with, whenever that is."""
        caller = connection.attachments.get(_CALLER)
        if caller is not None and caller.counted:
            self._given(caller, size)

    def creates_topic(self, creator: object, topic: str) -> None:
        """Count a topic that is made by using it. Raises CommandError (SYSTEM_BUSY) over a quota."""
        self._creates(self._topics, creator, topic)

    def creates_group(self, creator: object, group: str) -> None:
        """Count a group that is made by using it. Raises CommandError (SYSTEM_BUSY) over a quota."""
        self._creates(self._groups, creator, group)

    def figures(self) -> list[Figure]:
        """Return the metrics."""
        self._quiet.tell()
        text = "Requests refused for a quota: of an address or a user, and by what is bounded"
        rows = [((of, str(quota)), float(count)) for (of, quota), count in self.refused.items()]
        return [Figure("raftmq_quota_refused_total", text, "counter", list(rows), ("of", "quota"))]

    # ---- inside

    def _bounds(self) -> Iterable[QuotaBound]:
        yield from (*self._sends, *self._sent, *self._reads, *self._read)
        yield from (*self._topics, *self._groups, *self._places)

    def _behind(self, code: int, counts: Counts, handler: Handler) -> Handler:
        signed = self._directory is not None and code not in self._unsigned
        places, creates, reads = counts in _TAKES_PLACE, counts is Counts.CREATION, counts is Counts.READ
        rates, caller_of, over = self._rates, self._caller, self._over

        def handle(connection: Connection, request: Command) -> Reply:
            caller = caller_of(connection, request, (request.user or request.ext.get(ACCESS_KEY, "")) if signed else "")
            if caller.counted:
                if places and len(caller.places) < self._places_on and (why := self._placed(caller)) is not None:
                    connection.reply(request, self._refused(caller, why))
                    connection.close()
                    return None
                why = over(caller, rates[counts], request) if not creates else self._made(caller, code, request)
                if why is not None:
                    return self._refused(caller, why)
            reply = handler(connection, request)
            if reads and reply is not None and self.counts_bytes and caller.counted:
                return self._given_by(caller, reply)
            return reply

        return handle

    def _given_by(self, caller: QuotaCaller, reply: Reply) -> Reply:
        """Count the bytes of an answer to a read."""
        if isinstance(reply, Command):
            self._given(caller, reply.body_bytes)
        elif isinstance(reply, Awaitable):
            return self._given_later(caller, reply)
        return reply

    async def _given_later(self, caller: QuotaCaller, reply: Awaitable[Command | None]) -> Command | None:
        answer = await reply
        if answer is not None:
            self._given(caller, answer.body_bytes)
        return answer

    def _given(self, caller: QuotaCaller, size: int) -> None:
        for bound in self._read:
            if name := _name(bound, caller):
                bound.take(name, size)

    def _caller(self, connection: Connection, request: Command, user: str) -> QuotaCaller:
        """Return who asks, and note it at the connection: what is made by using it is his."""
        known: QuotaCaller | None = connection.attachments.get(_CALLER)
        spoken_for = self._spoken_for(connection, request)
        if spoken_for is not None:
            host, user = spoken_for
            made = QuotaCaller(origin(host), user, counted=False)
        elif known is not None and known.counted and known.user == user:
            return known
        else:
            inner = self._directory is not None and self._directory.is_inner(user)
            made = _NOBODY if inner else QuotaCaller(origin(connection.peer[0]), user, counted=True)
        if known is not None:
            _leave(known)
        connection.attachments[_CALLER] = made
        return made

    def _placed(self, caller: QuotaCaller) -> str | None:
        """Count the caller's connection in; return why not, None when it is."""
        for bound in self._places:
            if not bound.on or not (name := _name(bound, caller)) or (bound, name) in caller.places:
                continue
            if not bound.enter(name):
                self.refused[bound.of, bound.quota] += 1
                _leave(caller)
                return bound.refusal(name)
            caller.places.append((bound, name))
        return None

    def _over(self, caller: QuotaCaller, bounds: list[RateBound], request: Command) -> str | None:
        """Return why a request is over a quota; None when it is within all, and taken from them."""
        for bound in bounds:
            name = _name(bound, caller)
            if name and (wait := bound.wait(name)):
                self.refused[bound.of, bound.quota] += 1
                return bound.refusal(name, wait)
        for bound in bounds:
            if name := _name(bound, caller):
                if bound.quota is Quota.REQUESTS:
                    bound.take(name, 1)
                elif bound in self._sent:
                    bound.take(name, _size(request))
        return None

    def _made(self, caller: QuotaCaller, code: int, request: Command) -> str | None:
        """Return why a user may not make what he asks for; what he alters only costs him nothing."""
        directory, topics, groups, rule = self._directory, self._topics[1], self._groups[1], BROKER[code]
        if directory is None or not caller.user or directory.is_super(caller.user):
            return None
        if not (topics.on or groups.on) or not callable(rule):
            return None
        for access in rule(request, ""):
            resource = access.resource
            bound = topics if resource.kind is ResourceKind.TOPIC else groups
            if bound.on and not self._exists(resource) and (why := self._new(bound, caller.user, resource.name)):
                return why
        return None

    def _creates(self, bounds: list[RateBound], creator: object, what: str) -> None:
        if not any(bound.on for bound in bounds):
            return
        caller = getattr(creator, "attachments", {}).get(_CALLER)
        if caller is None:
            return
        for bound in bounds:
            name = _name(bound, caller)
            if bound.on and name and (why := self._new(bound, name, what)) is not None:
                raise CommandError(ResponseCode.SYSTEM_BUSY, why)

    def _new(self, bound: RateBound, name: str, what: str) -> str | None:
        """Take one topic or group from a quota; return why not, None when it is taken."""
        if wait := bound.wait(name):
            self.refused[bound.of, bound.quota] += 1
            return bound.refusal(name, wait, f"{what[:100]} is not created, ")
        bound.take(name, 1)
        return None

    def _refused(self, caller: QuotaCaller, why: str) -> Command:
        self._quiet.warning("quota", caller.host, "refused, asked from %s: %s", caller.host, why)
        return Command.response(ResponseCode.SYSTEM_BUSY, why)


def _name(bound: QuotaBound, caller: QuotaCaller) -> str:
    """Return under which name a caller is counted, "" for one who is not."""
    return caller.user if bound.of == "user" else caller.host


def _leave(caller: QuotaCaller) -> None:
    for bound, name in caller.places:
        bound.leave(name)
    caller.places.clear()


def _size(request: Command) -> int:
    """Return the bytes of a request's header and body, about: those of a text that was not kept are its fields'."""
    raw = request.raw_header
    if raw is not None:
        return len(raw) + len(request.body)
    ext = request.ext
    return sum(map(len, ext)) + sum(map(len, ext.values())) + len(request.body)
