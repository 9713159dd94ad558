"""The parts of a broker, built in visible order, and the one table request code → handler.

Nothing else constructs the broker's collaborators; every part is handed what it needs. `broker/server.py` is the life
around them: ports, start, stop, failure.
"""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass

from broker.admin_broker import AdminBroker
from broker.admin_clients import AdminClients
from broker.admin_groups import AdminGroups
from broker.admin_messages import AdminMessages
from broker.admin_offsets import AdminOffsets
from broker.admin_positions import AdminPositions
from broker.admin_topics import AdminTopics
from broker.client_handlers import ClientHandlers
from broker.clients import ClientTable
from broker.config import LiveConfig
from broker.groups import GroupTable
from broker.http import BrokerHttp
from broker.locks import LockTable
from broker.mode import Mode, Tables
from broker.msgcheck import MessageChecks
from broker.offset_handlers import OffsetHandlers
from broker.offsets import OffsetTable
from broker.periodic import Upkeep
from broker.pull import PullHandlers
from broker.pullcheck import PullChecks
from broker.register import Registration
from broker.request_modes import RequestModes
from broker.runtime_info import Backlog, RuntimeInfo
from broker.schedule import ScheduleService
from broker.send import SendHandlers
from broker.sendback import SendBackHandlers
from broker.stats import BrokerStats
from broker.topics import TopicTable
from remoting.client import RemotingClient
from remoting.msgid import UniqKeys, unpack_host
from remoting.server import Connection, Handler
from runtime.clock import Clock
from store.dispatch import parse_delay_levels
from store.messagestore import MessageStore

# Keys that NameServers learn of.
_REGISTERED_KEYS = frozenset({"brokerPermission", "namesrvAddr"})


@dataclass(frozen=True)
class Around:
    """What the parts are told of the process around them."""

    live: LiveConfig
    clock: Clock
    address: str
    """Where clients find the broker, "host:port"."""
    store_host: bytes
    """The same as records hold it."""
    threads: Executor
    """Reads what is not in memory."""
    ready: Callable[[], str | None]
    """Returns why the broker does not serve, None when it does."""
    addresses: Callable[[], dict[str, str]]
    """Names what it listens on and registers with."""


