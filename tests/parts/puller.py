"""A broker's way of pulls around a real store, fed with what a connection reads, and what can be seen of it after."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

from broker.messages.pull import PullHandlers
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.command import Body, Command
from remoting.connection import Connection, Handler
from remoting.framing import FrameReader
from remoting.limits import ServerLimits
from remoting.runs import RUNS
from remoting.side import Side
from remoting.turns import Turns
from tests.parts.broker_parts import Parts, Peer
from tests.parts.pulling import Setting, pulling
from tests.parts.recorder import Recorder
from tests.parts.run_brokers import StillLoop, frames_of

# Turns of the loop after which nothing can be under way any more.
_TURNS_MAX = 4000


class PullsSeen(NamedTuple):
    """What can be seen of a broker afterwards."""

    answers: list[bytes]
    """Frames, in their order."""
    totals: tuple[int, int, int, int]
    """Messages and bytes that were given, pulls that found something, and that did not."""
    offsets: list[dict[int, int]]
    parked: int
    timed: int


class Puller:
    """A connection of one consumer."""

    def __init__(self, setting: Setting, *, runs: bool) -> None:
        self.setting = setting
        loop = cast(asyncio.AbstractEventLoop, StillLoop())
        table = setting.pulls.table()
        self.handlers: dict[int, Handler] = {code: each for code, each in table.items() if runs or code not in RUNS}
        side: Side[Connection] = Side("test", self.handlers, ServerLimits(), connections_max=1)
        side.turns = Turns(loop.call_soon, loop.call_later, loop.time, lambda: False)
        self._side, self._loop = side, loop
        self._transports: list[Recorder] = []
        self._connect()

    def _connect(self) -> None:
        self.connection, self.transport = Connection(self._side, self._loop), Recorder()
        self._transports.append(self.transport)
        self.connection.connection_made(self.transport)

    @property
    def parts(self) -> Parts:
        return self.setting.parts

    async def read(self, data: bytes) -> None:
        """Have the connection read, and serve all of it; another one when it was closed."""
        if self.connection.closed:
            self.connection.connection_lost(None)
            self.setting.pulls.on_close(self.connection)
            self._connect()
        self.connection.data_received(data)
        await self.settled()

    async def settled(self) -> None:
        """Wait until everything read is served, and what was read of the disk is answered."""
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
            if (self.connection.closed or not self.connection._waits) and not self.setting.pulls._cold_reads:
                break
        else:
            raise AssertionError("it comes to no end")
        await asyncio.sleep(0)

    def answered(self) -> list[bytes]:
        """Return the frames that were written."""
        return frames_of(b"".join(bytes(cast(Body, piece)) for each in self._transports for piece in each.written))

    def commands(self) -> list[Command]:
        """Return the answers."""
        return FrameReader().feed(b"".join(self.answered()))

    def seen(self) -> PullsSeen:
        totals, offsets = self.parts.stats.totals, self.parts.offsets
        return PullsSeen(
            self.answered(),
            (totals.got, totals.got_bytes, totals.found, totals.missed),
            [dict(offsets.offsets(group, topic)) for group in "GH" for topic in "TU"],
            self.setting.pulls.parked,
            self.setting.pulls.times.total,
        )


@asynccontextmanager
async def puller(folder: Path, *, runs: bool = True, kind: type[PullHandlers] = PullHandlers) -> AsyncIterator[Puller]:
    """Two topics, groups that may read and one that may not, and a consumer whose heartbeat came."""
    async with pulling(folder, kind) as setting:
        parts = setting.parts
        parts.topics.update(TopicConfig("U", 2, 2), TopicConfig("W", 4, 4, 2))
        parts.groups.update(
            SubscriptionGroupConfig(groupName="H", groupSysFlag=3),
            SubscriptionGroupConfig(groupName="Closed", consumeEnable=False),
        )
        parts.join(Peer(), "c", "G", "T")
        yield Puller(setting, runs=runs)
