"""Which queue the next message goes to. Pure but for the random start of each topic's round."""

import random
import time
from collections.abc import Callable, Sequence

from client.produce.latency import LatencyTable
from client.retry import gone
from remoting.bodies.registry import MessageQueue
from remoting.errors import ResponseError

# Topics whose place in the round is remembered; a forgotten topic starts its round anew.
TOPICS_MAX = 16_384
# How long a broker whose process ended, or that has no master, is left alone while others take messages: the next sends
# need not find out as well.
UNREACHABLE_S = 1.0
BROKERS_MAX = 4096


class QueuePicker:
    """Round robin over a topic's queues, per topic; leaves alone who just failed, has nobody or, if asked, is slow."""

    def __init__(
        self,
        latency: LatencyTable | None = None,
        start: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`latency` turns latency fault tolerance on; `start` is the source of each topic's first queue."""
        self._latency = latency
        self._random = start or random.Random()
        self._clock = clock
        self._turns: dict[str, int] = {}
        # Broker → until when it is left alone.
        self._unreachable: dict[str, float] = {}

    def failed(self, broker: str, error: BaseException) -> None:
        """Note how an attempt at `broker` ended; one that has nobody is left alone for a while."""
        if gone(error):
            if len(self._unreachable) >= BROKERS_MAX:
                self._unreachable.clear()
            self._unreachable[broker] = self._clock() + UNREACHABLE_S
        if self._latency is not None and not isinstance(error, ResponseError):
            self._latency.failed(broker)

    def pick(self, topic: str, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """Return the next queue whose broker is not `avoid` and not left alone; any when there is no such queue."""
        assert queues, "a route without queues to write to is refused earlier"
        turn = self._turns.get(topic)
        if turn is None:
            if len(self._turns) >= TOPICS_MAX:
                self._turns.pop(next(iter(self._turns)))
            turn = self._random.randrange(len(queues))
        count = len(queues)
        if avoid is None and self._latency is None and not self._unreachable:
            self._turns[topic] = turn + 1
            return queues[turn % count]
        for step in range(count):
            queue = queues[(turn + step) % count]
            if queue.brokerName != avoid and self._available(queue.brokerName):
                self._turns[topic] = turn + step + 1
                return queue
        self._turns[topic] = turn + 1
        latency = self._latency
        if latency is not None:
            # Slow ones are better than those that are not there.
            queues = [queue for queue in queues if latency.reachable(queue.brokerName)] or queues
        return self._other_broker(queues, turn, avoid)

    def _available(self, broker: str) -> bool:
        until = self._unreachable.get(broker)
        if until is not None:
            if self._clock() < until:
                return False
            del self._unreachable[broker]
        return self._latency is None or self._latency.available(broker)

    @staticmethod
    def _other_broker(queues: Sequence[MessageQueue], turn: int, avoid: str | None) -> MessageQueue:
        # All are left alone, or the one that failed: any other is still better than the failed one.
        count = len(queues)
        around = (queues[(turn + step) % count] for step in range(count))
        return next((queue for queue in around if queue.brokerName != avoid), queues[turn % count])
