"""A broker's parts around a real store in a temporary folder, without any socket."""

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from broker.admin.topics import AdminTopics
from broker.clients import ClientTable
from broker.context import BrokerContext, Tables
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.topics import TopicTable
from broker.role import BrokerRole, Standalone
from broker.settings.config import BrokerConfig, LiveConfig
from broker.stats import BrokerStats
from remoting.bodies.registry import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError
from remoting.headers.registry import Header
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.server import Connection, Handler
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.messagestore import MessageStore
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.told import Told

HOST = pack_host("127.0.0.1", 10911)
ADDRESS = "127.0.0.1:10911"


class Timer:
    """A timer that the test lets fire, or sees cancelled."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Peer:
    """A client's connection: keeps what it is sent, answers what it was told to."""

    def __init__(self, port: int = 40000, answer: Command | Exception | None = None) -> None:
        self.closed = False
        self.spent = 0
        self.peer = ("10.0.0.9", port)
        self.address = f"10.0.0.9:{port}"
        self.sent: list[Command] = []
        self._answer = answer

    def send_oneway(self, request: Command) -> None:
        self.sent.append(request)

    async def invoke(self, request: Command, timeout: float) -> Command:
        assert timeout > 0
        self.sent.append(request)
        await asyncio.sleep(0)
        if isinstance(self._answer, Exception):
            raise self._answer
        assert self._answer is not None, "nothing was expected to be asked"
        return self._answer


class Parts:
    """What the handlers are made of."""

    def __init__(
        self, folder: Path, store: MessageStore, clock: ManualClock, config: LiveConfig, told: Told | None = None
    ) -> None:
        self.told = told or Told()
        self.clock = clock
        self.config = config
        self.store = store
        self.topics = TopicTable(folder / "config" / "topics.json", config, clock)
        self.groups = GroupTable(folder / "config" / "subscriptionGroup.json", config, clock)
        self.offsets = OffsetTable(folder / "config" / "consumerOffset.json", clock)
        self.clients = ClientTable(
            clock, later=lambda _seconds, call: call(), notifies=lambda _: False, on_leave=lambda *_: None
        )
        self.stats = BrokerStats(clock, "DefaultCluster", "broker-a")
        self.config_changes: list[frozenset[str]] = []
        self.announced = 0
        self.persisted = 0
        self.handlers: dict[int, Handler] = {}

    @property
    def tables(self) -> Tables:
        return Tables(self.topics, self.groups, self.offsets, self.clients, self.stats)

    def context(
        self, role: BrokerRole | None = None, *, address: str = "", threads: Executor | None = None
    ) -> BrokerContext:
        """The broker as the parts see it; without threads nothing cold is read."""
        return BrokerContext(
            self.config, self.store, role or Standalone(), self.clock, address, HOST, cast(Executor, threads)
        )

    async def announce(self) -> None:
        self.announced += 1

    async def persist(self) -> None:
        self.persisted += 1

    def put(self, topic: str, queue_id: int, body: bytes = b"body", **properties: str) -> PutResult:
        properties = {"UNIQ_KEY": f"U{self.stats.totals.put:031d}", **properties}
        record = PendingRecord(
            topic, queue_id, 0, 0, self.clock.now_ms(), HOST, 0, 0, body, encode_properties(properties)
        )
        result = self.store.put(record)
        assert result.status is PutStatus.PUT_OK
        self.store.write()
        self.stats.put(topic, 1, result.size)
        return result

    def join(self, peer: Peer, client_id: str, group: str, *topics: str, version: int = 400, language: int = 0) -> None:
        subscriptions = [SubscriptionData(topic=topic, subString="TagA", subVersion=1) for topic in topics]
        data = HeartbeatData(
            clientID=client_id,
            consumerDataSet=[ConsumerData(groupName=group, subscriptionDataSet=subscriptions)],
            producerDataSet=[ProducerData(groupName="P_" + group)],
        )
        self.clients.heartbeat(peer, data, language, version)

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", ext: Mapping[str, str] | None = None
    ) -> Command:
        """Do what the server does with a request, wire form included."""
        made = Command.request(code, header, body, ext=ext)
        request = Command(code=code, body=body, raw_ext=dict(made.ext))
        try:
            answer = self.handlers[code](cast(Connection, None), request)
            if inspect.isawaitable(answer):
                answer = await answer
        except CommandError as error:
            return Command.response(error.code, error.remark)
        except HeaderError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        assert isinstance(answer, Command)
        return answer


@asynccontextmanager
async def broker_parts(folder: Path, **broker: Any) -> AsyncIterator[Parts]:
    clock = ManualClock()
    store_config = StoreConfig(
        storePathRootDir=str(folder / "store"),
        mappedFileSizeCommitLog=1024 * 1024,
        mappedFileSizeConsumeQueue=2000,
        maxHashSlotNum=1000,
        maxIndexNum=4000,
    )
    told, changes = Told(), list[frozenset[str]]()
    broker_config = dataclasses.replace(BrokerConfig(brokerName="broker-a"), **broker)
    config = LiveConfig(broker_config, store_config, changes.append)
    store = MessageStore.open(store_config, store_host=HOST, clock=clock, events=told.events)
    parts = Parts(folder / "store", store, clock, config, told)
    parts.config_changes = changes
    try:
        yield parts
    finally:
        await parts.topics.close()
        await parts.groups.close()
        store.close()


def serve_topics(made: Parts) -> None:
    """Give the parts the administrator's requests about topics."""
    made.handlers = AdminTopics(made.context(), made.tables, made.announce, made.persist).table()
