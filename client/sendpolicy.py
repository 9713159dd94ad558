"""Which queue the next message goes to. Pure but for the random start of each topic's round."""

import random
from collections.abc import Sequence

from client.latency import LatencyTable
from remoting.bodies import MessageQueue

# Topics whose place in the round is remembered; a forgotten topic starts its round anew.
TOPICS_MAX = 16_384


class QueuePicker:
    """Round robin over a topic's queues, per topic; avoids brokers that just failed or, if asked, are slow."""

    def __init__(self, latency: LatencyTable | None = None, start: random.Random | None = None) -> None:
        """`latency` turns latency fault tolerance on; `start` is the source of each topic's first queue."""
        self._latency = latency
        self._random = start or random.Random()
        self._turns: dict[str, int] = {}

    def pick(self, topic: str, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """Return the next queue whose broker is not `avoid` and not slow; any when there is no such queue."""
        assert queues, "a route without queues to write to is refused earlier"
        turn = self._turns.get(topic)
        if turn is None:
            if len(self._turns) >= TOPICS_MAX:
                self._turns.pop(next(iter(self._turns)))
            turn = self._random.randrange(len(queues))
        count = len(queues)
        if avoid is None and self._latency is None:
            self._turns[topic] = turn + 1
            return queues[turn % count]
        for step in range(count):
            queue = queues[(turn + step) % count]
            if queue.brokerName != avoid and (self._latency is None or self._latency.available(queue.brokerName)):
                self._turns[topic] = turn + step + 1
                return queue
        self._turns[topic] = turn + 1
        return self._other_broker(queues, turn, avoid)

    @staticmethod
    def _other_broker(queues: Sequence[MessageQueue], turn: int, avoid: str | None) -> MessageQueue:
        # Every broker is slow or the one that failed: a slow one is still better than the failed one.
        count = len(queues)
        around = (queues[(turn + step) % count] for step in range(count))
        return next((queue for queue in around if queue.brokerName != avoid), queues[turn % count])
