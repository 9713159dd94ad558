"""Which consumer of an ordered group holds which queue: a pure table with an injected clock.

A lock lives 60 s from its last renewal, is re-entrant for the same client, and is given back at once when the client
unregisters or its connection closes, so that ordered consumption does not pause until the lock runs out.

Locks are not replicated. A new leader of a group does not know who holds what from the leader before, and clients trust
a lock for 30 s without asking: for so long it grants nothing (rule R14). Who asks meanwhile is told so by an error and
not by an empty grant, which clients would take for a lock lost to somebody else: with an error they go on consuming for
as long as they trust what they have. There is no such pause when nobody else can have granted a lock: in a group's
first term, and when the leader follows itself.
"""

from collections.abc import Iterable

from remoting.bodies.registry import MessageQueue
from runtime.clock import Clock

# Seconds that a lock lives without renewal (RocketMQ's own; its clients renew every 20 s and trust a lock for 30 s).
LOCK_SECONDS = 60.0
# Seconds for which clients trust a lock without renewing it, counted from when they asked.
TRUSTED_SECONDS = 30.0
# The first term in which anybody can lead: the group's first entry has term 1, and who wrote it stands for the next.
FIRST_TERM = 2
# Locks at a time; beyond it a lock is not granted, which clients take as "somebody else has it" and try again.
LOCKS_MAX = 200_000


class LockTable:
    """Locks by group and queue."""

    def __init__(self, clock: Clock, limit: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._limit = limit
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._size = 0
        self._led_term = 0
        self._quiet_until = 0.0

    def __len__(self) -> int:
        return self._size

    def lead(self, term: int) -> None:
        """Begin to grant locks as leader of a term."""
        followed_itself = self._led_term > 0 and term <= self._led_term + 1
        self._led_term = term
        if followed_itself:
            # Each term has one leader: nobody can have granted a lock between two neighbouring terms of ours.
            return
        self._groups.clear()
        self._size = 0
        if term > FIRST_TERM:
            self._quiet_until = self._clock.monotonic() + TRUSTED_SECONDS

    def may_grant(self) -> bool:
        """Tell whether nobody can still trust a lock that an earlier leader granted (R14)."""
        return self._clock.monotonic() >= self._quiet_until

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Take or renew locks; returns those that the client now holds."""
        now = self._clock.monotonic()
        grants = self.may_grant()
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            holder = held.get(queue)
            if holder is None:
                if not grants or self._size >= self._limit:
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
