"""The parts of a broker, built in visible order, and the one table request code → handler.

Nothing else constructs the broker's collaborators; every part is handed what it needs. `broker/server.py` is the life
around them: ports, start, stop, failure.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from auth.audit_bodies import shown_body
from auth.guard import AccessGuard
from auth.model import Resource, ResourceKind
from auth.needs import BROKER
from auth.quota_keys import QUOTA_KEYS
from auth.quotas import BROKER_COUNTS, QuotaGuard
from auth.settings import check_users, directory_of, white_list
from broker.admin.broker import AdminBroker
from broker.admin.client_handlers import ClientHandlers
from broker.admin.clients import AdminClients
from broker.admin.groups import AdminGroups
from broker.admin.http import BrokerHttp
from broker.admin.messages import AdminMessages
from broker.admin.metrics import BrokerFigures, Counted
from broker.admin.missing import MissingFeatures
from broker.admin.offsets import AdminOffsets
from broker.admin.positions import AdminPositions
from broker.admin.queue_locks import QueueLockHandlers
from broker.admin.runtime_info import Backlog, RuntimeInfo
from broker.admin.topics import AdminTopics
from broker.admin.users import AdminUsers
from broker.clients import ClientTable
from broker.context import BrokerContext, Tables
from broker.delay.service import TimerParts
from broker.housekeeping import Upkeep
from broker.leader_only import SAID_BY_MEMBERS, in_whose_name, passed_on_for
from broker.messages.arrivals import sums_of
from broker.messages.commit_origins import Origins
from broker.messages.delay_levels import ScheduleService
from broker.messages.delay_queue import DelayLoop, aside_in
from broker.messages.fresh_topics import FreshTopics
from broker.messages.idempotent import IdempotentSends
from broker.messages.lost_clients import LostClients
from broker.messages.offset_handlers import OffsetHandlers
from broker.messages.pull import PullHandlers
from broker.messages.pull_checks import PullChecks
from broker.messages.recent_records import IDEMPOTENT_FLAG
from broker.messages.replies import ReplyHandlers
from broker.messages.send import SendHandlers
from broker.messages.send_answers import SendAnswers
from broker.messages.send_back import SendBackHandlers
from broker.messages.send_checks import MessageChecks
from broker.metadata.agreed_locks import AgreedLocks
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.plain_users import start_migration
from broker.metadata.request_modes import RequestModes
from broker.metadata.topics import TopicTable
from broker.metadata.users import FILE_NAME as USERS_FILE
from broker.metadata.users import UserTable
from broker.mode import BrokerParts, Mode
from broker.pop.assignment import AssignmentHandlers
from broker.pop.service import PopService
from broker.registration.registration import Registration
from broker.registration.topic_routes import TopicRoutes
from broker.stats import BrokerStats
from broker.transactions.service import Transactions
from remoting.admission import Admission
from remoting.audit import audited
from remoting.client import RemotingClient
from remoting.command import Command
from remoting.msgid import UniqKeys, unpack_host
from remoting.runs import RUNS
from remoting.server import Connection, Handler, RemotingServer
from runtime.gaps import LoopGaps
from runtime.late import late
from runtime.metrics import Metrics
from runtime.tls import outgoing_tls
from store.log.dispatch import parse_delay_levels
from store.messagestore import MessageStore
from store.types import Dispatched

# Keys that NameServers learn of.
_REGISTERED_KEYS = frozenset({"brokerPermission", "namesrvAddr"})


@dataclass(frozen=True)
class Around:
    """What the parts are told of the process around them."""

    context: BrokerContext
    ready: Callable[[], str | None]
    """Returns why the broker does not serve, None when it does."""
    addresses: Callable[[], dict[str, str]]
    """Names what it listens on and registers with."""
    ports: Callable[[], Sequence[RemotingServer]]
    """Returns what listens for clients."""


class Parts:
    """What one broker is made of; must be made inside its loop."""

    def __init__(self, around: Around, mode: Mode, exits: AsyncExitStack) -> None:
        """Make the parts; each later one may use the earlier ones. What must be closed goes on `exits`."""
        context, loop = around.context, asyncio.get_running_loop()
        live, store, clock, role = context.live, context.store, context.clock, context.role
        config, folder = live.broker, live.store.root / "config"
        meta, replication, store_host = mode.meta, mode.replication, context.store_host
        self._around, self._live, self._mode, self._store = around, live, mode, store
        self.registration: Registration
        self.transactions: Transactions
        self.http: BrokerHttp
        self._directory = directory_of(config)
        self._gaps = LoopGaps(clock)
        exits.callback(self._gaps.close)
        self.quotas = self._quota_guard()
        self._read_tables(folder, exits)
        self.stats = BrokerStats(clock, config.brokerClusterName, config.name(), sends=replication.times.send)
        self._know_clients(loop)
        self._client = self._outgoing(exits)
        self.registration = Registration(live, role, self.topics, self._client, context.address, mode.heard)
        self._routes = TopicRoutes(live, self.topics, self._client)
        exits.push_async_callback(self._routes.close)
        if mode.adopts:
            self.topics.adopt(store.topics())
            self.offsets.clamp(store.max_offset)

        # In a group a topic stands in the log before what is sent to it.
        fresh = None if meta.shared else FreshTopics(self.topics.save)
        checks = MessageChecks(live, self.topics, self.groups.find, clock, random.randrange, fresh)
        self.idempotent = IdempotentSends(replication, store, store_host, clock, config)
        answers = SendAnswers(store_host, self.stats.put_failed, mode.elsewhere)
        self._send = SendHandlers(
            live, checks, replication, answers, UniqKeys(unpack_host(store_host)[0]).next,
            late(lambda: self.transactions.prepare), self.idempotent,
        )  # fmt: skip
        self._replies = ReplyHandlers(
            live, checks, replication, store_host, self._lost_clients, clock, mode.elsewhere, mode.relay
        )
        self._tables = Tables(self.topics, self.groups, self.offsets, self.clients, self.stats)
        self.transactions = Transactions(context, self._tables, replication, mode.elsewhere, mends=meta.shared)
        exits.push_async_callback(self.transactions.close)
        self._send_back = SendBackHandlers(context, self._tables, replication, random.randrange, mode.elsewhere)
        levels_ms = parse_delay_levels(live.store.messageDelayLevel)
        self.schedule = ScheduleService(
            folder / "delayOffset.json", store, replication, clock,
            DelayLoop(loop.call_later, aside_in(context.threads)), levels_ms, meta, self.topics.adopt_awaited,
        )  # fmt: skip
        self.timers = TimerParts(
            context, replication, self.topics, self.topics.adopt_awaited, shared=meta.shared, elsewhere=mode.elsewhere
        )
        exits.callback(self.timers.service.close)
        self._origins = Origins(self.clients, mode.came, mode.from_member)
        pull_checks = PullChecks(
            live, self.topics, self.groups, self.clients, role, forwards=mode.forward_pull is not None
        )
        self.pull = PullHandlers(
            context, self._tables, pull_checks, loop, forward=mode.forward_pull, master=mode.master,
            origins=self._origins, quota=self.quotas,
        )  # fmt: skip
        self.pop = PopService(context, self._tables, replication, mode.elsewhere, mends=meta.shared)
        exits.push_async_callback(self.pop.close)
        self.upkeep = Upkeep(
            context, self._tables, self.locks, self.schedule, self.pull, self.registration, self.timers.service.arrived
        )
        mode.attach(BrokerParts(self._tables, self.schedule, self._modes, self.users, self.pull.wake_all, folder))
        self._guard: AccessGuard | None = None
        self._unlimited, self._limited = self._limited_or_not(mode.gate(self._table(store)))
        self.handlers = self.handlers_without(frozenset())

    def _know_clients(self, loop: asyncio.AbstractEventLoop) -> None:
        clock = self._around.context.clock
        self.clients: ClientTable = ClientTable(
            clock, later=loop.call_later, notifies=self._wants_notice, on_leave=self.locks.release,
            on_reach=late(lambda: self._lost_clients.noted),
        )  # fmt: skip
        self._lost_clients: LostClients = LostClients(self.clients, clock, loop.call_later)

    def _outgoing(self, exits: AsyncExitStack) -> RemotingClient:
        """Return what asks others in the brokers' own name."""
        tls, inner = outgoing_tls(self._live.broker), self._directory.inner
        client = RemotingClient(on_close=self._connection_lost, name="broker's client", tls=tls, credentials=inner)
        exits.push_async_callback(client.close)
        return client

    def _read_tables(self, folder: Path, exits: AsyncExitStack) -> None:
        """Read what is kept in files; raises MetadataError, ConfigError, OSError."""
        live, clock, mode = self._live, self._around.context.clock, self._mode
        self.topics = TopicTable(
            folder / "topics.json",
            live,
            clock,
            mode.meta,
            on_change=late(lambda: self.registration.changed),
            delete_queues=mode.delete_queues,
            quota=self.quotas.creates_topic,
        )
        exits.push_async_callback(self.topics.close)
        self.groups = GroupTable(
            folder / "subscriptionGroup.json", live, clock, mode.meta, quota=self.quotas.creates_group
        )
        exits.push_async_callback(self.groups.close)
        self.offsets = OffsetTable.load(folder / "consumerOffset.json", clock, mode.meta)
        exits.push_async_callback(self.offsets.file.at_stop, self.offsets.persist)
        self.locks = AgreedLocks(
            folder / "queueLocks.json", clock, mode.meta, fresh=self._store.written == 0, able=mode.locks_in_log
        )
        exits.push_async_callback(self.locks.close)
        self.users = UserTable(folder / USERS_FILE, clock, self._directory, mode.meta)
        exits.push_async_callback(self.users.close)
        self.migration = start_migration(live.broker, self.users)
        if mode.role.leads:
            self.migration.propose()
        check_users(live.broker, self._directory)
        self._modes = RequestModes(folder / "messageRequestMode.json", mode.meta)
        exits.push_async_callback(self._modes.close)

    def _guarded(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return what serves requests: who they come from is looked at first, and what is changed is told."""
        config = self._live.broker
        told = audited(table, Admission(config.adminAllowFrom, self._mode.members_hosts), shown_body)
        if not config.authenticationEnabled:
            return told
        if self._guard is None:
            cluster = config.brokerClusterName
            self._guard = AccessGuard(
                config, self._directory, BROKER, cluster, SAID_BY_MEMBERS, spoken_for=passed_on_for
            )
        return self._guard.guarded(told)

    def _limited_or_not(self, table: dict[int, Handler]) -> tuple[dict[int, Handler], dict[int, Handler]]:
        # What is counted, or must have a signature, is served one by one.
        single = {code: handler for code, handler in table.items() if code not in RUNS}
        limited = self._guarded(self.quotas.limited(single))
        return self._guarded(single if self._live.broker.authenticationEnabled else table), limited

    def _quota_guard(self) -> QuotaGuard:
        config, mode = self._live.broker, self._mode

        def spoken_for(connection: Connection, request: Command) -> tuple[str, str] | None:
            found = in_whose_name(request)
            return found if found is not None and mode.from_member(connection) else None

        def exists(resource: Resource) -> bool:
            table = self.topics if resource.kind is ResourceKind.TOPIC else self.groups
            return table.get(resource.name) is not None

        return QuotaGuard(
            config, BROKER_COUNTS, self._around.context.clock.monotonic,
            self._directory if config.authenticationEnabled else None,
            white_list("authenticationWhitelist", config.authenticationWhitelist), spoken_for, exists,
        )  # fmt: skip

    def handlers_without(self, codes: frozenset[int]) -> dict[int, Handler]:
        """Return the table request code → handler of a port that does not serve these; it changes with the quotas."""
        unlimited, limited = (
            {code: handler for code, handler in table.items() if code not in codes}
            for table in (self._unlimited, self._limited)
        )
        return self.quotas.served(unlimited, limited)

    def dispatched(self, batch: Sequence[Dispatched]) -> None:
        """Take note of what has come into the queues."""
        sums, sys_flags = sums_of(batch)
        if sys_flags & IDEMPOTENT_FLAG:
            self.idempotent.dispatched(batch)
        self.upkeep.dispatched(batch, sums)
        self.pop.dispatched(sums.keys())

    def backlog(self) -> Backlog:
        """Return what waits in the broker just now."""
        return Backlog(self._mode.replication.pending_bytes, self.pull.parked, self.timers.service.index.count)

    def closed(self, connection: Connection) -> None:
        """Forget what a client that has gone waited for, and who it was."""
        self.pull.on_close(connection)
        self.pop.on_close(connection)
        self.clients.on_close(connection)
        self.quotas.closed(connection)

    def unserved(self, connection: Connection, request: Command) -> Command | None:
        """Take note of a request that has no handler; returns its answer when that is not the usual one."""
        self.missing.asked(connection, request)
        return None if self._guard is None else self._guard.unserved(connection, request)

    def _table(self, store: MessageStore) -> dict[int, Handler]:
        """Return the one table of request code → handler."""
        around, context, live, mode = self._around, self._around.context, self._live, self._mode
        clock, tables = context.clock, self._tables
        topics, groups, offsets, clients, stats = self.topics, self.groups, self.offsets, self.clients, self.stats
        info = RuntimeInfo(live, store, stats, clock, self.backlog, self._figures)
        self.missing = MissingFeatures(clock, clients.client_id)
        counted = Counted(
            self.backlog,
            self.missing.counts,
            self._gaps,
            around.ports,
            self._send.answers,
            mode.replication.times,
            self.pull.times,
            self.transactions.figures,
            self._replies.outcomes,
            self.timers.told.measures,
        )
        figures, metrics = BrokerFigures(context, tables, mode, counted), Metrics()
        metrics.show(
            lambda: (
                *figures.figures(), *self.idempotent.measures(), *self.pop.figures(), *self.quotas.figures(),
            ),
            figures.common,
        )  # fmt: skip
        self.http = BrokerHttp(context, tables, mode, self.backlog, around.ready, around.addresses, self._gaps, metrics)
        return merged(
            self._send.table(),
            self._replies.table(),
            self._send_back.table(),
            self.transactions.table(),
            self.schedule.table(),
            self.timers.table(),
            self.pull.table(),
            self.pop.table(),
            OffsetHandlers(live, offsets, topics, groups, store, clients, self._origins, mode.role.lease).table(),
            ClientHandlers(live, clients, topics, groups, mode.role).table(),
            QueueLockHandlers(self.locks, mode.role, mode.elsewhere, shared=mode.meta.shared).table(),
            AdminBroker(live, store, stats, info, clock, mode.clean).table(),
            AdminTopics(context, tables, self.registration.announce, offsets.save).table(),
            AdminGroups(groups, offsets, clients, stats, context.address, offsets.save).table(),
            AdminOffsets(context, tables, offsets.save).table(),
            AdminPositions(store).table(),
            self._modes.table(),
            AssignmentHandlers(live, self._modes, clients, self._routes.queues).table(),
            AdminMessages(live, store, clients).table(),
            AdminClients(live, self._tables, store).table(),
            AdminUsers(self.users).table(),
        )

    def _figures(self) -> dict[str, str]:
        """Return what parts add to the broker's figures (code 28)."""
        return {
            **self.schedule.figures(),
            **self.timers.told.figures(),
            **self.idempotent.figures(),
            **self._mode.figures(),
        }

    def _wants_notice(self, group: str) -> bool:
        config = self.groups.get(group)
        return self._live.broker.notifyConsumerIdsChangedEnable and (
            config is None or config.notifyConsumerIdsChangedEnable
        )

    def _connection_lost(self, address: str) -> None:
        self.registration.lost(address)

    def config_changed(self, keys: frozenset[str]) -> None:
        """Take note of keys that an administrator has changed."""
        self._store.reconfigure(self._live.store)
        if keys & QUOTA_KEYS:
            self.quotas.take(self._live.broker)
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
