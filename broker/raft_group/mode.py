"""What differs between a member of a Raft group and brokers of other modes (broker/mode.py)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack
from typing import Protocol, cast

from auth.directory import AccessDirectory
from auth.settings import inner_credentials
from broker.clients import ClientTable
from broker.metadata.agreed_locks import LOCKS_IN_LOG
from broker.metadata.committers import Committer
from broker.mode import BrokerParts, Clean, Mode
from broker.raft_group.admin import RaftHandlers
from broker.raft_group.forward_limits import CLIENT_LIMITS
from broker.raft_group.forwarder import Forwarder
from broker.raft_group.ha_status import GroupHaStatus
from broker.raft_group.measures import GroupMeasures
from broker.raft_group.member import RaftGroup
from broker.raft_group.reply_relay import ReplyRelay
from broker.raft_group.to_classic import GroupConversion
from broker.role import BrokerRole
from broker.settings.config import LiveConfig
from broker.settings.restart import RestartAction
from remoting.admission import comes_from
from remoting.client import RemotingClient
from remoting.command import Command
from remoting.server import Connection, Handler
from remoting.signing import ACCESS_KEY
from runtime.clock import SteadyClock
from runtime.figures import Figure
from runtime.late import late
from runtime.tls import outgoing_tls
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)


# Seconds that a stopping member forwards at most: official clients look at routes every 30 s.
FORWARDING_SECONDS = 35.0


# And so long while nobody leads: an election takes a second or two; when all members stop, the last ones wait in vain.
LEADERLESS_SECONDS = 5.0


# How often a stopping member gives the lead away: while it forwards it has a vote, and may be elected again.
HAND_OVERS_MAX = 5


# What a member logs that forwards before it stops.
FORWARDS = "forwards until its clients have found the leader"


# Seconds between two looks at whether anybody is left that a stopping member could forward for.
LOOK_SECONDS = 0.05


# Seconds that what is being forwarded may take at the end of a stop.
FORWARDS_SECONDS = 1.0


# What is attached to a connection that comes from a member.
_FROM_MEMBER = "from a member"


class ForwardingIdle(Protocol):
    """Tells how long no client has taken this member for the leader (Forwarder)."""

    @property
    def idle_seconds(self) -> float:
        """Seconds; infinite when none ever did."""
        ...


async def forward_until_quiet(
    forwarder: ForwardingIdle,
    role: BrokerRole,
    served: Callable[[], bool],
    *,
    quiet: float,
    led: bool,
    most: float = FORWARDING_SECONDS,
    leaderless: float = LEADERLESS_SECONDS,
) -> None:
    """Wait until no client has asked for `quiet` s, or all have gone, or there was nobody to forward to for long.

    It ends as well when this member leads again: then there is nobody to forward to but itself.
    """
    loop = asyncio.get_running_loop()
    began = led_at = loop.time()
    while served() and not role.leads and (now := loop.time()) - began < most:
        if forwarder.idle_seconds >= quiet and (now - began >= quiet or not led):
            return
        if role.leader_address is not None:
            led_at = now
        elif now - led_at >= leaderless:
            _log.warning("nobody leads: this member forwards no more")
            return
        await asyncio.sleep(LOOK_SECONDS)


async def give_away(
    hand_over: Callable[[], Awaitable[bool]], role: BrokerRole, forward: Callable[[], Awaitable[None]]
) -> None:
    """Give the lead away and forward; once more when this member, which stops but votes, was elected meanwhile."""
    for _ in range(HAND_OVERS_MAX):
        if not await hand_over():
            _log.warning("no other member takes the lead")
            return
        await forward()
        if not role.leads:
            return
        _log.info("this member stops, but was elected: it gives the lead away again")
    _log.warning("this member was elected %d times while it stopped: it leaves as the leader", HAND_OVERS_MAX)


class RefusedLead:
    """Whether NameServers refuse a leader: they name another master, of a higher term than the one that leads.

    It takes two answers in one term: the first may be to what was sent before this member led. Said once in a term.
    """

    def __init__(self) -> None:
        self._term = -1
        self._count = 0

    def heard(self, master: str | None, term: int) -> bool:
        """Tell whether it is to be said now; `master`: another one, that was named to this leader."""
        if master is None:
            return False
        self._count = self._count + 1 if term == self._term else 1
        self._term = term
        return self._count == 2


class MemberMode(Mode):
    """A member of a Raft group."""

    # An applied entry decides, and the leader adopts (meta.py).
    adopts = False

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        clock: SteadyClock,
        address: str,
        on_fatal: Callable[[BaseException], None],
        restart: Callable[[RestartAction], None],
    ) -> None:
        """See RaftGroup."""
        self._live = live
        self._address = address
        self.group = RaftGroup(live, store, clock, address=address, on_fatal=on_fatal, restart=restart)
        self.role, self.meta, self.replication = self.group.role, self.group.meta, self.group.replication
        self.clean: Clean = late(lambda: self.group.retention.clean)
        self.delete_queues = self.group.delete_queues
        self._group_meta = self.group.meta
        self._client = RemotingClient(
            limits=CLIENT_LIMITS,
            name="broker's forwarder",
            tls=outgoing_tls(live.broker),
            credentials=inner_credentials(live.broker),
        )
        self._clients: ClientTable
        self._directory: AccessDirectory
        self._forwarder = Forwarder(
            self.role,
            self._client,
            address,
            member=self.group,
            name_of=late(lambda: self._clients.client_id),
            from_member=self.from_member,
            asker=self._asker,
        )
        self.elsewhere = self._forwarder.forward_lost
        self.forward_pull = self._forwarder.forward_pull
        self.came = self._forwarder.came
        self._relay = ReplyRelay(
            self._client, self.group.role.others, late(lambda: self._clients.reach), self.from_member
        )
        self.relay = self._relay.relay
        self._admin = RaftHandlers(self.group, self.group.role)
        assert store.entries is not None, "the store was opened as a group member's"
        self._entries = store.entries
        self._ha_status = GroupHaStatus(self.group.status, store.entries, lambda: live.broker.haMaxGapNotInSync)
        self._measures = GroupMeasures(
            self.group.status,
            store.entries,
            clock,
            sends=self.group.replication.times,
            appends=self.group.node.append_times,
        )
        self._conversion = GroupConversion(live, store, self.group, self._client, restart)
        self.pages = {"/v1/raft": self.group.status}
        self._refused = RefusedLead()

    def members_hosts(self) -> Collection[str]:
        """Return where the other members are: what their clients ask for comes from there."""
        return self.group.hosts

    def from_member(self, connection: Connection) -> bool:
        """Tell whether a connection comes from another member's address; what was once so stays."""
        known: bool = connection.attachments.get(_FROM_MEMBER, False)
        if not known and comes_from(connection, self.group.hosts):
            known = connection.attachments[_FROM_MEMBER] = True
        return known

    def _asker(self, request: Command) -> str:
        """Return the user whose request this member passes on under its own signature, "" when nobody's is proved."""
        user, keys = request.ext.get(ACCESS_KEY, ""), self._live.broker
        if not user or keys.authenticationEnabled or not keys.innerClientAuthenticationCredentials:
            # It was verified before it came here; or this member signs nothing, and nobody believes it.
            return user
        return user if self._directory.unproved(request) is None else ""

    def flushed_in_thread(self, position: int) -> None:
        """Let the group count what is on the disk."""
        self.group.flushed_in_thread(position)

    def flushed_in_loop(self, position: int) -> None:
        """Let the group count it at once."""
        self.group.flushed_in_loop(position)

    def worked_in_thread(self) -> None:
        """Let repair go on."""
        self.group.worked_in_thread()

    def heard(self, master: str | None, ha_address: str | None) -> None:  # noqa: ARG002 # as the others
        """Say that NameServers do not take this leader for the master, when that is so."""
        other = master if master != self._address and self.role.leads and self.role.lease() else None
        if self._refused.heard(other, self.role.term):
            name = self._live.broker.name()
            _log.error(
                "NameServers do not take this leader of term %d for the master of %s: they know a higher one, of %s. "
                "When that group is no more, `raftmq cluster forget %s` makes them forget it",
                self.role.term,
                name,
                master,
                name,
            )

    def attach(self, parts: BrokerParts) -> None:
        """Have the group's operations applied to the tables."""
        tables = parts.tables
        self.group.attach(tables.topics, parts.folder)
        self._clients = tables.clients
        self._directory = parts.users.directory
        tables.offsets.committers.join(
            cast(Callable[[Committer], str | None], tables.clients.client_id), self.group.monotonic
        )

    def locks_in_log(self) -> bool:
        """Tell whether every member of the group, as far as it has said so, takes queue locks from the log."""
        return self.group.role.all_can(LOCKS_IN_LOG)

    def congested(self) -> bool:
        """Tell whether who sends much shall wait, for this log or for the leader's."""
        return self.replication.congested or self._forwarder.congested

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, those for a leader only behind the gate, and those of the group's administration."""
        added = {**self._admin.table(), **self._conversion.table(), **self._ha_status.table(), **self._relay.table()}
        ours = {int(code): each for code, each in added.items()}
        assert not ours.keys() & table.keys(), "a code has one handler"
        return {**self._forwarder.gate(table), **ours}

    async def start(self, parts: AsyncExitStack) -> None:
        """Bring the tables up to the log, then take part."""
        parts.push_async_callback(self._client.close)
        parts.push_async_callback(self._forwarder.close)
        parts.push_async_callback(self._relay.close)
        parts.push_async_callback(self._conversion.close)
        await self._conversion.start()
        self.group.replay()
        self.group.retention.resume()
        parts.push_async_callback(self.group.close)
        await self.group.start()

    async def retire(self, served: Callable[[], bool], *, again: bool) -> None:
        """Give the lead away, then forward until no client has asked for shutdownForwardMs, or all have gone.

        Official clients learn of the new leader when they look at the route, in 30 s at most. A broker that is back at
        once, as something else, keeps nobody waiting for that: in a conversion all others wait for it.
        """
        led = self.role.leads
        ends = time.monotonic() + FORWARDING_SECONDS
        quiet = self._live.broker.shutdownForwardMs / 1000

        async def forward() -> None:
            if not again:
                _log.info("this member stops: it %s", FORWARDS)
                left = ends - time.monotonic()
                await forward_until_quiet(self._forwarder, self.role, served, quiet=quiet, led=led, most=left)
            await self._forwarder.drain(FORWARDS_SECONDS)

        await give_away(self.group.hand_over, self.role, forward)

    async def persist(self) -> None:
        """Write the tables that changed, stamped with what of the log is in them."""
        await self._group_meta.persist()

    async def hand_over(self) -> bool:
        """Give the lead of the group to another member."""
        return await self.group.hand_over()

    def label(self) -> str:
        """Return what it is in the group."""
        return "LEADER" if self.role.leads else "FOLLOWER"

    def figures(self) -> dict[str, str]:
        """Return the figures of a member."""
        role = self.role
        return {
            "raftRole": "LEADER" if role.leads else "FOLLOWER",
            "raftTerm": str(role.term),
            "raftLeaderAddress": role.leader_address or "",
            "raftLastIndex": str(self._entries.last.index),
            "raftCommitIndex": str(self.group.node.commit_index),
            "raftFlushDiskType": self._live.store.flushDiskType,
            "raftClockApart": self.clock_apart(),
        }

    def measures(self) -> Iterable[Figure]:
        """Return the metrics of a member."""
        return self._measures.figures()

    def clock_apart(self) -> str:
        """Return what the group's clocks say of this member's (R17)."""
        return self.group.clock_apart

    def waits_for(self) -> str | None:
        """Return that nobody leads, as far as is known here, or that too few have room for what this leader is sent."""
        if self.role.leads:
            return self.group.starved
        if self.role.leader_address is not None:
            return None
        return "no leader of the group is known"
