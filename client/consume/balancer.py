"""When queues are shared anew, and what this member's share is: asks for routes and members, decides by `rebalance`."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from client.consume.rebalance import Strategy, allocate
from client.consume.request_modes import ReadingModes
from client.consume.subscription import Subscription
from client.errors import ClientError, RouteError
from client.instance import ClientInstance
from client.message import MessageModel
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue
from remoting.errors import RemotingError

_log = logging.getLogger(__name__)

REBALANCE_S = 20.0
# How long a queue that is taken is left alone where there are other members: whoever had it learns of the change when
# this one does, lets callbacks end (HAND_OVER_S), and stores how far he has come. Who reads before that consumes again
# what came since an offset was stored last.
TAKE_S = 0.5
HAND_OVER_S = 0.3
# While something is missing (a route, our membership, a broker), rounds follow faster and then slow down.
UNBALANCED_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0)


@dataclass(slots=True)
class BalanceOptions:
    """How queues are shared."""

    model: MessageModel
    strategy: Strategy
    period_s: float = REBALANCE_S
    asks_mode: bool = False
    """Whether topics that the group is set to pop are left to members that do."""


class Balancer:
    """Shares the queues of one consumer's topics; `apply` is called with each topic's share, changed or not."""

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        subscriptions: Mapping[str, Subscription],
        options: BalanceOptions,
        apply: Callable[[Subscription, list[MessageQueue], float], None],
    ) -> None:
        """`apply` gets a topic, this member's queues of it, and how many seconds to wait before a new one is read."""
        self._group = group
        self._instance = instance
        self._subscriptions = subscriptions
        self._options = options
        self._apply = apply
        self._modes = ReadingModes(group, instance) if options.asks_mode else None
        self._wanted = asyncio.Event()
        self.first_round = asyncio.Event()

    def soon(self) -> None:
        """Begin the next round now."""
        self._wanted.set()

    async def run(self) -> None:
        """Balance again and again; ends by cancellation."""
        unbalanced = 0
        while True:
            self._wanted.clear()
            balanced = await self._round()
            self.first_round.set()
            unbalanced = 0 if balanced else unbalanced + 1
            pause = self._options.period_s if balanced else UNBALANCED_S[min(unbalanced, len(UNBALANCED_S)) - 1]
            try:
                async with asyncio.timeout(min(pause, self._options.period_s)):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _round(self) -> bool:
        """Balance every topic once; False when some of it must be tried again soon."""
        balanced = True
        for subscription in list(self._subscriptions.values()):
            try:
                balanced &= await self._balance(subscription)
            except (RemotingError, ClientError) as error:
                _log.info("group %s: topic %s is not shared yet: %s", self._group, subscription.topic, error)
                balanced = False
            except Exception:
                _log.exception("group %s: sharing the queues of %s failed", self._group, subscription.topic)
                balanced = False
        return balanced

    async def _balance(self, subscription: Subscription) -> bool:
        routes = self._instance.routes
        route = routes.cached(subscription.topic)
        if route is None or route.assumed:
            # Not known by the periodic poll: ask now, it may have come into being.
            route = await routes.refresh(subscription.topic)
        if route is None:
            raise RouteError(f"topic {subscription.topic} does not exist yet", retriable=True)
        if self._options.model is MessageModel.BROADCASTING:
            self._share(subscription, list(route.read_queues), 0.0)
            return True
        members = await self._members(route)
        mine = allocate(self._options.strategy, self._instance.client_id, route.read_queues, members)
        if mine is None:
            # The broker does not know us: it was restarted, or our heartbeat is still on its way.
            await self._instance.heartbeat()
            return False
        if self._modes is not None and not await self._modes.pulls(route):
            mine = []
        self._share(subscription, mine, TAKE_S if len(members) > 1 else 0.0)
        return True

    def _share(self, subscription: Subscription, mine: list[MessageQueue], wait_s: float) -> None:
        """Apply a share, unless the topic was unsubscribed or subscribed anew while it was asked for."""
        if self._subscriptions.get(subscription.topic) is subscription:
            self._apply(subscription, mine, wait_s)

    async def _members(self, route: TopicRoute) -> list[str]:
        """Ask the topic's brokers one after the other; raises the last error."""
        failure: RemotingError | None = None
        for broker in sorted(route.brokers):
            address = route.address(broker)
            if address is None:
                continue
            try:
                return await self._instance.api.consumer_ids(address, self._group)
            except RemotingError as error:
                failure = error
        raise failure or RouteError(f"topic {route.topic} has no broker now", retriable=True)
