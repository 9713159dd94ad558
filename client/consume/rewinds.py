"""Brokers' answers that send a consumer back below what it has stored: each one is said aloud, and counted.

The answer is obeyed: the broker alone knows what its queue has. But messages come again then, and whoever runs the
consumer must be able to see that, and why.
"""

import logging
from dataclasses import dataclass

from client.api import PullAnswer
from remoting.bodies.registry import MessageQueue

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Rewinds:
    """`count` times a consumer was sent below its stored offset, `messages` offsets in all."""

    count: int = 0
    messages: int = 0

    def moved(self, group: str, queue: MessageQueue, asked: int | None, stored: int | None, answer: PullAnswer) -> None:
        """Tell that a broker does not have the offset asked for (21), and count when its own lies below `stored`."""
        _log.warning(
            "group %s: %s has offsets %d to %d, not %s: going on at %d (%s)",
            group,
            queue,
            answer.min_offset,
            answer.max_offset,
            asked,
            answer.next_offset,
            answer.remark,
        )
        if stored is None or answer.next_offset >= stored:
            return
        self.count += 1
        self.messages += stored - answer.next_offset
        _log.warning(
            "group %s: %s goes back from %d, below its stored offset %d, to %d (%s): messages come again",
            group,
            queue,
            asked,
            stored,
            answer.next_offset,
            answer.remark,
        )
