"""The classic modes: what a master and a slave have in common, and the master. The slave: broker/master_slave/slave.py.

A broker without slaves is a master as well: brokerRole=ASYNC_MASTER is RocketMQ's default, and so is its HA port.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from auth.settings import inner_credentials
from broker.master_slave.admin import PairHandlers
from broker.master_slave.deposing import Deposing
from broker.master_slave.digests import Digests
from broker.master_slave.fencing import Fencing, HandOver
from broker.master_slave.gate import ClassicGate
from broker.master_slave.ha_followers import Followers
from broker.master_slave.ha_server import HaServer
from broker.master_slave.introductions import Introductions
from broker.master_slave.measures import pair_figures, port_figure
from broker.master_slave.offset_return import OffsetReturn
from broker.master_slave.promotion import Own, Promotion, SlaveReplication
from broker.master_slave.role import ClassicRole
from broker.master_slave.sync_replication import SyncReplication, master_replication
from broker.master_slave.to_raft import PairConversion
from broker.metadata.agreed_locks import AgreedLocks
from broker.metadata.feed import MetaNews
from broker.metadata.operations import LocalMeta
from broker.mode import BrokerParts, Clean, Mode, ModeReplication
from broker.raft_group.ended_group import last_term, replay_metadata
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.pair_keys import SYNC_MASTER, classic_words
from broker.settings.pair_memory import note_master
from broker.settings.pair_proof import PairProof, Question
from broker.settings.restart import RestartAction
from broker.settings.secret_files import read_secret_files
from remoting.address import format_address, parse_address
from remoting.admission import Admission
from remoting.bodies.registry import HARuntimeInfo
from remoting.client import RemotingClient
from remoting.codes import ClassicCode
from remoting.command import Command
from remoting.server import Connection, Handler
from runtime.busypoll import BusyPoll
from runtime.clock import Clock
from runtime.figures import Figure
from runtime.late import late
from runtime.tls import outgoing_tls, server_tls
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
    polling: BusyPoll | None = None
    """What the loop busy polls with."""


class Classic(Mode):
    """What a master and a slave have in common. Must be made inside the broker's loop."""

    role: ClassicRole
    meta: LocalMeta

    def __init__(self, parts: ClassicParts, *, leads: bool) -> None:
        live, loop = parts.live, asyncio.get_running_loop()
        self._parts, self._live, self._store = parts, parts.live, parts.store
        epoch = max(override.kept_epoch(live.store.root), last_term(parts.store))
        self.role = ClassicRole(live.broker.brokerId, epoch)
        self._news: MetaNews
        self.meta = LocalMeta(
            leads=leads,
            on_change=late(lambda: self._news.changes),
            on_progress=late(lambda: self._news.progresses),
        )
        self.meta.term = self.role.term
        self.clean: Clean = parts.store.clean
        self.pages = {"/v1/ha": self.status}
        # Another one each time the store is opened: recovery may have made another log of it.
        self._incarnation = secrets.token_hex(8)
        self._client = RemotingClient(
            name="broker's client to its pair",
            tls=outgoing_tls(live.broker),
            credentials=inner_credentials(live.broker),
        )
        self._news = MetaNews(loop.call_later, lambda: self.role.leads, random.getrandbits(40))
        self._followers = Followers(loop.time, self.slave_heard)
        self._proof = PairProof()
        self._admin = PairHandlers(self.status, self.ha_info, self._proof, self._followers.asked)
        self._admission = Admission(live.broker.adminAllowFrom)
        self._digests = Digests(parts.store, parts.threads, self._incarnation, self.digests_refused)
        self._gate = ClassicGate(self.role, self.acts)

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, those for a master only behind the gate, and those about master and slaves."""
        parts = self._parts
        own = Own(
            self._live, parts.address, lambda: parts.store.log_range()[1], parts.restart, parts.clock, self._locks()
        )
        decisions = self._decisions = Promotion(own, self.role, self._client, self.follower())
        self._conversion = PairConversion(
            self._live, self._store, self.role, self._client, parts.restart, self.replication, self.slaves
        )
        added = {
            **self._admin.table(),
            **self._digests.table(),
            **self._news.table(),
            **decisions.table(),
            **self._conversion.table(),
        }
        assert not added.keys() & table.keys(), "two handlers for a code"
        return {**self._gate.gate(table), **{int(code): each for code, each in added.items()}}

    async def start(self, parts: AsyncExitStack) -> None:
        """Bring the tables up to the end of the group that the store may have belonged to."""
        parts.push_async_callback(self._client.close)
        parts.push_async_callback(self._conversion.close)
        replay_metadata(self._store, self.meta.tables)

    async def retire(self, served: Callable[[], bool], *, again: bool) -> None:  # noqa: ARG002 # as the others
        """Answer who waits for news of the tables."""
        self._news.close()

    def _locks(self) -> AgreedLocks | None:
        return next((table for table in self.meta.tables if isinstance(table, AgreedLocks)), None)

    def label(self) -> str:
        """Return the role that the configuration names."""
        return self._live.broker.brokerRole

    def follower(self) -> SlaveReplication | None:
        """Return a slave's part in replication, None for a master."""
        return None

    def slaves(self) -> list[dict[str, Any]]:
        """Return how far a master's slaves are; see HaServer.status."""
        return []

    def log_id(self) -> str | None:
        """Return the log's name, None while it has none; see ha_compare.py."""
        return None

    def slave_heard(self, told: Question, host: str) -> bool:  # noqa: ARG002 # as a master
        """Tell whether one who asks this broker about its state from a host, and says who he is, is believed."""
        return self._proof.introduces(self._incarnation, told)

    def digests_refused(self, connection: Connection, request: Command) -> str | None:  # noqa: ARG002 # as a master
        """Return why somebody may not have this broker read its log, None when he may: who administers."""
        return self._admission.refusal(connection)

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
            "promoting": self._decisions.promoting,
            "incarnation": self._incarnation,
            "logId": self.log_id(),
            "min": begin,
            "max": end,
            "flushed": self._store.flushed,
            "fileBytes": self._store.file_bytes,
            "flushDiskType": self._live.store.flushDiskType,
            "inSyncReplicas": None,
            "slaves": self.slaves(),
            "followers": self._followers.listed(),
            "master": None,
            "fenced": self.role.fenced,
            "warnings": [],
        }

    def ha_info(self) -> HARuntimeInfo:
        """Return the part of it that RocketMQ's tools show (907)."""
        raise NotImplementedError

    def measures(self) -> Iterable[Figure]:
        """Return the metrics of the pair."""
        return pair_figures(self.status())


