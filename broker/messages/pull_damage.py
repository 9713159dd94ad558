"""Pulls that meet a record whose bytes are not what was written (R18): they wait for it to be mended, or are refused.

In a group a peer has the record, and it is fetched within some heartbeats: the pull waits for that, a little.
Otherwise, and when that takes longer, the consumer gets an error (code 1) that names the position: official clients
then ask for the same offset again, after one to three seconds, and never pass over the message.
"""

import asyncio
from collections.abc import Callable

from broker.messages.pull_checks import PullTicket
from remoting.codes import ResponseCode
from remoting.command import Command
from store.messagestore import MessageStore

# Seconds that a pull waits for a record to be mended, and after which it looks again.
MEND_SECONDS = 2.0
LOOK_SECONDS = 0.1
# Pulls that wait like this at once; more are refused.
WAITING_MAX = 1024


class DamagedPulls:
    """Keeps pulls back, or words their refusal."""

    def __init__(
        self, store: MessageStore, loop: asyncio.AbstractEventLoop, again: Callable[[list[PullTicket]], None]
    ) -> None:
        """`again` runs a pull once more."""
        self._store = store
        self._loop = loop
        self._again = again
        self._waiting = 0

    def take(self, ticket: PullTicket, position: int) -> Command | None:
        """Return the answer to a pull whose first record stands, damaged, at a position; None while it waits."""
        now = self._loop.time()
        mends = self._store.entries is not None
        if mends and ticket.mend_until is None:
            ticket.mend_until = now + MEND_SECONDS
        if ticket.mend_until is not None and now < ticket.mend_until and self._waiting < WAITING_MAX:
            self._waiting += 1
            self._loop.call_later(LOOK_SECONDS, self._look, ticket)
            return None
        what = "it is being fetched from another member" if mends else "see this broker's log for what can be done"
        return Command.response(
            ResponseCode.SYSTEM_ERROR,
            f"the message at {position} of the CommitLog, offset {ticket.offset} or later of {ticket.topic}:"
            f"{ticket.queue_id}, is damaged and not served: {what}",
        )

    def _look(self, ticket: PullTicket) -> None:
        self._waiting -= 1
        self._again([ticket])
