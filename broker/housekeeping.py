"""What a broker does every now and then, and with each batch of messages that has come into its queues."""

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from broker.context import BrokerContext, Tables
from broker.messages.delay_levels import ScheduleService
from broker.messages.pull import SWEEP_SECONDS, PullHandlers
from broker.messages.slow_readers import SLOW_SCAN_SECONDS, SlowReaders
from broker.metadata.agreed_locks import AgreedLocks
from broker.registration.registration import CHASE_SECONDS, Registration
from remoting.server import Connection
from remoting.topics import TIMER_TOPIC, retry_topic
from runtime.tasks import Tasks
from store.log.dispatch import SCHEDULE_TOPIC
from store.messagestore import MessageStore
from store.types import Dispatched

_log = logging.getLogger(__name__)

# Seconds: how often silent clients are looked for, and locks that have run out.
CLIENT_SCAN_SECONDS = 10.0
# How often groups are looked for that nobody uses, and after how long they go: a day, as a job that runs once a day
# leaves an offset.
GROUP_SCAN_SECONDS = 600.0
GROUP_UNUSED_SECONDS = 24 * 3600.0
# How often the store persists what it buffers of queues and index.
IDLE_SECONDS = 0.05
# Names in a line of the log.
_SHOWN_MAX = 10


class UnusedGroups:
    """Consumer groups that came into being by a request, never committed an offset, and have no members any more."""

    def __init__(self, tables: Tables, store: MessageStore) -> None:
        self._tables = tables
        self._store = store

    def collect(self) -> None:
        """Delete them, with their retry topics where nothing was ever sent to these."""
        topics, groups, offsets, clients, _stats = self._tables
        committed = functools.cache(lambda: frozenset(group for _topic, group in offsets.pairs()))
        gone = groups.collect(
            GROUP_UNUSED_SECONDS, lambda group: bool(clients.connections(group)) or group in committed()
        )
        if not gone:
            return
        stored = self._store.topics()
        retries = [retry_topic(group) for group in gone]
        topics.delete(*[topic for topic in retries if topic in topics.tables and topic not in stored])
        _log.info("%d groups deleted that nobody has used for a day: %s", len(gone), ", ".join(gone[:_SHOWN_MAX]))


class Upkeep:
    """The broker's parts as far as time and arrivals concern them."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        locks: AgreedLocks,
        schedule: ScheduleService,
        pull: PullHandlers,
        registration: Registration,
        timer_arrived: Callable[[], None] = lambda: None,
    ) -> None:
        self._timer_arrived = timer_arrived
        self._live, self._store = context.live, context.store
        self._unused = UnusedGroups(tables, context.store)
        self._slow = SlowReaders(context, tables)
        self._stats, self._clients = tables.stats, tables.clients
        self._locks = locks
        self._schedule = schedule
        self._pull = pull
        self._registration = registration

    def start(
        self,
        tasks: Tasks,
        persist: Callable[[], Awaitable[None]],
        clean: Callable[[], object],
        seeks: Callable[[], bool],
        full: Callable[[], OSError | None],
    ) -> None:
        """Begin; `tasks` ends it. `persist` writes the consumer offsets, `clean` does a round of retention.

        `seeks` tells whether the group's master is to be asked for without delay, `full` whether tables find no room.
        """
        config, store, registration = self._live.broker, self._live.store, self._registration
        self._locks.sweep()
        tasks.every(config.flushConsumerOffsetInterval / 1000, persist, "persist offsets")
        tasks.every(store.flushDelayOffsetInterval / 1000, self._schedule.persist, "persist delay offsets")
        tasks.every(CLIENT_SCAN_SECONDS, self._scan_clients, "scan of silent clients")
        tasks.every(GROUP_SCAN_SECONDS, self._unused.collect, "scan of unused groups")
        tasks.every(SLOW_SCAN_SECONDS, self._slow.check, "scan of slow readers")
        tasks.every(SWEEP_SECONDS, self._pull.sweep, "sweep of parked pulls")
        tasks.every(1.0, self._stats.tick, "statistics")
        tasks.every(IDLE_SECONDS, lambda: self._idle(full), "store idle")
        tasks.every(store.cleanResourceInterval / 1000, lambda: _do(clean), "retention")
        tasks.every(config.register_period(), registration.refresh, "registration")
        tasks.every(CHASE_SECONDS, lambda: registration.chase(seeks=seeks()), "registration with lost NameServers")

    def dispatched(self, batch: Sequence[Dispatched], sums: Mapping[str, Sequence[int]]) -> None:
        """Count what has come into the queues, by topic as sums_of() says, and wake who waits for it."""
        for topic, (count, size) in sums.items():
            self._stats.put(topic, count, size)
        if SCHEDULE_TOPIC in sums:
            self._schedule.arrived(batch)
        if TIMER_TOPIC in sums:
            self._timer_arrived()
        self._pull.arrived(batch)

    def _idle(self, full: Callable[[], OSError | None]) -> None:
        self._store.idle()
        self._store.tables_full(full())

    def _scan_clients(self) -> None:
        for connection in self._clients.expire(self._live.broker.channelExpiredTimeout / 1000):
            _log.warning("client at %s is silent for too long and forgotten", connection.peer)
            if isinstance(connection, Connection):
                connection.close()
        self._locks.sweep()


def _do(work: Callable[[], object]) -> None:
    """Do something whose result stands in its own log line."""
    work()
