"""A broker's way of sends around a real store, fed with what a connection reads, and all that can be seen of it after.

Nothing here waits or looks at a clock of the machine, so that the same reads lead to the same bytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from broker.master_slave.local_replication import LocalReplication
from broker.messages.arrivals import sums_of
from broker.messages.send import SendHandlers
from broker.messages.send_answers import SendAnswers
from broker.messages.send_checks import MessageChecks
from broker.metadata.topics import TopicTable
from broker.raft_group.replication import RaftReplication
from broker.settings.config import LiveConfig, load_broker_config
from raft.protocol.types import EntryType, Fate, OnFate, Refusal
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.command import Body, Command
from remoting.connection import Connection, Handler
from remoting.limits import ServerLimits
from remoting.runs import RUNS
from remoting.side import Side
from remoting.turns import Turns
from runtime.clock import ManualClock
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from store.types import Dispatched
from tests.parts.raft_parts import SetNode, SetRole
from tests.parts.recorder import Recorder
from tests.parts.store_tools import FILE_BYTES, HOST, make_config
from tests.parts.told import Told

TOPICS = {"T": 4, "U": 1, "V": 8, "A" * 127: 2}
# Turns of the loop after which nothing can be under way any more.
_TURNS_MAX = 2000


class Seen(NamedTuple):
    """What can be seen of a broker afterwards."""

    answers: list[bytes]
    """Frames, in their order."""
    files: dict[str, bytes]
    """Of the store: log, queues, index."""
    dispatched: list[Dispatched]
    counts: dict[int, int]
    """Answers by code."""
    failures: int
    elsewhere: list[int]
    """The opaques of what was given back."""
    totals: dict[str, tuple[int, int]]
    topics: list[str]
    closed: int
    """Connections."""


class StillLoop:
    """The running loop with a clock that stands still: no read is cut for the time that it takes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return 1.0


class _Node(SetNode):
    """Appends at once; fates are steps of the test."""

    def __init__(self, entries: EntryLog) -> None:
        super().__init__()
        self.fates: deque[tuple[int, OnFate]] = deque()
        self._entries = entries

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        index = append(1, self._entries.commit)
        if index < 0:
            return Refusal.LOG_REFUSES
        self.fates.append((index, on_fate))
        return None

    def settle(self, fate: Fate) -> None:
        if self.fates:
            index, on_fate = self.fates.popleft()
            if fate is Fate.COMMITTED:
                self._entries.release(index)
            on_fate(fate)


