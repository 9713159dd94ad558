"""Which consumer of an ordered group holds which queue: a pure table with an injected clock.

A lock lives 60 s from its last renewal, is re-entrant for the same client, and is given back at once when the client
unregisters or its connection closes, so that ordered consumption does not pause until the lock runs out.
"""

from collections.abc import Iterable

from remoting.bodies import MessageQueue
from runtime.clock import Clock

# Seconds that a lock lives without renewal (RocketMQ's own; its clients renew every 20 s and trust a lock for 30 s).
LOCK_SECONDS = 60.0
# Locks at a time; beyond it a lock is not granted, which clients take as "somebody else has it" and try again.
LOCKS_MAX = 200_000


class LockTable:
    """Locks by group and queue."""

    def __init__(self, clock: Clock, limit: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._limit = limit
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Take or renew locks; returns those that the client now holds."""
        now = self._clock.monotonic()
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            holder = held.get(queue)
            if holder is None:
                if self._size >= self._limit:
                    continue
                self._size += 1
            elif holder[0] != client_id and now - holder[1] <= LOCK_SECONDS:
                continue
            held[queue] = (client_id, now)
            granted.append(queue)
        if not held:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what the client holds of these; what others hold stays."""
        held = self._groups.get(group, {})
        self._drop(group, [queue for queue in queues if queue in held and held[queue][0] == client_id])

    def release(self, group: str, client_id: str) -> None:
        """Give back everything that a client holds in a group: it has left."""
        held = self._groups.get(group, {})
        self._drop(group, [queue for queue, (holder, _) in held.items() if holder == client_id])

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that holds a queue, None when nobody does."""
        entry = self._groups.get(group, {}).get(queue)
        if entry is None or self._clock.monotonic() - entry[1] > LOCK_SECONDS:
            return None
        return entry[0]

    def sweep(self) -> None:
        """Forget the locks that have run out."""
        now = self._clock.monotonic()
        for group, held in list(self._groups.items()):
            self._drop(group, [queue for queue, (_, renewed) in held.items() if now - renewed > LOCK_SECONDS])

    def _drop(self, group: str, queues: Iterable[MessageQueue]) -> None:
        held = self._groups.get(group)
        if held is None:
            return
        for queue in dict.fromkeys(queues):
            del held[queue]
            self._size -= 1
        if not held:
            del self._groups[group]
