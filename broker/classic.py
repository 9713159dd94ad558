"""The classic modes: what a master and a slave have in common, and the master. The slave: broker/classic_slave.py.

A broker without slaves is a master as well: brokerRole=ASYNC_MASTER is RocketMQ's default, and so is its HA port.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from broker import override
from broker.classic_admin import ClassicAdmin
from broker.classic_config import HA_CLOSED, SYNC_MASTER, classic_words
from broker.classic_gate import ClassicGate
from broker.classic_role import ClassicRole
from broker.config import LiveConfig
from broker.convert import PairConversion
from broker.fencing import Fencing
from broker.ha_pair import note_async_master, note_sync_master
from broker.ha_server import HaServer
from broker.meta_log import LocalMeta
from broker.meta_news import MetaNews
from broker.mode import Clean, Mode, ModeReplication, Tables
from broker.promotion import Follower, Promotion
from broker.raft_left import replay_metadata
from broker.reborn import RestartAction
from broker.replication import LocalReplication
from broker.syncreplication import SyncReplication
from remoting.address import format_address, parse_address
from remoting.bodies import HAConnectionInfo, HARuntimeInfo
from remoting.client import RemotingClient
from remoting.server import Handler
from runtime.clock import Clock
from store.config import SYNC_FLUSH
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)

HA_OFFSET = 1


@dataclass(frozen=True)
class ClassicParts:
    """What a classic mode is made of."""

    live: LiveConfig
    store: MessageStore
    clock: Clock
    address: str
    """Where clients find this broker, "host:port"."""
    threads: Executor
    """For what must not wait in the loop: cold reads, digests."""
    restart: Callable[[RestartAction], None]
    """Has the broker closed and started again."""


class Classic(Mode):
    """What a master and a slave have in common. Must be made inside the broker's loop."""

    role: ClassicRole
    meta: LocalMeta

    def __init__(self, parts: ClassicParts, *, leads: bool) -> None:
        live, loop = parts.live, asyncio.get_running_loop()
        self._parts, self._live, self._store = parts, parts.live, parts.store
        self.role = ClassicRole(live.broker.brokerId, override.kept_epoch(live.store.root))
        self.meta = LocalMeta(leads=leads)
        self.meta.term = self.role.term
        self.clean: Clean = parts.store.clean
        self.pages = {"/v1/ha": self.status}
        # Another one each time the store is opened: recovery may have made another log of it.
        self._incarnation = secrets.token_hex(8)
        self._client = RemotingClient(name="broker's client to its pair")
        self._news = MetaNews(self.meta, loop.call_later, lambda: self.role.leads, random.getrandbits(40))
        self._admin = ClassicAdmin(parts.store, parts.threads, self._incarnation, self.status, self.ha_info)
        self._gate = ClassicGate(self.role, self.acts)

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, those for a master only behind the gate, and those about master and slaves."""
        parts = self._parts
        decisions = Promotion(
            self._live,
            self.role,
            lambda: parts.store.log_range()[1],
            self._client,
            parts.address,
            parts.restart,
            self.follower(),
            parts.clock,
        )
        self._conversion = PairConversion(
            self._live, self._store, self.role, self._client, parts.restart, self.replication, self.slaves
        )
        added = {**self._admin.table(), **self._news.table(), **decisions.table(), **self._conversion.table()}
        assert not added.keys() & table.keys(), "two handlers for a code"
        return {**self._gate.gate(table), **{int(code): each for code, each in added.items()}}

    async def start(self, parts: AsyncExitStack) -> None:
        """Bring the tables up to the end of the group that the store may have belonged to."""
        parts.push_async_callback(self._client.close)
        parts.push_async_callback(self._conversion.close)
        replay_metadata(self._store, self.meta.tables)

    async def retire(self, served: Callable[[], bool]) -> None:  # noqa: ARG002 # as the others
        """Answer who waits for news of the tables."""
        self._news.close()

    def label(self) -> str:
        """Return the role that the configuration names."""
        return self._live.broker.brokerRole

    def follower(self) -> Follower | None:
        """Return a slave's part in replication, None for a master."""
        return None

    def slaves(self) -> list[dict[str, Any]]:
        """Return how far a master's slaves are; see HaServer.status."""
        return []

    def acts(self) -> bool:
        """Tell whether a slave grants queue locks in the place of its master."""
        return False

    def status(self) -> dict[str, Any]:
        """Return all that is known of the pair, for people and tools; positions in bytes of the CommitLog."""
        begin, end = self._store.log_range()
        config = self._live.broker
        return {
            "cluster": config.brokerClusterName,
            "broker": config.name(),
            "address": self._parts.address,
            "role": config.brokerRole,
            "brokerId": self.role.broker_id,
            "epoch": self.role.term,
            "incarnation": self._incarnation,
            "min": begin,
            "max": end,
            "flushed": self._store.flushed,
            "fileBytes": self._store.file_bytes,
            "flushDiskType": self._live.store.flushDiskType,
            "inSyncReplicas": None,
            "slaves": self.slaves(),
            "master": None,
            "fenced": self.role.fenced,
            "warnings": [],
        }

    def ha_info(self) -> HARuntimeInfo:
        """Return the part of it that RocketMQ's tools show (907)."""
        raise NotImplementedError


