"""Where a queue ended when the log did at a position: found by halving, in what the queue has."""

from collections.abc import Sequence
from typing import Protocol

from store.types import QueueEntry


class Queues(Protocol):
    """What is needed of the store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset kept."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message."""
        ...

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> Sequence[QueueEntry]:
        """Return entries of a queue from an offset on."""
        ...


def end_before(store: Queues, topic: str, queue_id: int, position: int) -> int:
    """Return the offset behind the last message of a queue that stands before a position of the log."""
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while low < high:
        middle = (low + high) // 2
        entries = store.queue_entries(topic, queue_id, middle, 1)
        if entries and entries[0].physical_offset >= position:
            high = middle
        else:
            low = middle + 1
    return low
