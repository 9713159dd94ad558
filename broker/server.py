"""The broker process: builds every part in visible order, holds the one table request code → handler.

Nothing else constructs its collaborators; every part is handed what it needs. Start: ports reserved, store opened and
recovered, tables loaded, parts built, listeners opened, NameServers told; only then does `start` return. Stop: leave
the NameServers, take no more messages, acknowledge what was taken, answer parked pulls, close connections, write the
tables, close the store.

The VIP port (listenPort-2) serves everything but pulls, as RocketMQ's does. It is not opened when listenPort is 0
(there is no number to subtract from that clients could know) or with vipPortEnable=false.
"""

import asyncio
import contextlib
import dataclasses
import logging
import random
from concurrent.futures import ThreadPoolExecutor

from broker.admin_broker import AdminBroker
from broker.admin_clients import AdminClients
from broker.admin_groups import AdminGroups
from broker.admin_messages import AdminMessages
from broker.admin_offsets import AdminOffsets
from broker.admin_positions import AdminPositions
from broker.admin_topics import AdminTopics
from broker.client_handlers import ClientHandlers
from broker.clients import ClientTable
from broker.config import BrokerConfig, LiveConfig
from broker.groups import GroupTable
from broker.http import BrokerHttp
from broker.locks import LockTable
from broker.mode import Alone, Member
from broker.msgcheck import MessageChecks
from broker.offset_handlers import OffsetHandlers
from broker.offsets import OffsetTable
from broker.periodic import Upkeep
from broker.ports import reserved_port, resolved
from broker.pull import PullHandlers
from broker.pullcheck import PullChecks
from broker.raft_config import check_folder, group_settings
from broker.raft_left import end_by_force
from broker.raft_reset import copy_from_leader, is_marked
from broker.register import Registration
from broker.role import BrokerRole
from broker.runtime_info import Backlog, RuntimeInfo
from broker.schedule import ScheduleService
from broker.send import SendHandlers
from broker.sendback import SendBackHandlers
from broker.stats import BrokerStats
from broker.topics import TopicTable
from remoting.address import format_address
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.msgid import UniqKeys, pack_host, unpack_host
from remoting.server import Connection, Handler, RemotingServer, ServerLimits
from runtime.clock import Clock, SystemClock
from runtime.http import HttpFace
from runtime.tasks import Tasks
from store.config import StoreConfig
from store.dispatch import parse_delay_levels
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)

VIP_OFFSET = -2
HTTP_OFFSET = 100
HA_OFFSET = 1
# How long a stop waits for what was taken to be acknowledged.
DRAIN_SECONDS = 10.0
_PULLS = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
_REGISTERED_KEYS = frozenset({"brokerPermission", "namesrvAddr"})


