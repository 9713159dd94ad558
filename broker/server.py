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
import gc
import logging
import os
import random
from collections.abc import Sequence
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
from broker.msgcheck import MessageChecks
from broker.offset_handlers import OffsetHandlers
from broker.offsets import OffsetTable
from broker.ports import reserved_port, resolved
from broker.pull import SWEEP_SECONDS, PullHandlers
from broker.pullcheck import PullChecks
from broker.register import CHASE_SECONDS, Registration
from broker.replication import LocalReplication
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
from runtime.loop import run, stop_event
from runtime.tasks import Tasks
from store.config import SYNC_FLUSH, StoreConfig
from store.dispatch import SCHEDULE_TOPIC, parse_delay_levels
from store.messagestore import MessageStore
from store.types import Dispatched

_log = logging.getLogger(__name__)

VIP_OFFSET = -2
HTTP_OFFSET = 100
HA_OFFSET = 1
# Seconds: how often silent clients are looked for, and locks that have run out.
CLIENT_SCAN_SECONDS = 10.0
# How often the store persists what it buffers of queues and index.
IDLE_SECONDS = 0.05
# How long a stop waits for what was taken to be acknowledged.
DRAIN_SECONDS = 10.0
# Objects made between two rounds of the garbage collector: some thousand messages.
GC_ALLOCATIONS = 50_000
_PULLS = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
_REGISTERED_KEYS = frozenset({"brokerPermission", "namesrvAddr"})