class Master(Classic):
    """A master, ASYNC_MASTER or SYNC_MASTER, with or without slaves."""

    def __init__(self, parts: ClassicParts) -> None:
        super().__init__(parts, leads=True)
        live, store, loop = parts.live, parts.store, asyncio.get_running_loop()
        self._ha = HaServer(store, lambda: live.broker, loop, parts.threads)
        self._replication = self._make_replication(loop)
        self._replication.on_written = self._ha.advanced
        self.replication: ModeReplication = self._replication
        self._fencing = Fencing(live, self.role, self._client, parts.address, self._ha.stop_pushing)

    def _make_replication(self, loop: asyncio.AbstractEventLoop) -> LocalReplication:
        live, store = self._live, self._store
        sync_flush, flush_timeout = live.store.flushDiskType == SYNC_FLUSH, live.store.syncFlushTimeout / 1000
        pending = live.broker.pendingBytesMax
        if live.broker.brokerRole == SYNC_MASTER:
            return SyncReplication(
                store,
                loop,
                self._ha,
                lambda: live.broker,
                sync_flush=sync_flush,
                flush_timeout=flush_timeout,
                pending_bytes_max=pending,
            )
        return LocalReplication(
            store, loop, sync_flush=sync_flush, flush_timeout=flush_timeout, pending_bytes_max=pending
        )

    def attach(self, tables: Tables) -> None:
        """Take the parts."""
        self._schedule = tables.schedule

    async def start(self, parts: AsyncExitStack) -> None:
        """Make sure that nobody was promoted in the meantime, and take slaves."""
        await super().start(parts)
        config = self._live.broker
        for words in classic_words(config):
            _log.info("%s: %s", config.brokerRole, words)
        if config.brokerRole == SYNC_MASTER:
            await asyncio.to_thread(note_sync_master, self._live.store.root)
        else:
            await asyncio.to_thread(note_async_master, self._live.store.root, self._store.log_range()[1])
        parts.push_async_callback(self._fencing.close)
        await self._fencing.start()
        if config.haListenPort != HA_CLOSED:
            parts.push_async_callback(self._ha.close)
            await self._open_ha_port()

    async def retire(self, served: Callable[[], bool]) -> None:
        """Begin to stop; of a fenced master too the progress of its delay levels is kept."""
        await super().retire(served)
        if not self.role.leads:
            await self._schedule.persist()

    async def _open_ha_port(self) -> None:
        config = self._live.broker
        port = config.haListenPort or (config.listenPort + HA_OFFSET if config.listenPort else 0)
        try:
            await self._ha.start(config.bindAddress, port)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the HA port {port} (haListenPort={config.haListenPort}; 0 takes listenPort+1) cannot be had: "
                f"{error.strerror}; choose another haListenPort, or set haListenPort=-1 when no slave is to come",
            ) from error
        host = config.brokerIP2 or parse_address(self._parts.address)[0]
        self.ha_address = format_address(host, self._ha.port)

    def waits_for(self) -> str | None:
        """Return why it takes nothing, when it does not."""
        return self.role.fenced

    def slaves(self) -> list[dict[str, Any]]:
        """Return how far its slaves are."""
        return self._ha.status()

    def heard(self, master: str | None, _ha_address: str | None) -> None:
        """Take note of another master that a NameServer names: it was promoted in the place of this one."""
        self._fencing.heard(master)

    def status(self) -> dict[str, Any]:
        """Return what a master knows of itself and of its slaves."""
        needed, acknowledged = 1, 0
        if isinstance(self._replication, SyncReplication):
            needed = self._replication.in_sync_replicas
            acknowledged = self._replication.acknowledged_by_slaves
        return {
            **super().status(),
            "haAddress": self.ha_address,
            "inSyncReplicas": needed,
            "inSync": self._ha.in_sync() + 1,
            "acknowledgedBySlaves": acknowledged,
            "warnings": list(self._warnings(needed)),
        }

    def _warnings(self, needed: int) -> Iterator[str]:
        there = self._ha.in_sync() + 1
        if there < needed:
            yield (
                f"{there} of {needed} brokers are in sync (inSyncReplicas, this one included): sends are stored here "
                "and answered with 11 (SLAVE_NOT_AVAILABLE)"
            )

    def ha_info(self) -> HARuntimeInfo:
        """Return how far the slaves are, RocketMQ's way."""
        return HARuntimeInfo(
            master=True,
            masterCommitLogMaxOffset=self._store.log_range()[1],
            inSyncSlaveNums=self._ha.in_sync(),
            haConnectionInfo=[
                HAConnectionInfo(
                    addr=slave["address"],
                    slaveAckOffset=slave["acked"],
                    diff=slave["behind"],
                    inSync=slave["inSync"],
                    transferredByteInSecond=slave["bytesPerSecond"],
                    transferFromWhere=slave["sent"],
                )
                for slave in self.slaves()
            ],
        )

    def figures(self) -> dict[str, str]:
        """Return what is told of the pair among the broker's figures."""
        return {
            "brokerRole": self.label(),
            "epoch": str(self.role.term),
            "slavesInSync": str(self._ha.in_sync()),
            "fenced": self.role.fenced or "",
        }
