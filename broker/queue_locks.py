"""Which consumer of an ordered group holds which queue, and until when: a pure table with an injected clock.

A lock lives 60 s from its last renewal, is re-entrant for the same client, and is given back at once when the client
unregisters or its connection closes, so that ordered consumption does not pause until the lock runs out. Only a client
that unregisters while callbacks still run may say so (`keepsLocks`): what it has not given back runs out then.

This is what a broker that grants decides by. That its grants outlive it is the business of
broker/metadata/agreed_locks.py. What must hold (rule R14): a queue goes to another client only when nobody can still
trust an older grant. Clients trust a lock for 30 s from when they asked for it. So a holder that is only known from an
earlier life, or from another leader, keeps its queue for 30 s from now; and who does not know what was granted before
grants nothing for 30 s. Times are never compared between two brokers: what is left of a lock counts anew.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

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

Holders = Mapping[str, Mapping[MessageQueue, str]]
"""Group → queue → client."""


class GivenBack(NamedTuple):
    """Queues that a client of a group holds no more."""

    group: str
    client_id: str
    queues: list[MessageQueue]


class LockTable:
    """Locks by group and queue: (holder, when it runs out)."""

    def __init__(self, clock: Clock, limit: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._limit = limit
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._size = 0
        self._led_term = 0
        self._quiet_until = clock.monotonic()

    def __len__(self) -> int:
        return self._size

    def lead(self, term: int) -> None:
        """Begin to grant locks as leader of a term, knowing nothing of what an earlier leader granted."""
        followed_itself = self._led_term > 0 and term <= self._led_term + 1
        self._led_term = term
        if followed_itself:
            # Each term has one leader: nobody can have granted a lock between two neighbouring terms of ours.
            return
        self._groups.clear()
        self._size = 0
        if term > FIRST_TERM:
            self.keep_quiet()

    def inherit(self, holders: Holders) -> None:
        """Begin to grant locks knowing who holds what: for as long as they may trust it, those are let be."""
        until = self._clock.monotonic() + TRUSTED_SECONDS
        self._groups = {
            group: {queue: (client_id, until) for queue, client_id in held.items()} for group, held in holders.items()
        }
        self._size = sum(map(len, self._groups.values()))

    def keep_quiet(self) -> None:
        """Grant nothing that is free for as long as somebody may trust a lock that this table does not know."""
        self._quiet_until = self._clock.monotonic() + TRUSTED_SECONDS

    def may_grant(self) -> bool:
        """Tell whether nobody can still trust a lock that is not known here (R14)."""
        return self._clock.monotonic() >= self._quiet_until

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Take or renew locks; returns those that the client now holds."""
        now = self._clock.monotonic()
        grants = self.may_grant()
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            known = held.get(queue)
            if known is None:
                if not grants or self._size >= self._limit:
                    continue
                self._size += 1
            elif known[0] != client_id and now < known[1]:
                continue
            held[queue] = (client_id, now + LOCK_SECONDS)
            granted.append(queue)
        if not held:
            del self._groups[group]
        return granted

    def put(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Take over locks that somebody else has granted, whoever had them."""
        until = self._clock.monotonic() + LOCK_SECONDS
        held = self._groups.setdefault(group, {})
        before = len(held)
        held.update((queue, (client_id, until)) for queue in queues)
        self._size += len(held) - before
        if not held:
            del self._groups[group]

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Give back what the client holds of these; what others hold stays. Returns what was given back."""
        held = self._groups.get(group, {})
        return self._drop(group, [queue for queue in queues if queue in held and held[queue][0] == client_id])

    def release(self, group: str, client_id: str) -> list[MessageQueue]:
        """Give back everything that a client holds in a group: it has left."""
        held = self._groups.get(group, {})
        return self._drop(group, [queue for queue, (holder, _) in held.items() if holder == client_id])

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that holds a queue, None when nobody does."""
        known = self._groups.get(group, {}).get(queue)
        return None if known is None or self._clock.monotonic() >= known[1] else known[0]

    def rows(self) -> Iterator[GivenBack]:
        """Return all locks, by group and client."""
        for group, held in self._groups.items():
            yield from _by_client(group, [(client_id, queue) for queue, (client_id, _) in held.items()])

    def sweep(self) -> list[GivenBack]:
        """Forget the locks that have run out, and return them."""
        now = self._clock.monotonic()
        over: list[GivenBack] = []
        for group, held in list(self._groups.items()):
            late = [(client_id, queue) for queue, (client_id, until) in held.items() if now >= until]
            over += _by_client(group, late)
            self._drop(group, [queue for _client_id, queue in late])
        return over

    def clear(self) -> None:
        """Forget everything."""
        self._groups.clear()
        self._size = 0

    def _drop(self, group: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        held = self._groups.get(group)
        dropped = list(dict.fromkeys(queues))
        if held is None:
            return dropped
        for queue in dropped:
            del held[queue]
            self._size -= 1
        if not held:
            del self._groups[group]
        return dropped


def _by_client(group: str, pairs: Iterable[tuple[str, MessageQueue]]) -> list[GivenBack]:
    found: dict[str, list[MessageQueue]] = {}
    for client_id, queue in pairs:
        found.setdefault(client_id, []).append(queue)
    return [GivenBack(group, client_id, queues) for client_id, queues in found.items()]