class Broker:
    """One broker. `address` is where clients find it; `port`, `vip_port`, `http_port` (0: closed) where it listens."""

    def __init__(
        self, config: BrokerConfig, store_config: StoreConfig, clock: Clock | None = None, *, force: bool = False
    ) -> None:
        """`force`: as a single broker on a group's store, which gives up what only the group has."""
        self.live = LiveConfig(config, store_config)
        self.address = ""
        self.port = 0
        self.vip_port = 0
        self.http_port = 0
        # Why the broker cannot go on, set together with `stopped`.
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        # Set together with `stopped`: the broker is to be closed, and another one started in its place.
        self.restarts = False
        self._clock: Clock = SystemClock() if clock is None else clock
        self._force = force
        self._tasks = Tasks("broker")
        self._not_ready: str | None = "starting"
        self._exit = contextlib.AsyncExitStack()
        # What it is to its clients; from start() on.
        self.role: BrokerRole
        self.store: MessageStore
        self._mode: Alone
        self._leads = False
        self._servers: list[RemotingServer] = []

    async def start(self) -> None:
        """Open everything; returns when clients can use the broker.

        Raises OSError (a port is taken), StoreError, MetadataError, ConfigError; nothing is left open then.
        """
        try:
            await self._start()
        except BaseException:
            self._not_ready = "failed to start"
            await self._exit.aclose()
            raise
        self._not_ready = None

    async def close(self) -> None:
        """Stop in good order; may be called twice."""
        if self._not_ready == "stopping":
            return
        self._not_ready = "stopping"
        await self._exit.aclose()
        self.stopped.set()

    async def hand_over(self) -> bool:
        """Give the lead of the group to another member; tell whether this one leads no more."""
        return self._mode.group is None or await self._mode.group.hand_over()

    async def _start(self) -> None:
        config = self.live.broker
        ip = config.advertised_ip()
        with reserved_port(config.bindAddress, config.listenPort) as port:
            self.port = port
            self.address = format_address(ip, port)
            store_host = pack_host(await resolved(ip), port)
            grouped = config.enableDLegerCommitLog
            check_folder(self.live.store.root)
            if grouped and is_marked(self.live.store.root):
                self._not_ready = "copying the leader's store"
                settings = group_settings(config, config.group_name())
                await copy_from_leader(self.live.store, config, settings, store_host)
            if self._force:
                end_by_force(self.live.store, store_host)
            store = MessageStore.open(
                self.live.store, store_host=store_host, clock=self._clock, group=grouped, force=self._force
            )
            self.store = store
            self._exit.callback(self._close_store)
            self._loop = asyncio.get_running_loop()
            store.on_fatal = self._fail_in_thread
            self._mode = self._mode_of(store)
            self.role = self._mode.role
            self._build(store, store_host, ip)
            await self._mode.start(self._exit)
            await self._listen(config)
        await self._registration.start()
        self._exit.push_async_callback(self._quiesce)
        self.role.subscribe(self._role_changed)
        self._role_changed()
        self._upkeep.start(self._tasks, self.persist, self._mode.clean)
        _log.info("broker %s serves at %s", config.name(), self.address)

    def _mode_of(self, store: MessageStore) -> Alone:
        if self.live.broker.enableDLegerCommitLog:
            return Member(self.live, store, self._clock, self.address, self._fail, self._restart)
        return Alone(self.live, store)

    def _build(self, store: MessageStore, store_host: bytes, ip: str) -> None:
        """Make the parts; each later one may use the earlier ones."""
        live, clock, loop = self.live, self._clock, asyncio.get_running_loop()
        config, folder = live.broker, live.store.root / "config"
        mode, meta, replication = self._mode, self._mode.meta, self._mode.replication
        self._topics = TopicTable(folder / "topics.json", live, clock, meta)
        self._exit.push_async_callback(self._topics.close)
        self._groups = GroupTable(folder / "subscriptionGroup.json", live, clock, meta)
        self._exit.push_async_callback(self._groups.close)
        self._offsets = OffsetTable.load(folder / "consumerOffset.json", clock, meta)
        self._exit.push_async_callback(self._offsets.persist)
        if mode.group is None:
            self._topics.adopt(store.topics())
            self._offsets.clamp(store.max_offset)

        self._stats = BrokerStats(clock, config.brokerClusterName, config.name())
        self._locks = LockTable(clock)
        self._clients = ClientTable(
            clock, later=loop.call_soon, notifies=self._wants_notice, on_leave=self._locks.release
        )
        self._client = RemotingClient(on_close=self._connection_lost, name="broker's client")
        self._exit.push_async_callback(self._client.close)
        ha_address = format_address(config.brokerIP2 or ip, self.port + HA_OFFSET)
        self._registration = Registration(live, self.role, self._topics, self._client, self.address, ha_address)

        checks = MessageChecks(live, self._topics, self._groups.find, clock, random.randrange)
        threads = ThreadPoolExecutor(config.coldReadThreads, thread_name_prefix="cold-read")
        self._exit.callback(threads.shutdown)
        self._send = SendHandlers(
            live,
            checks,
            replication,
            store_host,
            UniqKeys(unpack_host(store_host)[0]).next,
            self._stats.put_failed,
            mode.elsewhere,
        )
        self._send_back = SendBackHandlers(
            live,
            self._topics,
            self._groups.find,
            store,
            replication,
            store_host,
            self._stats,
            random.randrange,
            mode.elsewhere,
        )
        levels_ms = parse_delay_levels(live.store.messageDelayLevel)
        self._schedule = ScheduleService(
            folder / "delayOffset.json", store, replication, clock, loop.call_later, levels_ms, meta
        )
        pull_checks = PullChecks(live, self._topics, self._groups, self._clients, self.role)
        self._pull = PullHandlers(
            live, pull_checks, self._offsets, store, self._stats, loop, threads, self.role, mode.forward_pull
        )
        self._upkeep = Upkeep(
            live, store, self._stats, self._clients, self._locks, self._schedule, self._pull, self._registration
        )
        store.on_dispatched = self._upkeep.dispatched
        self._handlers = mode.gate(self._table(store))
        self._topics.on_change = self._registration.changed
        if mode.group is not None:
            mode.group.attach(self._topics, folder)
        live.on_change = lambda keys: self._config_changed(store, keys)

    def _table(self, store: MessageStore) -> dict[int, Handler]:
        """Return the one table of request code → handler."""
        live, clock = self.live, self._clock
        topics, groups, offsets = self._topics, self._groups, self._offsets
        clients, stats = self._clients, self._stats
        info = RuntimeInfo(
            live, store, stats, clock, self._backlog, lambda: {**self._schedule.figures(), **self._mode.figures()}
        )
        group = self._mode.group
        self._http = BrokerHttp(
            live, topics, groups, offsets, clients, stats, store, clock, self._backlog, self._ready, self._addresses,
            self.role, None if group is None else group.status,
        )  # fmt: skip
        return merged(
            self._send.table(),
            self._send_back.table(),
            self._schedule.table(),
            self._pull.table(),
            OffsetHandlers(live, offsets, topics, groups, store).table(),
            ClientHandlers(clients, topics, groups, self._locks, self.role).table(),
            AdminBroker(live, store, stats, info, clock, self._mode.clean).table(),
            AdminTopics(
                live, topics, groups, offsets, clients, stats, store, self._registration.announce, self._offsets.save
            ).table(),
            AdminGroups(groups, offsets, clients, stats, self._offsets.save).table(),
            AdminOffsets(
                live, topics, groups, offsets, clients, stats, store, clock, self.address, self._offsets.save
            ).table(),
            AdminPositions(store).table(),
            AdminMessages(live, store, clients).table(),
            AdminClients(live, clients, store).table(),
        )

    async def _listen(self, config: BrokerConfig) -> None:
        limits = dataclasses.replace(ServerLimits(), idle_seconds=float(config.serverChannelMaxIdleTimeSeconds))
        await self._serve("broker", self._handlers, limits, config.bindAddress, self.port)
        if config.vipPortEnable and config.listenPort + VIP_OFFSET > 0:
            table = {code: handler for code, handler in self._handlers.items() if code not in _PULLS}
            port = config.listenPort + VIP_OFFSET
            try:
                await self._serve("broker (VIP)", table, limits, config.bindAddress, port)
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"the VIP port {port} (listenPort-2) cannot be had: {error.strerror}; "
                    "choose another listenPort, or set vipPortEnable=false",
                ) from error
            self.vip_port = port
        if config.httpEnable:
            face: HttpFace = self._http.face()
            self._exit.push_async_callback(face.close)
            wanted = config.httpPort or (config.listenPort + HTTP_OFFSET if config.listenPort else 0)
            await face.start(config.httpBindAddress, wanted)
            self.http_port = face.port

    async def _serve(self, name: str, table: dict[int, Handler], limits: ServerLimits, host: str, port: int) -> None:
        server = RemotingServer(table, name=name, limits=limits, on_close=self._closed)
        self._servers.append(server)
        self._exit.push_async_callback(server.close)
        await server.start(host, port)

    def _role_changed(self) -> None:
        """Do what only a leader does, or stop it; who waits for messages asks again, the broker that leads by then."""
        leads = self.role.leads
        if leads == self._leads:
            return
        self._leads = leads
        if leads:
            self._schedule.start()
        else:
            self._schedule.stop()
        self._pull.wake_all()

    async def _quiesce(self) -> None:
        """Come to rest while the connections are still open, so that everybody gets an answer."""
        self._schedule.stop()
        if self.role.leads:
            await self._schedule.persist()
        await self._tasks.close()
        await self._mode.retire(lambda: any(server.connections for server in self._servers))
        await self._registration.close()
        if not await self._mode.replication.drain(DRAIN_SECONDS):
            _log.warning("some sends were not acknowledged within %s s", DRAIN_SECONDS)
        if self.role.leads:
            await self._schedule.persist()
        self._pull.stop()
        # One turn for the answers to reach the transports.
        await asyncio.sleep(0)

    def _close_store(self) -> None:
        """Close the store, unless it has failed: its folder then stays marked as not stopped cleanly."""
        if self.failure is None:
            self.store.close()

    def _fail_in_thread(self, error: BaseException) -> None:
        """Carry the bad news from the store's threads into the loop."""
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        """Note that disk or log has failed: what was acknowledged may not be on it, so nothing may go on."""
        _log.critical("the store failed, the broker must stop: %s", error)
        self.failure = error
        self._not_ready = f"the store failed: {error}"
        self.stopped.set()

    def _restart(self, leader: str) -> None:
        """Have this broker closed, and another one started in its place."""
        _log.warning("the broker starts again, to copy the store of %s", leader)
        self._not_ready = f"the store is to be replaced by a copy of {leader}'s"
        self.restarts = True
        self.stopped.set()

    def _closed(self, connection: Connection) -> None:
        self._pull.on_close(connection)
        self._clients.on_close(connection)

    async def persist(self) -> None:
        """Write the tables that are written only now and then."""
        await self._offsets.persist()
        await self._mode.persist()

    def _wants_notice(self, group: str) -> bool:
        config = self._groups.get(group)
        return self.live.broker.notifyConsumerIdsChangedEnable and (
            config is None or config.notifyConsumerIdsChangedEnable
        )

    def _connection_lost(self, address: str) -> None:
        self._registration.lost(address)

    def _config_changed(self, store: MessageStore, keys: frozenset[str]) -> None:
        store.reconfigure(self.live.store)
        if keys & _REGISTERED_KEYS:
            # A new version of the unchanged table: NameServers take the permission from it.
            self._topics.update()

    def _backlog(self) -> Backlog:
        return Backlog(self._mode.replication.pending_bytes, self._pull.parked)

    def _ready(self) -> str | None:
        return self._not_ready or self._mode.waits_for()

    def _addresses(self) -> dict[str, str]:
        return {
            "broker": self.address,
            "vipPort": str(self.vip_port),
            "httpPort": str(self.http_port),
            "namesrvAddr": self.live.broker.namesrvAddr,
            "registeredWith": ";".join(sorted(self._registration.registered)),
        }


def merged(*tables: dict[int, Handler]) -> dict[int, Handler]:
    """Return all tables as one; two handlers for a code are a mistake in the program."""
    whole: dict[int, Handler] = {}
    for table in tables:
        twice = whole.keys() & table.keys()
        assert not twice, f"two handlers for {sorted(twice)}"
        whole.update((int(code), handler) for code, handler in table.items())
    return whole
