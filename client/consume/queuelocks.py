"""Locks on queues at their brokers, for consumption in order: only one client of a group may have a queue.

A broker forgets a lock after 60 s; this client trusts one for 30 s and renews every 20 s.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

from client.consume.offsets import broker_address
from client.errors import RouteError
from client.instance import ClientInstance
from remoting.bodies.registry import MessageQueue
from remoting.errors import RemotingError

_log = logging.getLogger(__name__)

RENEW_S = 20.0
TRUSTED_S = 30.0
# Pauses between attempts to get a lock that another client has; it lets go as soon as it has rebalanced.
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class QueueLocks:
    """The locks of one consumer. `lost` is told of a queue whose lock went to somebody else."""

    def __init__(self, group: str, instance: ClientInstance, lost: Callable[[MessageQueue], Awaitable[None]]) -> None:
        self._group = group
        self._instance = instance
        self._lost = lost
        self._locked_at: dict[MessageQueue, float] = {}

    def held(self, queue: MessageQueue) -> bool:
        """Tell whether the queue is locked, renewed lately enough to be trusted."""
        locked_at = self._locked_at.get(queue)
        return locked_at is not None and time.monotonic() - locked_at < TRUSTED_S

    async def acquire(self, queue: MessageQueue) -> None:
        """Wait until the queue's lock is held; raises RemotingError or RouteError when its broker cannot be asked."""
        attempt = 0
        while not self.held(queue):
            if await self._lock(await broker_address(self._instance.routes, queue), [queue]):
                return
            await asyncio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            attempt += 1

    async def renew(self) -> None:
        """Renew all locks, a request per broker."""
        for address, queues in (await self._by_broker(list(self._locked_at))).items():
            try:
                mine = await self._lock(address, queues)
            except RemotingError as error:
                # Trusted until they are too old; then consumption stops by itself.
                _log.warning("group %s: locks of %s are not renewed: %s", self._group, queues, error)
                continue
            for queue in queues:
                if queue not in mine and self._locked_at.pop(queue, None) is not None:
                    _log.warning("group %s: the lock of %s went to another client", self._group, queue)
                    await self._lost(queue)

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back, so that another client need not wait for their end."""
        mine = [queue for queue in queues if self._locked_at.pop(queue, None) is not None]
        for address, some in (await self._by_broker(mine)).items():
            try:
                await self._instance.api.unlock(address, self._group, self._instance.client_id, some)
            except RemotingError as error:
                _log.warning("group %s: locks of %s are not given back: %s", self._group, some, error)

    async def _lock(self, address: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        asked_at = time.monotonic()
        locked = await self._instance.api.lock(address, self._group, self._instance.client_id, queues)
        mine = [queue for queue in locked if queue in queues]
        for queue in mine:
            self._locked_at[queue] = asked_at
        return mine

    async def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            try:
                found[await broker_address(self._instance.routes, queue)].append(queue)
            except RouteError as error:
                _log.warning("group %s: %s", self._group, error)
        return found
