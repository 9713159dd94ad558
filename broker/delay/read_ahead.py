"""Brings waiting messages into the page cache before the loop reads them, where many are to be read: after a start."""

from collections.abc import Callable

from broker.delay.batch import stretches
from broker.delay.feed import TimerStore
from broker.messages.delay_queue import Aside
from remoting.topics import TIMER_TOPIC
from store.types import QueueEntry

# Messages that are read at once. As many as come in a moment of a busy broker are in memory anyway.
AHEAD = 1024


class ReadAhead:
    """Reads in another thread, and says when."""

    def __init__(self, store: TimerStore, aside: Aside, on_done: Callable[[], None]) -> None:
        """`on_done` is called in the loop when something was read."""
        self._store = store
        self._aside = aside
        self._on_done = on_done
        self._upto = 0
        self._reading = False

    def ready(self, taken: int, behind: int) -> bool:
        """Tell whether the next messages can be read now; if not, they are being brought."""
        if behind <= AHEAD or taken < self._upto:
            return not self._reading
        if self._reading:
            return False
        entries = self._store.queue_entries(TIMER_TOPIC, 0, taken, AHEAD)
        if not entries:
            return True
        self._reading = True
        self._upto = taken + len(entries)
        self._aside(lambda: self._read(entries), self._done)
        return False

    def _read(self, entries: list[QueueEntry]) -> None:
        for position, size in stretches(entries):
            self._store.read_piece_cold(position, size)

    def _done(self, _found: object) -> None:
        # Whatever could not be read, the loop meets itself.
        self._reading = False
        self._on_done()
