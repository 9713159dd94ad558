"""How far a group has come in its queues: kept by the brokers (clustering) or in a file here (broadcasting).

An offset is that of the next message to consume. In memory it never goes back unless it is reset.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

from client.api import BrokerApi
from client.errors import ConsumeError, RouteError
from client.message import ConsumeFrom
from client.routes import Routes
from remoting.bodies.registry import MessageQueue, ResetOffsetBody
from remoting.errors import ConnectError, HeaderError, InvokeError, RemotingError
from remoting.topics import is_retry_topic
from runtime.durable import read_file, replace_file

_log = logging.getLogger(__name__)

COMMITS_AT_A_TIME = 64


class OffsetStore(Protocol):
    """Where a group's offsets are kept."""

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored offset, None when there is none. Raises RemotingError or ClientError: not known now."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, back: bool = False) -> None:
        """Note an offset to be stored; a lower one than before only with `back`."""
        ...

    def noted(self, queue: MessageQueue) -> int | None:
        """Return the offset last noted."""
        ...

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> list[MessageQueue]:
        """Store what was noted of `queues` (None: of all); returns those that could not be stored, still noted."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted: somebody else consumes the queue now."""
        ...


class _Noted:
    """Offsets in memory, and which of them are stored."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}
        self.stored: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, back: bool = False) -> None:
        assert offset >= 0, f"{offset} is no offset to store"
        known = self.offsets.get(queue)
        if known is None or offset > known or back:
            self.offsets[queue] = offset

    def noted(self, queue: MessageQueue) -> int | None:
        return self.offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)
        self.stored.pop(queue, None)

    def unstored(self, queues: Iterable[MessageQueue] | None) -> list[tuple[MessageQueue, int]]:
        wanted = list(self.offsets) if queues is None else list(queues)
        return [
            (queue, self.offsets[queue])
            for queue in wanted
            if queue in self.offsets and self.stored.get(queue) != self.offsets[queue]
        ]


class RemoteOffsets(_Noted):
    """Offsets kept by each queue's broker: by its master, or by a slave while there is no master.

    What a slave was told is told to the master again when it is back: not every slave passes it on.
    """

    def __init__(self, group: str, api: BrokerApi, routes: Routes, be_known: Callable[[str], Awaitable[None]]) -> None:
        """`be_known` returns when the broker at an address knows this client as a member; raises RemotingError."""
        super().__init__()
        self._be_known = be_known
        self._group = group
        self._api = api
        self._routes = routes
        # Where the stored offsets are.
        self._kept_at: dict[MessageQueue, str] = {}

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted."""
        super().forget(queue)
        self._kept_at.pop(queue, None)

    def unstored(self, queues: Iterable[MessageQueue] | None) -> list[tuple[MessageQueue, int]]:
        """Return what the replica that is asked now was not told."""
        for queue, address in self._kept_at.items():
            route = self._routes.cached(queue.topic)
            if route is not None and route.address(queue.brokerName) not in {None, address}:
                self.stored.pop(queue, None)
        return super().unstored(queues)

    async def load(self, queue: MessageQueue) -> int | None:
        """Ask the queue's broker."""
        return await self._api.committed(await broker_address(self._routes, queue), self._group, queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> list[MessageQueue]:
        """Tell the brokers what changed, and wait until they have it."""
        pending = self.unstored(queues)
        failed: list[MessageQueue] = []
        for start in range(0, len(pending), COMMITS_AT_A_TIME):
            some = pending[start : start + COMMITS_AT_A_TIME]
            done = await asyncio.gather(*(self._commit(queue, offset) for queue, offset in some))
            failed += [queue for (queue, _offset), ok in zip(some, done, strict=True) if not ok]
        return failed

    async def _commit(self, queue: MessageQueue, offset: int) -> bool:
        try:
            address = await self._tell(queue, offset)
        except (RemotingError, RouteError) as error:
            _log.warning("group %s: offset %d of %s is not stored yet: %s", self._group, offset, queue, error)
            if isinstance(error, InvokeError) and error.reroute:
                await refresh_quietly(self._routes, queue.topic)
            return False
        if queue in self.offsets:
            self.stored[queue] = offset
            self._kept_at[queue] = address
        return True

    async def _tell(self, queue: MessageQueue, offset: int) -> str:
        """Return who has the offset now: the master, or another replica when the master cannot be reached."""
        address = await broker_address(self._routes, queue)
        try:
            await self._commit_at(address, queue, offset)
        except ConnectError:
            route = await self._routes.find(queue.topic)
            other = route.address(queue.brokerName, avoid=address)
            if other is None or other == address:
                raise
            await self._commit_at(other, queue, offset)
            return other
        return address

    async def _commit_at(self, address: str, queue: MessageQueue, offset: int) -> None:
        # Whoever was away may have lost the queue: until a broker knows whose a connection is, it cannot tell.
        await self._be_known(address)
        if queue not in self.offsets:
            return  # given away meanwhile, and its next owner may have stored more
        await self._api.commit(address, self._group, queue, offset, consumer=True)


class LocalOffsets(_Noted):
    """Offsets kept in one file, in the format of the official clients ({"offsetTable": {{queue}: offset}})."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writing = asyncio.Lock()
        self._in_file: dict[MessageQueue, int] | None = None

    async def load(self, queue: MessageQueue) -> int | None:
        """Look it up in the file, read once; raises ConsumeError when the file is damaged."""
        if self._in_file is None:
            self._in_file = await asyncio.to_thread(self._read)
        return self._in_file.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> list[MessageQueue]:
        """Write the file anew when something changed."""
        async with self._writing:
            pending = self.unstored(queues)
            if not pending:
                return []
            table = {**(self._in_file or {}), **self.offsets}
            content = ResetOffsetBody(offsetTable=table).encode()
            try:
                await asyncio.to_thread(replace_file, self._path, content)
            except OSError as error:
                _log.error("offsets are not stored yet: %s cannot be written: %s", self._path, error)
                return [queue for queue, _offset in pending]
            self._in_file = table
            self.stored.update(pending)
            return []

    def _read(self) -> dict[MessageQueue, int]:
        content = read_file(self._path)
        if content is None:
            return {}
        try:
            return ResetOffsetBody.decode(content).offsetTable
        except HeaderError as error:
            raise ConsumeError(f"the offset file {self._path} cannot be read ({error}): mend or remove it") from error


async def broker_address(routes: Routes, queue: MessageQueue) -> str:
    """Return where a queue's offsets are kept: the master's address, or of whoever stands in. Raises RouteError."""
    route = await routes.find(queue.topic)
    address = route.address(queue.brokerName)
    if address is None:
        raise RouteError(f"broker {queue.brokerName} of topic {queue.topic} is in no route now", retriable=True)
    return address


async def refresh_quietly(routes: Routes, topic: str) -> None:
    """Ask for a route anew, and go on with the old one when nobody answers."""
    try:
        await routes.refresh(topic)
    except (RouteError, ConnectError) as error:
        _log.warning("route of %s: %s", topic, error)


async def starting_offset(
    store: OffsetStore, api: BrokerApi, routes: Routes, queue: MessageQueue, where: ConsumeFrom, timestamp_ms: int
) -> int:
    """Return where to begin with a queue: the stored offset, else by `where`; raises RemotingError or ClientError.

    A group's retry topic begins at its start: what was sent back before anybody looked must not be skipped.
    """
    stored = await store.load(queue)
    if stored is not None:
        return stored
    address = await broker_address(routes, queue)
    if where is ConsumeFrom.FIRST_OFFSET or is_retry_topic(queue.topic):
        return await api.min_offset(address, queue)
    if where is ConsumeFrom.TIMESTAMP:
        return await api.offset_by_time(address, queue, timestamp_ms)
    return await api.max_offset(address, queue)
