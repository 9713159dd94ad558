"""What was fetched from one queue and is not finished yet. Pure: no loop, no clock of its own.

Messages finish in any order; the offset that may be stored is that of the lowest one unfinished, so that a crash
repeats messages but never skips one.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from remoting.message import MessageExt


class ProcessQueue:
    """The unfinished messages of one queue, in the order of their offsets."""

    def __init__(self) -> None:
        self._messages: dict[int, MessageExt] = {}
        # Offsets in order of arrival, which is their numeric order; finished ones leave when they reach the front.
        self._order: deque[int] = deque()
        self._highest = -1
        self.size_bytes = 0
        self.dropped = False
        # Nothing more of it is to be consumed here; what has begun may end, and counts.
        self.retired = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def span(self) -> int:
        """Return the distance from the lowest to the highest unfinished offset."""
        return self._order[-1] - self._order[0] if self._messages else 0

    @property
    def lowest(self) -> int | None:
        """Return the lowest unfinished offset."""
        return self._order[0] if self._messages else None

    @property
    def highest(self) -> int:
        """Return the highest offset that was ever put, -1 when there was none."""
        return self._highest

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Take messages that were fetched; returns those that are new (a repeated offset is taken once)."""
        fresh: list[MessageExt] = []
        for message in messages:
            if message.queue_offset <= self._highest:
                continue
            self._highest = message.queue_offset
            self._messages[message.queue_offset] = message
            self._order.append(message.queue_offset)
            self.size_bytes += message.size
            fresh.append(message)
        return fresh

    def finish(self, messages: Sequence[MessageExt]) -> int | None:
        """Mark messages as done; returns the offset to store: everything below it is done. None: nothing to store."""
        for message in messages:
            if self._messages.pop(message.queue_offset, None) is not None:
                self.size_bytes -= message.size
        while self._order and self._order[0] not in self._messages:
            self._order.popleft()
        assert bool(self._order) == bool(self._messages)
        return self.committable

    @property
    def committable(self) -> int | None:
        """Return the offset below which everything that was put is done; None when nothing was put."""
        if self._messages:
            return self._order[0]
        return self._highest + 1 if self._highest >= 0 else None

    def head(self, count: int) -> list[MessageExt]:
        """Return up to `count` of the lowest unfinished messages (for consumption in queue order)."""
        found: list[MessageExt] = []
        for offset in self._order:
            if len(found) >= count:
                break
            message = self._messages.get(offset)
            if message is not None:
                found.append(message)
        return found
