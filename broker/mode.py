"""What differs between the modes of a broker, in one value that the composition root works with.

`Member` is a member of a Raft group; the master and the slave stand in broker/classic.py. Everybody else sees only a
role, a replication and a metadata log, and does not ask which mode it is.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from broker.config import LiveConfig
from broker.convert_group import GroupConversion
from broker.forward import CLIENT_LIMITS, Forwarder
from broker.group import RaftGroup
from broker.groups import GroupTable
from broker.meta import GroupMeta
from broker.meta_log import LocalMeta
from broker.offsets import OffsetTable
from broker.pull import ForwardPull, MasterWatch
from broker.raft_admin import RaftAdmin
from broker.reborn import RestartAction
from broker.replication import Replication
from broker.request_modes import RequestModes
from broker.role import BrokerRole
from broker.schedule import ScheduleService
from broker.send import Elsewhere
from broker.topics import TopicTable
from remoting.client import RemotingClient
from remoting.server import Handler
from runtime.clock import Clock
from store.messagestore import MessageStore
from store.types import CleanReport

_log = logging.getLogger(__name__)

# Seconds that a stopping member forwards at most: official clients look at routes every 30 s.
FORWARDING_SECONDS = 35.0
# Seconds between two looks at whether anybody is left that a stopping member could forward for.
LOOK_SECONDS = 0.05
# Seconds that what is being forwarded may take at the end of a stop.
FORWARDS_SECONDS = 1.0


class Clean(Protocol):
    """Does a pass of retention; see MessageStore.clean."""

    def __call__(self, *, now: bool = False) -> CleanReport:
        """Delete what may be deleted."""
        ...


class ModeReplication(Replication, Protocol):
    """How a mode keeps messages safe, and what the broker as a whole needs of it."""

    @property
    def pending_bytes(self) -> int:
        """Bytes taken and not yet acknowledged."""
        ...

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and return when everything taken is acknowledged; False when that took too long."""
        ...


class Tables(NamedTuple):
    """The parts of a broker that a mode works with, once they are built."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    schedule: ScheduleService
    modes: RequestModes
    wake_pulls: Callable[[], None]
    """Answers every parked pull: who asks again may be sent elsewhere, or be served here now."""
    folder: Path
    """Where the tables are kept."""


class Mode:
    """What all modes have; a mode sets `role`, `meta`, `replication` and `clean` when it is made."""

    role: BrokerRole
    meta: LocalMeta | GroupMeta
    replication: ModeReplication
    clean: Clean
    elsewhere: Elsewhere | None = None
    forward_pull: ForwardPull | None = None
    master: MasterWatch | None = None
    """Of a slave."""
    adopts = True
    """Whether what recovery found in the store decides about the tables: new topics, offsets beyond an end."""
    ha_address = ""
    """Where slaves reach it, "host:port"; empty when none can."""
    pages: Mapping[str, Callable[[], dict[str, object]]] = {}
    """What it adds to the HTTP face: path → content."""

    def heard(self, master: str | None, ha_address: str | None) -> None:
        """Take note of what the NameServers say about who the group's master is; None: they know none."""

    def seeks(self) -> bool:
        """Tell whether the NameServers are to be asked for the master without delay."""
        return False

    def attach(self, tables: Tables) -> None:
        """Take the parts; called once, before start()."""

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return what serves requests, given the handlers."""
        return table

    async def start(self, parts: AsyncExitStack) -> None:
        """Begin, when every part is built; what must be closed goes on the stack."""
        raise NotImplementedError

    async def retire(self, served: Callable[[], bool]) -> None:
        """Begin to stop; `served` tells whether clients are still connected."""

    async def persist(self) -> None:
        """Write what is only written now and then."""

    async def hand_over(self) -> bool:
        """Give the lead to another broker; tell whether this one leads no more, or need not."""
        return True

    def figures(self) -> dict[str, str]:
        """Return what this mode adds to the broker's figures (code 28)."""
        return {}

    def label(self) -> str:
        """Return what it is called in /v1/status."""
        raise NotImplementedError

    def waits_for(self) -> str | None:
        """Return what keeps this broker from serving clients, None when nothing does."""
        return None


class Member(Mode):
    """A member of a Raft group."""

    # An applied entry decides, and the leader adopts (meta.py).
    adopts = False

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        clock: Clock,
        address: str,
        on_fatal: Callable[[BaseException], None],
        restart: Callable[[RestartAction], None],
    ) -> None:
        """See RaftGroup."""
        self._live = live
        self.group = RaftGroup(live, store, clock, address=address, on_fatal=on_fatal, restart=restart)
        self.role, self.meta, self.replication = self.group.role, self.group.meta, self.group.replication
        self.clean: Clean = self.group.retention.clean
        self._group_meta = self.group.meta
        self._client = RemotingClient(limits=CLIENT_LIMITS, name="broker's forwarder")
        self._forwarder = Forwarder(self.role, self._client, address)
        self.elsewhere = self._forwarder.forward_lost
        self.forward_pull = self._forwarder.forward_pull
        self._admin = RaftAdmin(self.group, self.group.role)
        self._conversion = GroupConversion(live, store, self.group, self._client, restart)
        self.pages = {"/v1/raft": self.group.status}

    def attach(self, tables: Tables) -> None:
        """Have the group's operations applied to the tables."""
        self.group.attach(tables.topics, tables.folder)

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, those for a leader only behind the gate, and those of the group's administration."""
        ours = {int(code): each for code, each in {**self._admin.table(), **self._conversion.table()}.items()}
        assert not ours.keys() & table.keys(), "our codes are far from RocketMQ's"
        return {**self._forwarder.gate(table), **ours}

    async def start(self, parts: AsyncExitStack) -> None:
        """Bring the tables up to the log, then take part."""
        parts.push_async_callback(self._client.close)
        parts.push_async_callback(self._forwarder.close)
        parts.push_async_callback(self._conversion.close)
        self.group.replay()
        self.group.retention.resume()
        parts.push_async_callback(self.group.close)
        await self.group.start()

    async def retire(self, served: Callable[[], bool]) -> None:
        """Give the lead away, then forward until no client has asked for shutdownForwardMs, or all have gone.

        Official clients learn of the new leader when they look at the route, in 30 s at most.
        """
        led = self.role.leads
        if not await self.group.hand_over():
            _log.warning("no other member takes the lead")
            return
        quiet, loop = self._live.broker.shutdownForwardMs / 1000, asyncio.get_running_loop()
        began = loop.time()
        while served() and (since := loop.time() - began) < FORWARDING_SECONDS:
            if self._forwarder.idle_seconds >= quiet and (since >= quiet or not led):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await self._forwarder.drain(FORWARDS_SECONDS)

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
            "raftFlushDiskType": self._live.store.flushDiskType,
        }

    def waits_for(self) -> str | None:
        """Return that nobody leads, as far as is known here."""
        if self.role.leads or self.role.leader_address is not None:
            return None
        return "no leader of the group is known"