class RunBroker:
    """Made inside a loop. `sync`: an answer comes once its message is flushed, by the step that does it."""

    def __init__(
        self,
        folder: Path,
        *,
        sync: bool = False,
        raft: bool = False,
        host: tuple[str, int] = ("10.0.0.7", 4711),
        file_bytes: int = FILE_BYTES,
    ) -> None:
        """`raft`: as the leader of a group whose entries' fates are steps, see fate()."""
        self.clock = ManualClock()
        store_config = make_config(folder, maxMessageSize=17_000, mappedFileSizeCommitLog=file_bytes)
        config = load_broker_config({"brokerName": "broker-a"})[0]
        self.live = LiveConfig(config, store_config)
        told = Told()
        self.store = MessageStore.open(
            store_config, store_host=HOST, clock=self.clock, stepped=True, group=raft, events=told.events
        )
        self._folder, self._made = folder, 0
        self.dispatched: list[Dispatched] = []
        self.node = _Node(cast(EntryLog, None))
        self.failures, self.elsewhere = 0, list[int]()
        self.topics = TopicTable(folder / "config" / "topics.json", self.live, self.clock)
        self.topics.update(*[TopicConfig(name, queues, queues) for name, queues in TOPICS.items()])
        self.totals: dict[str, tuple[int, int]] = {}
        loop = cast(asyncio.AbstractEventLoop, StillLoop())
        self.replication: LocalReplication | RaftReplication
        told.dispatched = self._arrived
        if raft:
            self.replication = self._member(loop)
        else:
            self.replication = LocalReplication(
                self.store, loop, sync_flush=sync, flush_timeout=5, pending_bytes_max=1 << 26
            )
            told.flushed = self.replication.flushed
        groups = {"G": SubscriptionGroupConfig(groupName="G", retryMaxTimes=2)}
        checks = MessageChecks(
            self.live, self.topics, lambda name, _: groups.get(name), self.clock, lambda below: below - 1
        )
        self.answers = SendAnswers(HOST, self._failed, self._given_back)
        self._all = SendHandlers(self.live, checks, self.replication, self.answers, self._new_key).table()
        self.handlers: dict[int, Handler] = dict(self._all)
        side: Side[Connection] = Side("test", self.handlers, ServerLimits(), connections_max=1)
        side.turns = Turns(loop.call_soon, loop.call_later, loop.time, lambda: False)
        self._side, self._loop, self._host, self._closed = side, loop, host, 0
        self._transports: list[Recorder] = []
        self._connect()

    def _member(self, loop: asyncio.AbstractEventLoop) -> RaftReplication:
        entries = self.store.entries
        assert entries is not None
        entries.append(EntryType.CONFIG, 1, b"config", 0)
        role, self.node = SetRole(), _Node(entries)
        role.set(1, "n1")
        made = RaftReplication(
            entries, role, loop, writable=self.store.writable, flush_metadata=lambda: True, pending_bytes_max=1 << 26
        )
        made.attach(self.node)
        return made

    def _connect(self) -> None:
        self.connection, self.transport = Connection(self._side, self._loop), Recorder()
        self._transports.append(self.transport)
        self.transport._extra["peername"] = self._host  # type: ignore[attr-defined] # asyncio's own table
        self.connection.connection_made(self.transport)

    # ---- steps of a script

    async def read(self, data: bytes) -> None:
        """Have the connection read, once it reads again; another one when it was closed."""
        await self._until(lambda: self.transport.reading or self.connection.closed)
        if self.connection.closed:
            await self.turn()
            self._closed += 1
            self.connection.connection_lost(None)
            self._connect()
        self.connection.data_received(data)

    async def turn(self) -> None:
        await asyncio.sleep(0)

    async def flush(self) -> None:
        while self.store.step_flush():
            await asyncio.sleep(0)

    async def tick(self) -> None:
        self.clock.advance(1.5)

    async def topic(self, name: str, queues: int) -> None:
        self.topics.update(TopicConfig(name, queues, queues))

    async def delete(self, name: str) -> None:
        self.topics.delete(name)

    async def config(self, key: str, value: str) -> None:
        self.live.update({key: value})

    async def quotas(self, on: bool) -> None:
        """Switch as QuotaGuard.take does."""
        self.handlers.clear()
        self.handlers.update({code: each for code, each in self._all.items() if not on or code not in RUNS})

    async def full_disk(self) -> None:
        """Have no room for what was read and is not written yet."""
        with patch.object(self.store._log, "write", side_effect=OSError(28, "no room")):
            await self.settled()

    async def fate(self, fate: Fate) -> None:
        """Tell the fate of the oldest entry under way."""
        self.node.settle(fate)

    async def idle(self) -> None:
        self.store.idle()

    async def settled(self) -> None:
        """Wait until all is served."""
        await self._until(lambda: self.connection.closed or not self.connection._waits)
        await self._until(lambda: not self.replication._turn or bool(self.node.fates))

    async def _until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(_TURNS_MAX):
            if is_so():
                return
            await asyncio.sleep(0)
        raise AssertionError("it comes to no end")

    async def end(self) -> Seen:
        """Serve all that was read, stop, and tell."""
        await self.settled()
        while self.node.fates:
            self.node.settle(Fate.COMMITTED)
            await self.settled()
        await self.flush()
        await self.settled()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.store.close()
        await self.topics.close()
        written = b"".join(bytes(cast(Body, piece)) for each in self._transports for piece in each.written)
        root = self._folder / "store"
        return Seen(
            frames_of(written),
            {
                str(path.relative_to(root)): path.read_bytes()
                for name in ("commitlog", "consumequeue", "index")
                for path in sorted((root / name).rglob("*"))
                if path.is_file()
            },
            self.dispatched,
            {int(code): count for code, count in self.answers.counts.items()},
            self.failures,
            self.elsewhere,
            self.totals,
            sorted(self.topics.tables),
            self._closed,
        )

    # ---- inside

    def _arrived(self, batch: Sequence[Dispatched]) -> None:
        self.dispatched += batch
        for topic, (count, size) in sums_of(batch)[0].items():
            known = self.totals.get(topic, (0, 0))
            self.totals[topic] = (known[0] + count, known[1] + size)

    def _failed(self) -> None:
        self.failures += 1

    def _given_back(self, _connection: Connection, request: Command) -> None:
        self.elsewhere.append(request.opaque)

    def _new_key(self) -> str:
        self._made += 1
        return f"NEW{self._made}"


def frames_of(data: bytes) -> list[bytes]:
    """Cut what was written into its frames."""
    frames, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        frames.append(data[at:end])
        at = end
    return frames
