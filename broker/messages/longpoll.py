"""Who waits for the next message of which queue: a pure table, driven by arrivals and by the clock.

A pull that finds nothing is parked here under (topic, queue) with a deadline. It leaves the table exactly once: because
a message arrived that its filter takes, because its deadline passed, because its connection closed, or because the
broker stops. Whoever takes it out runs the pull again, with the filter that holds then, and that second run never
parks.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar


class Ticket(Protocol):
    """What the table must know of a parked request."""

    @property
    def topic(self) -> str:
        """The topic waited for."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue waited for."""
        ...

    @property
    def offset(self) -> int:
        """The queue offset asked for: the queue has something when its end lies above."""
        ...

    @property
    def accepts(self) -> frozenset[int] | None:
        """Tag codes that are wanted; None: all."""
        ...

    @property
    def sql(self) -> object | None:
        """What must see a message itself to tell whether it is wanted; None: `accepts` tells."""
        ...

    @property
    def owner(self) -> object:
        """The connection that asked."""
        ...


T = TypeVar("T", bound=Ticket)


class LongPollTable(Generic[T]):
    """Parked requests by queue, by owner and by deadline. At most `limit` at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_queue: dict[tuple[str, int], dict[T, None]] = {}
        self._by_owner: dict[object, dict[T, None]] = {}
        # (deadline, number, ticket): tickets that have left are skipped when they come up, and swept out when they
        # are more than half of the heap, so the heap stays within twice the number of parked requests.
        self._deadlines: list[tuple[float, int, T]] = []
        self._number = 0
        self.size = 0
        """How many are parked; for reading."""
        self._with_sql = 0

    def park(self, ticket: T, deadline: float) -> bool:
        """Keep a request until `deadline` (monotonic seconds); False when the table is full."""
        if self.size >= self._limit:
            return False
        self._by_queue.setdefault((ticket.topic, ticket.queue_id), {})[ticket] = None
        self._by_owner.setdefault(ticket.owner, {})[ticket] = None
        self._number += 1
        heapq.heappush(self._deadlines, (deadline, self._number, ticket))
        self.size += 1
        self._with_sql += ticket.sql is not None
        return True

    def waits_for(self, key: tuple[str, int]) -> bool:
        """Tell whether anybody waits for a queue; `key` is (topic, queue id)."""
        return key in self._by_queue

    def arrived(self, key: tuple[str, int], end: int, tags_codes: Iterable[int]) -> list[T]:
        """Take out who is waiting for one of these messages, by their tags; `end` is the queue's end behind them."""
        waiting = self._by_queue.get(key)
        if waiting is None:
            return []
        codes = set(tags_codes)
        woken = [
            ticket
            for ticket in waiting
            if ticket.offset < end
            and ticket.sql is None
            and (ticket.accepts is None or not codes.isdisjoint(ticket.accepts))
        ]
        for ticket in woken:
            self._remove(ticket)
        return woken

    def sql_waits(self, key: tuple[str, int], end: int) -> list[T]:
        """Return who may be waiting for one of these messages but must see them first; they stay."""
        if not self._with_sql:
            return []
        return [ticket for ticket in self._by_queue.get(key, ()) if ticket.sql is not None and ticket.offset < end]

    def take(self, ticket: T) -> bool:
        """Take out one request; False when it has left."""
        if not self.holds(ticket):
            return False
        self._remove(ticket)
        return True

    def expired(self, now: float) -> list[T]:
        """Take out whose deadline has passed, in the order of the deadlines."""
        due: list[T] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            ticket = heapq.heappop(self._deadlines)[2]
            if self.holds(ticket):
                self._remove(ticket)
                due.append(ticket)
        return due

    def next_deadline(self) -> float | None:
        """Return the earliest deadline (monotonic seconds), None when nobody waits."""
        while self._deadlines and not self.holds(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def overtaken(
        self,
        end_of: Callable[[str, int], int],
        wanted: Callable[[T], bool],
        busy: Callable[[T], bool] = lambda _: False,
    ) -> list[T]:
        """Take out whose queue has grown beyond the offset asked for, whatever the tags, and who else is `wanted`.

        The safety net below `arrived`: it also moves consumers past long runs of messages that their filter skips.
        Whose filter is still looking at them is `busy`, and stays.
        """
        found: list[T] = []
        for (topic, queue_id), waiting in self._by_queue.items():
            end = end_of(topic, queue_id)
            found.extend(ticket for ticket in waiting if wanted(ticket) or (ticket.offset < end and not busy(ticket)))
        for ticket in found:
            self._remove(ticket)
        return found

    def drop(self, owner: object) -> int:
        """Forget everything that a closed connection waited for; returns how many requests that were."""
        tickets = list(self._by_owner.get(owner, ()))
        for ticket in tickets:
            self._remove(ticket)
        return len(tickets)

    def clear(self) -> list[T]:
        """Take out everything."""
        tickets = [ticket for waiting in self._by_queue.values() for ticket in waiting]
        self._by_queue.clear()
        self._by_owner.clear()
        self._deadlines.clear()
        self.size = self._with_sql = 0
        return tickets

    def holds(self, ticket: T) -> bool:
        """Tell whether a request still waits."""
        return ticket in self._by_queue.get((ticket.topic, ticket.queue_id), ())

    def _remove(self, ticket: T) -> None:
        key = (ticket.topic, ticket.queue_id)
        waiting = self._by_queue[key]
        del waiting[ticket]
        if not waiting:
            del self._by_queue[key]
        owned = self._by_owner[ticket.owner]
        del owned[ticket]
        if not owned:
            del self._by_owner[ticket.owner]
        self.size -= 1
        self._with_sql -= ticket.sql is not None
        if len(self._deadlines) > 64 and len(self._deadlines) > 2 * self.size:
            self._deadlines = [entry for entry in self._deadlines if self.holds(entry[2])]
            heapq.heapify(self._deadlines)