class Parts:
    """What one broker is made of; must be made inside its loop."""

    def __init__(self, around: Around, mode: Mode, store: MessageStore, exits: AsyncExitStack) -> None:
        """Make the parts; each later one may use the earlier ones. What must be closed goes on `exits`."""
        live, clock, loop = around.live, around.clock, asyncio.get_running_loop()
        config, folder = live.broker, live.store.root / "config"
        meta, replication, role, store_host = mode.meta, mode.replication, mode.role, around.store_host
        self._around, self._live, self._mode, self._store = around, live, mode, store
        self.topics = TopicTable(folder / "topics.json", live, clock, meta)
        exits.push_async_callback(self.topics.close)
        self.groups = GroupTable(folder / "subscriptionGroup.json", live, clock, meta)
        exits.push_async_callback(self.groups.close)
        self.offsets = OffsetTable.load(folder / "consumerOffset.json", clock, meta)
        exits.push_async_callback(self.offsets.persist)
        self._modes = RequestModes(folder / "messageRequestMode.json")
        exits.push_async_callback(self._modes.close)
        if mode.adopts:
            self.topics.adopt(store.topics())
            self.offsets.clamp(store.max_offset)

        self.stats = BrokerStats(clock, config.brokerClusterName, config.name())
        self.locks = LockTable(clock)
        self.clients = ClientTable(
            clock, later=loop.call_soon, notifies=self._wants_notice, on_leave=self.locks.release
        )
        self._client = RemotingClient(on_close=self._connection_lost, name="broker's client")
        exits.push_async_callback(self._client.close)
        self.registration = Registration(live, role, self.topics, self._client, around.address)
        self.registration.on_master = mode.heard

        checks = MessageChecks(live, self.topics, self.groups.find, clock, random.randrange)
        self._send = SendHandlers(
            live,
            checks,
            replication,
            store_host,
            UniqKeys(unpack_host(store_host)[0]).next,
            self.stats.put_failed,
            mode.elsewhere,
        )
        self._send_back = SendBackHandlers(
            live,
            self.topics,
            self.groups.find,
            store,
            replication,
            store_host,
            self.stats,
            random.randrange,
            mode.elsewhere,
        )
        levels_ms = parse_delay_levels(live.store.messageDelayLevel)
        self.schedule = ScheduleService(
            folder / "delayOffset.json", store, replication, clock, loop.call_later, levels_ms, meta
        )
        pull_checks = PullChecks(
            live, self.topics, self.groups, self.clients, role, forwards=mode.forward_pull is not None
        )
        self.pull = PullHandlers(
            live, pull_checks, self.offsets, store, self.stats, loop, around.threads, role, mode.forward_pull,
            mode.master,
        )  # fmt: skip
        self.upkeep = Upkeep(
            live, store, self.stats, self.clients, self.locks, self.schedule, self.pull, self.registration
        )
        mode.attach(
            Tables(self.topics, self.groups, self.offsets, self.schedule, self._modes, self.pull.wake_all, folder)
        )
        store.on_dispatched = self.upkeep.dispatched
        self.handlers = mode.gate(self._table(store))
        self.topics.on_change = self.registration.changed
        live.on_change = self._config_changed

    def backlog(self) -> Backlog:
        """Return what waits in the broker just now."""
        return Backlog(self._mode.replication.pending_bytes, self.pull.parked)

    def closed(self, connection: Connection) -> None:
        """Forget what a client that has gone waited for, and who it was."""
        self.pull.on_close(connection)
        self.clients.on_close(connection)

    def _table(self, store: MessageStore) -> dict[int, Handler]:
        """Return the one table of request code → handler."""
        around, live, clock, mode = self._around, self._live, self._around.clock, self._mode
        topics, groups, offsets, clients, stats = self.topics, self.groups, self.offsets, self.clients, self.stats
        info = RuntimeInfo(
            live, store, stats, clock, self.backlog, lambda: {**self.schedule.figures(), **mode.figures()}
        )
        self.http = BrokerHttp(
            live, topics, groups, offsets, clients, stats, store, clock, self.backlog, around.ready, around.addresses,
            mode.role, mode.label, mode.pages,
        )  # fmt: skip
        return merged(
            self._send.table(),
            self._send_back.table(),
            self.schedule.table(),
            self.pull.table(),
            OffsetHandlers(live, offsets, topics, groups, store).table(),
            ClientHandlers(clients, topics, groups, self.locks, mode.role).table(),
            AdminBroker(live, store, stats, info, clock, mode.clean).table(),
            AdminTopics(
                live, topics, groups, offsets, clients, stats, store, self.registration.announce, offsets.save
            ).table(),
            AdminGroups(groups, offsets, clients, stats, offsets.save).table(),
            AdminOffsets(
                live, topics, groups, offsets, clients, stats, store, clock, around.address, offsets.save
            ).table(),
            AdminPositions(store).table(),
            self._modes.table(),
            AdminMessages(live, store, clients).table(),
            AdminClients(live, clients, store).table(),
        )

    def _wants_notice(self, group: str) -> bool:
        config = self.groups.get(group)
        return self._live.broker.notifyConsumerIdsChangedEnable and (
            config is None or config.notifyConsumerIdsChangedEnable
        )

    def _connection_lost(self, address: str) -> None:
        self.registration.lost(address)

    def _config_changed(self, keys: frozenset[str]) -> None:
        self._store.reconfigure(self._live.store)
        if keys & _REGISTERED_KEYS:
            # A new version of the unchanged table: NameServers take the permission from it.
            self.topics.update()


def merged(*tables: dict[int, Handler]) -> dict[int, Handler]:
    """Return all tables as one; two handlers for a code are a mistake in the program."""
    whole: dict[int, Handler] = {}
    for table in tables:
        twice = whole.keys() & table.keys()
        assert not twice, f"two handlers for {sorted(twice)}"
        whole.update((int(code), handler) for code, handler in table.items())
    return whole
