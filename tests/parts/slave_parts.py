"""A master and a slave as far as their metadata is concerned: real tables, real sockets, a store that only counts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from auth.directory import AccessDirectory
from broker.admin.groups import AdminGroups
from broker.admin.offsets import AdminOffsets
from broker.admin.topics import AdminTopics
from broker.admin.users import AdminUsers
from broker.clients import ClientTable
from broker.context import BrokerContext
from broker.context import Tables as BrokerTables
from broker.master_slave.ha_state import Followed
from broker.master_slave.metadata_copy import SlaveMeta, SlaveTables
from broker.master_slave.offset_return import OffsetReturn
from broker.messages.delay_levels import ScheduleService, ScheduleStore
from broker.messages.delay_queue import DelayLoop
from broker.messages.offset_handlers import OffsetHandlers
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.feed import MetaNews
from broker.metadata.operations import LocalMeta
from broker.metadata.request_modes import RequestModes
from broker.metadata.topics import TopicTable
from broker.metadata.users import UserTable
from broker.replication import Replication
from broker.role import Standalone
from broker.settings.config import BrokerConfig, LiveConfig
from broker.settings.pair_keys import ClassicKeys
from broker.stats import BrokerStats
from remoting.client import RemotingClient
from remoting.codes import ClassicCode
from remoting.command import Command
from remoting.limits import ClientLimits
from remoting.server import Connection, Handler, RemotingServer
from remoting.signing import Credentials
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.log.dispatch import DELAY_LEVELS_MS
from store.messagestore import MessageStore
from tests.parts.store_tools import HOST
from tests.parts.told import at_once

# A slave in these tests copies when it is told to, or when something changed.
NEVER_MS = 3_600_000


class CountingStore:
    """The ends of a log and its queues, as the test sets them."""

    def __init__(self) -> None:
        self.written = self.flushed = 1000
        self.ends: dict[tuple[str, int], int] = {}

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 100)

    def queue_entries(self, *_: object) -> list[Any]:
        return []

    def record_at(self, _position: int) -> None:
        return None

    def topics(self) -> dict[str, list[int]]:
        return {}

    def flush_soon(self, _position: int) -> None:
        pass


class Tables:
    """One broker's tables."""

    def __init__(self, folder: Path, *, leads: bool, inner: Credentials | None = None) -> None:
        """`inner`: what brokers sign with; without it no users are copied."""
        self.news = MetaNews(asyncio.get_running_loop().call_later, lambda: leads, 77)
        self.clock, self.store = ManualClock(), CountingStore()
        self.live = LiveConfig(BrokerConfig(brokerName="broker-a"), StoreConfig())
        self.meta = LocalMeta(leads=leads, on_change=self.news.changes, on_progress=self.news.progresses)
        self.topics = TopicTable(folder / "topics.json", self.live, self.clock, self.meta)
        self.groups = GroupTable(folder / "subscriptionGroup.json", self.live, self.clock, self.meta)
        self.offsets = OffsetTable.load(folder / "consumerOffset.json", self.clock, self.meta)
        self.schedule = ScheduleService(
            folder / "delayOffset.json",
            cast(ScheduleStore, self.store),
            cast(Replication, self),
            self.clock,
            DelayLoop(asyncio.get_running_loop().call_later, at_once),
            DELAY_LEVELS_MS,
            self.meta,
        )
        self.modes = RequestModes(folder / "messageRequestMode.json", self.meta)
        self.users = UserTable(folder / "auth.json", self.clock, AccessDirectory(inner=inner), self.meta)

    async def append(self, *_: object, **__: object) -> None:
        raise AssertionError("nothing is delivered here")

    async def close(self) -> None:
        await self.topics.close()
        await self.groups.close()
        await self.offsets.persist()
        await self.schedule.persist()
        await self.modes.close()
        await self.users.close()


class MasterBroker(Tables):
    """Serves its tables; `asked` are the codes of what it was asked."""

    def __init__(
        self,
        folder: Path,
        handlers: Mapping[int, Handler] | None = None,
        *,
        news: bool = True,
        inner: Credentials | None = None,
    ) -> None:
        """`handlers` are served instead of its own; without `news` it is a broker that knows no code of ours."""
        super().__init__(folder, leads=True, inner=inner)
        self.asked: list[int] = []
        clients = ClientTable(
            self.clock, later=lambda _seconds, call: call(), notifies=lambda _: False, on_leave=lambda *_: None
        )
        stats, store = BrokerStats(self.clock, "C", "broker-a"), cast(MessageStore, self.store)
        known = BrokerTables(self.topics, self.groups, self.offsets, clients, stats)
        context = BrokerContext(self.live, store, Standalone(), self.clock, "", HOST, cast(Executor, None))
        table: dict[int, Handler] = {
            **AdminTopics(context, known, self._done, self._done).table(),
            **AdminGroups(self.groups, self.offsets, clients, stats, "", self._done).table(),
            **AdminOffsets(context, known, self._done).table(),
            **OffsetHandlers(self.live, self.offsets, self.topics, self.groups, self.store, clients).table(),
            **self.schedule.table(),
            **self.modes.table(),
            **(AdminUsers(self.users).table() if inner is not None else {}),
            **OffsetReturn(self.offsets, self.topics, self.groups, self.store, lambda: True).table(),
            **(self.news.table() if news else {}),
            **(handlers or {}),
        }
        self.server = RemotingServer({code: self._noting(each) for code, each in table.items()}, name="master")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def copied(self) -> set[int]:
        """Return what was asked since the last time, but for news."""
        found = set(self.asked) - {int(ClassicCode.AWAIT_METADATA)}
        self.asked.clear()
        return found

    def _noting(self, handler: Handler) -> Handler:
        def note(connection: Connection, request: Command) -> Any:
            self.asked.append(request.code)
            return handler(connection, request)

        return note

    async def _done(self) -> None:
        pass

    async def close(self) -> None:
        self.news.close()
        await self.server.close()
        await super().close()


class SlaveBroker(Tables):
    """Copies from the master that the test names."""

    def __init__(
        self, folder: Path, master: str | None, period_ms: int = NEVER_MS, inner: Credentials | None = None
    ) -> None:
        super().__init__(folder, leads=False, inner=inner)
        self.followed = None if master is None else Followed(master, "", 0)
        self.end = 1000
        self.dropped: list[tuple[str, int]] = []
        self.keys = ClassicKeys(slaveMetadataMs=period_ms)
        self.client = RemotingClient(
            limits=ClientLimits(backoff_first_seconds=0.01, backoff_max_seconds=0.02), credentials=inner
        )
        self.copies = SlaveMeta(
            SlaveTables(self.topics, self.groups, self.offsets, self.schedule, self.modes, self.users),
            self.client,
            lambda: self.keys,
            followed=lambda: self.followed,
            log_end=lambda: self.end,
            end_before=lambda topic, queue_id, _position: self.store.max_offset(topic, queue_id),
            drop_queues=lambda topic, before: self.dropped.append((topic, before)),
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds."""
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.005)

    async def copied(self) -> None:
        """Return when every table was copied."""
        await self.until(lambda: self.copies.synced)

    async def close(self) -> None:
        await self.copies.close()
        await self.client.close()
        await super().close()


@asynccontextmanager
async def serving(master: MasterBroker) -> AsyncIterator[MasterBroker]:
    await master.server.start("127.0.0.1", 0)
    try:
        yield master
    finally:
        await master.close()


@asynccontextmanager
async def copying(slave: SlaveBroker) -> AsyncIterator[SlaveBroker]:
    slave.copies.start()
    try:
        yield slave
    finally:
        await slave.close()
