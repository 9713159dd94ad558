"""Pulls with a SQL92 filter: what one reads, and which of those that are parked get something of what arrived.

A parked pull by tags is woken by the codes of what arrived; whether an expression takes a message only its properties
tell. So such a pull stays parked while its filter looks at what is new in its queue, each message once: who gets
something is run again, the others go on waiting. This is done beside everything else, a few milliseconds a turn of the
loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic

from broker.messages.longpoll import LongPollTable
from broker.messages.pull_checks import PullTicket, bytes_wanted
from store.messagestore import MessageStore
from store.types import GetResult, GetStatus

_log = logging.getLogger(__name__)

# How long a turn of the loop may be held up, in seconds; one look takes three milliseconds at most.
TURN_SECONDS = 0.002


def read_for(store: MessageStore, ticket: PullTicket) -> GetResult:
    """Read what a pull is to be answered with."""
    count, size = max(ticket.header.maxMsgNums, 1), bytes_wanted(ticket.header.maxMsgBytes)
    if ticket.sql is None:
        return store.get(ticket.topic, ticket.queue_id, ticket.offset, count, size, ticket.accepts)
    result = store.sift(ticket.topic, ticket.queue_id, ticket.seen, count, size, ticket.sql.matches)
    if result.status is GetStatus.OFFSET_OVERFLOW_ONE and ticket.seen > ticket.offset:
        # There was something, and none of it was wanted: the consumer moves past it.
        result.status = GetStatus.NO_MATCHED_MESSAGE
    return result


class ParkedSifting:
    """Looks at what arrived for parked pulls with a SQL92 filter."""

    def __init__(
        self,
        polls: LongPollTable[PullTicket],
        store: MessageStore,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[Iterable[PullTicket]], None],
    ) -> None:
        """`wake` runs pulls again that have been taken out of `polls`."""
        self._polls = polls
        self._store = store
        self._loop = loop
        self._wake = wake
        # Who is to look, in this order: parked pulls, each once, so no more than are parked.
        self._due: dict[PullTicket, None] = {}
        self._planned = False

    def arrived(self, tickets: Iterable[PullTicket]) -> None:
        """Have these look at their queues soon: the store is not read while it writes."""
        self._due.update(dict.fromkeys(tickets))
        self._plan()

    def busy(self, ticket: PullTicket) -> bool:
        """Tell whether a pull is still looking at what arrived."""
        return ticket in self._due

    def _plan(self) -> None:
        if self._due and not self._planned:
            self._planned = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._planned = False
        until = monotonic() + TURN_SECONDS
        while self._due:
            ticket = next(iter(self._due))
            del self._due[ticket]
            if self._polls.holds(ticket):
                self._look(ticket)
            if monotonic() >= until:
                break
        self._plan()

    def _look(self, ticket: PullTicket) -> None:
        """Move a pull past what its filter does not take, or wake it."""
        try:
            more = self._skips(ticket)
        except Exception:
            # Run again it fails by itself, and that is its answer.
            _log.exception("a parked pull of %s:%d cannot look at what arrived", ticket.topic, ticket.queue_id)
            more = None
        if more:
            self._due[ticket] = None
        elif more is None and self._polls.take(ticket):
            self._wake([ticket])

    def _skips(self, ticket: PullTicket) -> bool | None:
        """Look at some messages; None: the pull gets something (or must find out), else whether there are more."""
        assert ticket.sql is not None, "who wants by tags is woken by tags"
        result = self._store.sift(ticket.topic, ticket.queue_id, ticket.seen, 1, 1, ticket.sql.matches)
        if result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            return False
        if result.status is GetStatus.FOUND and not result.cold:
            # Run again it begins with this one.
            ticket.seen = result.next_offset - 1
            return None
        if result.status is not GetStatus.NO_MATCHED_MESSAGE or result.cold or result.next_offset <= ticket.seen:
            return None
        ticket.seen = result.next_offset
        return ticket.seen < result.max_offset
