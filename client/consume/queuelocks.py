"""Locks on queues at their brokers, for consumption in order: only one client of a group may have a queue.

A broker forgets a lock after 60 s; this client trusts one for 30 s from when it asked, and renews it after 20 s. While
its broker does not answer (a Raft group elects a leader, a broker starts again) it asks again within 200 ms, where the
route says by then: so that no queue stands still for longer than its broker does.

A broker gives the locks of a client away when its connection closes. So a client whose connection to one of a queue's
brokers is gone trusts nothing before it has asked again.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from client.consume.offsets import broker_address, refresh_quietly
from client.errors import RouteError
from client.instance import ClientInstance
from client.retry import until_done, until_true
from remoting.bodies.registry import MessageQueue
from remoting.errors import InvokeError, RemotingError

_log = logging.getLogger(__name__)

RENEW_S = 20.0
TRUSTED_S = 30.0
# Pauses between attempts while a broker does not answer; and between those to get a lock that another client has, which
# lets go as soon as it has rebalanced: unless it has not for some seconds, for then it may be dead.
RETRIES_S = (0.02, 0.05, 0.1, 0.2)
PAUSES_S = (0.05, 0.1, 0.2)
PATIENT_AFTER_S = 5.0
PATIENT_S = 1.0
# How long giving a lock back is tried: whoever waits for it waits until it runs out otherwise.
RELEASE_S = 2.0
RELEASE_PAUSES_S = (0.0, 0.02, 0.05, 0.1, *[0.2] * 10)
# Seconds between two lines of the log about one broker that does not answer.
TOLD_S = 5.0


class QueueLocks:
    """The locks of one consumer. `lost` is told of a queue whose lock went to somebody else."""

    def __init__(self, group: str, instance: ClientInstance, lost: Callable[[MessageQueue], Awaitable[None]]) -> None:
        self._group = group
        self._instance = instance
        self._lost = lost
        self._locked_at: dict[MessageQueue, float] = {}
        # What was asked for and not given back: an answer that nobody waited for is a lock all the same.
        self._asked: set[MessageQueue] = set()
        self._told_at = float("-inf")
        self._hurry = asyncio.Event()

    def held(self, queue: MessageQueue) -> bool:
        """Tell whether the queue is locked, renewed lately enough to be trusted."""
        locked_at = self._locked_at.get(queue)
        return locked_at is not None and time.monotonic() - locked_at < TRUSTED_S

    def connection_lost(self, address: str) -> None:
        """Trust no lock of that broker, or of the others of its name, until it is renewed: that happens now."""
        for queue in self._locked_at:
            route = self._instance.routes.cached(queue.topic)
            if route is None or address in route.brokers.get(queue.brokerName, {}).values():
                self._locked_at[queue] = float("-inf")
                self._hurry.set()

    async def acquire(self, queue: MessageQueue) -> None:
        """Wait until the queue's lock is held, however often its broker must be asked."""
        ask = partial(self._ask, queue)
        attempt, began = 0, time.monotonic()
        while not self.held(queue):
            try:
                got = await ask()
            except (RemotingError, RouteError) as error:
                got = await until_done(ask, error, partial(self._failed, queue), again=_passes)
            if got:
                return
            patient = time.monotonic() - began > PATIENT_AFTER_S
            await asyncio.sleep(PATIENT_S if patient else _nth(PAUSES_S, attempt))
            attempt += 1

    async def _ask(self, queue: MessageQueue) -> bool:
        """Ask for the lock once, unless it is held; False when another client has it."""
        return self.held(queue) or bool(await self._lock(await broker_address(self._instance.routes, queue), [queue]))

    async def run(self) -> None:
        """Renew all locks in time; ends by cancellation."""
        failures = 0
        while True:
            try:
                renewed = await self.renew()
            except Exception:
                # A mistake of ours about one queue must not cost all others their locks.
                _log.exception("group %s: renewing locks failed", self._group)
                renewed = False
            failures = 0 if renewed else failures + 1
            due = min(self._locked_at.values(), default=time.monotonic()) + RENEW_S - time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_nth(RETRIES_S, failures - 1) if failures else max(RETRIES_S[0], due)):
                    await self._hurry.wait()
            self._hurry.clear()

    async def renew(self, after_s: float = RENEW_S) -> bool:
        """Renew the locks of brokers where one is older than that, a request per broker; False: again, soon."""
        now = time.monotonic()
        found, homeless = await self._by_broker(list(self._locked_at))
        renewed = not homeless
        for address, queues in found.items():
            if all(now - self._locked_at.get(queue, now) < after_s for queue in queues):
                continue
            try:
                mine = await self._lock(address, queues)
            except RemotingError as error:
                # Trusted until they are too old; then consumption stops by itself.
                await self._refresh(error, queues)
                renewed = False
                continue
            for queue in queues:
                if queue not in mine and self._locked_at.pop(queue, None) is not None:
                    _log.warning("group %s: the lock of %s went to another client", self._group, queue)
                    await self._lost(queue)
        return renewed

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back, so that another client need not wait for their end."""
        left = [queue for queue in queues if queue in self._asked]
        self._asked.difference_update(left)
        for queue in left:
            self._locked_at.pop(queue, None)
        deadline = time.monotonic() + RELEASE_S

        async def tried() -> bool:
            nonlocal left
            left = await self._unlock(left)
            return not left or time.monotonic() > deadline

        if left:
            await until_true(tried, RELEASE_PAUSES_S)
        if left:
            _log.warning("group %s: the locks of %s are left to run out", self._group, left)

    async def _unlock(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Return those whose broker did not take it."""
        found, left = await self._by_broker(queues)
        for address, some in found.items():
            try:
                await self._instance.api.unlock(address, self._group, self._instance.client_id, some)
            except RemotingError as error:
                await self._refresh(error, some)
                left += some
        return left

    async def _lock(self, address: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        asked_at = time.monotonic()
        self._asked.update(queues)
        locked = await self._instance.api.lock(address, self._group, self._instance.client_id, queues)
        # What was given back while the answer was on its way is not this client's any more.
        mine = [queue for queue in locked if queue in queues and queue in self._asked]
        for queue in mine:
            self._locked_at[queue] = asked_at
        return mine

    async def _failed(self, queue: MessageQueue, error: Exception, failures: int) -> float:
        await self._refresh(error, [queue])
        return _nth(RETRIES_S, failures - 1)

    async def _refresh(self, error: Exception, queues: Sequence[MessageQueue]) -> None:
        """Say what went wrong, and have the next attempt go where the route says then."""
        now = time.monotonic()
        told = now - self._told_at < TOLD_S
        self._told_at = self._told_at if told else now
        _log.log(
            logging.DEBUG if told else logging.WARNING,
            "group %s: locks of %s cannot be asked for, again soon: %s",
            self._group,
            ", ".join(map(str, queues[:3])) + (", ..." if len(queues) > 3 else ""),
            error,
        )
        if isinstance(error, RouteError) or (isinstance(error, InvokeError) and error.reroute):
            for topic in {queue.topic for queue in queues}:
                await refresh_quietly(self._instance.routes, topic)

    async def _by_broker(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[dict[str, list[MessageQueue]], list[MessageQueue]]:
        """Return the queues by where their broker is asked, and those whose broker is in no route now."""
        found: dict[str, list[MessageQueue]] = defaultdict(list)
        homeless: list[MessageQueue] = []
        for queue in queues:
            try:
                found[await broker_address(self._instance.routes, queue)].append(queue)
            except RouteError as error:
                homeless.append(queue)
                await self._refresh(error, [queue])
        return found, homeless


def _passes(error: BaseException) -> bool:
    return isinstance(error, RemotingError | RouteError)


def _nth(pauses: Sequence[float], attempt: int) -> float:
    return pauses[min(attempt, len(pauses) - 1)]
