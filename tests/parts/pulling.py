"""Pull handlers over a real store, a consumer that keeps its answers, and a role that a test may change."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from broker.messages.pull import PullHandlers
from broker.messages.pull_checks import PullChecks
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import PullMessageRequestHeader
from remoting.server import Connection
from tests.parts.broker_parts import Parts, Peer, broker_parts


class Consumer(Peer):
    """A connection that keeps its answers decoded."""

    address = "10.0.0.9:40000"

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Command] = []

    def write(self, *pieces: bytes | memoryview) -> None:
        self.answers.append(decode(b"".join(pieces)[4:]))

    def reply(self, request: Command, response: Command) -> None:
        response.opaque = request.opaque
        self.answers.append(response)


class Role:
    """The role of a member of a group, as the test sets it."""

    def __init__(self) -> None:
        self.leads, self.leased, self.term, self.broker_id = True, True, 3, 0
        self.leader_address: str | None = None

    def lease(self) -> bool:
        return self.leads and self.leased

    def subscribe(self, callback: Callable[[], None]) -> None:
        raise AssertionError(callback)


class Master:
    """What a slave sees of its master."""

    master_alive = True


class Setting:
    def __init__(
        self,
        parts: Parts,
        threads: ThreadPoolExecutor,
        kind: type[PullHandlers] = PullHandlers,
        master: "Master | None" = None,
    ) -> None:
        self.parts = parts
        self.consumer = Consumer()
        self.role = Role()
        # What was passed on to the leader: for how long it may be parked there, and the answer when that fails.
        self.forwarded: list[tuple[float, Command]] = []
        checks = PullChecks(parts.config, parts.topics, parts.groups, parts.clients, self.role, forwards=master is None)
        loop, forward = asyncio.get_running_loop(), self._forward if master is None else None
        context = parts.context(self.role, threads=threads)
        self.pulls = kind(context, parts.tables, checks, loop, forward=forward, master=master)
        parts.told.dispatched = self.pulls.arrived

    def _forward(self, _owner: Connection, _request: Command, hold: float, failed: Callable[[], Command]) -> None:
        self.forwarded.append((hold, failed()))

    def pull(
        self,
        offset: int = 0,
        *,
        suspend_ms: int = 0,
        tags: str | None = "*",
        by: int = RequestCode.PULL_MESSAGE,
        kind: int = 0,
        body: bytes | memoryview = b"",
        **changed: Any,
    ) -> None:
        header = PullMessageRequestHeader(
            consumerGroup="G",
            topic="T",
            queueId=0,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=(2 if suspend_ms else 0) | (4 if tags is not None else 0),
            commitOffset=0,
            suspendTimeoutMillis=suspend_ms,
            subVersion=0,
            subscription=tags,
        )
        request = Command.request(by, msgspec.structs.replace(header, **changed), body)
        request.opaque, request.serialize_type = 42, kind
        reply = self.pulls.table()[by](cast("Connection", self.consumer), request)
        if isinstance(reply, Command):
            self.consumer.reply(request, reply)

    @property
    def last(self) -> Command:
        return self.consumer.answers[-1]

    def refused(self, code: int, match: str, **request: Any) -> None:
        with pytest.raises(CommandError, match=match) as error:
            self.pull(**request)
        assert error.value.code == code


@asynccontextmanager
async def pulling(
    folder: Path, kind: type[PullHandlers] = PullHandlers, master: Master | None = None
) -> AsyncIterator[Setting]:
    with ThreadPoolExecutor(1) as threads:
        async with broker_parts(folder) as parts:
            parts.topics.update(TopicConfig("T", 4, 4))
            parts.groups.update(SubscriptionGroupConfig(groupName="G"))
            made = Setting(parts, threads, kind, master)
            yield made
            made.pulls.stop()


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
