"""Makes the timer service of a broker, and the handlers that belong to it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from broker.context import BrokerContext
from broker.delay.feed import Base, TimerFeed
from broker.delay.figures import TimerFigures
from broker.delay.index import TimerIndex
from broker.delay.recall import RecallHandlers, TopicLookup
from broker.delay.timer_context import TimerContext
from broker.delay.timers import TimerService
from broker.messages.delay_queue import aside_in
from broker.messages.send_answers import Elsewhere
from broker.messages.timed_record import timer_limits
from broker.replication import Replication
from remoting.server import Handler
from store.timerwheel import read_check

_log = logging.getLogger(__name__)

INDEX_FOLDER = "timerindex"


class TimerParts:
    """Timer messages of one broker: the service, recall, and what is told of both."""

    def __init__(
        self,
        context: BrokerContext,
        replication: Replication,
        topics: TopicLookup,
        comes_to: Callable[[str, int, int], None],
        *,
        shared: bool,
        elsewhere: Elsewhere | None,
    ) -> None:
        """`comes_to` and `shared`: see TimerContext. Must be made inside the broker's loop."""
        loop, live = asyncio.get_running_loop(), context.live
        aside = aside_in(context.threads)
        root = live.store.root
        index = TimerIndex(root / INDEX_FOLDER)
        feed = TimerFeed(context.store, index, mends=shared, base=_base(root))
        made = TimerContext(
            context.store,
            replication,
            context.clock,
            loop.call_later,
            aside,
            lambda: timer_limits(live.store),
            comes_to,
            context.store_host,
            shared,
        )
        self.service = TimerService(made, index, feed)
        self.told = TimerFigures(self.service, context.clock, aside)
        self._recall = RecallHandlers(context, topics, replication, feed.verdict, elsewhere)

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {**self.told.table(), **self._recall.table()}


def _base(root: Any) -> Base | None:
    """Return what RocketMQ's timer delivered in a store folder of its; None: nothing is known."""
    try:
        check = read_check(root)
    except OSError as error:
        _log.warning("RocketMQ's timercheck cannot be read: %s", error)
        return None
    return None if check is None else Base(check.delivered_ms - 1, check.taken)
