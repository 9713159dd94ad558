"""What differs between a broker alone and a member of a Raft group, in one value that the composition root works with.

Everybody else sees only a role, a replication and a metadata log, and does not ask which mode it is.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from broker.config import LiveConfig
from broker.forward import CLIENT_LIMITS, Forwarder
from broker.group import RaftGroup
from broker.meta import GroupMeta
from broker.meta_log import LocalMeta
from broker.pull import ForwardPull
from broker.raft_admin import RaftAdmin
from broker.raft_left import replay_metadata
from broker.raftgroup import RaftReplication
from broker.replication import LocalReplication
from broker.role import BrokerRole, Standalone
from broker.send import Elsewhere
from remoting.client import RemotingClient
from remoting.server import Handler
from runtime.clock import Clock
from store.config import SYNC_FLUSH
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


class Alone:
    """A broker without a group."""

    group: RaftGroup | None = None
    elsewhere: Elsewhere | None = None
    forward_pull: ForwardPull | None = None

    def __init__(self, live: LiveConfig, store: MessageStore) -> None:
        self._store = store
        self.role: BrokerRole = Standalone(live.broker.brokerId)
        self.clean: Clean = store.clean
        self.meta: LocalMeta | GroupMeta = LocalMeta()
        self.replication: LocalReplication | RaftReplication = LocalReplication(
            store,
            asyncio.get_running_loop(),
            sync_flush=live.store.flushDiskType == SYNC_FLUSH,
            flush_timeout=live.store.syncFlushTimeout / 1000,
            pending_bytes_max=live.broker.pendingBytesMax,
        )

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return what serves requests, given the handlers."""
        return table

    async def start(self, _parts: AsyncExitStack) -> None:
        """Begin, when every part is built; what must be closed goes on the stack."""
        assert isinstance(self.meta, LocalMeta)
        replay_metadata(self._store, self.meta.tables)

    async def retire(self, served: Callable[[], bool]) -> None:
        """Begin to stop; `served` tells whether clients are still connected."""

    async def persist(self) -> None:
        """Write what is only written now and then."""

    def figures(self) -> dict[str, str]:
        """Return what this mode adds to the broker's figures (code 28)."""
        return {}

    def waits_for(self) -> str | None:
        """Return what keeps this broker from serving clients, None when nothing does."""
        return None


class Member(Alone):
    """A member of a Raft group."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        clock: Clock,
        address: str,
        on_fatal: Callable[[BaseException], None],
        on_reset: Callable[[str], None],
    ) -> None:
        """See RaftGroup."""
        self._live = live
        self.group = RaftGroup(live, store, clock, address=address, on_fatal=on_fatal, on_reset=on_reset)
        self.role, self.meta, self.replication = self.group.role, self.group.meta, self.group.replication
        self.clean = self.group.retention.clean
        self._group_meta = self.group.meta
        self._client = RemotingClient(limits=CLIENT_LIMITS, name="broker's forwarder")
        self._forwarder = Forwarder(self.role, self._client, address)
        self.elsewhere = self._forwarder.forward_lost
        self.forward_pull = self._forwarder.forward_pull
        self._admin = RaftAdmin(self.group, self.group.role)

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, those for a leader only behind the gate, and those of the group's administration."""
        assert not self._admin.table().keys() & table.keys(), "our codes are far from RocketMQ's"
        return {**self._forwarder.gate(table), **{int(code): each for code, each in self._admin.table().items()}}

    async def start(self, parts: AsyncExitStack) -> None:
        """Bring the tables up to the log, then take part."""
        assert self.group is not None
        parts.push_async_callback(self._client.close)
        parts.push_async_callback(self._forwarder.close)
        self.group.replay()
        self.group.retention.resume()
        parts.push_async_callback(self.group.close)
        await self.group.start()

    async def retire(self, served: Callable[[], bool]) -> None:
        """Give the lead away, then forward until no client has asked for shutdownForwardMs, or all have gone.

        Official clients learn of the new leader when they look at the route, in 30 s at most.
        """
        assert self.group is not None
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