class Broker:
    """One broker. `address` is where clients find it; `port`, `vip_port`, `http_port` (0: closed) where it listens."""

    def __init__(self, config: BrokerConfig, store_config: StoreConfig, clock: Clock | None = None) -> None:
        self.live = LiveConfig(config, store_config)
        self.address = ""
        self.port = 0
        self.vip_port = 0
        self.http_port = 0
        # Why the broker cannot go on, set together with `stopped`.
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        self._clock: Clock = SystemClock() if clock is None else clock
        self._tasks = Tasks("broker")
        self._not_ready: str | None = "starting"
        self._exit = contextlib.AsyncExitStack()

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

    async def _start(self) -> None:
        config = self.live.broker
        ip = config.advertised_ip()
        with reserved_port(config.bindAddress, config.listenPort) as port:
            self.port = port
            self.address = format_address(ip, port)
            store_host = pack_host(await resolved(ip), port)
            store = MessageStore.open(self.live.store, store_host=store_host, clock=self._clock)
            self._store = store
            self._exit.callback(self._close_store)
            self._loop = asyncio.get_running_loop()
            store.on_fatal = self._fail_in_thread
            self._build(store, store_host, ip)
            await self._listen(config)
        await self._registration.start()
        self._exit.push_async_callback(self._quiesce)
        self._schedule.start()
        self._run_periodically(store)
        _log.info("broker %s serves at %s", config.name(), self.address)

    def _build(self, store: MessageStore, store_host: bytes, ip: str) -> None:
        """Make the parts; each later one may use the earlier ones."""
        live, clock, loop = self.live, self._clock, asyncio.get_running_loop()
        config, folder = live.broker, live.store.root / "config"
        self._topics = TopicTable(folder / "topics.json", live, clock)
        self._exit.push_async_callback(self._topics.close)
        self._groups = GroupTable(folder / "subscriptionGroup.json", live, clock)
        self._exit.push_async_callback(self._groups.close)
        self._offsets = OffsetTable.load(folder / "consumerOffset.json", clock)
        self._exit.push_async_callback(self._offsets.persist)
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
        self._registration = Registration(live, self._topics, self._client, self.address, ha_address)

        self._replication = LocalReplication(
            store,
            loop,
            sync_flush=live.store.flushDiskType == SYNC_FLUSH,
            flush_timeout=live.store.syncFlushTimeout / 1000,
            pending_bytes_max=config.pendingBytesMax,
        )
        checks = MessageChecks(live, self._topics, self._groups.find, clock, random.randrange)
        threads = ThreadPoolExecutor(config.coldReadThreads, thread_name_prefix="cold-read")
        self._exit.callback(threads.shutdown)
        self._send = SendHandlers(
            live,
            checks,
            self._replication,
            store_host,
            UniqKeys(unpack_host(store_host)[0]).next,
            self._stats.put_failed,
        )
        self._send_back = SendBackHandlers(
            live,
            self._topics,
            self._groups.find,
            store,
            self._replication,
            store_host,
            self._stats,
            random.randrange,
        )
        levels_ms = parse_delay_levels(live.store.messageDelayLevel)
        self._schedule = ScheduleService(
            folder / "delayOffset.json", store, self._replication, clock, loop.call_later, levels_ms
        )
        pull_checks = PullChecks(live, self._topics, self._groups, self._clients)
        self._pull = PullHandlers(live, pull_checks, self._offsets, store, self._stats, loop, threads)
        store.on_dispatched = self._dispatched
        self._handlers = self._table(store)
        self._topics.on_change = self._registration.changed
        live.on_change = lambda keys: self._config_changed(store, keys)

    def _table(self, store: MessageStore) -> dict[int, Handler]:
        """Return the one table of request code → handler."""
        live, clock = self.live, self._clock
        topics, groups, offsets = self._topics, self._groups, self._offsets
        clients, stats = self._clients, self._stats
        info = RuntimeInfo(live, store, stats, clock, self._backlog, self._schedule.figures)
        self._http = BrokerHttp(
            live, topics, groups, offsets, clients, stats, store, clock, self._backlog, self._ready, self._addresses
        )
        return merged(
            self._send.table(),
            self._send_back.table(),
            self._schedule.table(),
            self._pull.table(),
            OffsetHandlers(live, offsets, topics, groups, store).table(),
            ClientHandlers(clients, topics, groups, self._locks).table(),
            AdminBroker(live, store, stats, info, clock).table(),
            AdminTopics(
                live, topics, groups, offsets, clients, stats, store, self._registration.announce, self._persist_offsets
            ).table(),
            AdminGroups(groups, offsets, clients, stats, self._persist_offsets).table(),
            AdminOffsets(
                live, topics, groups, offsets, clients, stats, store, clock, self.address, self._persist_offsets
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
        self._exit.push_async_callback(server.close)
        await server.start(host, port)

    def _run_periodically(self, store: MessageStore) -> None:
        tasks, config = self._tasks, self.live.broker
        tasks.every(config.flushConsumerOffsetInterval / 1000, self._persist_offsets, "persist offsets")
        tasks.every(self.live.store.flushDelayOffsetInterval / 1000, self._schedule.persist, "persist delay offsets")
        tasks.every(CLIENT_SCAN_SECONDS, self._scan_clients, "scan of silent clients")
        tasks.every(SWEEP_SECONDS, self._pull.sweep, "sweep of parked pulls")
        tasks.every(1.0, self._stats.tick, "statistics")
        tasks.every(IDLE_SECONDS, store.idle, "store idle")
        tasks.every(self.live.store.cleanResourceInterval / 1000, lambda: _clean(store), "retention")
        tasks.every(config.register_period(), self._registration.refresh, "registration")
        tasks.every(CHASE_SECONDS, self._registration.chase, "registration with lost NameServers")

    async def _quiesce(self) -> None:
        """Come to rest while the connections are still open, so that everybody gets an answer."""
        self._schedule.stop()
        await self._tasks.close()
        await self._registration.close()
        if not await self._replication.drain(DRAIN_SECONDS):
            _log.warning("some sends were not acknowledged within %s s", DRAIN_SECONDS)
        await self._schedule.persist()
        self._pull.stop()
        # One turn for the answers to reach the transports.
        await asyncio.sleep(0)

    def _close_store(self) -> None:
        """Close the store, unless it has failed: its folder then stays marked as not stopped cleanly."""
        if self.failure is None:
            self._store.close()

    def _fail_in_thread(self, error: BaseException) -> None:
        """Carry the bad news from the store's threads into the loop."""
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        """Note that the disk has failed: what was acknowledged may not be on it, so nothing may go on."""
        _log.critical("the store failed, the broker must stop: %s", error)
        self.failure = error
        self._not_ready = f"the store failed: {error}"
        self.stopped.set()

    def _dispatched(self, batch: Sequence[Dispatched]) -> None:
        """Count what was stored, and wake who waits for it."""
        topics = {message.topic for message in batch}
        if len(topics) == 1:
            self._stats.put(batch[0].topic, len(batch), sum([message.size for message in batch]))
        else:
            sums = {topic: [0, 0] for topic in topics}
            for message in batch:
                entry = sums[message.topic]
                entry[0] += 1
                entry[1] += message.size
            for topic, (count, size) in sums.items():
                self._stats.put(topic, count, size)
        if SCHEDULE_TOPIC in topics:
            self._schedule.arrived(batch)
        self._pull.arrived(batch)

    def _closed(self, connection: Connection) -> None:
        self._pull.on_close(connection)
        self._clients.on_close(connection)

    def _scan_clients(self) -> None:
        for connection in self._clients.expire(self.live.broker.channelExpiredTimeout / 1000):
            _log.warning("client at %s is silent for too long and forgotten", connection.peer)
            if isinstance(connection, Connection):
                connection.close()
        self._locks.sweep()

    async def _persist_offsets(self) -> None:
        await self._offsets.persist()

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
        return Backlog(self._replication.pending_bytes, self._pull.parked)

    def _ready(self) -> str | None:
        return self._not_ready

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


def run_broker(broker_config: BrokerConfig, store_config: StoreConfig) -> None:
    """Run a broker until SIGTERM or SIGINT; raises what Broker.start raises when it cannot start.

    A disk that fails ends the process at once with exit code 1: nothing may touch the store any more, and a thread
    may hang in the kernel.
    """
    run(_serve_until_stopped(broker_config, store_config))


async def _serve_until_stopped(broker_config: BrokerConfig, store_config: StoreConfig) -> None:
    stop = stop_event()
    broker = Broker(broker_config, store_config)
    await broker.start()
    # What has been made so far lives as long as the process, and messages leave no cycles behind: without this, large
    # tables are looked through again and again, which stops the traffic each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 50)
    waiters = [asyncio.create_task(stop.wait()), asyncio.create_task(broker.stopped.wait())]
    await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiters:
        waiter.cancel()
    if broker.failure is not None:
        logging.shutdown()
        os._exit(1)
    _log.info("broker %s stops", broker_config.name())
    await broker.close()


def _clean(store: MessageStore) -> None:
    """Let retention do its round; what it removed stands in the store's own log line."""
    store.clean()