class Master(Classic):
    """A master, ASYNC_MASTER or SYNC_MASTER, with or without slaves."""

    def __init__(self, parts: ClassicParts) -> None:
        super().__init__(parts, leads=True)
        live, store, loop = parts.live, parts.store, asyncio.get_running_loop()
        self._ha = HaServer(store, lambda: live.broker, loop, parts.threads, self._acked)
        self._log_id = ""
        self._replication = master_replication(live, store, loop, self._ha, self._ha.advanced)
        self.replication: ModeReplication = self._replication
        hand_over = HandOver(
            partial(self._ha.have_all, lambda: self._replication.pending_bytes),
            lambda: b"" if (locks := self._locks()) is None else locks.handed_over(),
            late(lambda: self._wake),
        )
        self._fencing = Fencing(
            live, self.role, self._client, parts.address, self._ha.stop_pushing, hand_over, self._proof
        )
        self._introductions = Introductions(
            live, self._client, parts.address, self._fencing.slaves, self._proof, self._incarnation, self._ha
        )
        self._deposing = Deposing(live, self.role, self._client, parts.address, self._fencing.met)

    def _acked(self) -> None:
        if isinstance(self._replication, SyncReplication):
            self._replication.advance()

    def flushed_in_thread(self, position: int) -> None:
        """Answer who waits for the disk."""
        self._replication.flushed_in_thread(position)

    def flushed_in_loop(self, position: int) -> None:
        """Answer them at once."""
        self._replication.flushed(position)

    def attach(self, parts: BrokerParts) -> None:
        """Take the parts."""
        self._schedule, self._wake, tables = parts.schedule, parts.wake_pulls, parts.tables
        self._returned = OffsetReturn(
            tables.offsets, tables.topics, tables.groups, self._store, lambda: self.role.leads
        )

    async def start(self, parts: AsyncExitStack) -> None:
        """Make sure that nobody was promoted in the meantime, and take slaves."""
        await super().start(parts)
        config = self._live.broker
        self._secrets = await asyncio.to_thread(read_secret_files, "haSecretFile", config.haSecretFile)
        for words in classic_words(config):
            _log.info("%s: %s", config.brokerRole, words)
        sync, log_range = config.brokerRole == SYNC_MASTER, self._store.log_range()
        memory = await asyncio.to_thread(note_master, self._live.store.root, sync=sync, log_range=log_range)
        self._log_id = memory.log_id
        self._proof.take(self._secrets)
        parts.push_async_callback(self._fencing.close)
        parts.push_async_callback(self._introductions.close)
        await self._fencing.start()
        parts.push_async_callback(self._deposing.close)
        await self._deposing.prepare()
        decided = await asyncio.to_thread(override.read, self._live.store.root)
        door = config.ha_door(expected=decided is not None and "brokerRole" in decided.keys)
        for level, said in door.words():
            _log.log(level, "%s", said)
        if door.opens:
            parts.push_async_callback(self._ha.close)
            await self._open_ha_port()

    async def opened(self) -> None:
        """Tell the masters before this one that it was promoted, which ask it back."""
        await self._deposing.open()

    def slave_heard(self, told: Question, host: str) -> bool:
        """Take note of a slave that is believed: it may be promoted one day."""
        if believed := super().slave_heard(told, host):
            self._introductions.heard(told, host)
        return believed

    def digests_refused(self, connection: Connection, request: Command) -> str | None:
        """Return the same of one who is no slave either."""
        if super().digests_refused(connection, request) is None:
            return None
        return self._introductions.refusal(connection.peer[0], request)

    async def retire(self, served: Callable[[], bool], *, again: bool) -> None:
        """Begin to stop; of a fenced master too the progress of its delay levels is kept."""
        await super().retire(served, again=again)
        if not self.role.leads:
            await self._schedule.persist()

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, and the one for being told that another was promoted."""
        added = {int(ClassicCode.DEPOSED): self._fencing.deposed, **self._returned.table()}
        return {**super().gate(table), **added}

    async def _open_ha_port(self) -> None:
        config = self._live.broker
        port = config.haListenPort or (config.listenPort + HA_OFFSET if config.listenPort else 0)
        try:
            await self._ha.start(config.bindAddress, port, self._secrets, server_tls(config))
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
        return self.role.fenced or self.role.holds

    def log_id(self) -> str | None:
        """Return the log's name."""
        return self._log_id or None

    def slaves(self) -> list[dict[str, Any]]:
        """Return how far its slaves are."""
        return self._ha.status()

    def measures(self) -> Iterable[Figure]:
        """Return the metrics of a master."""
        return *super().measures(), port_figure(self._ha.refused)

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
            "untold": list(self._deposing.left),
            "inSyncReplicas": needed,
            "inSync": self._ha.in_sync() + 1,
            "acknowledgedBySlaves": acknowledged,
            "warnings": list(self._warnings(needed)),
        }

    def _warnings(self, needed: int) -> Iterator[str]:
        if self._ha.stopped_at is not None:
            yield (
                f"a slave was not sent what stands damaged in the CommitLog at {self._ha.stopped_at} (links that ended "
                f"so: {self._ha.stopped}); see this broker's log for what can be done"
            )
        yield from self._followers.warnings()
        yield from self._fencing.warnings()
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
            haConnectionInfo=self._ha.connections(),
        )

    def figures(self) -> dict[str, str]:
        """Return what is told of the pair among the broker's figures."""
        return {
            "brokerRole": self.label(),
            "epoch": str(self.role.term),
            "slavesInSync": str(self._ha.in_sync()),
            "fenced": self.role.fenced or "",
        }
