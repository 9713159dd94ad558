"""The broker process: its life from start to stop, around the parts that broker/parts.py builds.

Start: ports reserved, store opened and recovered, tables loaded, parts built, listeners opened, NameServers told; only
then does `start` return. Stop: leave the NameServers, take no more messages, acknowledge what was taken, answer parked
pulls, close connections, write the tables, close the store.

The VIP port (listenPort-2) serves everything but pulls, as RocketMQ's does. It is not opened when listenPort is 0
(there is no number to subtract from that clients could know) or with vipPortEnable=false.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from auth.settings import told
from broker.context import BrokerContext
from broker.master_slave.master import ClassicParts, Master
from broker.master_slave.slave import Slave
from broker.messages.leftovers import leftovers
from broker.metadata.meta_entry import deleted_topics
from broker.metadata.operations import without_room
from broker.mode import Mode
from broker.parts import Around, Parts
from broker.raft_group.ended_group import end_by_force, ends_group
from broker.raft_group.mode import MemberMode
from broker.raft_group.snapshot import copy_from_leader, is_marked
from broker.registration.addresses import listening_warnings
from broker.role import BrokerRole
from broker.settings.config import BrokerConfig, LiveConfig
from broker.settings.pair_keys import SLAVE
from broker.settings.ports import reserved_port, resolved
from broker.settings.raft_keys import check_folder, group_settings
from broker.settings.restart import RestartAction
from remoting.address import format_address
from remoting.codes import RequestCode
from remoting.limits import ServerLimits, server_limits
from remoting.msgid import pack_host
from remoting.runs import PULL_RUN
from remoting.server import Handler, RemotingServer
from remoting.side import unfinished_frames
from runtime.busypoll import busy_poll
from runtime.clock import BootClock, Clock, SteadyClock, SystemClock
from runtime.http import HttpFace
from runtime.late import late
from runtime.listening import exposed, named_address
from runtime.tasks import Tasks
from runtime.tls import enforces_tls, http_tls, server_tls, tls_warnings
from store.config import StoreConfig
from store.events import Payloads, StoreEvents
from store.files.owner_only import close_log_to_others
from store.log.flusher import Flusher
from store.messagestore import MessageStore
from store.types import Dispatched

_log = logging.getLogger(__name__)

VIP_OFFSET = -2
HTTP_OFFSET = 100
# How long a stop waits for what was taken to be acknowledged.
DRAIN_SECONDS = 10.0
_PULLS = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE), PULL_RUN})


class Broker:
    """One broker. `address` is where clients find it; `port`, `vip_port`, `http_port` (0: closed) where it listens."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        clock: Clock | None = None,
        *,
        force: bool = False,
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """`force`: as a single broker on a group's store, which gives up what only the group has.

        `on_loaded` is called once what is kept in memory has been read, and nobody has been talked to yet.
        """
        self.live = LiveConfig(config, store_config, late(lambda: self._parts.config_changed))
        self.address = ""
        self.port = 0
        self.vip_port = 0
        self.http_port = 0
        # Why the broker cannot go on, set together with `stopped`.
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        # Set together with `stopped`: the broker is to be closed, and another one started in its place.
        self.reborn: RestartAction | None = None
        # In a group all of a member goes by a clock that follows no jump before the others agree (R17).
        self._steady = SteadyClock(BootClock() if clock is None else clock) if config.enableDLegerCommitLog else None
        self._clock: Clock = self._steady or clock or SystemClock()
        self._force = force
        self._on_loaded = on_loaded
        self._tasks = Tasks("broker")
        self._not_ready: str | None = "starting"
        self._exit = contextlib.AsyncExitStack()
        # What it is to its clients; from start() on.
        self.role: BrokerRole
        self.store: MessageStore
        # One that hears nothing: there is a store before there is a mode, and tells of itself.
        self._mode = Mode()
        self._arrived: Callable[[Sequence[Dispatched]], None] = lambda _batch: None
        self._parts: Parts
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
        return await self._mode.hand_over()

    async def _start(self) -> None:
        config = self.live.broker
        ip = config.advertised_ip()
        with reserved_port(config.bindAddress, config.listenPort) as port:
            self.port = port
            self.address = format_address(ip, port)
            store_host = pack_host(await resolved(ip), port)
            grouped = config.enableDLegerCommitLog
            check_folder(self.live.store.root)
            if config.authenticationEnabled:
                close_log_to_others(self.live.store)
            if grouped and is_marked(self.live.store.root):
                self._not_ready = "copying the leader's store"
                settings = group_settings(config, config.group_name())
                await copy_from_leader(self.live.store, config, settings, store_host)
            if self._force:
                end_by_force(self.live.store, store_host)
            self._loop = asyncio.get_running_loop()
            self._polling = None if grouped else busy_poll(config.busyPollMicros, self._loop)
            store = MessageStore.open(
                self.live.store,
                store_host=store_host,
                clock=self._clock,
                group=grouped,
                slave=not grouped and config.brokerRole == SLAVE,
                force=self._force,
                payloads=Payloads(deleted_topics, ends_group),
                events=StoreEvents(
                    dispatched=self._dispatched,
                    flushed=late(lambda: self._mode.flushed_in_thread),
                    worked=late(lambda: self._mode.worked_in_thread),
                    fatal=self._fail_in_thread,
                    needed_from=late(lambda: self._parts.timers.service.needed_from),
                ),
            )
            self.store = store
            self._exit.callback(self._close_store)
            threads = ThreadPoolExecutor(config.coldReadThreads, thread_name_prefix="cold-read")
            self._exit.callback(threads.shutdown)
            self._mode = self._mode_of(store, threads)
            self._watch_syncs(store)
            self.role = self._mode.role
            context = BrokerContext(
                self.live, store, self.role, self._clock, self.address, store_host=store_host, threads=threads
            )
            self._parts = Parts(self._around(context), self._mode, self._exit)
            await self._parts.idempotent.read_tail(store.dispatched, threads)
            self._arrived = self._parts.dispatched
            self._on_loaded()
            if self.role.leads:
                await self._parts.migration.run()
            await self._mode.start(self._exit)
            self._parts.timers.service.begin()
            self._tell_leftovers()
            await self._listen(config)
        await self._mode.opened()
        await self._parts.registration.start(self._mode.ha_address)
        self._exit.push_async_callback(self._quiesce)
        self._exit.callback(self._parts.locks.keep)
        self.role.subscribe(self._role_changed)
        self._role_changed()
        mode = self._mode
        self._parts.upkeep.start(self._tasks, self.persist, mode.clean, mode.seeks, lambda: without_room(mode.meta))
        _log.info("broker %s serves at %s", config.name(), self.address)
        _log.info("%s", told(config))
        exposure = exposed(config.bindAddress, guarded=config.authenticationEnabled, encrypted=enforces_tls(config))
        for words in (exposure, *listening_warnings(config), *tls_warnings(config)):
            if words is not None:
                _log.warning("%s", words)

    def _watch_syncs(self, store: MessageStore) -> None:
        """Let the kernel sync what is acknowledged once it is on the disk, where it can."""
        fd = store.flusher.in_loop(self._mode.flushed_in_loop)
        if fd is not None:
            self._loop.add_reader(fd, self._synced, store.flusher)
            # Before the store closes it.
            self._exit.callback(self._loop.remove_reader, fd)

    def _synced(self, flusher: Flusher) -> None:
        # What was asked for durability is answered now, and who got the answer asks at once: as after a read.
        if self._polling is not None:
            self._polling.heard()
        flusher.collect()

    def _mode_of(self, store: MessageStore, threads: ThreadPoolExecutor) -> Mode:
        if self._steady is not None:
            return MemberMode(self.live, store, self._steady, self.address, self._fail, self.restart)
        parts = ClassicParts(self.live, store, self._clock, self.address, threads, self.restart, self._polling)
        return Slave(parts) if self.live.broker.brokerRole == SLAVE else Master(parts)

    def _tell_leftovers(self) -> None:
        """Say what the store holds that nobody will serve here."""
        parts, root = self._parts, self.live.store.root
        try:
            found = leftovers(root, parts.topics.tables)
        except OSError as error:
            found = [f"what cannot be read: {error}"]
        if found:
            _log.warning("THIS STORE HOLDS WHAT THIS BROKER DOES NOT SERVE: %s", "; ".join(found))

    async def _listen(self, config: BrokerConfig) -> None:
        vip = config.vipPortEnable and config.listenPort + VIP_OFFSET > 0
        idle = float(config.serverChannelMaxIdleTimeSeconds)
        limits = server_limits(idle, 2 if vip else 1, config.connectionsPerAddressMax)
        self._tls = server_tls(config)
        self._unfinished = unfinished_frames(limits, self._loop)
        with named_address("listenPort", config.bindAddress, self.port):
            await self._serve("broker", self._parts.handlers, limits, config.bindAddress, self.port)
        if vip:
            table = self._parts.handlers_without(_PULLS)
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
            face: HttpFace = self._parts.http.face({"/v1/transactions": self._parts.transactions.page})
            self._exit.push_async_callback(face.close)
            wanted = config.httpPort or (config.listenPort + HTTP_OFFSET if config.listenPort else 0)
            with named_address("httpPort", config.httpBindAddress, wanted):
                await face.start(config.httpBindAddress, wanted, http_tls(config, config.httpBindAddress))
            self.http_port = face.port

    async def _serve(self, name: str, table: dict[int, Handler], limits: ServerLimits, host: str, port: int) -> None:
        parts = self._parts
        server = RemotingServer(
            table,
            name=name,
            limits=limits,
            on_close=parts.closed,
            on_unsupported=parts.unserved,
            congested=self._mode.congested,
            tls=self._tls,
            signed=self.live.broker.authenticationEnabled,
            unfinished=self._unfinished,
            polling=self._polling,
        )
        self._servers.append(server)
        self._exit.push_async_callback(server.close)
        await server.start(host, port)

    def _dispatched(self, batch: Sequence[Dispatched]) -> None:
        self._arrived(batch)

    def _role_changed(self) -> None:
        """Do what only a leader does, or stop it; who waits for messages asks again, the broker that leads by then."""
        leads = self.role.leads
        if leads == self._leads:
            return
        self._leads = leads
        if leads:
            self._parts.schedule.start()
            self._parts.timers.service.start()
            self._parts.transactions.start()
            self._parts.pop.start()
            if self._parts.migration.waits:
                self._tasks.spawn(self._parts.migration.run(), "users of ACL 1.0")
        else:
            self._parts.schedule.stop()
            self._parts.timers.service.stop()
            self._parts.transactions.stop()
            self._parts.pop.stop()
        self._parts.pull.wake_all()

    async def _quiesce(self) -> None:
        """Come to rest while the connections are still open, so that everybody gets an answer."""
        self._parts.schedule.stop()
        self._parts.timers.service.stop()
        self._parts.transactions.retire()
        if self.role.leads:
            await self._parts.schedule.persist()
        await self._tasks.close()
        await self._mode.retire(self._has_clients, again=self.reborn is not None)
        await self._parts.registration.close()
        if not await self._mode.replication.drain(DRAIN_SECONDS):
            _log.warning("some sends were not acknowledged within %s s", DRAIN_SECONDS)
        if self.role.leads:
            await self._parts.schedule.persist()
            self._parts.transactions.retire()
        self._parts.pull.stop()
        # One turn for the answers to reach the transports.
        await asyncio.sleep(0)

    def _has_clients(self) -> bool:
        return any(server.connections for server in self._servers)

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

    def restart(self, action: RestartAction) -> None:
        """Have this broker closed, and another one started in its place; only the first such wish counts."""
        if self.reborn is None and not self.stopped.is_set():
            _log.warning("the broker starts again: %s", action.why)
            self._not_ready = f"starts again: {action.why}"
            self.reborn = action
            self.stopped.set()

    async def persist(self) -> None:
        """Write the tables that are written only now and then."""
        await self._parts.offsets.persist()
        await self._mode.persist()

    def _ready(self) -> str | None:
        return self._not_ready or self._mode.waits_for() or self._takes_nothing()

    def _takes_nothing(self) -> str | None:
        """Return why the store takes no messages, of whoever should: a follower sends them on to its leader."""
        refused = self.store.refused if self.role.leads else None
        return None if refused is None else f"no messages are taken: {refused}"

    def _around(self, context: BrokerContext) -> Around:
        return Around(context, self._ready, self._addresses, lambda: self._servers)

    def _addresses(self) -> dict[str, str]:
        return {
            "broker": self.address,
            "vipPort": str(self.vip_port),
            "httpPort": str(self.http_port),
            "namesrvAddr": self.live.broker.namesrvAddr,
            "registeredWith": ";".join(sorted(self._parts.registration.registered)),
        }
